"""Facts and metrics of the stages of an I/O in the kernel: means and percentiles over the traced I/Os."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import ceil

from iosonde.features.kernel_trace.record import TraceReading
from iosonde.metrics.metric import Metric
from iosonde.results.column import NUMBER, TEXT, U64, facts
from iosonde.results.schema import Record

STAGES: Mapping[str, tuple[str, str]] = {
    "submission": ("Submission", "from the system call until the block layer receives the I/O"),
    "block_layer": ("Block layer", "from there until the driver receives it"),
    "device": ("Device", "from there until the device interrupts, or until the completion without an interrupt"),
    "interrupt": ("Interrupt", "from the interrupt until the waiting thread is made runnable"),
    "wake_up": ("Wake-up", "from there until the thread runs"),
    "return": (
        "Return",
        "from there, or from the completion if the thread did not sleep, until the system call returns",
    ),
}
"""Title and meaning of each stage, in the order of time (stages.py)."""

TOTAL = "total"
WITH_TOTAL = {
    **STAGES,
    TOTAL: ("I/O path", "from the system call that submits until the one that fetches the completion returns"),
}

BEYOND = 10
"""Samples that a percentile needs beyond it."""

STATISTICS: Mapping[str, str] = {"mean": "mean time", "p50": "median time", "p99": "p99 of the time"}

TIMES: Mapping[str, str] = {
    f"path_{stage}_ns_{statistic}": f"{words} {text}"
    for stage, (_, text) in WITH_TOTAL.items()
    for statistic, words in STATISTICS.items()
}
"""Statistics of the stages of traced I/Os."""


class PathFacts:
    """The trace of a record; empty of runs that were not traced."""

    def __init__(self, record: Record) -> None:
        self.trace = record.of(TraceReading) or TraceReading(reason="")

    @cached_property
    def times(self) -> dict[str, float | None]:
        """Statistics of the stages that were seen."""
        stages: Mapping[str, Sequence[int]] = self.trace.stages
        values = {name: stages.get(name) or () for name in STAGES if name not in self.trace.unseen}
        values[TOTAL] = [sum(each) for each in zip(*stages.values(), strict=False)]
        found: dict[str, float | None] = {}
        for name, times in values.items():
            if times:
                found[f"path_{name}_ns_mean"] = sum(times) / len(times)
                found |= {f"path_{name}_ns_p{part}": _percentile(times, part) for part in (50, 99)}
        return found


COLUMNS = facts(
    PathFacts,
    ("path_related", U64, "traced I/Os whose stages are known", "trace.related"),
    ("path_incomplete", U64, "traced I/Os with missing events", "trace.incomplete"),
    ("path_reason", TEXT, "why the run was not traced; null if it was, or if tracing was not requested",
        lambda path: path.trace.reason or None),
    ("path_unseen", TEXT, "stages that were not visible, with the reason; null if there are none",
        lambda path: "; ".join(f"{stage}: {reason}" for stage, reason in path.trace.unseen.items()) or None),
    *((name, NUMBER, f"{text}, ns", f"times.{name}") for name, text in TIMES.items()),
    words="Traced I/Os: ",
)  # fmt: skip
"""Columns of `runs` about the stages of an I/O in the kernel."""


def _percentile(times: Sequence[int], part: int) -> float | None:
    """Return the smallest time that this share does not exceed; None with too few samples."""
    rank = ceil(len(times) * part / 100)
    return float(sorted(times)[rank - 1]) if len(times) - rank >= BEYOND else None


def metric_of(stage: str, statistic: str = "mean") -> str:
    """Return the name of the metric of a stage."""
    return f"path_{stage}_ns_{statistic}"


METRICS = (
    *(
        Metric(name, f"{title}, {statistic}", "ns", "lower", "time", f"{TIMES[name]}, of traced I/Os")
        for stage, (title, _) in WITH_TOTAL.items() for statistic in STATISTICS
        for name in [metric_of(stage, statistic)]
    ),
    Metric("path_related", "Traced I/Os", "", "neither", "count", "traced I/Os whose stages are known"),
    Metric("path_incomplete", "Incomplete traced I/Os", "", "lower", "count", "traced I/Os with missing events"),
)  # fmt: skip
"""Metrics of the I/O path, in the order of docs/metrics.md."""
