"""Rates of the hosts while they measure, for the progress display and the live page.

Each agent adds up the intervals of its engine and reports the sums at most once a second. The coordinator adds the
rates of all hosts. Latencies other than their sums are left to the record: histograms would take CPU time on the hosts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from iosonde.protocol.event import IntervalEvent

REPORT_S = 1.0
SECOND = 10**9

_COUNTS = ("count", "bytes", "errors")
_ADDED = (*_COUNTS, "sum_ns")
_Sums = dict[tuple[str, str], dict[str, int]]


class Progress:
    """Sums of the intervals of a run since they were last reported."""

    def __init__(self, report: Callable[[Mapping[str, Any]], None]) -> None:
        self._report = report
        self._phase = ""
        self._begin_ns = 0
        self._sums: _Sums = {}
        self._reported = 0.0

    def add(self, event: IntervalEvent) -> None:
        """Add an interval, and report if it is time."""
        if event["phase"] != self._phase:
            self._phase, self._begin_ns, self._sums = event["phase"], event["begin_ns"], {}
        for stream in event["streams"]:
            for operation in stream["operations"]:
                row = self._sums.setdefault((stream["stream"], operation["operation"]), dict.fromkeys(_ADDED, 0))
                for name in _COUNTS:
                    row[name] += operation[name]  # type: ignore[literal-required]
                row["sum_ns"] += operation["completion_latency"]["sum_ns"]
        now = time.monotonic()
        if now - self._reported >= REPORT_S:
            rows = [{"stream": stream, "operation": name, **row} for (stream, name), row in self._sums.items()]
            self._report({"phase": self._phase, "length_ns": event["end_ns"] - self._begin_ns, "rows": rows})
            self._reported, self._phase = now, ""


def total(reports: Sequence[Mapping[str, Any]]) -> IntervalEvent | None:
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
    streams = [
        {
            "stream": stream,
            "operations": [_operation(name, row) for (of, name), row in sums.items() if of == stream],
            "backlog_max": 0,
        }
        for stream in dict.fromkeys(stream for stream, _ in sums)
    ]
    # Interval 0 is the measurement as a whole, which follows at the end (`summary_event`).
    event = {"event": "interval", "phase": phases.pop(), "index": 1, "streams": streams, "devices": []}
    return cast("IntervalEvent", event | {"begin_ns": 0, "end_ns": SECOND})


def _operation(name: str, row: Mapping[str, int]) -> dict[str, Any]:
    counts = {each: row[each] for each in _COUNTS}
    latency = {"count": 0, "sum_ns": row["sum_ns"], "buckets": []}
    return {"operation": name, **counts, "completion_latency": latency}
