"""The interface of instruments, and the context of the run that they surround."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.errors import TargetError
from iosonde.execution.engine import EngineRun
from iosonde.execution.harness import Harness
from iosonde.execution.servers import RunningServer
from iosonde.execution.setups import ReadyTarget
from iosonde.plan import Case, Plan, Run
from iosonde.protocol.event import Event
from iosonde.results.schema import Failure, RecordPart, RecordWarning
from iosonde.storage.targets.kind import TargetState

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The run that instruments surround."""

    run: Run
    """With the spec that the engine gets."""
    case: Case
    plan: Plan
    state: TargetState
    ready: ReadyTarget
    target: dict[str, Any]
    """Description of the target before the run."""
    harness: Harness
    carried_over: str = ""
    """The run whose writes left the database in its state; empty if it was loaded for this run."""
    server: RunningServer | None = None
    """The database server that is measured, if any."""
    note: Callable[[str], None]
    """Shows a message to the user."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The case's parameters with those that a procedure decided."""
        return self.case.parameters | self.run.parameters


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Fields of the record and warnings of an instrument."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `results.schema.Record`."""
    parts: Sequence[RecordPart] = ()
    """Parts of the record that belong to a feature."""
    warnings: Iterable[RecordWarning] = ()
    store_statistics: pl.DataFrame | None = None
    """Statistics of a server or block cache over time, which the engine does not report."""
    failure: Failure | None = None
    """The cause of a failed run, where the instrument reports more than the engine's exit status."""


def _together(tables: Iterable[pl.DataFrame | None]) -> pl.DataFrame | None:
    found = [each for each in tables if each is not None]
    return pl.concat(found) if found else None


class NotStartedError(TargetError):
    """An instrument prevents the run; the run is recorded as failed and the study continues."""

    def __init__(self, code: str, error: TargetError) -> None:
        super().__init__(error.what, where=error.where, hint=error.hint)
        self.code = code


class Instrument:
    """Surrounds one run. Every step does nothing unless the instrument defines it."""

    def __init__(self, context: RunContext) -> None:
        self.context = context

    def start(self) -> None:
        """Before the engine is started; `NotStartedError` prevents the run, any other error ends the session."""

    def engine_started(self, pid: int) -> None:
        """The engine's process exists and has not read its spec yet."""

    def event(self, event: Event) -> None:
        """The engine wrote an event."""

    def stop(self, done: EngineRun) -> Reading:
        """The engine has exited."""
        return Reading()

    def close(self) -> None:
        """Release what `start` created; called once, also after errors."""


class RunInstruments:
    """All instruments of one run."""

    def __init__(self, kinds: Iterable[type[Instrument]], context: RunContext) -> None:
        self._instruments = [kind(context) for kind in kinds]
        self._open = ExitStack()

    def __enter__(self) -> RunInstruments:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self) -> None:
        """Start them in order."""
        for each in self._instruments:
            self._open.callback(each.close)
            each.start()

    def engine_started(self, pid: int) -> None:
        """Pass on that the engine's process exists."""
        for each in self._instruments:
            each.engine_started(pid)

    def event(self, event: Event) -> None:
        """Pass on an event of the engine."""
        for each in self._instruments:
            each.event(event)

    def stop(self, done: EngineRun) -> Reading:
        """Stop them in reverse order and combine their readings."""
        readings = [each.stop(done) for each in reversed(self._instruments)]
        facts: dict[str, Any] = {}
        for each in readings:
            facts |= each.facts
        return Reading(
            facts=facts,
            parts=[part for each in readings for part in each.parts],
            warnings=[warning for each in readings for warning in each.warnings],
            failure=next((each.failure for each in readings if each.failure), None),
            store_statistics=_together([each.store_statistics for each in readings]),
        )
