"""What a record tells of a key-value store: its database, what came of the values read, its memory, and its devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.schema import Record

Json = Mapping[str, Any]

STALLS = "rocksdb.stall.micros"


def of(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about a store and its memory limit."""
    workload = record.spec["workload"]
    store: Json = (record.result or {}).get("store") or {}
    checks = store.get("checks") or []
    memory = record.memory or {}
    busiest: Json = max(record.device_totals, key=_moved, default={})
    return {
        "workload": workload["kind"],
        "store_version": store.get("version"),
        "began_empty": workload.get("database", {}).get("kind") == "empty" if workload["kind"] == "kv" else None,
        "database_kept": store.get("kept"),
        "database_bytes": store.get("database_bytes"),
        "record_bytes": store.get("record_bytes"),
        "cached_bytes_at_begin": store.get("cached_bytes_at_begin"),
        "cached_bytes_at_end": store.get("cached_bytes_at_end"),
        "settle_ns": store.get("settle_ns"),
        "settle_at_end_ns": store.get("settle_at_end_ns"),
        "close_ns": store.get("close_ns"),
        "stalled_ns": _stalled_ns(store),
        "values_checked": sum(check["values"] for check in checks) if store else None,
        "values_missing": sum(check["missing"] for check in checks) if store else None,
        "values_corrupted": sum(check["corrupted"] for check in checks) if store else None,
        "memory_limit_bytes": memory.get("limit_bytes"),
        "memory_peak_bytes": memory.get("peak_bytes"),
        "memory_at_limit": memory.get("at_limit"),
        "memory_oom_kills": memory.get("oom_kills"),
        "run_device_read_bytes": busiest.get("read_bytes"),
        "run_device_write_bytes": busiest.get("write_bytes"),
    }


def _stalled_ns(store: Json) -> int | None:
    """Time for which RocksDB says that it held writes back, summed over threads; no other store tells."""
    begin, end = store.get("statistics_at_begin") or {}, store.get("statistics_at_end") or {}
    if STALLS not in end:
        return None
    return int(1000 * (end[STALLS] - begin.get(STALLS, 0)))


def _moved(device: Json) -> int:
    """Of devices that stand on each other each counts the same bytes, so they are not added up."""
    return int(device["read_bytes"] + device["write_bytes"])
