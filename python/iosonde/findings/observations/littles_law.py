"""Little's law for every run: the mean number of I/Os in flight equals rate x mean latency.

In a closed loop that is jobs x queue depth, because the next I/O starts when one completes. More means that latencies
were counted too long or twice; less that the engine kept the target less busy than requested.
"""

from __future__ import annotations

import polars as pl

from iosonde.metrics.scopes import overall

RESOLUTION = 0.02
"""Deviation that turnaround between I/Os and the clock may cause, whatever the length of the run."""
LONGEST_CUT = 0.03
"""A run whose mean latency is a larger part of its measured time is too short to check: with this the law holds within
5 % wherever it is reported to hold."""


def littles_law(runs: pl.DataFrame) -> pl.DataFrame:
    """Check every closed-loop run.

    Columns: `run_id, case_id, mean_in_flight, concurrency, ratio, tolerance, verdict` (`holds`, `above`, `below`,
    `too_short`). The tolerance follows from what the run can resolve: an I/O that is in flight at the start counts in
    full, one at the end not at all, so each of the I/Os in flight is off by one mean latency at most, on average. A
    ratio above that which the longest latency could explain is not a fault, but shows nothing either: `too_short`.
    A run in which no I/O completed has no mean latency, and no row.
    """
    names = (
        "mean_in_flight",
        "concurrency",
        "littles_law_ratio",
        "completion_latency_ns_mean",
        "completion_latency_ns_max",
        "seconds",
    )
    longest = pl.coalesce("completion_latency_ns_max", "completion_latency_ns_mean") / 1e9 / pl.col("seconds")
    ratio, tolerance = pl.col("littles_law_ratio"), pl.col("tolerance")
    wide = (
        overall(runs)
        .filter(pl.col("metric").is_in(names))
        .pivot(on="metric", index=["run_id", "case_id"], values="value")
    )
    return (
        wide.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in names if name not in wide.columns)
        .drop_nulls(["littles_law_ratio", "completion_latency_ns_mean"])
        .with_columns(tolerance=RESOLUTION + pl.col("completion_latency_ns_mean") / 1e9 / pl.col("seconds"))
        .with_columns(
            verdict=pl.when(tolerance > RESOLUTION + LONGEST_CUT)
            .then(pl.lit("too_short"))
            .when(ratio > 1 + RESOLUTION + longest)
            .then(pl.lit("above"))
            .when(ratio > 1 + tolerance)
            .then(pl.lit("too_short"))
            .when(ratio < 1 - tolerance)
            .then(pl.lit("below"))
            .otherwise(pl.lit("holds"))
        )
        .select("run_id", "case_id", "mean_in_flight", "concurrency", ratio.alias("ratio"), "tolerance", "verdict")
    )
