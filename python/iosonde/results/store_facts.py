"""Facts about a key-value store in a record: its database, the values read, its memory, and its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.results.schema import Record
from iosonde.workload import streams_of
from iosonde.workload.kv.phases import WRITES

Json = Mapping[str, Any]

STALLS = "rocksdb.stall.micros"

TIERS = {
    "block_cache_hits": "rocksdb.block.cache.hit",
    "block_cache_misses": "rocksdb.block.cache.miss",
    "read_cache_hits": "rocksdb.persistent.cache.hit",
    "read_cache_misses": "rocksdb.persistent.cache.miss",
}
"""Columns with the look-ups of blocks in RocksDB's cache in memory and in its persistent read cache."""

PAGES_REQUESTED = "cache: pages requested from the cache"
PAGES_READ = "cache: pages read into cache"
"""Statistics of WiredTiger's cache."""


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about a store and its memory limit."""
    workload = record.spec["workload"]
    result: Json = record.result or {}
    store: Json = result.get("store") or {}
    writers = sum(stream["jobs"] for stream in streams_of(workload) if _writes(stream))
    checks = store.get("checks") or []
    memory = record.memory or {}
    totals = _outermost(record.device_totals)
    return {
        "workload": workload["kind"],
        "store_version": store.get("version"),
        "store_kind": store.get("kind"),
        "store_durability": store.get("durability"),
        "cancelled_write_bytes": _cancelled(store, workload),
        "started_empty": workload["database"]["kind"] == "empty" if "database" in workload else None,
        "database_kept": store.get("kept"),
        "database_bytes": store.get("database_bytes"),
        "record_bytes": store.get("record_bytes"),
        "cached_bytes_at_start": store.get("cached_bytes_at_start"),
        "cached_bytes_at_end": store.get("cached_bytes_at_end"),
        "settle_ns": store.get("settle_ns"),
        "settle_at_end_ns": store.get("settle_at_end_ns"),
        "close_ns": store.get("close_ns"),
        "writing_jobs": writers if store else None,
        "stalled_ns": _stalled_ns(
            store, at_most=writers * ((result.get("end_ns") or 0) - (result.get("begin_ns") or 0))
        ),
        **{column: _increase(store, statistic) for column, statistic in TIERS.items()},
        **_pages(store),
        "values_checked": sum(check["values"] for check in checks) if store else None,
        "values_missing": sum(check["missing"] for check in checks) if store else None,
        "values_corrupted": sum(check["corrupted"] for check in checks) if store else None,
        "values_stale": sum(check.get("stale", 0) for check in checks) if store else None,
        "memory_limit_bytes": memory.get("limit_bytes"),
        "memory_peak_bytes": memory.get("peak_bytes"),
        "memory_at_limit": memory.get("at_limit"),
        "memory_oom_kills": memory.get("oom_kills"),
        "run_device_read_bytes": sum(each["read_bytes"] for each in totals) if totals else None,
        "run_device_write_bytes": sum(each["write_bytes"] for each in totals) if totals else None,
    }


def _cancelled(store: Json, workload: Json) -> int | None:
    """Return the bytes that were deleted before they reached a device, in the span of the run's account."""
    whole = workload.get("database", {}).get("kind") == "empty"
    found: int | None = store.get("cancelled_write_bytes" if whole else "measured_cancelled_write_bytes")
    return found


def _writes(stream: Json) -> bool:
    return any(each["operation"] in WRITES for each in stream.get("operations", ()))


def _stalled_ns(store: Json, *, at_most: int) -> int | None:
    """Return the time that RocksDB stalled writes, summed over threads; no other store reports it.

    It counts a write when its stall ends, which may be long after the end: so at most all writers' time.
    """
    begin, end = store.get("statistics_at_start") or {}, store.get("statistics_at_end") or {}
    if STALLS not in end:
        return None
    return min(at_most, int(1000 * (end[STALLS] - begin.get(STALLS, 0))))


def _increase(store: Json, statistic: str) -> int | None:
    """Return how much a counter of the store rose in the measurement; None where the store does not have it."""
    begin, end = store.get("statistics_at_start") or {}, store.get("statistics_at_end") or {}
    return int(end[statistic] - begin.get(statistic, 0)) if statistic in end else None


def _pages(store: Json) -> dict[str, int]:
    """Return the look-ups of pages in WiredTiger's cache as those of blocks; nothing of other stores."""
    requested, read = _increase(store, PAGES_REQUESTED), _increase(store, PAGES_READ)
    if requested is None or read is None:
        return {}
    return {"block_cache_hits": max(0, requested - read), "block_cache_misses": read}


def _outermost(totals: Sequence[Json]) -> list[Json]:
    """Return the devices that data and log are on; where that is not known, the one that moved most.

    Of stacked devices each counts the same bytes, so they are not added up.
    """
    outermost = [each for each in totals if each.get("outermost")]
    return outermost or sorted(totals, key=lambda each: each["read_bytes"] + each["write_bytes"])[-1:]
