"""Facts and metrics of the block cache under a run and its intervals: hits, bytes written back, dirty bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.features.block_caches.record import STATISTICS, BlockCacheReading
from iosonde.metrics.metric import Metric, over
from iosonde.metrics.scopes import INTERVAL_KEYS, RUN_KEYS
from iosonde.results.column import NUMBER, U64, facts, grown
from iosonde.results.schema import Record

if TYPE_CHECKING:
    from iosonde.metrics.facts import Facts


Json = Mapping[str, Any]


def _cache(record: Record) -> BlockCacheReading | None:
    """Return the reading where the cache was read at both ends of the measurement."""
    cache = record.of(BlockCacheReading)
    return cache if cache and cache.at_start and cache.at_end else None


def _measured(*names: str) -> Callable[[BlockCacheReading], int | None]:
    """Return the increase of counters over the measurement."""
    return lambda cache: grown(cache.at_start, cache.at_end, *names)


def _over_run(name: str) -> Callable[[BlockCacheReading], int | None]:
    """Return the increase of a counter over the run, ramp included."""
    return lambda cache: grown(cache.counters_before, cache.counters_after, name)


COLUMNS = facts(
    _cache,
    ("reads", U64, "reads of the cached device in the measurement: bytes with bcache, else operations",
        lambda cache: read_hits(cache.kind, cache.at_start, cache.at_end)[1]),
    ("read_hits", U64, "of these, reads that the cache served",
        lambda cache: read_hits(cache.kind, cache.at_start, cache.at_end)[0]),
    ("device_bytes", U64, "bytes that the cache device read and wrote in the measurement",
        _measured("cache_device_read_bytes", "cache_device_write_bytes")),
    ("backing_read_bytes", U64, "bytes read from the backing device in the measurement",
        _measured("backing_read_bytes")),
    ("written_back_bytes", U64, "bytes written to the backing device in the measurement, in writeback mode",
        lambda cache: _written_back(cache.mode, cache.at_start, cache.at_end)),
    ("bypassed_bytes", U64, "bytes that bypassed the cache over the run, ramp included",
        _over_run("bypassed_bytes")),
    ("counted_hits", U64, "read hits that the driver counted over the run, ramp included",
        _over_run("cache_hits")),
    ("counted_misses", U64, "read misses that the driver counted over the run, ramp included",
        _over_run("cache_misses")),
    ("dirty_bytes_start", U64, "dirty bytes in the cache at the start of the measurement", "at_start.dirty_bytes"),
    ("dirty_bytes_end", U64, "dirty bytes in the cache at the end of the measurement", "at_end.dirty_bytes"),
    ("dirty_bytes_mean", NUMBER, "mean of dirty bytes in the cache over the intervals of the measurement"),
    ("congested_share", NUMBER, "share of intervals in which bcache treated its cache device as congested"),
    prefix="block_cache_", words="Block cache: ",
)  # fmt: skip
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
        reads, missed = grown(before, after, "read_bytes"), grown(before, after, "backing_read_bytes")
        return (None, None) if reads is None or missed is None else (max(0, reads - missed), reads)
    hits, misses = grown(before, after, "cache_hits"), grown(before, after, "cache_misses")
    return (None, None) if hits is None or misses is None else (hits, hits + misses)


def _written_back(mode: str, before: Json, after: Json) -> int | None:
    """Bytes written to the backing device; None in modes that write there at once."""
    return grown(before, after, "backing_write_bytes") if mode == "writeback" else None


_COUNTED = pl.col("block_cache_counted_hits") + pl.col("block_cache_counted_misses")

METRICS = (
    Metric("cache_read_hit_ratio", "Read hit ratio of the block cache", "", "higher", "device",
        "bcache: 1 - bytes read from the backing device / bytes read from the cached device; device mapper: read hits "
        "/ (read hits + read misses)", "block_cache_read_hits / block_cache_reads", per_interval=True),
    Metric("cache_counted_hit_ratio", "Read hit ratio as the driver counts it", "", "higher", "device",
        "read hits / (read hits + read misses), by the driver's counters over the run, ramp included",
        over("block_cache_counted_hits", _COUNTED)),
    Metric("cache_bypassed_bytes", "Bytes that bypassed the block cache", "B", "neither", "device",
        "bytes that the driver sent to the backing device without looking them up, over the run, ramp included",
        "block_cache_bypassed_bytes"),
    Metric("cache_written_back_bytes", "Bytes written back", "B", "neither", "device",
        "writeback mode: bytes written to the backing device, including writes that bypassed the cache",
        "block_cache_written_back_bytes", per_interval=True),
    Metric("cache_dirty_bytes_mean", "Dirty bytes in the block cache", "B", "neither", "device",
        "mean of dirty bytes at the ends of the intervals of the measurement", "block_cache_dirty_bytes_mean",
        per_interval=True),
    Metric("cache_congested_share", "Congested share of the measurement", "", "lower", "device",
        "intervals at whose end bcache treated its cache device as congested / intervals",
        "block_cache_congested_share", per_interval=True),
)  # fmt: skip
"""Metrics of block caches, in the order of docs/metrics.md."""


_SCHEMA: dict[str, pl.DataType] = {
    "block_cache_reads": pl.Int64(),
    "block_cache_read_hits": pl.Int64(),
    "block_cache_written_back_bytes": pl.Int64(),
    "block_cache_dirty_bytes_mean": pl.Float64(),
    "block_cache_congested_share": pl.Float64(),
}


def _of_intervals(facts: Facts) -> pl.DataFrame:
    """Return `INTERVAL_KEYS` and the facts. The first reading of a run has states, and no increases."""
    caches = facts.parts(BlockCacheReading)
    rows: list[dict[str, Any]] = []
    latest: dict[tuple[Any, ...], dict[str, int]] = {}
    readings = facts.statistics(STATISTICS)
    keys = (*INTERVAL_KEYS, "end_ns")
    for key, group in readings.sort(*RUN_KEYS, "end_ns").group_by(*keys, maintain_order=True):
        run, now = key[: len(RUN_KEYS)], dict(group.select("statistic", "value").iter_rows())
        cache = caches[run]
        found = of_interval(cache.kind, cache.mode, latest.get(run, {}), now)
        rows.append(dict(zip(INTERVAL_KEYS, key, strict=False)) | found)
        latest[run] = now
    return pl.DataFrame(rows, schema={name: readings.schema[name] for name in INTERVAL_KEYS} | _SCHEMA)


INTERVALS = ((tuple(_SCHEMA), _of_intervals),)
