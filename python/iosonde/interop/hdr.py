"""Runs as HdrHistogram interval logs: one file a run, one line an interval and distribution.

The tag of a line is `RUN/STREAM/OPERATION/LATENCY`, `completion` or `response`, so that logs of several runs can be
put together. Minimum and maximum of each interval are exact to the encoding. Only the measurement is written, and
only of runs that came to their end; an interval in which nothing completed has no line.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from iosonde.metrics.facts import Facts
from iosonde.results.column import midpoint_ns
from iosonde.results.result_set import ResultSet
from iosonde.results.schema import Record

SUFFIX = ".hlog"
WHAT = "HdrHistogram interval logs, one file a run: a line an interval, in ns, tagged `RUN/STREAM/OPERATION/LATENCY`"


def files(results: ResultSet) -> Iterator[tuple[str, bytes]]:
    """Name and content of the file of each run that came to its end."""
    records = {record.run_id: record for record in results.records() if record.outcome == "complete"}
    for run_id, lines in _lines(results, records):
        text = "\n".join([*_head(records[run_id]), *lines]) + "\n"
        yield run_id + SUFFIX, text.encode()


def _head(record: Record) -> Iterator[str]:
    start = (record.engine.get("realtime_ns", 0) + _begin_ns(record)) / 10**9
    yield "#[Histogram log format version 1.3]"
    yield f"#[StartTime: {start:.3f} (seconds since epoch), {datetime.fromtimestamp(start, UTC).isoformat()}]"
    yield f"#[BaseTime: {start:.3f} (seconds since epoch)]"
    if record.target.get("simulated"):
        yield "#[iosonde: simulated: results of a device model, not of a device]"
    yield f"#[iosonde: run {record.run_id} of case {re.sub(r'[^ -~]', '?', record.case_id)}; values in ns]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'


def _begin_ns(record: Record) -> int:
    assert record.result is not None, "a complete run has a result"
    begin_ns: int = record.result["begin_ns"]
    return begin_ns


def _lines(results: ResultSet, records: Mapping[str, Record]) -> Iterator[tuple[str, list[str]]]:
    """Every run with its lines. The buckets come some runs at a time, and those of a run together."""
    facts = Facts(results)
    counts = facts.counts(per="interval").filter(pl.col("phase") == "measure", pl.col("count") > 0)
    members = {row["member"]: row for row in counts.iter_rows(named=True)}
    of_runs = counts.select("member", "run_id", "interval")
    silent = set(records)
    for frame in facts.histograms(per="interval"):
        for (run_id,), mine in frame.join(of_runs, on="member").partition_by("run_id", as_dict=True).items():
            silent.discard(run_id)
            distributions = mine.sort("interval", "member", "response").partition_by(
                "member", "response", as_dict=True, maintain_order=True
            )
            begin_ns = _begin_ns(records[run_id])
            yield (
                run_id,
                [
                    _line(members[member], "response" if response else "completion", buckets, begin_ns)
                    for (member, response), buckets in distributions.items()
                ],
            )
    yield from ((run_id, []) for run_id in sorted(silent))


def _line(row: Mapping[str, Any], latency: str, buckets: pl.DataFrame, begin_ns: int) -> str:
    stream = re.sub(r"[^!-+\--~]", "_", row["stream"])
    begin, length = (row["begin_ns"] - begin_ns) / 10**9, (row["end_ns"] - row["begin_ns"]) / 10**9
    smallest, largest = row[f"{latency}_min_ns"], row[f"{latency}_max_ns"]
    text = encode(values(buckets, smallest, largest))
    tag = f"{row['run_id']}/{stream}/{row['operation']}/{latency}"
    return f"Tag={tag},{begin:.3f},{length:.3f},{largest / 10**6:.3f},{text}"


def values(buckets: pl.DataFrame, smallest_ns: int, largest_ns: int) -> dict[int, int]:
    """Counts by value: the midpoints of the buckets, and the exact extremes, which are in the first and the last."""
    ordered = buckets.sort("bucket")
    counts: dict[int, int] = {}
    for value, count in zip(
        midpoint_ns(ordered["bucket"].to_numpy()).tolist(), ordered["count"].to_list(), strict=True
    ):
        inside = min(max(value, smallest_ns), largest_ns)
        counts[inside] = counts.get(inside, 0) + count
    for extreme, taken_from in ((smallest_ns, min(counts)), (largest_ns, max(counts))):
        counts[taken_from] -= 1
        counts[extreme] = counts.get(extreme, 0) + 1
    return {value: count for value, count in counts.items() if count}


# A histogram


SIGNIFICANT_DIGITS = 3
HIGHEST_NS = (1 << 45) - 1
"""Nearly ten hours; what takes longer is counted there."""

_HALF = 1024
_HALF_BITS = 10
_PAYLOAD, _COMPRESSED = 0x1C849313, 0x1C849314
"""Cookies of V2 with words of eight bytes."""


def encode(counts: Mapping[int, int]) -> str:
    """Counts by value in ns -> the text of a log line: the compressed V2 encoding, as each of its libraries reads it.

    Three significant digits: values below 2,048 ns are exact, and each power of two above has 1,024 parts, twice as
    many as our buckets have. So nothing is lost but what the buckets had lost already. The header, then the counts of
    all its slots from 0 up to the last that is occupied, each as a ZigZag LEB128 number, where a negative one means
    this many empty slots; all of it deflated, in base64.
    """
    body = b"".join(map(_zigzag, _runs(_slots(counts))))
    header = struct.pack(">iiiiqqd", _PAYLOAD, len(body), 0, SIGNIFICANT_DIGITS, 1, HIGHEST_NS, 1.0)
    compressed = zlib.compress(header + body)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED, len(compressed)) + compressed).decode("ascii")


def slot_of(value_ns: int) -> int:
    """Position of a value in HdrHistogram's array of counts."""
    value = min(value_ns, HIGHEST_NS)
    shift = max(value.bit_length() - _HALF_BITS - 1, 0)
    return _HALF * shift + (value >> shift)


def _slots(counts: Mapping[int, int]) -> dict[int, int]:
    slots: dict[int, int] = {}
    for value_ns, count in counts.items():
        slot = slot_of(value_ns)
        slots[slot] = slots.get(slot, 0) + count
    return slots


def _runs(slots: Mapping[int, int]) -> Iterable[int]:
    """Counts in ascending order; a run of empty slots as its negative length, a single one as 0."""
    reached = 0
    for slot in sorted(slots):
        if slot > reached:
            yield -(slot - reached) if slot - reached > 1 else 0
        yield slots[slot]
        reached = slot + 1


def _zigzag(number: int) -> bytes:
    """Small numbers of either sign in few bytes; nine at most, the ninth without a flag for more."""
    left = (number << 1) ^ (number >> 63)
    coded = bytearray()
    while left >= 0x80 and len(coded) < 8:
        coded.append(left & 0x7F | 0x80)
        left >>= 7
    coded.append(left)
    return bytes(coded)
