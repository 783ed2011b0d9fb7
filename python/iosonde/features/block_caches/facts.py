"""Facts about the block cache under a run: read hits, bytes bypassed and written back, dirty data, congestion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from iosonde.features.block_caches.record import BlockCacheReading
from iosonde.results.column import NUMBER, U64, Column
from iosonde.results.schema import Record

Json = Mapping[str, Any]


class BlockCacheFacts:
    """Readings of a block cache at the start and the end of the measurement, and of the run; empty without one."""

    def __init__(self, record: Record) -> None:
        self.cache = record.of(BlockCacheReading) or BlockCacheReading(kind="", mode="")
        self.start, self.end = self.cache.at_start, self.cache.at_end
        self.is_known = bool(self.start and self.end)
        self.hits, self.reads = read_hits(self.cache.kind, self.start, self.end) if self.is_known else (None, None)

    def grown(self, *names: str) -> int | None:
        """Increase of counters over the measurement."""
        return _grown(self.start, self.end, *names)

    def grown_over_run(self, name: str) -> int | None:
        """Increase of a counter over the run, ramp included."""
        return _grown(self.cache.counters_before, self.cache.counters_after, name)


def _row(name: str, text: str, value: Callable[[BlockCacheFacts], Any]) -> Column:
    """Return a whole number; null without a block cache, or where its driver does not count it."""
    dtype = NUMBER if name.endswith(("_mean", "_share")) else U64
    return Column(
        f"block_cache_{name}",
        dtype,
        f"Block cache: {text}",
        lambda run: value(facts) if (facts := run.of(BlockCacheFacts)).is_known else None,
    )


COLUMNS = (
    _row(
        "reads",
        "reads of the cached device in the measurement: bytes with bcache, else operations",
        lambda cache: cache.reads,
    ),
    _row("read_hits", "of these, reads that the cache served", lambda cache: cache.hits),
    _row(
        "device_bytes",
        "bytes that the cache device read and wrote in the measurement",
        lambda cache: cache.grown("cache_device_read_bytes", "cache_device_write_bytes"),
    ),
    _row(
        "backing_read_bytes",
        "bytes read from the backing device in the measurement",
        lambda cache: cache.grown("backing_read_bytes"),
    ),
    _row(
        "written_back_bytes",
        "bytes written to the backing device in the measurement, in writeback mode",
        lambda cache: _written_back(cache.cache.mode, cache.start, cache.end),
    ),
    _row(
        "bypassed_bytes",
        "bytes that bypassed the cache over the run, ramp included",
        lambda cache: cache.grown_over_run("bypassed_bytes"),
    ),
    _row(
        "counted_hits",
        "read hits that the driver counted over the run, ramp included",
        lambda cache: cache.grown_over_run("cache_hits"),
    ),
    _row(
        "counted_misses",
        "read misses that the driver counted over the run, ramp included",
        lambda cache: cache.grown_over_run("cache_misses"),
    ),
    _row(
        "dirty_bytes_start",
        "dirty bytes in the cache at the start of the measurement",
        lambda cache: cache.start.get("dirty_bytes"),
    ),
    _row(
        "dirty_bytes_end",
        "dirty bytes in the cache at the end of the measurement",
        lambda cache: cache.end.get("dirty_bytes"),
    ),
    _row(
        "dirty_bytes_mean",
        "mean of dirty bytes in the cache over the intervals of the measurement",
        lambda cache: cache.cache.dirty_bytes_mean,
    ),
    _row(
        "congested_share",
        "share of intervals in which bcache treated its cache device as congested",
        lambda cache: cache.cache.congested_share,
    ),
)
"""Columns of `runs` about the block cache under a run."""


def of_interval(kind: str, mode: str, before: Json, after: Json) -> dict[str, Any]:
    """Return what an interval has of these columns: increases since the reading before it, and the states after it."""
    hits, reads = read_hits(kind, before, after)
    return {
        "block_cache_reads": reads,
        "block_cache_read_hits": hits,
        "block_cache_written_back_bytes": _written_back(mode, before, after),
        "block_cache_dirty_bytes_mean": after.get("dirty_bytes"),
        "block_cache_congested_share": float(after["congested"] > 0) if "congested" in after else None,
    }


def read_hits(kind: str, before: Json, after: Json) -> tuple[int | None, int | None]:
    """Return read hits and reads between two samples.

    bcache updates its counters every 13.6 s, but reads the backing device for misses only: hits are the bytes that it
    did not read there. Device mapper reads the backing device for promotions too, and has current counters.
    """
    if kind == "bcache":
        reads, missed = _grown(before, after, "read_bytes"), _grown(before, after, "backing_read_bytes")
        return (None, None) if reads is None or missed is None else (max(0, reads - missed), reads)
    hits, misses = _grown(before, after, "cache_hits"), _grown(before, after, "cache_misses")
    return (None, None) if hits is None or misses is None else (hits, hits + misses)


def _written_back(mode: str, before: Json, after: Json) -> int | None:
    """Bytes written to the backing device; None in modes that write there at once."""
    return _grown(before, after, "backing_write_bytes") if mode == "writeback" else None


def _grown(before: Json, after: Json, *names: str) -> int | None:
    """Sum of the increases of counters; None if one is missing or was reset."""
    total = 0
    for name in names:
        if name not in before or name not in after or after[name] < before[name]:
            return None
        total += int(after[name]) - int(before[name])
    return total
