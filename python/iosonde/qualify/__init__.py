"""Qualification of storage for an application: its load runs, and its requirements are decided.

An application is a study in `data/applications`, with requirements from its documentation or none. Plan, session and
report are those of any study. No run ends early: a good value of the first seconds does not exclude a slow phase, and a
bad one may be a disturbance. A watch applies the load for hours: every run is a window of it, and must meet the
requirements (`findings.windows`).
"""

from __future__ import annotations

from iosonde.qualify.applications import describe, load_application
from iosonde.qualify.plan import loads_of, plan_of, watch_plan
from iosonde.qualify.qualification import Qualification, exit_code, qualification_of

__all__ = [
    "Qualification",
    "describe",
    "exit_code",
    "load_application",
    "loads_of",
    "plan_of",
    "qualification_of",
    "watch_plan",
]
