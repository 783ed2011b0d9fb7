"""Steps between the setup of a run and its instruments, such as bringing a cache into the state that a case asks for.

They change what the run finds, and may change its spec. What they did is in `ReadyTarget.facts`, for the record.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from iosonde.core.features import contributed
from iosonde.execution.engine import EngineRun
from iosonde.execution.setups import ReadyTarget, Setups
from iosonde.execution.stop import Stop
from iosonde.plan import Case, JsonObject, Plan, Run
from iosonde.storage import Target
from iosonde.storage.safety.consent import Consent


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """Tools of a preparation."""

    setups: Setups
    drive: Callable[[ReadyTarget, JsonObject], EngineRun]
    """Carries out a spec on a target; it leaves no record."""
    consent: Consent
    stop: Stop
    note: Callable[[str], None]
    """Shows a message to the user."""


Preparation = Callable[[Run, Case, ReadyTarget, Workbench], tuple[Run, ReadyTarget]]
"""Returns the run and its target once prepared; `TargetError` if that fails. Listed in `PREPARATIONS` of a feature's
`preparations.py`."""


class DataState(Protocol):
    """State of data between the runs of a session, which starts without any: of a class in `STATES` there."""

    def prepare(self, run: Run, case: Case) -> tuple[JsonObject, str]:
        """The spec of a run, which restores its data if needed; and the run whose state it carries over, if any."""

    def ended(self, run: Run) -> None:
        """Note what the run did to its data."""


Enclosure = Callable[[JsonObject, ReadyTarget, Consent], AbstractContextManager[tuple[JsonObject, ReadyTarget]]]
"""Encloses the engine's process, with the spec and target that the engine gets. Listed in `ENCLOSURES` there."""

RequiredConsent = Callable[[Plan, Target, Consent], None]
"""`TargetError` if a plan requires more consent before it starts. Listed in `REQUIRED` of a feature's `consent.py`."""


def states() -> list[DataState]:
    """The states of the data of a new session."""
    kinds: tuple[Callable[[], DataState], ...] = contributed("preparations", "STATES")
    return [kind() for kind in kinds]


def require_consent(plan: Plan, target: Target, consent: Consent) -> None:
    """`TargetError` if a feature requires more consent for a plan on a target."""
    kinds: tuple[RequiredConsent, ...] = contributed("consent", "REQUIRED")
    for require in kinds:
        require(plan, target, consent)
