"""Progress of a load over time, to compare counters with at the time at which they were read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.engine.protocol import Event
from iosonde.study.workload import streams_of

COUNTERS = ("load_operations", "load_read_bytes", "load_write_bytes")
UNCERTAIN = 0.05
"""Share of the load's operations up to which the time of a sample may leave open what was complete."""


class LoadProgress:
    """Operations and bytes that all streams had completed at the end of each interval."""

    def __init__(self) -> None:
        self._ends_ns: list[int] = []
        self._totals: list[tuple[int, int, int]] = []
        self._stalled_ns: list[int] = []

    def add(self, event: Event) -> None:
        """Add an interval."""
        done = [operation for stream in event["streams"] for operation in stream["operations"]]
        if not self._ends_ns:
            self._ends_ns, self._totals, self._stalled_ns = [event["begin_ns"]], [(0, 0, 0)], [0]
        count, read, written = self._totals[-1]
        count += sum(each["count"] for each in done if each["operation"] in ("read", "write"))
        read += sum(each["bytes"] for each in done if each["operation"] == "read")
        written += sum(each["bytes"] for each in done if each["operation"] == "write")
        if event["end_ns"] > self._ends_ns[-1]:
            self._ends_ns.append(event["end_ns"])
            self._totals.append((count, read, written))
            self._stalled_ns.append(event.get("stalled_ns", 0))

    def ends(
        self, samples: Sequence[dict[str, int]], hello: Mapping[str, Any], result: Mapping[str, Any]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The first and the last sample within the measurement, with the counters of the load at their times.

        A sample after the last interval is not used: what the load completed until then is not known. Neither is one
        within an interval in which the engine itself did not run, unless little of the load depends on when that was.
        """
        zero = int(hello.get("realtime_ns", 0))
        begin_ns, end_ns = result.get("begin_ns", 0), min([result.get("end_ns", 0), *self._ends_ns[-1:]])
        if len(self._ends_ns) < 2:
            return {}, {}
        inside = (each for each in samples if begin_ns <= each["time_ns"] - zero <= end_ns)
        within = [each for each in inside if self._is_known_at(each["time_ns"] - zero)]
        if len(within) < 2:
            return {}, {}
        return within[0] | self._at(within[0]["time_ns"] - zero), within[-1] | self._at(within[-1]["time_ns"] - zero)

    def _is_known_at(self, time_ns: int) -> bool:
        """Return True if little of the load depends on whether the engine stalled before or after a time."""
        place = self._interval(time_ns)
        begin, end = self._ends_ns[place - 1 : place + 1]
        stalled, since = min(self._stalled_ns[place], end - begin), time_ns - begin
        running = end - begin - stalled
        least, most = max(0, since - stalled), min(running, since)
        operations = self._totals[place][0] - self._totals[place - 1][0]
        return (most - least) * operations <= UNCERTAIN * self._totals[-1][0] * running

    def _interval(self, time_ns: int) -> int:
        return max(1, bisect_left(self._ends_ns, time_ns))

    def _at(self, time_ns: int) -> dict[str, int]:
        """Counters of the load at a time, interpolated within an interval."""
        place = self._interval(time_ns)
        begin, end = self._ends_ns[place - 1 : place + 1]
        share = (time_ns - begin) / (end - begin)
        ends = zip(COUNTERS, self._totals[place - 1], self._totals[place], strict=True)
        return {name: round(before + share * (after - before)) for name, before, after in ends}


def block_bytes(workload: Mapping[str, Any]) -> int:
    """Block size of a load; 0 if it has none or several."""
    sizes = {each["bytes"] for stream in streams_of(workload) for each in stream.get("block_sizes", ())}
    return int(min(sizes)) if len(sizes) == 1 else 0
