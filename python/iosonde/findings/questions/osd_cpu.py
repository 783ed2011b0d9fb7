"""CPU time of Ceph's object daemons (OSDs) for each operation: where it is the limit, a faster device gains nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding, Topic
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, repeats_interval
from iosonde.verdict.verdict import of_repeats

CPU = "osd_cpu_ns_per_op"
LATENCY = "completion_latency_ns_mean"

LIMITS = {
    "device-limited": "limited by the device",
    "server-CPU-limited": "limited by CPU time",
    "harness-limited": "limited by the client",
}


@dataclass(frozen=True, kw_only=True)
class OsdCpu(Finding):
    """The highest rate of an operation, and the CPU time of the object daemons for each operation there."""

    kind: ClassVar[str] = "OSD CPU time"
    topic: ClassVar[Topic] = "performance"
    states_verdicts: ClassVar[bool] = True
    load: str
    metric: str
    value: Estimate
    setting: str
    cpu: Estimate
    """CPU time of all object daemons for each operation, ns."""
    cores: float | None
    """CPU time of all object daemons over the measured time."""
    limit: str
    """Verdict of most runs there, `undetermined` where they differ; empty if there is none."""
    unloaded_latency_ns: float | None
    """Mean latency with one operation in flight; None if that was not measured."""
    unloaded_cpu_ns: float | None
    """CPU time of the object daemons for each of these operations."""
    repeats: int

    @property
    def unloaded_share(self) -> float | None:
        """CPU time of the object daemons over the latency with one operation in flight.

        It can be above 1: threads that write in the background run concurrently with those that answer.
        """
        if not self.unloaded_latency_ns or self.unloaded_cpu_ns is None:
            return None
        return self.unloaded_cpu_ns / self.unloaded_latency_ns

    def _sentence(self) -> str:
        rate = wording.value_text(self.metric, self.value.value)
        interval = wording.estimate_text(self.metric, self.value).removeprefix(rate)
        cores = "" if self.cores is None else f", {wording.ratio_text(self.cores)} cores"
        limit = f"; {LIMITS[self.limit]}" if self.limit in LIMITS else ""
        return (
            f"{self.load}: {rate} {self.setting}{interval}; "
            f"OSDs use {wording.estimate_text(CPU, self.cpu)} of CPU time per operation{cores}{limit}"
        )

    def _evidence(self) -> str:
        text = f"highest median; CPU time of all object daemons, in user and kernel mode; {self._runs()}"
        if self.unloaded_share is None or self.unloaded_latency_ns is None or self.unloaded_cpu_ns is None:
            return text
        latency, cpu = (
            wording.value_text(name, value)
            for name, value in ((LATENCY, self.unloaded_latency_ns), (CPU, self.unloaded_cpu_ns))
        )
        share = wording.percent_text(self.unloaded_share)
        return f"with one operation in flight: mean latency {latency}, OSD CPU time {cpu} ({share} of it); {text}"

    def _runs(self) -> str:
        return wording.counted(self.repeats, "run")


def find(question: Question) -> Iterator[Finding]:
    """Return the highest rate of each combination of `by`, with its OSD CPU time; nothing without that (S3)."""
    over = question.analysis.over
    for key, group in groups(question.cells(), question.by):
        best = group.with_columns(median=pl.col("values").list.median()).sort("median", maintain_order=True)
        row = best.row(-1, named=True)
        cpu = _values(question, CPU, key, row[over])
        if cpu is None:
            continue
        value, used = repeats_interval(row["values"]), repeats_interval(cpu)
        unloaded = _unloaded(question, key)
        yield OsdCpu(
            load=question.load(key, row["case_id"]),
            metric=question.analysis.metric,
            value=value,
            setting=f"at {wording.level_words(over, row[over])}",
            cpu=used,
            cores=_median(question, "server_cores", key, row[over]),
            limit=_limit(question, row["case_id"]),
            unloaded_latency_ns=None if unloaded is None else _median(question, LATENCY, key, unloaded),
            unloaded_cpu_ns=None if unloaded is None else _median(question, CPU, key, unloaded),
            repeats=len(row["values"]),
            strength=question.support.strength([row["case_id"]], value, used),
            case_ids=(row["case_id"],),
            part=question.part.name,
        )


def _values(question: Question, metric: str, key: Mapping[str, Any], level: Any) -> list[float] | None:
    """Return the repeats of a metric at a level; None where it was not measured."""
    over = question.analysis.over
    for found, group in groups(question.cells(metric), question.by):
        if found == key:
            values = group.filter(pl.col(over) == level)["values"].to_list()
            return values[0] if values else None
    return None


def _median(question: Question, metric: str, key: Mapping[str, Any], level: Any) -> float | None:
    values = _values(question, metric, key, level)
    return None if values is None else float(np.median(values))


def _unloaded(question: Question, key: Mapping[str, Any]) -> Any:
    """Return the level with one operation in flight; None if it was not measured."""
    over = question.analysis.over
    for found, group in groups(question.cells(), question.by):
        if found == key:
            for row in group.iter_rows(named=True):
                case = question.case(row["case_id"])
                if case.get("jobs") == 1 and case.get("queue_depth") == 1:
                    return row[over]
    return None


def _limit(question: Question, case_id: str) -> str:
    return of_repeats(list(question.support.counts([case_id]).elements())) or ""


KINDS = (QuestionKind("osd_cpu", find),)
