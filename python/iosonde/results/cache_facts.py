"""Facts about the block cache under a run: read hits, bytes bypassed and written back, dirty data, congestion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.cache_columns import COLUMNS, MEANS
from iosonde.results.schema import Record

Json = Mapping[str, Any]


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about a block cache."""
    found: dict[str, Any] = dict.fromkeys((*COLUMNS, *MEANS))
    cache: Json = record.cache or {}
    start, end = cache.get("at_start") or {}, cache.get("at_end") or {}
    if not start or not end:
        return found
    hits, reads = read_hits(str(cache["kind"]), start, end)
    before, after = cache.get("counters_before") or {}, cache.get("counters_after") or {}
    return found | {
        "block_cache_reads": reads,
        "block_cache_read_hits": hits,
        "block_cache_device_bytes": _grown(start, end, "cache_device_read_bytes", "cache_device_write_bytes"),
        "block_cache_backing_read_bytes": _grown(start, end, "backing_read_bytes"),
        "block_cache_written_back_bytes": _written_back(str(cache.get("mode")), start, end),
        "block_cache_bypassed_bytes": _grown(before, after, "bypassed_bytes"),
        "block_cache_counted_hits": _grown(before, after, "cache_hits"),
        "block_cache_counted_misses": _grown(before, after, "cache_misses"),
        "block_cache_dirty_bytes_start": start.get("dirty_bytes"),
        "block_cache_dirty_bytes_end": end.get("dirty_bytes"),
        "block_cache_dirty_bytes_mean": cache.get("dirty_bytes_mean"),
        "block_cache_congested_share": cache.get("congested_share"),
    }


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
