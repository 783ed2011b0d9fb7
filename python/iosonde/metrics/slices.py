"""Number of slow I/Os in each slice of a measurement, for pass rules such as Aerospike's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from iosonde.metrics.scopes import MIXED

if TYPE_CHECKING:
    from iosonde.results import ResultSet


def slow_shares(
    results: ResultSet,
    *,
    latency: str,
    threshold_ns: int,
    slice_ns: int | None,
    stream: str = "",
    operation: str = "",
) -> list[tuple[int, int]]:
    """Of each slice: the I/Os that took longer than the threshold, and all of them; of the runs in `results` together.

    `latency` is `completion_latency` or `response_latency`. A slice is as many whole intervals as begin in it; a last
    one shorter than half belongs to the slice before, and without `slice_ns` the measurement is one. A slice in which
    nothing completed has no I/Os, which is not the same as none that are slow.
    """
    measured = results.intervals.filter(pl.col("phase") == "measure")
    operations = [operation] if operation else list(MIXED)
    chosen = pl.col("operation").is_in(operations) & ((pl.col("stream") == stream) | (stream == ""))
    if measured.filter(chosen).is_empty():
        return []
    kind = latency.removesuffix("_latency")
    buckets = results.histograms.filter(pl.col("phase") == "measure", chosen, pl.col("latency") == kind)
    counted = buckets.group_by("run_id", "interval").agg(
        slow=pl.col("count").filter(pl.col("midpoint_ns") > threshold_ns).sum(), total=pl.col("count").sum()
    )
    sliced = (
        measured.select("run_id", "interval", "begin_ns", "end_ns")
        .unique()
        .with_columns(slice=_slice(slice_ns))
        .join(counted, on=["run_id", "interval"], how="left")
        .group_by("run_id", "slice")
        .agg(pl.col("slow", "total").fill_null(0).sum())
        .sort("run_id", "slice")
    )
    return list(zip(sliced["slow"].to_list(), sliced["total"].to_list(), strict=True))


def _slice(slice_ns: int | None) -> pl.Expr:
    if slice_ns is None:
        return pl.lit(0)
    since = pl.col("begin_ns") - pl.col("begin_ns").min().over("run_id")
    length = (pl.col("end_ns").max() - pl.col("begin_ns").min()).over("run_id")
    whole = ((length + slice_ns // 2) // slice_ns).clip(lower_bound=1)
    return (since // slice_ns).clip(upper_bound=whole - 1)
