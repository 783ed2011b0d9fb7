"""Studies of applications."""

from __future__ import annotations

import difflib
from pathlib import Path

from iosonde.data import applications
from iosonde.errors import StudyError
from iosonde.planning import load
from iosonde.study.model import Study


def load_application(name: str) -> Study:
    """Read the study of an application, or one with requirements in a file that is named by its path."""
    if "/" in name or name.endswith(".toml"):
        return load(Path(name))
    known = applications()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise StudyError(
            f"there is no application `{name}`",
            hint=f"{f'did you mean `{near[0]}`? ' if near else ''}`iosonde qualify` lists the applications",
        )
    return load(known[name])


def describe(study: Study) -> str:
    """State how many limits an application has."""
    required = sum(each.level == "required" for each in study.requirement)
    recommended = len(study.requirement) - required
    counts = [f"{number} {level}" for number, level in ((required, "required"), (recommended, "recommended")) if number]
    return ", ".join(counts) or "none: characterizes"
