"""The line that a run leaves on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iosonde.execution.progress import Rates

MS = 10**6


def operation(name: str, count: int, size: int, bucket: int) -> dict[str, Any]:
    """So many operations with the same latency."""
    latency = {"buckets": [[bucket, count]]}
    counted = {"operation": name, "count": count, "bytes": size * count}
    return {**counted, "response_latency": None, "completion_latency": latency}


def interval(begin_ms: int, end_ms: int, count: int, streams: Sequence[str] = ("main",)) -> dict[str, Any]:
    """An event of the engine: `count` reads of 4 KiB."""
    streams = [{"stream": name, "operations": [operation("read", count, 4096, 500)]} for name in streams]
    return {"begin_ns": begin_ms * MS, "end_ns": end_ms * MS, "streams": streams}


def test_overlapping_intervals_count_once() -> None:
    """I/Os of half a second: the first interval lasts until its last one ends, long after the second has started."""
    rates = Rates()
    for each in (interval(2000, 2600, 60), interval(2100, 2900, 20), interval(2200, 3000, 20)):
        rates.add(each)
    assert rates.text().split() == ["100", "IOPS", "410", "kB/s", "p99", "-"]


def test_readers_and_writer_are_listed_side_by_side() -> None:
    rates = Rates()
    rates.add(interval(0, 1000, 50, ("readers", "writer")))
    readers, writer = rates.text().split(" | ")
    assert readers.split() == ["readers:", "50", "IOPS", "205", "kB/s", "p99", "-"]
    assert writer.split() == ["writer:", "50", "IOPS", "205", "kB/s", "p99", "-"]


def test_writes_with_flushes_have_the_rate_of_the_writes_and_the_latency_of_the_flushes() -> None:
    """One write and one flush after the other: 2,000 writes a second, not 4,000 I/Os, and the flushes take the time."""
    rates = Rates()
    each = interval(0, 1000, 0)
    each["streams"][0]["operations"] = [operation("write", 2000, 4096, 300), operation("flush", 2000, 0, 1000)]
    rates.add(each)
    assert rates.text().split() == ["2,000", "IOPS", "8.19", "MB/s", "flush", "p99", "1", "µs"]
