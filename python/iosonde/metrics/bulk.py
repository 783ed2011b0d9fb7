"""Rates and latencies of the runs of many result sets at once: what an index of hundreds of result sets can afford.

The facts are those of `facts.py`, read without SQL; the arithmetic is that of `run_metrics`, so both give the same
values. Metrics that need more than counts and histograms (CPU, device totals, stores' accounts) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from iosonde.metrics.derivation import derived_counts
from iosonde.metrics.histogram import PERCENTILES
from iosonde.metrics.scopes import RUN_KEYS, SCOPE_KEYS, latency_percentiles, scopes_of, seconds_between, sums
from iosonde.results import ResultSet

PARTS = {name: PERCENTILES[name] for name in ("p50", "p99", "p99_9")}
METRICS = (
    *("iops", "ops_per_sec", "bandwidth"),
    *(f"{kind}_latency_ns_{it}" for kind in ("completion", "response") for it in ("mean", *PARTS)),
)
"""The metrics of `bulk_metrics`."""

_MEMBER = [*RUN_KEYS, *SCOPE_KEYS]
_COUNTS = {
    "count": "count",
    "bytes": "bytes",
    "errors": "errors",
    "completion_latency_ns_sum": "completion_sum_ns",
    "response_latency_ns_sum": "response_sum_ns",
    "completion_latency_ns_min": "completion_min_ns",
    "response_latency_ns_min": "response_min_ns",
    "completion_latency_ns_max": "completion_max_ns",
    "response_latency_ns_max": "response_max_ns",
    "backlog_max": "backlog_max",
}

_PLACE = ("run_id", "phase", "stream", "operation")
_WANTED = {"intervals": [*_PLACE, *_COUNTS], "histograms": [*_PLACE, "latency", "bucket", "count"]}


def bulk_metrics(result_sets: Mapping[str, ResultSet]) -> pl.DataFrame:
    """Return one row per completed run, stream, operation and metric of `METRICS`, as `run_metrics` does.

    Columns: `result_set` (the key of the mapping), `run_id, case_id, part, repeat, order, control, stream, operation,
    metric, value`. `ResultsError` where a table is damaged.
    """
    runs = pl.concat([_runs(label, each) for label, each in result_sets.items()])
    tables = {label: each.tables(_WANTED) for label, each in result_sets.items()}
    counts = _counts(_measured(tables, "intervals"))
    scopes = scopes_of(counts, keys=RUN_KEYS)
    table = (
        sums(counts, scopes)
        .join(runs, on=RUN_KEYS)
        .with_columns(seconds=seconds_between("measure_begin_ns", "measure_end_ns"))
        .join(
            latency_percentiles(scopes, [_buckets(_measured(tables, "histograms"), counts)], parts=PARTS),
            on="scope",
            how="left",
        )
    )
    keys = ("result_set", "run_id", "case_id", "part", "repeat", "order", "control", *SCOPE_KEYS)
    wide = derived_counts(table).select(*keys, *(pl.col(name).cast(pl.Float64) for name in METRICS))
    return wide.unpivot(index=keys, on=METRICS, variable_name="metric").drop_nulls("value")


def _runs(label: str, results: ResultSet) -> pl.DataFrame:
    rows = [
        {
            "result_set": label,
            **{name: getattr(each, name) for name in ("run_id", "case_id", "part", "repeat", "order", "control")},
            "workload": str(each.spec["workload"]["kind"]),
            "measure_begin_ns": int(each.result["begin_ns"]),
            "measure_end_ns": int(each.result["end_ns"]),
        }
        for each in results.records()
        if each.outcome == "complete" and each.result
    ]
    schema = dict.fromkeys(("result_set", "run_id", "case_id", "part", "workload"), pl.String)
    whole = dict.fromkeys(("repeat", "order", "measure_begin_ns", "measure_end_ns"), pl.Int64)
    return pl.DataFrame(rows, schema={**schema, **whole, "control": pl.Boolean})


def _counts(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of each member, as `Facts.counts` does."""
    columns = [pl.col(name).cast(pl.Int64).alias(as_name) for name, as_name in _COUNTS.items()]
    return (
        intervals.lazy()
        .select(*_MEMBER, *columns)
        .group_by(_MEMBER)
        .agg(_total(name) for name in _COUNTS.values())
        .sort(_MEMBER)
        .with_row_index("member", offset=1)
        .with_columns(pl.col("member").cast(pl.Int64))
        .collect()
    )


def _total(name: str) -> pl.Expr:
    """Sum a count, or take an extreme; a response latency that no interval has stays null: the loop is closed."""
    column = pl.col(name)
    if name.endswith("_min_ns"):
        return column.min()
    if name.endswith(("_max_ns", "_max")):
        return column.max()
    return pl.when(column.count() > 0).then(column.sum()).alias(name) if name == "response_sum_ns" else column.sum()


def _buckets(histograms: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Return the buckets of each member, those of its intervals one after the other."""
    return histograms.join(counts.select(*_MEMBER, "member"), on=_MEMBER).select(
        "member", (pl.col("latency") == "response").alias("response"), "bucket", pl.col("count").cast(pl.Int64)
    )


def _measured(tables: Mapping[str, Mapping[str, pl.DataFrame]], name: str) -> pl.DataFrame:
    frames = [
        found[name]
        .lazy()
        .filter(pl.col("phase") == "measure")
        .select(pl.lit(label).alias("result_set"), pl.exclude("phase"))
        for label, found in tables.items()
    ]
    return pl.concat(frames).collect()
