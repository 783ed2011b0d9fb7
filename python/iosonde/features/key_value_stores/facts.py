"""Facts about a key-value store in a record: its database, the values read, and its caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from iosonde.features.key_value_stores.fields import STORES
from iosonde.features.key_value_stores.phases import WRITES
from iosonde.results.column import FLAG, TEXT, U32, U64, Column, DType, any_of
from iosonde.results.schema import Record
from iosonde.workload import streams_of

Json = Mapping[str, Any]

STALLS = "rocksdb.stall.micros"

BLOCK_CACHE_HITS = "rocksdb.block.cache.hit"
BLOCK_CACHE_MISSES = "rocksdb.block.cache.miss"
READ_CACHE_HITS = "rocksdb.persistent.cache.hit"
READ_CACHE_MISSES = "rocksdb.persistent.cache.miss"
"""Look-ups of blocks in RocksDB's cache in memory and in its persistent read cache."""

PAGES_REQUESTED = "cache: pages requested from the cache"
PAGES_READ = "cache: pages read into cache"
"""Statistics of WiredTiger's cache."""


class StoreFacts:
    """The parts of a record about a store; empty without one."""

    def __init__(self, record: Record) -> None:
        self.workload: Json = record.spec["workload"]
        self.result: Json = record.result or {}
        self.store: Json = self.result.get("store") or {}

    @cached_property
    def writers(self) -> int:
        """Jobs of the streams that write."""
        return sum(stream["jobs"] for stream in streams_of(self.workload) if _writes(stream))

    @property
    def stalled_ns(self) -> int | None:
        """Time of write stalls, at most the time of all writers."""
        measured_ns = (self.result.get("end_ns") or 0) - (self.result.get("begin_ns") or 0)
        return _stalled_ns(self.store, at_most=self.writers * measured_ns)

    @property
    def started_empty(self) -> bool | None:
        """True if the run started with an empty database."""
        return self.workload["database"]["kind"] == "empty" if "database" in self.workload else None

    @cached_property
    def _pages(self) -> tuple[int, int] | None:
        return _pages(self.store)

    @property
    def block_cache_hits(self) -> int | None:
        """Blocks (WiredTiger: pages) found in the store's cache."""
        return self._pages[0] if self._pages else _increase(self.store, BLOCK_CACHE_HITS)

    @property
    def block_cache_misses(self) -> int | None:
        """Blocks (WiredTiger: pages) not found in the store's cache."""
        return self._pages[1] if self._pages else _increase(self.store, BLOCK_CACHE_MISSES)

    def checked(self, name: str) -> int | None:
        """Sum of a number of the checks of values; one that the engine did not count is 0."""
        return sum(check.get(name, 0) for check in self.store.get("checks") or []) if self.store else None


def _row(name: str, dtype: DType, text: str, value: Callable[[StoreFacts], Any]) -> Column:
    return Column(name, dtype, text, lambda run: value(run.of(StoreFacts)))


def _reported(name: str, dtype: DType, text: str, key: str = "") -> Column:
    """Return what the engine reports about the store, by default under the same name."""
    return _row(name, dtype, text, lambda facts: facts.store.get(key or name))


COLUMNS = (
    _reported("store_version", TEXT, "Version of the store, as it reports it", "version"),
    _reported(
        "store_kind",
        TEXT,
        f"Store: {any_of(STORES)}",
        "kind",
    ),
    _reported(
        "store_durability",
        TEXT,
        "What acknowledged writes survive: `nothing`, `process_crash` or `power_loss`; null of runs without writes",
        "durability",
    ),
    _row(
        "cancelled_write_bytes",
        U64,
        "Bytes written to the page cache but deleted before writeback, in the span of the run's account",
        lambda facts: _cancelled(facts.store, facts.workload),
    ),
    _row(
        "started_empty",
        FLAG,
        "Whether the run started with an empty database; null for block I/O",
        lambda facts: facts.started_empty,
    ),
    _reported("database_kept", FLAG, "Whether a complete database was found and reused", "kept"),
    _reported("database_bytes", U64, "Bytes allocated to the closed database, including its log"),
    _reported("record_bytes", U64, "Size of keys and values of all records, counted once, bytes"),
    _reported("database_bytes_at_start", U64, "Bytes of data in the database's files at measurement start"),
    _reported("cached_bytes_at_start", U64, "Bytes of these in the page cache (cachestat)"),
    _reported("database_bytes_at_end", U64, "Bytes of data in the database's files at measurement end"),
    _reported("cached_bytes_at_end", U64, "Bytes of these in the page cache"),
    _reported("settle_ns", U64, "Time to settle before the measurement, ns"),
    _reported("settle_at_end_ns", U64, "Time to settle after the measurement, ns"),
    _reported("close_ns", U64, "Time to close the database, ns"),
    _row(
        "writing_jobs",
        U32,
        "Jobs of the streams that write to the store",
        lambda facts: facts.writers if facts.store else None,
    ),
    _row(
        "stalled_ns",
        U64,
        "Time that writes were stalled, as the store reports it, summed over threads, ns",
        lambda facts: facts.stalled_ns,
    ),
    _row(
        "block_cache_hits",
        U64,
        "RocksDB and WiredTiger: blocks found in the store's cache in the measurement",
        lambda facts: facts.block_cache_hits,
    ),
    _row(
        "block_cache_misses",
        U64,
        "RocksDB and WiredTiger: blocks not found in the store's cache",
        lambda facts: facts.block_cache_misses,
    ),
    _row(
        "read_cache_hits",
        U64,
        "RocksDB: blocks found in its persistent read cache in the measurement",
        lambda facts: _increase(facts.store, READ_CACHE_HITS),
    ),
    _row(
        "read_cache_misses",
        U64,
        "RocksDB: blocks not found in its persistent read cache",
        lambda facts: _increase(facts.store, READ_CACHE_MISSES),
    ),
    _row(
        "values_checked",
        U64,
        "Values compared with the expected ones, ramp included",
        lambda facts: facts.checked("values"),
    ),
    _row("values_missing", U64, "Records that were not found", lambda facts: facts.checked("missing")),
    _row(
        "values_corrupted",
        U64,
        "Values that differ from the expected ones",
        lambda facts: facts.checked("corrupted"),
    ),
    _row(
        "values_stale",
        U64,
        "Values older than the last write acknowledged before the read, where `freshness` is checked",
        lambda facts: facts.checked("stale"),
    ),
)
"""Columns of `runs` about a store."""


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


def _pages(store: Json) -> tuple[int, int] | None:
    """Return the look-ups of pages in WiredTiger's cache, found and not found; None of other stores."""
    requested, read = _increase(store, PAGES_REQUESTED), _increase(store, PAGES_READ)
    return None if requested is None or read is None else (max(0, requested - read), read)
