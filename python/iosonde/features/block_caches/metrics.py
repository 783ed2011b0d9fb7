"""Metrics of the block cache under a run."""

from __future__ import annotations

from typing import Literal

import polars as pl

from iosonde.metrics.metric import Metric, over


def _metric(
    name: str,
    title: str,
    formula: str,
    expression: pl.Expr,
    *,
    unit: str = "",
    better: Literal["higher", "lower", "neither"] = "neither",
    per_interval: bool = False,
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        formula=formula,
        better=better,
        kind="device",
        expression=expression,
        per_interval=per_interval,
    )


_COUNTED = pl.col("block_cache_counted_hits") + pl.col("block_cache_counted_misses")

METRICS = (
    _metric(
        "cache_read_hit_ratio",
        "Read hit ratio of the block cache",
        "bcache: 1 - bytes read from the backing device / bytes read from the cached device; device mapper: read hits "
        "/ (read hits + read misses)",
        over("block_cache_read_hits", "block_cache_reads"),
        better="higher",
        per_interval=True,
    ),
    _metric(
        "cache_counted_hit_ratio",
        "Read hit ratio as the driver counts it",
        "read hits / (read hits + read misses), by the driver's counters over the run, ramp included",
        over("block_cache_counted_hits", _COUNTED),
        better="higher",
    ),
    _metric(
        "cache_bypassed_bytes",
        "Bytes that bypassed the block cache",
        "bytes that the driver sent to the backing device without looking them up, over the run, ramp included",
        pl.col("block_cache_bypassed_bytes"),
        unit="B",
    ),
    _metric(
        "cache_written_back_bytes",
        "Bytes written back",
        "writeback mode: bytes written to the backing device, including writes that bypassed the cache",
        pl.col("block_cache_written_back_bytes"),
        unit="B",
        per_interval=True,
    ),
    _metric(
        "cache_dirty_bytes_mean",
        "Dirty bytes in the block cache",
        "mean of dirty bytes at the ends of the intervals of the measurement",
        pl.col("block_cache_dirty_bytes_mean"),
        unit="B",
        per_interval=True,
    ),
    _metric(
        "cache_congested_share",
        "Congested share of the measurement",
        "intervals at whose end bcache treated its cache device as congested / intervals",
        pl.col("block_cache_congested_share"),
        better="lower",
        per_interval=True,
    ),
)
"""Metrics of block caches, in the order of docs/metrics.md."""
