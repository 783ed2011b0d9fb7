"""Suites: several studies on one target, or on two, that end in one report.

A suite is a TOML file that lists studies with settings and what to quote from each (`planning.py`). Its directory has
one result set per study, created with its plan before the first run (`session.py`), so a suite resumes at any point.
`summary.py` reads the values of both targets from the result sets; `page.py` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosonde.core.lazy import lazy

if TYPE_CHECKING:
    from iosonde.suite.planning import Planned, Suite, load, plan_suite, shared_by_targets
    from iosonde.suite.session import SuiteDirectory, create, open_directory, remaining, run_next
    from iosonde.suite.summary import Summary, summarize

__all__ = [
    "Planned",
    "Suite",
    "SuiteDirectory",
    "Summary",
    "create",
    "load",
    "open_directory",
    "plan_suite",
    "remaining",
    "run_next",
    "shared_by_targets",
    "summarize",
]

_MODULES = {
    "planning": ("Planned", "Suite", "load", "plan_suite", "shared_by_targets"),
    "session": ("SuiteDirectory", "create", "open_directory", "remaining", "run_next"),
    "summary": ("Summary", "summarize"),
}

__getattr__ = lazy(__name__, {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names})
