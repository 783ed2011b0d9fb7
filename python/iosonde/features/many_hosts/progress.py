"""Rates of the hosts while they measure, and their sums afterwards, for the progress display and the live page.

Each agent adds up the intervals of its engine and reports the sums at most once a second. The coordinator adds the
rates of all hosts. Latencies other than their sums are left to the record: histograms would take CPU time on the hosts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.engine.protocol import Event
from iosonde.execution.conversation import EngineRun

REPORT_S = 1.0
SECOND = 10**9

_COUNTS = ("count", "bytes", "errors")
_ADDED = (*_COUNTS, "sum_ns")
_Sums = dict[tuple[str, str], dict[str, int]]
"""By stream and operation."""


class Progress:
    """Sums of the intervals of a run since they were last reported."""

    def __init__(self, report: Callable[[Mapping[str, Any]], None]) -> None:
        self._report = report
        self._phase = ""
        self._begin_ns = 0
        self._sums: _Sums = {}
        self._reported = 0.0

    def add(self, event: Event) -> None:
        """Add an interval, and report if it is time."""
        if event["phase"] != self._phase:
            self._phase, self._begin_ns, self._sums = event["phase"], event["begin_ns"], {}
        for stream in event["streams"]:
            for operation in stream["operations"]:
                row = self._sums.setdefault((stream["stream"], operation["operation"]), dict.fromkeys(_ADDED, 0))
                for name in _COUNTS:
                    row[name] += operation[name]
                row["sum_ns"] += operation["completion_latency"]["sum_ns"]
        now = time.monotonic()
        if now - self._reported >= REPORT_S:
            rows = [{"stream": stream, "operation": name, **row} for (stream, name), row in self._sums.items()]
            self._report({"phase": self._phase, "length_ns": event["end_ns"] - self._begin_ns, "rows": rows})
            self._reported, self._phase = now, ""


def total(reports: Sequence[Mapping[str, Any]]) -> Event | None:
    """Return the rates of all hosts as one interval of a second; None unless all are in the same phase."""
    phases = {each["phase"] for each in reports}
    if len(phases) != 1:
        return None
    sums: _Sums = {}
    for report in reports:
        for row in report["rows"]:
            added = sums.setdefault((row["stream"], row["operation"]), dict.fromkeys(_ADDED, 0))
            for name in _ADDED:
                added[name] += row[name] * SECOND // max(1, report["length_ns"])
    operations: list[tuple[str, dict[str, Any]]] = []
    for (stream, name), row in sums.items():
        latency = {"count": 0, "sum_ns": row.pop("sum_ns"), "buckets": []}
        operations.append((stream, {"operation": name, **row, "completion_latency": latency}))
    # Interval 0 is the measurement as a whole, which follows at the end (`summary`).
    return _event(phases.pop(), 1, 0, SECOND, operations)


def summary(done: EngineRun) -> Event:
    """Return the sums over a measurement, which has at least one interval."""
    sums = done.intervals.group_by("stream", "operation", maintain_order=True).agg(
        pl.col("count", "bytes", "errors", "completion_latency_ns_sum", "response_latency_ns_sum").sum(),
        has_response=pl.col("response_latency_ns_sum").is_not_null().any(),
    )
    operations = [(row.pop("stream"), row) for row in sums.iter_rows(named=True)]
    for stream, row in operations:
        own = done.histograms.filter(pl.col("stream") == stream, pl.col("operation") == row["operation"])
        latency_sums = {name: row.pop(f"{name}_latency_ns_sum") for name in ("completion", "response")}
        for name in ("completion", "response")[: 1 + row.pop("has_response")]:
            counts = own.filter(pl.col("latency") == name).group_by("bucket").agg(pl.col("count").sum()).sort("bucket")
            total_count = int(counts["count"].sum())
            row[f"{name}_latency"] = {"count": total_count, "buckets": counts.rows(), "sum_ns": latency_sums[name]}
    begin_ns, end_ns = done.intervals["begin_ns"].min(), done.intervals["end_ns"].max()
    return _event("measure", 0, begin_ns, end_ns, operations)


def _event(
    phase: str, index: int, begin_ns: Any, end_ns: Any, operations: Sequence[tuple[str, Mapping[str, Any]]]
) -> Event:
    """The event with these operations of streams."""
    streams = [
        {"stream": stream, "operations": [each for of, each in operations if of == stream], "backlog_max": 0}
        for stream in dict.fromkeys(stream for stream, _ in operations)
    ]
    times = {"begin_ns": begin_ns, "end_ns": end_ns}
    return {"event": "interval", "phase": phase, "index": index, "streams": streams, "devices": [], **times}
