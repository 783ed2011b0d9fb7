"""One attempt at a run: prepare the target, start the instruments, run the engine, compose the record."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.base.features import contributed
from iosonde.engine.protocol import Event
from iosonde.errors import IosondeError, ServerError, TargetError, UnsupportedError
from iosonde.execution import servers
from iosonde.execution.admission import describe, describe_log
from iosonde.execution.context import Enclosure, Preparation, RunContext, TargetSession
from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.instruments import instrument
from iosonde.execution.instruments.conditions import (
    BlockQueue,
    CommandGroup,
    MemoryLimit,
    PreparedFiles,
    Purge,
    SharedLogDevice,
)
from iosonde.execution.instruments.counters import DeviceTotals, DriveCounters, OwnIo, temperatures
from iosonde.execution.instruments.database_server import DatabaseServer
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.plan import Case, Run
from iosonde.planning.procedure.watch import Watch
from iosonde.results.schema import UNSUPPORTED, Failure, Record, RecordVerdict, RecordWarning
from iosonde.study.workload import described, streams_of

if TYPE_CHECKING:
    from iosonde.metrics.verdict.evidence import VerdictFacts


def instrument_kinds() -> tuple[type[Instrument], ...]:
    """In the order in which they start; they stop in reverse order after the engine has exited.

    Those that read counters are last, so that their readings enclose the engine and little else. `CommandGroup` is the
    first to stop: the groups of the others must be empty when they are removed.
    """
    return (
        PreparedFiles,
        BlockQueue,
        SharedLogDevice,
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
    sessions: Sequence[TargetSession], run: Run, case: Case, number: int, on_event: Callable[[Event], None]
) -> Attempt | None:
    """Attempt `number` at a run, on the target that it belongs to; None if it was stopped and leaves no record."""
    session = next(each for each in sessions if each.plan.case_of(run.run_id))
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
        spec, warnings = state.prepare(context.run, case)
        context = replace(context.with_spec(spec), warnings=[*context.warnings, *warnings])
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
            # Temperatures first: the costs may be measured now.
            own = {"target_after": temperatures(context.target_facts), "harness": session.harness.costs(run.spec)}
            warnings = [*reading.warnings, *context.warnings]
            reading = replace(reading, facts={**reading.facts, **own}, warnings=warnings)
    except TargetError as error:
        if reading is None:
            raise
        # The machine could not be restored after the run, which has its record nevertheless.
        warning = RecordWarning(code="not_restored", message=error.what, hint=error.hint)
        reading, not_restored = replace(reading, warnings=[*reading.warnings, warning]), error
    if reading.store_statistics is not None:  # After those that the engine reported.
        done = replace(done, store_statistics=pl.concat([done.store_statistics, reading.store_statistics]))
    ended = early_end(context, done)
    is_kept = done.is_complete or bool(ended)
    session.ended(run, complete=is_kept)
    for state in session.data:
        state.ended(run)
    if session.stop.is_set() and not is_kept:
        if not_restored:
            raise not_restored
        return None
    return Attempt(record=compose(context, done, reading, ended), done=done, ends_session=not_restored)


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
        return EngineRun(failure=Failure(code=UNSUPPORTED, message=error.what, context=error.where, hint=error.hint))


def _not_started(context: RunContext, error: TargetError, code: str) -> Attempt | None:
    """The record of a run whose target could not be prepared: a failure like any other."""
    session, setup = context.session, context.case.setup
    if session.stop.is_set():
        return None
    done = EngineRun(failure=Failure(code=code, message=error.what, context=error.where, hint=error.hint))
    facts = describe(session.base)
    requested = {"target": facts, **({"requested": setup.model_dump()} if setup else {})}
    context = replace(context, target_facts=facts, setup_facts=requested)
    return Attempt(record=compose(context, done, Reading(), {}), done=done)


def compose(context: RunContext, done: EngineRun, reading: Reading, ended: Mapping[str, str]) -> Record:
    """The record with its verdict; `ended` has fields of a measurement that iosonde ended early."""
    session = context.session
    failure = (reading.failure or done.failure) if done.failure else None
    facts: dict[str, Any] = {
        **requested(context.run, context.case, context.number),
        "setup": context.setup_facts,
        "started_at": done.started_at,
        "ended_at": done.ended_at,
        "outcome": "failed" if failure else (done.result or {})["outcome"],
        "failure": failure,
        "engine": done.hello,
        "phases": done.phases,
        "result": done.result,
        "child": done.child,
        "target": context.target_facts,
        "environment": session.environment,
        "session": session.name,
        "warnings": [*(RecordWarning(**each) for each in done.warnings), *reading.warnings],
    }
    parts = {each.name: each.model_dump() for each in reading.parts}
    record = Record(**facts, **reading.facts, parts=parts).model_copy(update=ended)
    return judged(record, done.intervals, environment=session.environment_facts, study=session.plan.study)


def requested(run: Run, case: Case, number: int) -> dict[str, Any]:
    """The fields of a record that are known before the run."""
    return {
        "run_id": run.run_id,
        "attempt": number,
        "case_id": run.case_id,
        "part": run.part or case.part,
        "control": case.control,
        "arm": case.arm,
        "device_state": "not_applicable" if run.part else case.device_state,
        "repeat": run.repeat,
        "order": run.order,
        "levels": {**case.levels, **run.levels},
        "parameters": {**case.parameters, **run.parameters},
        "spec": run.spec,
    }


def early_end(context: RunContext, done: EngineRun) -> dict[str, str]:
    """Fields of the record of a measurement that iosonde ended early and that is complete nevertheless."""
    if done.failure or not done.result:
        return {}
    if (done.result.get("oltp") or {}).get("server_vanished_ns") and context.parameters.get("kill_server_after"):
        return {"outcome": "complete", "end_reason": "server_killed"}
    if done.result["outcome"] != "stopped":
        return {}
    if done.was_enough:
        return {"outcome": "complete", "end_reason": "steady"}
    is_measured = done.intervals.filter(done.intervals["phase"] == "measure").height > 0
    if context.session.stop.is_time_over and context.parameters.get("round_length") and is_measured:
        return {"outcome": "complete", "end_reason": "time_limit"}
    return {}


def judged(
    record: Record, intervals: pl.DataFrame, *, environment: Mapping[str, Any], study: Mapping[str, Any]
) -> Record:
    """The record with its verdict and warnings; unchanged without a result or evidence."""
    from iosonde.metrics.verdict.verdict import judge, judge_of, with_disturbances
    from iosonde.study.workload.block.backends import ON_VIRTUAL_TIME

    if record.result is None:
        return record
    rules = described(record.spec["workload"]).rules(record.spec["workload"])
    decided = None
    if rules != "evidence":
        cpus = int((environment.get("cpu") or {}).get("threads") or os.cpu_count() or 1)
        decided = judge_of(rules)(record, _totals(intervals), cpus)
    if decided is None and (rules != "evidence" or "evidence" not in record.result):
        return record
    if record.result["backend"]["kind"] in ON_VIRTUAL_TIME:
        return record  # Nothing but the model can limit it.
    facts = _facts(record, intervals, environment=environment, study=study)
    verdict = with_disturbances(decided, facts) if decided else judge(facts)
    kept = RecordVerdict(kind=verdict.kind, because=list(verdict.because), evidence=verdict.evidence)
    return record.model_copy(update={"verdict": kept, "warnings": [*record.warnings, *verdict.warnings]})


def _facts(
    record: Record, intervals: pl.DataFrame, *, environment: Mapping[str, Any], study: Mapping[str, Any]
) -> VerdictFacts:
    from iosonde.metrics.verdict.evidence import VerdictFacts
    from iosonde.metrics.verdict.verdict import server_increase, storage_of

    return VerdictFacts(
        spec=record.spec,
        engine=record.engine,
        result=record.result or {},
        totals=_totals(intervals),
        target=record.target,
        target_after=record.target_after,
        environment=environment,
        harness=record.harness,
        own_io=record.own_io,
        storage=storage_of(record),
        server_cpu_ns=server_increase(record, "server_cpu_ns"),
        cold_start=record.parameters.get("start") == "cold",
        tail=None if record.control else asked_tail(study, record.part),
        intervals=_closed_loop(record, intervals),
    )


def asked_tail(study: Mapping[str, Any], part: str) -> str | None:
    """The highest percentile that a study's analysis and views name for a part, such as `p99_9`."""
    from iosonde.metrics.scopes import PERCENTILES

    asked = {
        str(question.get(name)).rpartition("_latency_ns_")[2]
        for question in (*study.get("analysis", ()), *study.get("views", ()))
        if question.get("part", part) == part
        for name in ("metric", "x", "y")
    }
    return max(asked & set(PERCENTILES), key=lambda name: PERCENTILES[name], default=None)


def _closed_loop(record: Record, intervals: pl.DataFrame) -> list[Any]:
    """All operations of each interval of the measurement; nothing for open loops, whose latencies include waiting."""
    from iosonde.metrics.verdict.evidence import Interval

    if any(stream["arrival"]["kind"] != "closed" for stream in streams_of(record.spec["workload"])):
        return []
    measured = intervals.filter(pl.col("phase") == "measure", pl.col("operation") != "flush")
    summed = (
        measured.group_by("begin_ns", "end_ns")
        .agg(pl.col("count").sum(), pl.col("completion_latency_ns_max").max().fill_null(0))
        .sort("begin_ns")
    )
    return [Interval(**row) for row in summed.iter_rows(named=True)]


def _totals(intervals: pl.DataFrame) -> list[Any]:
    from iosonde.metrics.verdict.evidence import Total

    measured = intervals.filter(pl.col("phase") == "measure")
    names = ("count", "bytes", "completion_latency_ns_sum")
    sums = measured.group_by("stream", "operation", maintain_order=True).agg(pl.col(*names).sum())
    return [Total(**row) for row in sums.iter_rows(named=True)]
