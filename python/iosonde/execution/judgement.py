"""A record and the verdict that it carries: what the analysis says of its facts, when they are fresh.

The rules are the analysis' (`verdict/verdict.py`); here is only what they are given, and where the answer is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.results.schema import Record, RecordVerdict, RecordWarning
from iosonde.storage import block_stack


def judged(
    record: Record, intervals: pl.DataFrame, *, environment: Mapping[str, Any], study: Mapping[str, Any]
) -> Record:
    """Return the record with its verdict and warnings; as it is if it has no result, or no evidence."""
    from iosonde.verdict.evidence import RunFacts
    from iosonde.verdict.verdict import judge

    if record.result is None or "evidence" not in record.result or record.spec["workload"]["kind"] != "block":
        return record
    verdict = judge(
        RunFacts(
            spec=record.spec,
            engine=record.engine,
            result=record.result,
            totals=_totals(intervals),
            target=record.target,
            target_after=record.target_after,
            environment=environment,
            harness=record.harness,
            tail=None if record.control else asked_tail(study, record.part),
        )
    )
    told = [RecordWarning(code=each.code, message=each.message, hint=each.hint) for each in verdict.warnings]
    kept = RecordVerdict(kind=verdict.kind, because=list(verdict.because), evidence=verdict.evidence)
    return record.model_copy(update={"verdict": kept, "warnings": [*record.warnings, *told]})


def asked_tail(study: Mapping[str, Any], part: str) -> str | None:
    """The farthest percentile that a study's questions and views name for a part, such as `p99_9`."""
    from iosonde.metrics.histogram import PERCENTILES

    asked = {metric.rpartition("_latency_ns_")[2] for metric in _metrics(study, part)}
    return max(asked & set(PERCENTILES), key=lambda name: PERCENTILES[name], default=None)


def temperatures(target: Mapping[str, Any]) -> dict[str, Any]:
    """How hot the devices of a target, as it was described, are now; nothing where none tells."""
    found = [
        {"name": device["name"], **heat}
        for device in target.get("devices", [])
        # A simulated drive is unknown to the kernel, and neither hot nor cold.
        if device.get("kind") != "simulated" and (heat := block_stack.temperature(device["device"]))
    ]
    return {"devices": found} if found else {}


def _metrics(study: Mapping[str, Any], part: str) -> Iterator[str]:
    for question in (*study.get("analysis", ()), *study.get("views", ())):
        if question.get("part", part) == part:
            yield from (str(question[name]) for name in ("metric", "x", "y") if question.get(name))


def _totals(intervals: pl.DataFrame) -> list[Any]:
    from iosonde.verdict.evidence import Total

    measured = intervals.filter(pl.col("phase") == "measure")
    names = ("count", "bytes", "completion_latency_ns_sum")
    sums = measured.group_by("stream", "operation", maintain_order=True).agg(pl.col(*names).sum())
    return [Total(**row) for row in sums.iter_rows(named=True)]
