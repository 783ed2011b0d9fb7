"""Facts become metrics here, and nowhere else. Every metric is defined in docs/metrics.md.

Facts are summed and histograms merged per scope (`scopes.py`), then every metric of `registry.py` is one
expression over that table (`derivation.py`). Metrics that a study of external commands names have their definitions in
the table `named_values`, so that a result set needs nothing else to be read: the value of a run follows from its values
by the metric's `aggregate`. An index of hundreds of result sets can afford rates and latencies only (`bulk_metrics`).

`TABLES` are metrics as tables of `iosonde sql`, exports and Python: the application provides this module to
`iosonde.results`, a lower layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from iosonde.errors import ResultsError
from iosonde.metrics import derivation, statistics, sustained
from iosonde.metrics.distributions import Prior, prior_of
from iosonde.metrics.facts import Facts, Results
from iosonde.metrics.registry import METRICS, declare, known_names, least_value, metric, named_among
from iosonde.metrics.scopes import (
    ALL,
    MILLION,
    PERCENTILES,
    RUN_KEYS,
    SCOPE_KEYS,
    each_load,
    latency_percentiles,
    of_same_repeats,
    of_usual_length,
    overall,
    scopes_of,
    seconds_between,
    sums,
)
from iosonde.results import ResultSet
from iosonde.results.column import FLAG, NUMBER, TEXT, U32, Column, Table

_RUN_COLUMNS = ("result_set", "run_id", "case_id", "part", "repeat", "order", "control")

STREAM = "main"
"""A command has one stream."""

_AGGREGATES: Mapping[str, pl.Expr] = {
    "mean": pl.col("value").mean(),
    "median": pl.col("value").median(),
    "minimum": pl.col("value").min(),
    "maximum": pl.col("value").max(),
    "last": pl.col("value").sort_by("point").last(),
    "sum": pl.col("value").sum(),
}


def _run_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run and named metric."""
    chosen = pl.coalesce(
        pl.when(pl.col("aggregate").first() == name).then(expression) for name, expression in _AGGREGATES.items()
    )
    return rows.group_by(*_RUN_COLUMNS, *SCOPE_KEYS, "metric", maintain_order=True).agg(value=chosen)


def _named_values(facts: Facts) -> pl.DataFrame:
    """Return the named values of complete runs with the columns of the runs, and declare their metrics.

    `ResultsError` if two result sets define a metric differently: their values cannot be in one table.
    """
    rows = facts.named_values()
    known: dict[str, tuple[str, str]] = {}
    for each in rows.select("metric", "title", "unit", "better").unique(maintain_order=True).iter_rows(named=True):
        definition = (each["unit"], each["better"])
        if known.setdefault(each["metric"], definition) != definition:
            raise ResultsError(
                f"the metric `{each['metric']}` has another unit or direction in each of these result sets",
                hint="combine result sets of the same study, or give the metrics different names",
            )
        declare({each["metric"]: each})
    of_runs = facts.runs().select(_RUN_COLUMNS)
    scope = {"stream": pl.lit(STREAM), "operation": pl.lit(ALL)}
    return rows.with_columns(**scope).join(of_runs, on=RUN_KEYS, maintain_order="left")


PARTS = {name: PERCENTILES[name] for name in ("p50", "p99", "p99_9")}
BULK_METRICS = (
    *("iops", "ops_per_sec", "bandwidth"),
    *(f"{kind}_latency_ns_{it}" for kind in ("completion", "response") for it in ("mean", *PARTS)),
)
"""The metrics of `bulk_metrics`."""


def bulk_metrics(result_sets: Mapping[str, ResultSet]) -> pl.DataFrame:
    """Return one row per completed run, stream, operation and metric of `BULK_METRICS`, as `run_metrics` does.

    `result_set` is the key of the mapping. `ResultsError` where a table is damaged.
    """
    facts = Facts(result_sets)
    runs = facts.runs(*_RUN_COLUMNS[1:], "workload", "measure_start_ns", "measure_end_ns")
    counts = facts.counts(per="run")
    scopes = scopes_of(counts, keys=RUN_KEYS)
    table = (
        sums(counts, scopes)
        .join(runs, on=RUN_KEYS)
        .with_columns(seconds=seconds_between("measure_start_ns", "measure_end_ns"))
        .join(latency_percentiles(scopes, facts.histograms(per="run"), parts=PARTS), on="scope", how="left")
    )
    whole = pl.col("repeat", "order").cast(pl.Int64)
    return _long(
        derivation.derived_counts(table).with_columns(whole), keys=(*_RUN_COLUMNS, *SCOPE_KEYS), metrics=BULK_METRICS
    )


def run_metrics(results: Results | Facts) -> pl.DataFrame:
    """Return one row per completed run, stream, operation and metric, from the measurement alone.

    Columns: `result_set, run_id, case_id, part, repeat, order, control, stream, operation, metric, value`. `operation`
    is `read`, `write`, `trim`, `flush`, or `all` for the first three together; `stream` is `all` for all streams
    together where there are several; streams on a key-value store have no rate or latency together. What has no value
    in a scope (a percentile without samples, CPU time of a single operation) has no row. `results` is a `ResultSet`,
    several of them, or their facts.
    """
    facts = results if isinstance(results, Facts) else Facts(results)
    counts = facts.counts(per="run")
    scopes = scopes_of(counts, keys=RUN_KEYS)
    table = (
        sums(counts, scopes)
        .join(derivation.judged(facts.runs().join(facts.simulated_media(), on=RUN_KEYS, how="left")), on=RUN_KEYS)
        .with_columns(seconds=seconds_between("measure_start_ns", "measure_end_ns"))
        .join(latency_percentiles(scopes, facts.histograms(per="run")), on="scope", how="left")
        .join(derivation.iops_variation(facts), on=[*RUN_KEYS, *SCOPE_KEYS], how="left")
        .join(derivation.of_streams(facts, counts), on=[*RUN_KEYS, "stream"], how="left")
        .join(facts.devices(), on=RUN_KEYS, how="left")
        .join(facts.members(), on=RUN_KEYS, how="left")
        .join(sustained.metrics(facts), on=RUN_KEYS, how="left")
    )
    rows = _long(derivation.derived(table), keys=(*_RUN_COLUMNS, *SCOPE_KEYS), metrics=METRICS)
    return pl.concat([rows, _run_values(_named_values(facts)).select(rows.columns)])


def case_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """Summarise the repeats of each case.

    Columns: `result_set, case_id, part, control, stream, operation, metric, median, low, high, method, repeats,
    minimum, maximum`. `low` and `high` are the 95 % confidence interval of the median by `method`
    (docs/statistics.md); null with fewer than three repeats. A percentile has a row only where every repeat has enough
    samples for it.
    """
    summary, noise = _samples(runs), repeat_noise(runs)
    intervals = pl.concat(
        [_intervals(group, noise[str(name)]) for (name, _), group in summary.group_by("result_set", "repeats")]
        or [summary.select(*_SAMPLE_KEYS, low="median", high="median", method=pl.lit(""))]
    )
    return summary.join(intervals, on=_SAMPLE_KEYS, maintain_order="left").select(
        *_SAMPLE_KEYS, "median", "low", "high", "method", "repeats", "minimum", "maximum"
    )


_SAMPLE_KEYS = ("result_set", "case_id", "part", "control", *SCOPE_KEYS, "metric")


def _samples(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the repeats of each case in the order of execution."""
    return (
        of_same_repeats(runs)
        .group_by(_SAMPLE_KEYS, maintain_order=True)
        .agg(
            pl.col("value").sort_by("order"),
            median=pl.col("value").median(),
            repeats=pl.len(),
            minimum=pl.col("value").min(),
            maximum=pl.col("value").max(),
        )
    )


def repeat_noise(runs: pl.DataFrame) -> dict[str, statistics.RepeatNoise]:
    """Return what the repeats of all cases of each result set show about the noise of each of them."""
    correlations = repeat_correlations(runs)
    return {
        str(name): _noise_of(samples, correlations.get(str(name), 0.0))
        for (name,), samples in _samples(runs).group_by("result_set", maintain_order=True)
    }


def _noise_of(samples: pl.DataFrame, correlation: float) -> statistics.RepeatNoise:
    """Each sample of a result set has the prior of its metric and scope.

    A case that only reads has the same values for reads as for the whole load; the prior is that of the whole load.
    """
    usable = samples.filter(pl.col("repeats") >= statistics.MINIMUM_REPEATS, pl.col("minimum") > 0)
    whole = overall(usable)
    parts = usable.join(whole, on=_SAMPLE_KEYS, how="anti", maintain_order="left")
    found: dict[bytes, Prior] = {}
    of_metrics: dict[str, Prior] = {}
    for frame in (parts, whole):
        for (is_control, *_, name), group in frame.group_by(
            "control", *(SCOPE_KEYS if frame is parts else ()), "metric", maintain_order=True
        ):
            values = [each.to_numpy() for each in group["value"]]
            if prior := prior_of([np.log(each) for each in values]):
                found |= dict.fromkeys(map(statistics.sample_key, values), prior)
                if frame is whole and not is_control:
                    of_metrics[str(name)] = prior
    return statistics.RepeatNoise(correlation=correlation, priors=found, of_metrics=of_metrics)


def repeat_correlations(runs: pl.DataFrame) -> dict[str, float]:
    """Return the correlation of consecutive repeats in each result set, from rates of whole loads or streams."""
    whole = overall(runs).filter(~pl.col("control"))
    of_commands = named_among(whole["metric"].unique())[:1]
    rates = pl.concat(
        [
            whole.filter(pl.col("metric").is_in(["iops", *of_commands])),
            each_load(runs).filter(pl.col("metric") == "ops_per_sec", ~pl.col("control")),
        ]
    )
    repeats = rates.group_by("result_set", "case_id", "stream", "metric").agg(pl.col("value").sort_by("order"))
    return {
        str(name): statistics.repeat_correlation([values.to_numpy() for values in group["value"]])
        for (name,), group in repeats.group_by("result_set")
    }


INTERVAL_METRICS = (
    *("iops", "bandwidth", "operations", "errors", "backlog_max"),
    *(f"{kind}_latency_ns_{it}" for kind in ("completion", "response") for it in ("mean", "max", "p50", "p99")),
)
"""Default columns of `interval_metrics`."""


RATES = ("iops", "ops_per_sec", "bandwidth")


def interval_metrics(
    results: Results, *, run_ids: Sequence[str] | None = None, metrics: Sequence[str] = INTERVAL_METRICS
) -> pl.DataFrame:
    """Return metrics of each interval of `ramp` and `measure`, for time series.

    Columns: `result_set, run_id, case_id, part, repeat, order, control, phase, interval, begin_ns, end_ns, stream,
    operation, metric, value`. An interval in which nothing completed is there, with zeros: it is a stall. One shorter
    than half of the usual (the last one) has no rates. Percentiles are what costs time here; without any in `metrics`
    the histograms are not read.
    """
    facts = Facts(results, run_ids=run_ids)
    counts = facts.counts(per="interval")
    scopes = scopes_of(counts, keys=(*RUN_KEYS, "phase", "interval", "begin_ns", "end_ns"))
    table = (
        sums(counts, scopes).join(facts.runs(), on=RUN_KEYS).with_columns(seconds=seconds_between("begin_ns", "end_ns"))
    )
    parts = {name: part for name, part in PERCENTILES.items() if any(metric.endswith(f"_{name}") for metric in metrics)}
    if parts:
        latencies = latency_percentiles(scopes, facts.histograms(per="interval"), parts=parts)
        table = table.join(latencies, on="scope", how="left")
    table = derivation.with_interval_facts(table, facts, metrics)
    keys = (*_RUN_COLUMNS, "phase", "interval", "begin_ns", "end_ns", *SCOPE_KEYS)
    long_enough = of_usual_length([*RUN_KEYS, "phase"])
    counted = derivation.derived_counts(table).with_columns(
        pl.when(long_enough).then(rate).alias(rate) for rate in RATES
    )
    rows = _long(counted, keys=keys, metrics=[name for name in metrics if name in METRICS and name in counted.columns])
    several = pl.len().over(*RUN_KEYS, "metric") > 1
    lines = _named_values(facts).filter(several, pl.col("metric").is_in(list(metrics)))
    lines = lines.with_columns(phase=pl.lit("measure"), interval="point")
    rows = rows.select(*keys, "metric", "value")
    # Without a cast, unsigned times mixed with signed ones become 128 bits wide, which reports cannot compute with.
    return pl.concat([rows, lines.select(rows.columns).cast(rows.schema)])


def stalled_intervals(results: Results, *, run_ids: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the intervals of measurements in which the engine itself was stalled: `result_set, run_id, interval`."""
    counts = Facts(results, run_ids=run_ids).counts(per="interval")
    length = pl.col("end_ns") - pl.col("begin_ns")
    stalled = (pl.col("phase") == "measure") & (pl.col("interval_stalled_ns") >= sustained.STALLED_SHARE * length)
    return counts.filter(stalled).select(*RUN_KEYS, "interval").unique()


CURVE_PARTS = (
    *(
        MILLION - tail * 10 ** (5 - nines)
        for nines in range(6)
        for tail in (10, 8, 6, 5, 4, 3, 2)
        if nines or tail < 10
    ),
    MILLION - 1,
)
"""Points of a percentile curve in parts per million: seven a decade, from the 20th percentile to six nines."""


def percentile_curves(results: Results | Facts) -> pl.DataFrame:
    """Return the latency distribution of each case (repeats merged) at the points of a nines axis.

    Columns: `result_set, case_id, part, control, stream, operation, latency` (`completion`, `response`), `fraction`
    (0.5, 0.9, 0.99 ..), `nines` (-log10(1 - fraction)), `latency_ns`; a point only where ten samples are beyond it.
    """
    facts = results if isinstance(results, Facts) else Facts(results)
    counts = facts.counts(per="case")
    keys = ("result_set", "case_id", "part", "control")
    scopes = scopes_of(counts, keys=keys)
    parts = {str(part): part for part in CURVE_PARTS}
    table = latency_percentiles(scopes, facts.histograms(per="case"), parts=parts)
    fraction = pl.col("point").str.extract(r"(\d+)$").cast(pl.Int64) / MILLION
    return (
        scopes.unique("scope", maintain_order=True)
        .select("scope", *keys, *SCOPE_KEYS)
        .join(table, on="scope")
        .unpivot(index=["scope", *keys, *SCOPE_KEYS], variable_name="point", value_name="latency_ns")
        .drop_nulls("latency_ns")
        .with_columns(latency=pl.col("point").str.extract("^([a-z]+)_"), fraction=fraction)
        .with_columns(nines=-(1 - pl.col("fraction")).log10())
        .sort("scope", "latency", "fraction")
        .select(*keys, *SCOPE_KEYS, "latency", "fraction", "nines", "latency_ns")
    )


def _long(table: pl.DataFrame, *, keys: Sequence[str], metrics: Iterable[str]) -> pl.DataFrame:
    """Turn one column per metric into one row per metric; a metric without a value has no row."""
    known = derivation.known_columns(table)
    metrics = [name for name in metrics if name in known]
    if not metrics:
        return table.select(*keys, metric=pl.lit(""), value=pl.lit(0.0)).clear()
    return (
        table.select(*keys, *(pl.col(name).cast(pl.Float64) for name in metrics))
        .unpivot(index=keys, variable_name="metric", value_name="value")
        .drop_nulls("value")
    )


def _intervals(summary: pl.DataFrame, noise: statistics.RepeatNoise) -> pl.DataFrame:
    """Return the intervals of the medians of rows that all have the same number of repeats."""
    rows: statistics.Floats = np.stack([values.to_numpy() for values in summary["value"]])
    least = np.array([least_value(name) for name in summary["metric"]])
    low, high, methods = statistics.bounded_median_intervals(
        rows, correlation=noise.correlation, priors=[noise.prior(row) for row in rows], least=least
    )
    return summary.select(
        *_SAMPLE_KEYS,
        low=pl.Series(low, nan_to_null=True),
        high=pl.Series(high, nan_to_null=True),
        method=pl.Series(methods, dtype=pl.String),
    )


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
