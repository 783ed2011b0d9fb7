"""Little's law for every run: what is in flight on average is rate x latency.

In a closed loop that must be jobs x queue depth, because the next I/O starts when one completes. More means that
latencies were counted too long or twice; less that the engine did not keep the target as busy as it said, so the
figure may be the tool's and not the disk's.
"""

from __future__ import annotations

import polars as pl

from iosonde.metrics.scopes import overall

TOLERANCE = 0.05
LONGEST_CUT = 0.20
"""A run whose mean latency is a larger part of its measured time is nearly all begin and end."""


def littles_law(runs: pl.DataFrame) -> pl.DataFrame:
    """Check every closed-loop run.

    Columns: `run_id, case_id, mean_in_flight, concurrency, ratio, tolerance, verdict` (`holds`, `above`, `below`,
    `too_short`). The tolerance is 5 % and one mean latency of the measured time: at either end I/Os are cut. Upwards it
    is the longest latency instead, because an I/O in flight when the measurement begins counts in full.
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
        .drop_nulls("littles_law_ratio")
        .with_columns(tolerance=TOLERANCE + pl.col("completion_latency_ns_mean") / 1e9 / pl.col("seconds"))
        .with_columns(
            verdict=pl.when(tolerance > TOLERANCE + LONGEST_CUT)
            .then(pl.lit("too_short"))
            .when(ratio > 1 + TOLERANCE + longest)
            .then(pl.lit("above"))
            .when(ratio < 1 - tolerance)
            .then(pl.lit("below"))
            .otherwise(pl.lit("holds"))
        )
        .select("run_id", "case_id", "mean_in_flight", "concurrency", ratio.alias("ratio"), "tolerance", "verdict")
    )
