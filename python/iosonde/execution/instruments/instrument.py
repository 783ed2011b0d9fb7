"""The interface of instruments, which surround each run and add facts and warnings to its record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from iosonde.engine.protocol import Event
from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.results.schema import Failure, RecordPart, RecordWarning


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


class NotStartedError(TargetError):
    """An instrument prevents the run; the run is recorded as failed and the study continues."""

    def __init__(self, code: str, error: TargetError) -> None:
        super().__init__(error.what, where=error.where, hint=error.hint)
        self.code = code


class Instrument:
    """Surrounds one run. Every step does nothing unless the instrument defines it."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        """Return False for a run that has nothing to be done or read; the instrument is not created then."""
        return True

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


def start(instruments: Iterable[Instrument], closing: ExitStack) -> None:
    """Start them in order. Each is closed with the stack, also one that does not start."""
    for each in instruments:
        closing.callback(each.close)
        each.start()


def stop(instruments: Sequence[Instrument], done: EngineRun) -> Reading:
    """Stop them in reverse order and combine their readings."""
    readings = [each.stop(done) for each in reversed(instruments)]
    facts: dict[str, Any] = {}
    for each in readings:
        facts |= each.facts
    tables = [each.store_statistics for each in readings if each.store_statistics is not None]
    return Reading(
        facts=facts,
        parts=[part for each in readings for part in each.parts],
        warnings=[warning for each in readings for warning in each.warnings],
        failure=next((each.failure for each in readings if each.failure), None),
        store_statistics=pl.concat(tables) if tables else None,
    )
