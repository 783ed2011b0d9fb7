"""Metrics as tables of `iosonde sql`, exports and Python: `metrics`, one row per run and metric, and `case_metrics`.

The application provides this module to `iosonde.results`, a lower layer.
"""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metrics import case_metrics, run_metrics
from iosonde.metrics.registry import known_names, metric
from iosonde.metrics.scopes import overall
from iosonde.results import ResultSet
from iosonde.results.column import FLAG, NUMBER, TEXT, U32, Column, Table

_SCOPE = (
    Column("stream", TEXT, "Stream; `all` for all streams together where there are several"),
    Column("operation", TEXT, "`read`, `write`, `trim`, `flush`, or `all` for the first three together"),
    Column("metric", TEXT, "Name of the metric (docs/metrics.md)"),
    Column("unit", TEXT, "Unit: `1/s`, `B/s`, `B`, `ns`, `s`, or empty for counts and ratios"),
    Column("better", TEXT, "`higher`, `lower` or `neither`"),
)
_CASE = (
    Column("case_id", TEXT, "Case"),
    Column("part", TEXT, "Part of the study"),
    Column("control", FLAG, "Whether it is the control case"),
)

TABLES: dict[str, Table] = {
    "metrics": Table(
        "One row per metric of a complete run, stream and operation",
        (
            Column("run_id", TEXT, "Run: case number and repeat"),
            *_CASE,
            Column("repeat", U32, "Number of the repeat, from 1"),
            Column("order", U32, "Position in the order of execution, from 0"),
            *_SCOPE,
            Column("value", NUMBER, "Value in that unit"),
            Column("verdict", TEXT, "What limited the run"),
        ),
    ),
    "case_metrics": Table(
        "One row per metric of a case, stream and operation, over its complete runs",
        (
            *_CASE,
            *_SCOPE,
            Column("median", NUMBER, "Median of the runs, in that unit"),
            Column("low", NUMBER, "Lower end of the 95 % confidence interval of the median; null below three runs"),
            Column("high", NUMBER, "Upper end of it"),
            Column("method", TEXT, "Method of the interval (docs/statistics.md); empty without one"),
            Column("n", U32, "Number of runs"),
            Column("minimum", NUMBER, "Smallest value of a run"),
            Column("maximum", NUMBER, "Largest value of a run"),
            Column("verdict", TEXT, "What limited the runs; `mixed` where they differ"),
        ),
    ),
}


def names(result_set: ResultSet) -> list[str]:
    """Metrics, which queries may also name as columns of `runs` and `cases`."""
    table("metrics", result_set)  # Declares those that the study names.
    return known_names()


def table(name: str, result_set: ResultSet) -> pl.DataFrame:
    """Return one of `TABLES` for a result set."""
    key = (name, *((record.run_id, record.attempt) for record in result_set.records()))
    return result_set.derived(key, lambda: _metrics(result_set) if name == "metrics" else _case_metrics(result_set))


def whole_load(table_name: str, metric: str, result_set: ResultSet) -> pl.DataFrame:
    """Return a metric of the whole load as a column: of `runs` its value, of `cases` its median."""
    source, key, value = (
        ("metrics", "run_id", "value") if table_name == "runs" else ("case_metrics", "case_id", "median")
    )
    rows = overall(table(source, result_set)).filter(pl.col("metric") == metric)
    return rows.select(key, pl.col(value).alias(metric))


def _metrics(result_set: ResultSet) -> pl.DataFrame:
    verdicts = result_set.runs.select("run_id", "verdict")
    rows = run_metrics(result_set).join(verdicts, on="run_id", how="left", maintain_order="left")
    return _described(rows, TABLES["metrics"])


def _case_metrics(result_set: ResultSet) -> pl.DataFrame:
    runs = result_set.runs.filter(pl.col("outcome") == "complete")
    same = pl.col("verdict").n_unique() == 1
    verdicts = runs.group_by("case_id").agg(
        verdict=pl.when(same).then(pl.col("verdict").first()).otherwise(pl.lit("mixed"))
    )
    rows = case_metrics(run_metrics(result_set)).rename({"repeats": "n"})
    return _described(rows.join(verdicts, on="case_id", how="left", maintain_order="left"), TABLES["case_metrics"])


def _described(rows: pl.DataFrame, described: Table) -> pl.DataFrame:
    """Add unit and direction, and put the columns in order."""
    kinds = pl.DataFrame(
        [(name, metric(name).unit, metric(name).better) for name in known_names()],
        schema=["metric", "unit", "better"],
        orient="row",
    )
    joined = rows.join(kinds, on="metric", how="left", maintain_order="left")
    return joined.select(pl.col(column.name).cast(column.dtype) for column in described.columns)
