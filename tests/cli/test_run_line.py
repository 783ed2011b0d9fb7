"""The line that a run leaves on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iosonde.execution.progress import Rates

MS = 10**6


def interval(begin_ms: int, end_ms: int, count: int, streams: Sequence[str] = ("main",)) -> dict[str, Any]:
    """An event of the engine: `count` reads of 4 KiB."""
    latency = {"buckets": [[500, count]]}
    read = {"count": count, "bytes": 4096 * count, "response_latency": None, "completion_latency": latency}
    streams = [{"stream": name, "operations": [read]} for name in streams]
    return {"begin_ns": begin_ms * MS, "end_ns": end_ms * MS, "streams": streams}


def test_overlapping_intervals_count_once() -> None:
    """I/Os of half a second: the first interval lasts until its last one ends, long after the second has started."""
    rates = Rates()
    for each in (interval(2000, 2600, 60), interval(2100, 2900, 20), interval(2200, 3000, 20)):
        rates.add(each)
    assert rates.text().split() == ["100", "IOPS", "410", "KB/s", "p99", "-"]


def test_readers_and_writer_are_listed_side_by_side() -> None:
    rates = Rates()
    rates.add(interval(0, 1000, 50, ("readers", "writer")))
    readers, writer = rates.text().split(" | ")
    assert readers.split() == ["readers:", "50", "IOPS", "205", "KB/s", "p99", "-"]
    assert writer.split() == ["writer:", "50", "IOPS", "205", "KB/s", "p99", "-"]
