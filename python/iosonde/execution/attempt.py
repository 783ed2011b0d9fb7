"""One attempt at a run: prepare the target, start the instruments, run the engine, compose the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from iosonde.core.features import contributed
from iosonde.errors import IosondeError, ServerError, TargetError, UnsupportedError
from iosonde.execution import record
from iosonde.execution.engine import EngineRun, drive, without_engine
from iosonde.execution.harness import Harness
from iosonde.execution.instruments.instrument import NotStartedError, Reading, RunContext, RunInstruments
from iosonde.execution.instruments.order import INSTRUMENTS
from iosonde.execution.preparation import DataState, Enclosure, Preparation, Workbench
from iosonde.execution.servers import DatabaseServers, RunningServer
from iosonde.execution.setups import ReadyTarget, Setups
from iosonde.execution.stop import Start, Stop
from iosonde.execution.target_facts import describe, describe_log
from iosonde.plan import Case, JsonObject, Plan, Run
from iosonde.procedure.watch import Watch
from iosonde.protocol.event import Event
from iosonde.results.schema import UNSUPPORTED, Failure, Record, RecordWarning
from iosonde.storage.safety.consent import Consent
from iosonde.storage.targets.kind import TargetState

_PREPARATIONS: tuple[Preparation, ...] = contributed("preparations", "PREPARATIONS")
_ENCLOSURES: tuple[Enclosure, ...] = contributed("preparations", "ENCLOSURES")


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """Common parameters of the attempts of a session."""

    plan: Plan
    state: TargetState
    setups: Setups
    harness: Harness
    states: Sequence[DataState]
    servers: DatabaseServers
    environment: str
    """Hash of the description of machine and software."""
    environment_facts: dict[str, Any]
    session: str
    """Name of the session."""
    consent: Consent
    stop: Stop
    note: Callable[[str], None]
    """Shows a message to the user."""
    start: Callable[[], Start] | None = None
    """Returns the agreed start of the next run, which other hosts carry out at the same time; None on one host."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that has ended."""

    record: Record
    done: EngineRun
    """With the tables of the run."""
    ends_session: IosondeError | None = None
    """Reason for which the session cannot continue after the run, such as swap that could not be disabled."""


def carry_out(
    run: Run, case: Case, number: int, equipment: Equipment, on_event: Callable[[Event], None]
) -> Attempt | None:
    """Attempt `number` at a run; None if it was stopped and leaves no record."""
    try:
        ready = equipment.setups.prepare(run, case)
    except TargetError as error:
        code = "vanished" if isinstance(error.__cause__, FileNotFoundError) else "setup" if case.setup else "target"
        return _not_started(run, case, number, equipment, error, code=code)
    run = run.model_copy(update={"spec": ready.spec(run)})
    step = partial(_carry_out_step, equipment)
    bench = Workbench(
        setups=equipment.setups, drive=step, consent=equipment.consent, stop=equipment.stop, note=equipment.note
    )
    try:
        for prepare in _PREPARATIONS:
            run, ready = prepare(run, case, ready, bench)
    except TargetError as error:
        code = UNSUPPORTED if isinstance(error, UnsupportedError) else "setup"
        return _not_started(run, case, number, equipment, error, code=code)
    carried_over = ""
    for state in equipment.states:
        spec, writer = state.prepare(run, case)
        run, carried_over = run.model_copy(update={"spec": spec}), carried_over or writer
    try:
        server = equipment.servers.prepare(run, case, ready)
    except TargetError as error:
        code = error.code if isinstance(error, ServerError) else "target"
        return _not_started(run, case, number, equipment, error, code=code)
    with ExitStack() as closing:
        if server:
            closing.callback(server.close)
            run = run.model_copy(update={"spec": server.spec})
        context = _context(run, case, equipment, ready, server, carried_over)
        return _measured(context, number, equipment, on_event)


def _carry_out_step(equipment: Equipment, ready: ReadyTarget, spec: JsonObject) -> EngineRun:
    """A step of the preparation, which leaves no record."""
    return drive(
        ready.with_claims(spec),
        on_event=lambda _: None,
        stop=equipment.stop,
        inherited=ready.claims,
        identities=ready.identities,
    )


def _context(
    run: Run, case: Case, equipment: Equipment, ready: ReadyTarget, server: RunningServer | None, carried_over: str
) -> RunContext:
    return RunContext(
        run=run,
        case=case,
        plan=equipment.plan,
        state=equipment.state,
        ready=ready,
        target=describe(ready.target) | describe_log(run),
        harness=equipment.harness,
        carried_over=carried_over,
        server=server,
        note=equipment.note,
    )


def _measured(
    context: RunContext, number: int, equipment: Equipment, on_event: Callable[[Event], None]
) -> Attempt | None:
    """Run the engine among the instruments, and compose the record."""
    run, case = context.run, context.case
    reading: Reading | None = None
    not_restored: TargetError | None = None
    try:
        with RunInstruments(INSTRUMENTS, context) as instruments:
            try:
                instruments.start()
            except NotStartedError as error:
                return _not_started(run, case, number, equipment, error, code=error.code)
            done = _drive(context, equipment, instruments, on_event)
            reading = instruments.stop(done)
    except TargetError as error:
        if reading is None:
            raise
        reading, not_restored = _with_warning(reading, error), error
    if reading.store_statistics is not None:
        done = replace(done, store_statistics=_with_statistics(done, reading.store_statistics))
    ended = record.early_end(context, done, equipment.stop)
    is_kept = done.is_complete or bool(ended)
    equipment.setups.ended(run, complete=is_kept)
    for state in equipment.states:
        state.ended(run)
    if equipment.stop.is_set() and not is_kept:
        if not_restored:
            raise not_restored
        return None
    composed = record.compose(
        context, number, done, reading, environment=equipment.environment, session=equipment.session
    )
    composed = record.judged(
        composed.model_copy(update=ended),
        done.intervals,
        environment=equipment.environment_facts,
        study=equipment.plan.study,
    )
    return Attempt(record=composed, done=done, ends_session=not_restored)


def _with_warning(reading: Reading, error: TargetError) -> Reading:
    """The run's reading, with a warning that the machine could not be restored after it."""
    warning = RecordWarning(code="not_restored", message=error.what, hint=error.hint)
    return replace(reading, warnings=[*reading.warnings, warning])


def _with_statistics(done: EngineRun, read: pl.DataFrame) -> pl.DataFrame:
    """Statistics that instruments read, after those that the engine reported."""
    return read if done.store_statistics is None else pl.concat([done.store_statistics, read])


def _drive(
    context: RunContext,
    equipment: Equipment,
    instruments: RunInstruments,
    on_event: Callable[[Event], None],
) -> EngineRun:
    run = context.run
    watch = Watch(run.until, note=equipment.note) if run.until else None

    def handle(event: Event) -> None:
        instruments.event(event)
        on_event(event)

    try:
        with ExitStack() as enclosed:
            spec, ready = run.spec, context.ready
            for enclose in _ENCLOSURES:
                spec, ready = enclosed.enter_context(enclose(spec, ready, equipment.consent))
            return drive(
                ready.with_claims(equipment.state.with_state(spec)),
                on_event=handle,
                stop=equipment.stop,
                start=equipment.start() if equipment.start else None,
                on_start=instruments.engine_started,
                is_enough=watch.is_enough if watch else None,
                inherited=ready.claims,
                identities=ready.identities,
                shims=ready.shims,
                environment=context.server.environment if context.server else None,
            )
    except UnsupportedError as error:
        return without_engine(Failure(code=UNSUPPORTED, message=error.what, context=error.where, hint=error.hint))


def _not_started(
    run: Run, case: Case, number: int, equipment: Equipment, error: TargetError, *, code: str
) -> Attempt | None:
    """The record of a run whose target could not be prepared: a failure like any other."""
    if equipment.stop.is_set():
        return None
    done = without_engine(Failure(code=code, message=error.what, context=error.where, hint=error.hint))
    base = equipment.setups.base
    target = describe(base)
    requested = {"requested": case.setup.model_dump()} if case.setup else {}
    facts = {"target": target, **requested}
    context = RunContext(
        run=run,
        case=case,
        plan=equipment.plan,
        state=equipment.state,
        ready=ReadyTarget(target=base, facts=facts),
        target=target,
        harness=equipment.harness,
        note=equipment.note,
    )
    composed = record.compose(
        context,
        number,
        done,
        Reading(),
        environment=equipment.environment,
        session=equipment.session,
    )
    return Attempt(record=composed, done=done)
