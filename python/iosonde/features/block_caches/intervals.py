"""Facts about the block cache in each interval of a run, from the readings at the end of each."""

from __future__ import annotations

from typing import Any

import polars as pl

from iosonde.features.block_caches.facts import of_interval
from iosonde.features.block_caches.record import STATISTICS, BlockCacheReading
from iosonde.metrics.facts import Facts
from iosonde.metrics.intervals.interval_facts import KEYS, IntervalFacts
from iosonde.metrics.scopes import RUN_KEYS

_SCHEMA: dict[str, pl.DataType] = {
    "block_cache_reads": pl.Int64(),
    "block_cache_read_hits": pl.Int64(),
    "block_cache_written_back_bytes": pl.Int64(),
    "block_cache_dirty_bytes_mean": pl.Float64(),
    "block_cache_congested_share": pl.Float64(),
}


def _of_intervals(facts: Facts) -> pl.DataFrame:
    """Return `KEYS` and the facts. The first reading of a run has states, and no increases."""
    caches = facts.parts(BlockCacheReading)
    rows: list[dict[str, Any]] = []
    latest: dict[tuple[Any, ...], dict[str, int]] = {}
    readings = facts.statistics(STATISTICS)
    keys = (*KEYS, "end_ns")
    for key, group in readings.sort(*RUN_KEYS, "end_ns").group_by(*keys, maintain_order=True):
        run, now = key[: len(RUN_KEYS)], dict(group.select("statistic", "value").iter_rows())
        cache = caches[run]
        found = of_interval(cache.kind, cache.mode, latest.get(run, {}), now)
        rows.append(dict(zip(KEYS, key, strict=False)) | found)
        latest[run] = now
    return pl.DataFrame(rows, schema={name: readings.schema[name] for name in KEYS} | _SCHEMA)


FACTS = (IntervalFacts(names=tuple(_SCHEMA), of_intervals=_of_intervals),)
