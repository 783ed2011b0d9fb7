"""Facts become metrics here, and nowhere else. Every metric is defined in docs/metrics.md.

A *scope* is what a row of metrics speaks of: one operation of one stream, operation `all` of a stream, or stream `all`.
Facts are summed and histograms merged per scope, then every metric is one expression over that table (`_DERIVED`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from iosonde.analysis import store_accounts, sustained
from iosonde.analysis.facts import Facts, Results
from iosonde.analysis.histogram import MILLION, PERCENTILES, percentiles
from iosonde.analysis.metric import Metric
from iosonde.analysis.statistics import block_bootstrap, median_intervals

ALL = "all"
MIXED = ("read", "write", "trim", "delete", "scan", "read_modify_write")
"""The operations that make up `all`: those of the mix. A flush follows from writes and is counted apart."""


def _latency_metrics(name: str, title: str, begin: str) -> Iterator[Metric]:
    for statistic in ("mean", "min", "max"):
        formula = {
            "mean": f"sum of (completion - {begin}) / operations",
            "min": f"smallest (completion - {begin})",
            "max": f"largest (completion - {begin})",
        }[statistic]
        yield Metric(
            name=f"{name}_ns_{statistic}",
            title=f"{title}, {statistic}",
            unit="ns",
            formula=formula,
            better="lower",
            kind="latency",
        )
    for percentile, part in PERCENTILES.items():
        share = f"{100 * part / MILLION:g}"
        yield Metric(
            name=f"{name}_ns_{percentile}",
            title=f"{title}, p{share}",
            unit="ns",
            formula=f"smallest latency that {share} % of (completion - {begin}) do not exceed",
            better="lower",
            kind="latency",
        )


_LIST = (
    Metric(
        name="iops",
        title="IOPS",
        unit="1/s",
        formula="operations / seconds",
        better="higher",
        kind="rate",
    ),
    Metric(
        name="ops_per_sec",
        title="Operations per second",
        unit="1/s",
        formula="operations / seconds, of a key-value store",
        better="higher",
        kind="rate",
    ),
    Metric(
        name="bandwidth",
        title="Bandwidth",
        unit="B/s",
        formula="bytes / seconds",
        better="higher",
        kind="rate",
    ),
    Metric(
        name="operations",
        title="Operations",
        unit="",
        formula="operations completed without error",
        better="neither",
        kind="count",
    ),
    Metric(
        name="errors",
        title="Errors",
        unit="",
        formula="operations that failed or came back short",
        better="lower",
        kind="count",
    ),
    Metric(
        name="seconds",
        title="Measured time",
        unit="s",
        formula="end of the measurement - its begin",
        better="neither",
        kind="time",
    ),
    *_latency_metrics("completion_latency", "Completion latency", "submission"),
    *_latency_metrics("response_latency", "Response latency", "intended start"),
    Metric(
        name="mean_in_flight",
        title="Mean in flight",
        unit="",
        formula="sum of completion latencies / measured time",
        better="neither",
        kind="concurrency",
    ),
    Metric(
        name="concurrency",
        title="Concurrency",
        unit="",
        formula="jobs x queue depth",
        better="neither",
        kind="concurrency",
    ),
    Metric(
        name="littles_law_ratio",
        title="Mean in flight over concurrency",
        unit="",
        formula="mean_in_flight / concurrency, of a closed loop",
        better="neither",
        kind="concurrency",
    ),
    Metric(
        name="backlog_max",
        title="Largest backlog",
        unit="",
        formula="most operations that were due but not started at any moment",
        better="lower",
        kind="concurrency",
    ),
    Metric(
        name="achieved_rate_fraction",
        title="Achieved over offered rate",
        unit="",
        formula="I/Os started / I/Os due, from the run's begin to the end of the load, of an open loop",
        better="higher",
        kind="concurrency",
    ),
    Metric(
        name="cpu_user_ns_per_operation",
        title="User CPU time per operation",
        unit="ns",
        formula="user time of the engine process / operations",
        better="lower",
        kind="cpu",
    ),
    Metric(
        name="cpu_system_ns_per_operation",
        title="System CPU time per operation",
        unit="ns",
        formula="system time of the engine process / operations",
        better="lower",
        kind="cpu",
    ),
    Metric(
        name="cpu_ns_per_operation",
        title="CPU time per operation",
        unit="ns",
        formula="(user + system time of the engine process) / operations",
        better="lower",
        kind="cpu",
    ),
    Metric(
        name="cpu_ns_per_byte",
        title="CPU time per byte",
        unit="ns",
        formula="(user + system time of the engine process) / bytes",
        better="lower",
        kind="cpu",
    ),
    Metric(
        name="core_utilisation",
        title="Utilisation of the busiest core",
        unit="",
        formula="largest (user + system time) / wall time of any job's thread",
        better="lower",
        kind="cpu",
    ),
    Metric(
        name="device_read_amplification",
        title="Device reads over application reads",
        unit="",
        formula="bytes the block device read / bytes the application read",
        better="lower",
        kind="device",
    ),
    Metric(
        name="device_write_amplification",
        title="Device writes over application writes",
        unit="",
        formula="bytes the block device wrote / bytes the application wrote",
        better="lower",
        kind="device",
    ),
    Metric(
        name="device_bytes_per_second",
        title="Device bandwidth",
        unit="B/s",
        formula="bytes the block device read and wrote / seconds",
        better="higher",
        kind="device",
    ),
    Metric(
        name="member_ios_per_operation",
        title="Member I/Os per I/O",
        unit="",
        formula="reads and writes that the members of the array completed / operations",
        better="lower",
        kind="device",
    ),
    Metric(
        name="member_reads_per_operation",
        title="Member reads per I/O",
        unit="",
        formula="reads that the members of the array completed / operations",
        better="lower",
        kind="device",
    ),
    Metric(
        name="member_bytes_per_byte",
        title="Member bytes per byte",
        unit="",
        formula="bytes that the members of the array read and wrote / bytes",
        better="lower",
        kind="device",
    ),
    Metric(
        name="member_utilisation",
        title="Utilisation of the members",
        unit="",
        formula="mean over the members of the time that they had any I/O in flight / measured time",
        better="neither",
        kind="device",
    ),
    Metric(
        name="member_imbalance",
        title="Imbalance of the members",
        unit="",
        formula="bytes of the member that moved most / mean of the members",
        better="lower",
        kind="device",
    ),
    Metric(
        name="rebuild_seconds",
        title="Time to rebuild a member",
        unit="s",
        formula="seconds during the run / share of the member rebuilt in them",
        better="lower",
        kind="device",
    ),
    Metric(
        name="iops_variation",
        title="Variation of IOPS",
        unit="",
        formula="standard deviation / mean of IOPS over the intervals of the run",
        better="lower",
        kind="spread",
    ),
    Metric(
        name="peak_iops",
        title="IOPS of the best round",
        unit="1/s",
        formula="largest IOPS of any round of the run",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="steady_iops",
        title="Steady-state IOPS",
        unit="1/s",
        formula="mean IOPS of the rounds of the measurement window",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="steady_bandwidth",
        title="Steady-state bandwidth",
        unit="B/s",
        formula="mean bandwidth of the rounds of the measurement window",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="steady_fraction",
        title="Steady state over peak",
        unit="",
        formula="tracking variable in the measurement window / in the best round",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="final_fraction",
        title="Last rounds over peak",
        unit="",
        formula="tracking variable in the last window, steady or not / in the best round",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="seconds_to_steady_state",
        title="Time to steady state",
        unit="s",
        formula="end of the measurement window - begin of the measurement",
        better="lower",
        kind="sustained",
    ),
    Metric(
        name="seconds_to_cliff",
        title="Time to the write cliff",
        unit="s",
        formula="begin of the first interval after the largest drop - begin of the measurement",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="gibibytes_to_cliff",
        title="GiB until the write cliff",
        unit="",
        formula="bytes moved before the largest drop / 2^30",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="verified_bytes",
        title="Bytes verified",
        unit="",
        formula="bytes read and checked by verification",
        better="neither",
        kind="count",
    ),
    Metric(
        name="wrong_sectors",
        title="Wrong sectors",
        unit="",
        formula="sectors of 512 bytes that did not come back as written",
        better="lower",
        kind="count",
    ),
    *store_accounts.LIST,
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _LIST}
"""Every metric by name, in the order of docs/metrics.md."""

_RUN_KEYS = ("result_set", "run_id")
_SCOPE_KEYS = ("stream", "operation")
_RUN_COLUMNS = ("result_set", "run_id", "case_id", "part", "repeat", "order", "control")


def run_metrics(results: Results) -> pl.DataFrame:
    """Return one row per completed run, stream, operation and metric, from the measurement alone.

    Columns: `result_set, run_id, case_id, part, repeat, order, control, stream, operation, metric, value`. `operation`
    is `read`, `write`, `trim`, `flush`, or `all` for the first three together; `stream` is `all` for all streams
    together where there are several. What cannot be said of a scope (a percentile without samples, CPU time of a single
    operation) has no row. `results` is a `ResultSet`, several of them, or a connection with their views.
    """
    facts = Facts(results)
    counts = facts.counts(per="run")
    scopes = _scopes(counts, keys=_RUN_KEYS)
    table = (
        _sums(counts, scopes)
        .join(store_accounts.accounts(facts.runs()), on=_RUN_KEYS)
        .with_columns(seconds=_seconds("measure_begin_ns", "measure_end_ns"))
        .join(_percentiles(scopes, facts.histograms(per="run")), on="scope", how="left")
        .join(_iops_variation(facts), on=[*_RUN_KEYS, *_SCOPE_KEYS], how="left")
        .join(_of_streams(facts, counts), on=[*_RUN_KEYS, "stream"], how="left")
        .join(facts.devices(), on=_RUN_KEYS, how="left")
        .join(facts.members(), on=_RUN_KEYS, how="left")
        .join(sustained.metrics(facts), on=_RUN_KEYS, how="left")
    )
    return _long(_derived(_at_their_scope(table)), keys=(*_RUN_COLUMNS, *_SCOPE_KEYS), metrics=METRICS)


def case_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """Summarise the repeats of each case.

    Columns: `result_set, case_id, part, control, stream, operation, metric, median, low, high, repeats, minimum,
    maximum`. `low` and `high` are the 95 % bootstrap interval of the median; null with fewer than three repeats.
    """
    keys = ("result_set", "case_id", "part", "control", *_SCOPE_KEYS, "metric")
    summary = runs.group_by(keys, maintain_order=True).agg(
        pl.col("value"),
        median=pl.col("value").median(),
        repeats=pl.len(),
        minimum=pl.col("value").min(),
        maximum=pl.col("value").max(),
    )
    intervals = pl.concat(
        [_intervals(group) for _, group in summary.group_by("repeats")]
        or [summary.select(*keys, low="median", high="median")]
    )
    return summary.join(intervals, on=keys, maintain_order="left").select(
        *keys, "median", "low", "high", "repeats", "minimum", "maximum"
    )


INTERVAL_METRICS = (
    *("iops", "bandwidth", "operations", "errors", "backlog_max"),
    *(f"{kind}_latency_ns_{it}" for kind in ("completion", "response") for it in ("mean", "max", "p50", "p99")),
)
"""What `interval_metrics` gives unless asked for less, or for other percentiles."""


def interval_metrics(
    results: Results, *, run_ids: Sequence[str] | None = None, metrics: Sequence[str] = INTERVAL_METRICS
) -> pl.DataFrame:
    """Return metrics of each interval of `warmup` and `measure`, for time series.

    Columns: `result_set, run_id, case_id, part, repeat, order, control, phase, interval, begin_ns, end_ns, stream,
    operation, metric, value`. An interval in which nothing completed is there, with zeros: it is a stall. Percentiles
    are what costs time here; without any in `metrics` the histograms are not read.
    """
    facts = Facts(results, run_ids=run_ids)
    counts = facts.counts(per="interval")
    scopes = _scopes(counts, keys=(*_RUN_KEYS, "phase", "interval", "begin_ns", "end_ns"))
    table = _sums(counts, scopes).join(facts.runs(), on=_RUN_KEYS).with_columns(seconds=_seconds("begin_ns", "end_ns"))
    parts = {name: part for name, part in PERCENTILES.items() if any(metric.endswith(f"_{name}") for metric in metrics)}
    if parts:
        latencies = _percentiles(scopes, facts.histograms(per="interval"), parts=parts)
        table = table.join(latencies, on="scope", how="left")
    keys = (*_RUN_COLUMNS, "phase", "interval", "begin_ns", "end_ns", *_SCOPE_KEYS)
    return _long(_derived_counts(table), keys=keys, metrics=metrics)


def within_runs(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the mean of each interval metric over the measurement of a run, with its block-bootstrap interval.

    Columns: `result_set, run_id, case_id, stream, operation, metric, mean, low, high, intervals`. It says how steady a
    run was, not what the next run would give: that takes repeats. Null with fewer than six intervals.
    """
    keys = ("result_set", "run_id", "case_id", *_SCOPE_KEYS, "metric")
    rows = []
    measured = intervals.filter(pl.col("phase") == "measure").sort("interval", maintain_order=True)
    for key, group in measured.group_by(keys, maintain_order=True):
        estimate = block_bootstrap(group["value"].to_numpy())
        rows.append((*key, estimate.value, estimate.low, estimate.high, len(group)))
    schema = {name: intervals.schema[name] for name in keys}
    schema |= {"mean": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(), "intervals": pl.Int64()}
    return pl.DataFrame(rows, schema=schema, orient="row")


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


def percentile_curves(results: Results) -> pl.DataFrame:
    """Return the latency distribution of each case (repeats merged) at the points of a nines axis.

    Columns: `result_set, case_id, part, control, stream, operation, latency` (`completion`, `response`), `fraction`
    (0.5, 0.9, 0.99 ..), `nines` (-log10(1 - fraction)), `latency_ns`; a point only where ten samples lie beyond it.
    """
    facts = Facts(results)
    counts = facts.counts(per="case")
    keys = ("result_set", "case_id", "part", "control")
    scopes = _scopes(counts, keys=keys)
    parts = {str(part): part for part in CURVE_PARTS}
    table = _percentiles(scopes, facts.histograms(per="case"), parts=parts)
    fraction = pl.col("point").str.extract(r"(\d+)$").cast(pl.Int64) / MILLION
    return (
        scopes.unique("scope", maintain_order=True)
        .select("scope", *keys, *_SCOPE_KEYS)
        .join(table, on="scope")
        .unpivot(index=["scope", *keys, *_SCOPE_KEYS], variable_name="point", value_name="latency_ns")
        .drop_nulls("latency_ns")
        .with_columns(latency=pl.col("point").str.extract("^([a-z]+)_"), fraction=fraction)
        .with_columns(nines=-(1 - pl.col("fraction")).log10())
        .sort("scope", "latency", "fraction")
        .select(*keys, *_SCOPE_KEYS, "latency", "fraction", "nines", "latency_ns")
    )


def overall(metrics: pl.DataFrame) -> pl.DataFrame:
    """Keep each run's (or case's) rows for the whole load: its only stream, or stream `all`; operation `all`."""
    each = [name for name in ("result_set", "run_id", "case_id") if name in metrics.columns]
    several = (pl.col("stream") == ALL).any().over(each)
    return metrics.filter((pl.col("operation") == ALL) & ((pl.col("stream") == ALL) | ~several))


def _scopes(counts: pl.DataFrame, *, keys: Sequence[str]) -> pl.DataFrame:
    """Return which rows of `counts` make up which scope: `scope, *keys, stream, operation, member`."""
    own = counts.select(*keys, *_SCOPE_KEYS, "member")
    several = own.filter(pl.col("stream").n_unique().over(keys) > 1).with_columns(stream=pl.lit(ALL))
    streams = pl.concat([own, several])
    mixed = streams.filter(pl.col("operation").is_in(MIXED)).with_columns(operation=pl.lit(ALL))
    scope = pl.struct(*keys, *_SCOPE_KEYS).rank("dense").cast(pl.Int64)
    return pl.concat([streams, mixed]).with_columns(scope=scope).sort("scope")


def _sums(counts: pl.DataFrame, scopes: pl.DataFrame) -> pl.DataFrame:
    """Add up the counts of each scope. A trim moves no data, so its bytes do not count in operation `all`."""
    moved = pl.when((pl.col("operation") == ALL) & (pl.col("member_operation") == "trim")).then(0).otherwise("bytes")
    facts = ("count", "bytes", "errors", "completion_sum_ns", "completion_min_ns", "completion_max_ns")
    response = ("response_sum_ns", "response_min_ns", "response_max_ns", "backlog_max")
    members = counts.select("member", pl.col("operation").alias("member_operation"), *facts, *response)
    open_loop = pl.col("response_sum_ns").is_not_null()
    return (
        scopes.join(members, on="member")
        .with_columns(bytes=moved)
        .group_by([name for name in scopes.columns if name != "member"], maintain_order=True)
        .agg(
            pl.col("count", "bytes", "errors", "completion_sum_ns", "response_sum_ns").sum(),
            pl.col("completion_min_ns", "response_min_ns").min(),
            pl.col("completion_max_ns", "response_max_ns").max(),
            response_count=pl.col("count").filter(open_loop).sum(),
            backlog_max=pl.col("backlog_max").filter(open_loop).max(),
        )
    )


def _percentiles(
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
    completion, response = (
        percentiles(histogram.filter(pl.col("response") == response), by=["group"], parts=parts).rename(
            {part: f"{name}_latency_ns_{part}" for part in parts}
        )
        for name, response in (("completion", False), ("response", True))
    )
    return completion.join(response, on="group", how="left")


MINIMUM_INTERVALS = 3
"""Fewer intervals say nothing of variation."""


def _iops_variation(facts: Facts) -> pl.DataFrame:
    """Return the coefficient of variation of IOPS over the intervals of each run's scopes.

    An interval shorter than half of the usual (the last one) is left out: its rate is mostly chance.
    """
    counts = facts.counts(per="interval").filter(pl.col("phase") == "measure")
    keys = (*_RUN_KEYS, "interval", "begin_ns", "end_ns")
    seconds = _seconds("begin_ns", "end_ns")
    usual = pl.col("seconds") >= pl.col("seconds").median().over(_RUN_KEYS) / 2
    rate = pl.col("rate")
    return (
        _sums(counts, _scopes(counts, keys=keys))
        .with_columns(seconds=seconds)
        .filter(usual)
        .with_columns(rate=pl.col("count") / pl.col("seconds"))
        .group_by([*_RUN_KEYS, *_SCOPE_KEYS], maintain_order=True)
        .agg(iops_variation=pl.when((pl.len() >= MINIMUM_INTERVALS) & (rate.mean() > 0)).then(rate.std() / rate.mean()))
    )


def _of_streams(facts: Facts, counts: pl.DataFrame) -> pl.DataFrame:
    """Return what is said of a stream as a whole: time in flight, concurrency, busiest thread, I/Os due and started.

    Also for stream `all` where there are several.
    """
    in_flight = counts.group_by([*_RUN_KEYS, "stream"]).agg(in_flight_sum_ns=pl.col("completion_sum_ns").sum())
    each = in_flight.join(_concurrency(facts), on=[*_RUN_KEYS, "stream"], how="left")
    together = each.group_by(_RUN_KEYS).agg(
        pl.lit(ALL).alias("stream"),
        pl.col("in_flight_sum_ns").sum(),
        pl.col("stream_concurrency").sum(),
        pl.col("core_utilisation").max(),
        pl.col("due", "started").sum(),
    )
    return pl.concat([each, together])


def _concurrency(facts: Facts) -> pl.DataFrame:
    """Return concurrency, busiest thread, and I/Os due and started of each run's streams."""
    depths = facts.queue_depths()
    common = depths.filter(pl.col("stream").is_null()).drop("stream")
    own = depths.rename({"queue_depth": "own_queue_depth"})
    depth = pl.coalesce("own_queue_depth", "queue_depth")
    alone = pl.len().over(_RUN_KEYS) == 1
    return (
        facts.streams()
        .join(facts.runs().select(*_RUN_KEYS, "case_id", "concurrency"), on=_RUN_KEYS)
        .join(common, on=["result_set", "case_id"], how="left")
        .join(own, on=["result_set", "case_id", "stream"], how="left")
        .with_columns(stream_concurrency=pl.when(alone).then("concurrency").otherwise(pl.col("stream_jobs") * depth))
        .select(*_RUN_KEYS, "stream", "stream_concurrency", "core_utilisation", "due", "started")
    )


def _at_their_scope(table: pl.DataFrame) -> pl.DataFrame:
    """Keep what belongs to a stream at its operation `all`, and what belongs to the run at its widest scope."""
    whole_stream = pl.col("operation") == ALL
    several = (pl.col("stream") == ALL).any().over(_RUN_KEYS)
    whole_run = whole_stream & ((pl.col("stream") == ALL) | ~several)
    of_stream = ("in_flight_sum_ns", "stream_concurrency", "core_utilisation", "due", "started")
    of_run = (
        *("process_user_ns", "process_system_ns", "device_read_bytes", "device_write_bytes"),
        *("member_reads", "member_writes", "member_read_bytes", "member_write_bytes", "member_busy_ns"),
        *(
            "member_most_bytes",
            "rebuild_share",
            "rebuild_share_seconds",
            "verified_bytes",
            "wrong_sectors",
            *sustained.METRICS,
            *store_accounts.FACTS,
        ),
    )
    # Half of what is read, modified and written was read.
    halved = pl.when(pl.col("operation") == "read_modify_write").then(pl.col("bytes") / 2).otherwise("bytes")
    reads, writes = (
        halved.filter(pl.col("operation").is_in(operations) & ((pl.col("stream") == ALL) | ~several)).sum()
        for operations in (("read", "scan", "read_modify_write"), ("write", "read_modify_write"))
    )
    written = pl.col("count").filter(
        pl.col("operation").is_in(("write", "read_modify_write")) & ((pl.col("stream") == ALL) | ~several)
    )
    return table.with_columns(
        *(pl.when(whole_stream).then(name).alias(name) for name in of_stream),
        *(pl.when(whole_run).then(name).alias(name) for name in of_run),
        read_bytes=reads.over(_RUN_KEYS),
        write_bytes=writes.over(_RUN_KEYS),
        write_count=written.sum().over(_RUN_KEYS),
    )


def _derived_counts(table: pl.DataFrame) -> pl.DataFrame:
    """Add the metrics that counts, sums and percentiles over `seconds` give."""
    is_store = pl.col("workload") == "kv"
    exact = [
        _clipped(f"{kind}_latency_ns_{part}", f"{kind}_min_ns", f"{kind}_max_ns")
        for kind in ("completion", "response")
        for part in PERCENTILES
        if f"{kind}_latency_ns_{part}" in table.columns
    ]
    return table.with_columns(
        *exact,
        iops=pl.when(~is_store).then(_over("count", "seconds")),
        ops_per_sec=pl.when(is_store).then(_over("count", "seconds")),
        bandwidth=_over("bytes", "seconds"),
        operations=pl.col("count"),
        completion_latency_ns_mean=_over("completion_sum_ns", "count"),
        completion_latency_ns_min=pl.col("completion_min_ns"),
        completion_latency_ns_max=pl.col("completion_max_ns"),
        response_latency_ns_mean=_over("response_sum_ns", "response_count"),
        response_latency_ns_min=pl.col("response_min_ns"),
        response_latency_ns_max=pl.col("response_max_ns"),
    )


def _derived(table: pl.DataFrame) -> pl.DataFrame:
    """Add every metric of a run's scope."""
    closed_loop = pl.col("response_count") == 0
    members = table.with_columns(member_bytes=pl.col("member_read_bytes") + pl.col("member_write_bytes"))
    whole = store_accounts.over_the_run(members).with_columns(*store_accounts.derived())
    return _derived_counts(whole).with_columns(
        mean_in_flight=pl.col("in_flight_sum_ns") / 1e9 / pl.col("seconds"),
        concurrency=pl.col("stream_concurrency"),
        littles_law_ratio=pl.when(closed_loop & (pl.col("workload") != "kv")).then(
            _over("in_flight_sum_ns", "stream_concurrency") / 1e9 / pl.col("seconds")
        ),
        achieved_rate_fraction=_over("started", "due"),
        cpu_user_ns_per_operation=_over("process_user_ns", "count"),
        cpu_system_ns_per_operation=_over("process_system_ns", "count"),
        cpu_ns_per_operation=(_over("process_user_ns", "count") + _over("process_system_ns", "count")),
        cpu_ns_per_byte=(_over("process_user_ns", "bytes") + _over("process_system_ns", "bytes")),
        member_ios_per_operation=(_over("member_reads", "count") + _over("member_writes", "count")),
        rebuild_seconds=_over("rebuild_share_seconds", "rebuild_share"),
        member_reads_per_operation=_over("member_reads", "count"),
        member_bytes_per_byte=_over("member_bytes", "bytes"),
        member_utilisation=pl.col("member_busy_ns") / 1e9 / pl.col("seconds"),
        member_imbalance=_over("member_most_bytes", "member_bytes") * pl.col("member_count"),
        device_read_amplification=_over("device_read_bytes", "read_bytes"),
        device_write_amplification=_over("device_write_bytes", "write_bytes"),
        device_bytes_per_second=(pl.col("device_read_bytes") + pl.col("device_write_bytes")) / pl.col("seconds"),
    )


def _long(table: pl.DataFrame, *, keys: Sequence[str], metrics: Iterable[str]) -> pl.DataFrame:
    """Turn one column a metric into one row a metric; a metric that cannot be said has no row."""
    return (
        table.select(*keys, *(pl.col(name).cast(pl.Float64) for name in metrics))
        .unpivot(index=keys, variable_name="metric", value_name="value")
        .drop_nulls("value")
    )


def _over(numerator: str, denominator: str) -> pl.Expr:
    """Divide, and say nothing where there is nothing to divide by."""
    return pl.when(pl.col(denominator) > 0).then(pl.col(numerator) / pl.col(denominator))


def _clipped(percentile: str, minimum: str, maximum: str) -> pl.Expr:
    """A bucket's midpoint may lie beyond the exact extremes; no sample does."""
    return pl.col(percentile).clip(pl.col(minimum), pl.col(maximum))


def _seconds(begin: str, end: str) -> pl.Expr:
    return (pl.col(end) - pl.col(begin)) / 1e9


def _intervals(summary: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of the medians of rows that all have the same number of repeats."""
    low, high = median_intervals(np.stack([values.to_numpy() for values in summary["value"]]))
    return summary.select(
        "result_set",
        "case_id",
        "part",
        "control",
        *_SCOPE_KEYS,
        "metric",
        low=pl.Series(low, nan_to_null=True),
        high=pl.Series(high, nan_to_null=True),
    )
