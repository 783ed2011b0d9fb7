"""Qualification of storage for an application: its load runs until its requirements are decided.

An application is a study in `data/applications`, with requirements from its documentation or none. Plan, session and
report are those of any study; a run ends early when its requirements are decided (`procedure.watch`). A watch applies
the load for hours: every run is a window of it, and must meet the requirements (`findings.windows`).
"""

from __future__ import annotations

from iosonde.qualify.applications import describe, load_application
from iosonde.qualify.plan import USUAL_LIMIT_NS, plan_of, watch_plan
from iosonde.qualify.qualification import Qualification, exit_code, qualification_of
from iosonde.qualify.shared_time import SharedTime

__all__ = [
    "USUAL_LIMIT_NS",
    "Qualification",
    "SharedTime",
    "describe",
    "exit_code",
    "load_application",
    "plan_of",
    "qualification_of",
    "watch_plan",
]
