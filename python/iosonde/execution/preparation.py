"""Steps between the setup of a run and its instruments, such as bringing a cache into the state that a case asks for.

They change what the run finds, and may change its spec. What they did is in `ReadyTarget.facts`, for the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iosonde.execution.engine import EngineRun
from iosonde.execution.setups import ReadyTarget, Setups
from iosonde.execution.stop import Stop
from iosonde.plan import Case, JsonObject, Run


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """Tools of a preparation."""

    setups: Setups
    drive: Callable[[ReadyTarget, JsonObject], EngineRun]
    """Carries out a spec on a target; it leaves no record."""
    stop: Stop
    note: Callable[[str], None]
    """Shows a message to the user."""


Preparation = Callable[[Run, Case, ReadyTarget, Workbench], tuple[Run, ReadyTarget]]
"""Returns the run and its target once prepared; `TargetError` if that fails. Listed in `PREPARATIONS` of a feature's
`preparations.py`."""
