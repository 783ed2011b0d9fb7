"""The record of an attempt: what was requested, what happened, what the instruments read, and the verdict.

The rules of the verdict are in `verdict/rules.py`; this module passes them the facts and keeps the answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Reading
from iosonde.plan import Case, Run
from iosonde.results.schema import Record, RecordVerdict, RecordWarning
from iosonde.workload import described, streams_of

if TYPE_CHECKING:
    from iosonde.verdict.evidence import VerdictFacts


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
        "warnings": [*(RecordWarning(**warning) for warning in done.warnings), *reading.warnings],
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
    from iosonde.verdict.verdict import judge, judge_of, with_disturbances
    from iosonde.workload.block.backends import ON_VIRTUAL_TIME

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
    from iosonde.verdict.evidence import VerdictFacts
    from iosonde.verdict.verdict import server_cpu_ns, storage_of

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
        server_cpu_ns=server_cpu_ns(record),
        cold_start=record.parameters.get("start") == "cold",
        tail=None if record.control else asked_tail(study, record.part),
        intervals=_closed_loop(record, intervals),
    )


def asked_tail(study: Mapping[str, Any], part: str) -> str | None:
    """The highest percentile that a study's analysis and views name for a part, such as `p99_9`."""
    from iosonde.metrics.scopes import PERCENTILES

    asked = {metric.rpartition("_latency_ns_")[2] for metric in _metrics(study, part)}
    return max(asked & set(PERCENTILES), key=lambda name: PERCENTILES[name], default=None)


def _metrics(study: Mapping[str, Any], part: str) -> Iterator[str]:
    for question in (*study.get("analysis", ()), *study.get("views", ())):
        if question.get("part", part) == part:
            yield from (str(question[name]) for name in ("metric", "x", "y") if question.get(name))


def _closed_loop(record: Record, intervals: pl.DataFrame) -> list[Any]:
    """All operations of each interval of the measurement; nothing for open loops, whose latencies include waiting."""
    from iosonde.verdict.evidence import Interval

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
    from iosonde.verdict.evidence import Total

    measured = intervals.filter(pl.col("phase") == "measure")
    names = ("count", "bytes", "completion_latency_ns_sum")
    sums = measured.group_by("stream", "operation", maintain_order=True).agg(pl.col(*names).sum())
    return [Total(**row) for row in sums.iter_rows(named=True)]
