"""Scopes: streams and operations that a row of metrics covers, and facts summed and histograms merged for each.

A scope is one operation of one stream, operation `all` of a stream, or stream `all` where there are several.

A percentile is the smallest latency that at least that share of all samples did not exceed (nearest rank), read as the
midpoint of its bucket and therefore within 0.1 % of the sample itself. Whether it has enough samples is
decided here, for every percentile that iosonde prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np
import polars as pl

from iosonde.metrics.metric import in_seconds
from iosonde.results.column import midpoint_ns
from iosonde.study.workload import workloads

MILLION = 1_000_000

PERCENTILES: Mapping[str, int] = {
    "p50": 500_000,
    "p90": 900_000,
    "p95": 950_000,
    "p99": 990_000,
    "p99_9": 999_000,
    "p99_99": 999_900,
    "p99_999": 999_990,
    "p99_9999": 999_999,
}
"""The percentiles that are metrics, in parts per million: whole numbers, so that no rounding moves a rank."""

SAMPLES_BEYOND = 10
"""A percentile is given only when at least this many samples are beyond it."""


def percentiles(histograms: pl.DataFrame, *, by: Sequence[str], parts: Mapping[str, int] = PERCENTILES) -> pl.DataFrame:
    """Return the percentiles of each group of `bucket, count` rows; null where too few samples are beyond one.

    Columns: those of `by`, and one for each of `parts`, in nanoseconds. A bucket may occur in several rows.
    """
    ranked = (
        histograms.select(*by, "bucket", pl.col("count").cast(pl.Int64))
        .sort(*by, "bucket")
        .with_columns(
            upto=pl.col("count").cum_sum().over(by, mapping_strategy="group_to_rows"),
            total=pl.col("count").sum().over(by),
        )
    )
    found = ranked.group_by(by, maintain_order=True).agg(_expressions(tuple(parts.items())))
    latencies = {}
    for name in parts:
        midpoints = midpoint_ns(np.nan_to_num(found[name].to_numpy())).astype(np.float64)
        supported = np.where(found[f"{name}_supported"].to_numpy(), midpoints, np.nan)
        latencies[name] = pl.Series(supported, nan_to_null=True)
    return found.select(*by).with_columns(**latencies)


@cache
def _expressions(parts: tuple[tuple[str, int], ...]) -> list[pl.Expr]:
    """The bucket that reaches each percentile, and whether it is supported."""
    reached = [pl.col("bucket").filter(pl.col("upto") >= _rank(part)).first().alias(name) for name, part in parts]
    return reached + [_supported(part).first().alias(f"{name}_supported") for name, part in parts]


def _rank(part: int) -> pl.Expr:
    """Return how many samples must not exceed the percentile: the share of the total, rounded up."""
    return (pl.col("total") * part + MILLION - 1) // MILLION


def _supported(part: int) -> pl.Expr:
    """Return whether enough samples are beyond a percentile: the one place with this rule."""
    return pl.col("total") - _rank(part) >= SAMPLES_BEYOND


ALL = "all"

MIXED = tuple(dict.fromkeys(name for each in workloads().values() for name in each.operations))
"""The operations that make up `all`: those of the mix. A flush follows from writes and is counted apart."""

RUN_KEYS = ("result_set", "run_id")

INTERVAL_KEYS = (*RUN_KEYS, "phase", "interval")

SCOPE_KEYS = ("stream", "operation")


def total(column: pl.Expr) -> pl.Expr:
    """Sum, null where no value is known."""
    return pl.when(column.count() > 0).then(column.sum())


SUMS: dict[str, tuple[str, Callable[[pl.Expr], pl.Expr]]] = {
    "count": ("count", pl.Expr.sum),
    "bytes": ("bytes", pl.Expr.sum),
    "errors": ("errors", pl.Expr.sum),
    "completion_sum_ns": ("completion_latency_ns_sum", pl.Expr.sum),
    "completion_min_ns": ("completion_latency_ns_min", pl.Expr.min),
    "completion_max_ns": ("completion_latency_ns_max", pl.Expr.max),
    "response_sum_ns": ("response_latency_ns_sum", total),
    "response_min_ns": ("response_latency_ns_min", pl.Expr.min),
    "response_max_ns": ("response_latency_ns_max", pl.Expr.max),
    "backlog_max": ("backlog_max", pl.Expr.max),
    "interval_stalled_ns": ("engine_stalled_ns", pl.Expr.max),
}
"""Fact of a member or scope: the column of `intervals`, and how its values are put together."""


def summed(*, from_table: bool) -> list[pl.Expr]:
    """The facts of `SUMS`: from rows of `intervals`, or from other such facts."""
    return [
        together(pl.col(source if from_table else name).cast(pl.Int64)).alias(name)
        for name, (source, together) in SUMS.items()
    ]


def overall(metrics: pl.DataFrame) -> pl.DataFrame:
    """Keep each run's (or case's) rows for the whole load: its only stream, or stream `all`; operation `all`."""
    return together(metrics).filter(pl.col("operation") == ALL)


def together(metrics: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows of each run's (or case's) only stream, or of stream `all`."""
    if ALL not in metrics["stream"]:
        return metrics
    several = (pl.col("stream") == ALL).any().over(_owner(metrics))
    return metrics.filter((pl.col("stream") == ALL) | ~several)


def each_load(metrics: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows for each load: the only stream of a case, or every one of several; operation `all`.

    Streams that run together do different things, such as readers and a writer, so their sum is not a rate of a load.
    """
    is_single = pl.col("stream") != ALL
    return metrics.filter(pl.col("operation") == ALL, is_single | ~is_single.any().over(_owner(metrics)))


def _owner(metrics: pl.DataFrame) -> list[str]:
    """Columns of the run, or case, that rows belong to."""
    return [name for name in ("result_set", "run_id", "case_id") if name in metrics.columns]


def of_same_repeats(runs: pl.DataFrame, *, across_result_sets: bool = False) -> pl.DataFrame:
    """Drop percentiles that some repeat of a case has too few samples for, so that all of a row's are of one sample.

    Otherwise the median p99.9, of the repeats with the most samples, could be below the median p99, of all repeats.
    Repeats are those in one result set, or `across_result_sets` those of all together.
    """
    if runs.is_empty():
        return runs
    scope = [
        "case_id",
        *SCOPE_KEYS,
        *(["result_set"] if "result_set" in runs.columns and not across_result_sets else []),
    ]
    is_percentile = pl.col("metric").str.contains(r"_latency_ns_p[0-9_]+$")
    latency = pl.col("metric").str.extract(r"^([a-z]+)_latency_ns_").fill_null("")
    repeats = pl.len().over([*scope, "metric"])
    return runs.filter(~is_percentile | (repeats == repeats.max().over([*scope, latency])))


def scopes_of(counts: pl.DataFrame, *, keys: Sequence[str]) -> pl.DataFrame:
    """Return which rows of `counts` make up which scope: `scope, *keys, stream, operation, member`."""
    own = counts.select(*keys, *SCOPE_KEYS, "member")
    several = own.filter(pl.col("stream").n_unique().over(keys) > 1).with_columns(stream=pl.lit(ALL))
    streams = pl.concat([own, several])
    mixed = streams.filter(pl.col("operation").is_in(MIXED)).with_columns(operation=pl.lit(ALL))
    scope = pl.struct(*keys, *SCOPE_KEYS).rank("dense").cast(pl.Int64)
    return pl.concat([streams, mixed]).with_columns(scope=scope).sort("scope")


def sums(counts: pl.DataFrame, scopes: pl.DataFrame) -> pl.DataFrame:
    """Add up the counts of each scope. A trim moves no data, so its bytes do not count in operation `all`."""
    moved = pl.when((pl.col("operation") == ALL) & (pl.col("member_operation") == "trim")).then(0).otherwise("bytes")
    members = counts.select("member", pl.col("operation").alias("member_operation"), *SUMS)
    open_loop = pl.col("response_sum_ns").is_not_null()
    return (
        scopes.join(members, on="member")
        .with_columns(bytes=moved, backlog_max=pl.when(open_loop).then("backlog_max"))
        .group_by([name for name in scopes.columns if name != "member"], maintain_order=True)
        .agg(*summed(from_table=False), response_count=pl.col("count").filter(open_loop).sum())
    )


def latency_percentiles(
    scopes: pl.DataFrame, histograms: Iterable[pl.DataFrame], *, parts: Mapping[str, int] = PERCENTILES
) -> pl.DataFrame:
    """Return `scope` and a column `LATENCY_latency_ns_PERCENTILE` for each latency and percentile.

    A scope with a single member takes the member's own percentiles, so only the others are merged.
    """
    shared = pl.len().over("scope") > 1
    groups = scopes.select("scope", "member", group=pl.when(shared).then(-pl.col("scope")).otherwise("member"))
    shared_members = groups.filter(pl.col("group") < 0).select("member", "group")
    tables = [
        _both_latencies(
            pl.concat(
                [
                    histogram.select(pl.col("member").alias("group"), "response", "bucket", "count"),
                    histogram.join(shared_members, on="member").select("group", "response", "bucket", "count"),
                ]
            ),
            parts,
        )
        for histogram in histograms
    ]
    return groups.select("scope", "group").unique().join(pl.concat(tables), on="group").drop("group")


def _both_latencies(histogram: pl.DataFrame, parts: Mapping[str, int]) -> pl.DataFrame:
    is_open_loop = histogram["response"].any()
    completion, response = (
        percentiles(of_latency, by=["group"], parts=parts).rename({part: f"{name}_latency_ns_{part}" for part in parts})
        for name, of_latency in (
            ("completion", histogram.filter(~pl.col("response")) if is_open_loop else histogram),
            ("response", histogram.filter("response") if is_open_loop else histogram.clear()),
        )
    )
    return completion.join(response, on="group", how="left")


def of_usual_length(keys: Sequence[str]) -> pl.Expr:
    """True for intervals of at least half the median length within `keys`: rates of shorter ones are mostly noise."""
    return pl.col("seconds") >= pl.col("seconds").median().over(keys) / 2


def seconds_between(begin: str, end: str) -> pl.Expr:
    """Seconds from one column of nanoseconds to another."""
    return in_seconds(pl.col(end) - pl.col(begin))
