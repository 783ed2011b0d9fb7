"""Facts about the block cache in each interval of a run, from the readings at the end of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from iosonde.metrics.block_cache import LIST
from iosonde.metrics.facts import Facts
from iosonde.metrics.scopes import ALL, RUN_KEYS
from iosonde.results.run_facts.block_cache import of_interval

_PLACE = (*RUN_KEYS, "phase", "interval")

FACTS: dict[str, pl.DataType] = {
    "block_cache_reads": pl.Int64(),
    "block_cache_read_hits": pl.Int64(),
    "block_cache_written_back_bytes": pl.Int64(),
    "block_cache_dirty_bytes_mean": pl.Float64(),
    "block_cache_congested_share": pl.Float64(),
}
"""Columns that a run and each of its intervals have."""


def are_needed(metrics: Sequence[str]) -> bool:
    """Whether some of these metrics follow from the readings of each interval."""
    return any(metric.name in metrics for metric in LIST if metric.per_interval)


def with_readings(table: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Replace the facts of a run by those of the interval, at operation `all`; null if unknown."""
    own = table.drop(name for name in FACTS if name in table.columns)
    found = own.join(_of_intervals(facts), on=_PLACE, how="left", maintain_order="left")
    return found.with_columns(pl.when(pl.col("operation") == ALL).then(name).alias(name) for name in FACTS)


def _of_intervals(facts: Facts) -> pl.DataFrame:
    """Return `_PLACE` and `FACTS`. The first reading of a run has states, and no increases."""
    rows: list[dict[str, Any]] = []
    latest: dict[tuple[Any, ...], dict[str, int]] = {}
    readings = facts.block_cache_readings()
    keys = (*_PLACE, "end_ns", "cache_kind", "cache_mode")
    for key, group in readings.sort(*RUN_KEYS, "end_ns").group_by(*keys, maintain_order=True):
        place = dict(zip(keys, key, strict=True))
        run, now = key[: len(RUN_KEYS)], dict(group.select("statistic", "value").iter_rows())
        found = of_interval(str(place["cache_kind"]), str(place["cache_mode"]), latest.get(run, {}), now)
        rows.append({name: place[name] for name in _PLACE} | found)
        latest[run] = now
    return pl.DataFrame(rows, schema={name: readings.schema[name] for name in _PLACE} | FACTS)
