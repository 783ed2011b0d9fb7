"""CPU time of Ceph's object daemons (OSDs) for each operation: where it is the limit, a faster device gains nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding
from iosonde.findings.kinds import Value, best_of
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, repeats_interval

CPU = "osd_cpu_ns_per_op"
LATENCY = "completion_latency_ns_mean"

LIMITS = {
    "device-limited": "limited by the device",
    "server-CPU-limited": "limited by CPU time",
    "harness-limited": "limited by the client",
}


class OsdCpu(Value, kind="OSD CPU time", topic="performance", place=1):
    """The highest rate of an operation, and the CPU time of the object daemons for each operation there."""

    states_verdicts = True
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

    @property
    def unloaded_share(self) -> float | None:
        """CPU time of the object daemons over the latency with one operation in flight.

        It can be above 1: threads that write in the background run concurrently with those that answer.
        """
        if not self.unloaded_latency_ns or self.unloaded_cpu_ns is None:
            return None
        return self.unloaded_cpu_ns / self.unloaded_latency_ns

    def _sentence(self) -> str:
        cores = "" if self.cores is None else f", {wording.ratio_text(self.cores)} cores"
        limit = f"; {LIMITS[self.limit]}" if self.limit in LIMITS else ""
        used = f"OSDs use {wording.estimate_text(CPU, self.cpu)} of CPU time per operation{cores}"
        return f"{self._stated()}; {used}{limit}"

    def _evidence(self) -> str:
        text = f"highest median; CPU time of all object daemons, in user and kernel mode; {self._runs}"
        if self.unloaded_share is None or self.unloaded_latency_ns is None or self.unloaded_cpu_ns is None:
            return text
        latency = wording.value_text(LATENCY, self.unloaded_latency_ns)
        cpu = f"{wording.value_text(CPU, self.unloaded_cpu_ns)} ({wording.percent_text(self.unloaded_share)} of it)"
        return f"with one operation in flight: mean latency {latency}, OSD CPU time {cpu}; {text}"


def find(question: Question) -> Iterator[Finding]:
    """Return the highest rate of each combination of `by`, with its OSD CPU time; nothing without that (S3)."""
    over = question.analysis.over
    for key, group in groups(question.cells(), question.by):
        row = best_of(group)
        case_id = row["case_id"]
        if not (cpu := question.values(CPU, case_id)):
            continue
        value, used = repeats_interval(row["values"]), repeats_interval(cpu)
        unloaded = next((each for each in group["case_id"] if _is_unloaded(question.case(each))), "")
        yield OsdCpu(
            load=question.load(key, case_id),
            metric=question.analysis.metric,
            value=value,
            setting=f"at {wording.level_words(over, row[over])}",
            cpu=used,
            cores=_median(question, "server_cores", case_id),
            limit=question.support.of_most([case_id]),
            unloaded_latency_ns=_median(question, LATENCY, unloaded),
            unloaded_cpu_ns=_median(question, CPU, unloaded),
            repeats=len(row["values"]),
            **question.claim([case_id], value, used),
        )


def _median(question: Question, metric: str, case_id: str) -> float | None:
    values = question.values(metric, case_id)
    return float(np.median(values)) if values else None


def _is_unloaded(case: Mapping[str, Any]) -> bool:
    return bool(case.get("jobs") == 1 and case.get("queue_depth") == 1)


KINDS = (QuestionKind("osd_cpu", find),)
