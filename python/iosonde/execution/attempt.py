"""One attempt at a run: prepare the target, start the instruments, run the engine, compose the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import polars as pl

from iosonde.core.features import contributed
from iosonde.errors import IosondeError, ServerError, TargetError, UnsupportedError
from iosonde.execution import record, servers
from iosonde.execution.admission import describe, describe_log
from iosonde.execution.context import Enclosure, Preparation, RunContext, TargetSession
from iosonde.execution.engine import EngineRun, drive, without_engine
from iosonde.execution.instruments import instrument
from iosonde.execution.instruments.conditions import (
    BlockQueue,
    CarriedOverState,
    CommandGroup,
    HarnessCost,
    MemoryLimit,
    PreparedFiles,
    Purge,
    SharedLogDevice,
)
from iosonde.execution.instruments.counters import DeviceTotals, DriveCounters, Temperatures
from iosonde.execution.instruments.database_server import DatabaseServer
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.execution.instruments.own_io import OwnIo
from iosonde.plan import Case, Run
from iosonde.procedure.watch import Watch
from iosonde.protocol import Event
from iosonde.results.schema import UNSUPPORTED, Failure, Record, RecordWarning


def instrument_kinds() -> tuple[type[Instrument], ...]:
    """In the order in which they start; they stop in reverse order after the engine has exited.

    Those that read counters are last, so that their readings enclose the engine and little else. `CommandGroup` is the
    first to stop: the groups of the others must be empty when they are removed.
    """
    return (
        PreparedFiles,
        HarnessCost,
        BlockQueue,
        CarriedOverState,
        SharedLogDevice,
        Temperatures,
        Purge,
        OwnIo,
        DeviceTotals,
        DriveCounters,
        *contributed("run", "INSTRUMENTS"),
        MemoryLimit,
        DatabaseServer,
        CommandGroup,
    )


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that has ended."""

    record: Record
    done: EngineRun
    """With the tables of the run."""
    ends_session: IosondeError | None = None
    """Reason for which the session cannot continue after the run, such as swap that could not be disabled."""


def carry_out(
    session: TargetSession, run: Run, case: Case, number: int, on_event: Callable[[Event], None]
) -> Attempt | None:
    """Attempt `number` at a run; None if it was stopped and leaves no record."""
    target = session.base
    session.admission.check(run.run_id, case, run.spec)
    target.recheck()
    context = RunContext(session=session, run=run, case=case, number=number, target=target)
    attempt = _prepared_and_measured(context, on_event)
    if attempt is None or attempt.ends_session:
        return attempt
    try:
        target.recheck()
    except TargetError as error:
        # A run on a device that came into use during it leaves no record, unless it failed: that is the reason.
        failure = attempt.record.failure
        if failure is None:
            raise
        message = f"{error.what} ({failure.message})"
        because = failure.model_copy(update={"message": message, "hint": error.hint})
        record = attempt.record.model_copy(update={"failure": because})
        return replace(attempt, record=record, ends_session=error)
    return attempt


def _prepared_and_measured(context: RunContext, on_event: Callable[[Event], None]) -> Attempt | None:
    session, case = context.session, context.case
    try:
        context = session.prepare(context)
    except TargetError as error:
        code = "vanished" if isinstance(error.__cause__, FileNotFoundError) else "setup" if case.setup else "target"
        return _not_started(context, error, code)
    try:
        preparations: tuple[Preparation, ...] = contributed("run", "PREPARATIONS")
        for prepare in preparations:
            context = prepare(context)
    except TargetError as error:
        return _not_started(context, error, UNSUPPORTED if isinstance(error, UnsupportedError) else "setup")
    for state in session.data:
        spec, writer = state.prepare(context.run, case)
        context = replace(context.with_spec(spec), carried_over=context.carried_over or writer)
    try:
        server = servers.prepare(context)
    except TargetError as error:
        return _not_started(context, error, error.code if isinstance(error, ServerError) else "target")
    with ExitStack() as closing:
        if server:
            closing.callback(server.close)
            context = replace(context.with_spec(server.spec), server=server)
        facts = describe(context.target) | describe_log(context.run)
        return _measured(replace(context, target_facts=facts), on_event)


def _measured(context: RunContext, on_event: Callable[[Event], None]) -> Attempt | None:
    """Run the engine among the instruments, and compose the record."""
    session, run = context.session, context.run
    reading: Reading | None = None
    not_restored: TargetError | None = None
    try:
        instruments = [kind(context) for kind in instrument_kinds() if kind.is_needed(context)]
        with ExitStack() as closing:
            try:
                instrument.start(instruments, closing)
            except NotStartedError as error:
                return _not_started(context, error, error.code)
            done = _drive(context, instruments, on_event)
            reading = instrument.stop(instruments, done)
    except TargetError as error:
        if reading is None:
            raise
        # The machine could not be restored after the run, which has its record nevertheless.
        warning = RecordWarning(code="not_restored", message=error.what, hint=error.hint)
        reading, not_restored = replace(reading, warnings=[*reading.warnings, warning]), error
    if reading.store_statistics is not None:  # After those that the engine reported.
        tables = [each for each in (done.store_statistics, reading.store_statistics) if each is not None]
        done = replace(done, store_statistics=pl.concat(tables))
    ended = record.early_end(context, done)
    is_kept = done.is_complete or bool(ended)
    session.ended(run, complete=is_kept)
    for state in session.data:
        state.ended(run)
    if session.stop.is_set() and not is_kept:
        if not_restored:
            raise not_restored
        return None
    return Attempt(record=record.compose(context, done, reading, ended), done=done, ends_session=not_restored)


def _drive(context: RunContext, instruments: Sequence[Instrument], on_event: Callable[[Event], None]) -> EngineRun:
    session, run = context.session, context.run
    watch = Watch(run.until, note=session.note) if run.until else None

    def started(pid: int) -> None:
        for each in instruments:
            each.engine_started(pid)

    def handle(event: Event) -> None:
        for each in instruments:
            each.event(event)
        on_event(event)

    try:
        with ExitStack() as enclosed:
            of_engine = context
            enclosures: tuple[Enclosure, ...] = contributed("run", "ENCLOSURES")
            for enclose in enclosures:
                of_engine = enclosed.enter_context(enclose(of_engine))
            return drive(
                of_engine.claimed(session.state.with_state(of_engine.run.spec)),
                stop=session.stop,
                on_event=handle,
                start=session.start() if session.start else None,
                on_start=started,
                is_enough=watch.is_enough if watch else None,
                inherited=of_engine.claims,
                identities=of_engine.identities,
                shims=of_engine.shims,
                environment=context.server.environment if context.server else None,
            )
    except UnsupportedError as error:
        return without_engine(Failure(code=UNSUPPORTED, message=error.what, context=error.where, hint=error.hint))


def _not_started(context: RunContext, error: TargetError, code: str) -> Attempt | None:
    """The record of a run whose target could not be prepared: a failure like any other."""
    session, setup = context.session, context.case.setup
    if session.stop.is_set():
        return None
    done = without_engine(Failure(code=code, message=error.what, context=error.where, hint=error.hint))
    facts = describe(session.base)
    requested = {"target": facts, **({"requested": setup.model_dump()} if setup else {})}
    context = replace(context, target_facts=facts, setup_facts=requested)
    return Attempt(record=record.compose(context, done, Reading(), {}), done=done)
