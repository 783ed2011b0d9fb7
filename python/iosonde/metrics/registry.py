"""The registry of metrics: name, unit, formula, direction and expression, one row each.

The values of runs and intervals, the tables `metrics` and `case_metrics`, the words of reports and the check of
docs/metrics.md follow from it. A new metric is one row here, or in `metrics.py` of its feature. Facts, which
expressions name as columns, are rows of `iosonde.results.columns`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import polars as pl

from iosonde.core.features import contributed
from iosonde.metrics import media, server
from iosonde.metrics.histogram import MILLION, PERCENTILES
from iosonde.metrics.metric import Metric, in_seconds, over, own
from iosonde.workload import names_where

_COUNTS_OPERATIONS = pl.col("workload").is_in(names_where(lambda each: each.rate.is_ops_per_sec))
_IS_BLOCK = pl.col("workload").is_in(names_where(lambda each: each.io == "blocks"))
_MEMBER_BYTES = pl.col("member_read_bytes") + pl.col("member_write_bytes")


def _latency_metrics(name: str, title: str, begin: str, counted: str) -> Iterator[Metric]:
    """Return the metrics of completion or response latency; `counted` is the column with the number of operations."""
    kind = name.removesuffix("_latency")
    low, high = pl.col(f"{kind}_min_ns"), pl.col(f"{kind}_max_ns")
    for statistic, formula, expression in (
        ("mean", f"sum of (completion - {begin}) / operations", over(f"{kind}_sum_ns", counted)),
        ("min", f"smallest (completion - {begin})", low),
        ("max", f"largest (completion - {begin})", high),
    ):
        yield Metric(
            name=f"{name}_ns_{statistic}",
            title=f"{title}, {statistic}",
            unit="ns",
            formula=formula,
            better="lower",
            kind="latency",
            expression=expression,
            per_interval=True,
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
            # The midpoint of a bucket may be beyond the exact extremes; no sample does.
            expression=pl.col(f"{name}_ns_{percentile}").clip(low, high),
            per_interval=True,
        )


_OF_FEATURES = contributed("metrics", "METRICS", Metric)

_LIST = (
    Metric(
        name="iops",
        title="IOPS",
        unit="1/s",
        formula="operations / seconds",
        better="higher",
        kind="rate",
        expression=pl.when(_IS_BLOCK).then(over("count", "seconds")),
        per_interval=True,
        counted="IOPS",
    ),
    Metric(
        name="ops_per_sec",
        title="Operations per second",
        unit="1/s",
        formula="operations / seconds, of a key-value or object store, or accesses to memory / seconds",
        better="higher",
        kind="rate",
        expression=pl.when(_COUNTS_OPERATIONS).then(over("count", "seconds")),
        per_interval=True,
        counted="operations/s",
    ),
    Metric(
        name="bandwidth",
        title="Bandwidth",
        unit="B/s",
        formula="bytes / seconds",
        better="higher",
        kind="rate",
        expression=over("bytes", "seconds"),
        per_interval=True,
    ),
    Metric(
        name="operations",
        title="Operations",
        unit="",
        formula="operations completed without error",
        better="neither",
        kind="count",
        expression=pl.col("count"),
        per_interval=True,
    ),
    Metric(
        name="errors",
        title="Errors",
        unit="",
        formula="operations that failed or were short",
        better="lower",
        kind="count",
    ),
    Metric(
        name="seconds",
        title="Measured time",
        unit="s",
        formula="end of the measurement - its start",
        better="neither",
        kind="time",
    ),
    *_latency_metrics("completion_latency", "Completion latency", "submission", "count"),
    *_latency_metrics("response_latency", "Response latency", "intended start", "response_count"),
    Metric(
        name="durable_write_ns_mean",
        title="Time per durable write, mean",
        unit="ns",
        formula="(sum of completion latencies of writes and flushes) / writes, where durability is `flush`",
        better="lower",
        kind="latency",
        expression=over("durable_write_sum_ns", "count"),
    ),
    Metric(
        name="mean_in_flight",
        title="Mean in flight",
        unit="",
        formula="sum of completion latencies / measured time",
        better="neither",
        kind="concurrency",
        expression=in_seconds(pl.col("in_flight_sum_ns")) / pl.col("seconds"),
    ),
    Metric(
        name="concurrency",
        title="Concurrency",
        unit="",
        formula="jobs x queue depth",
        better="neither",
        kind="concurrency",
        expression=pl.col("stream_concurrency"),
    ),
    Metric(
        name="littles_law_ratio",
        title="Mean in flight over concurrency",
        unit="",
        formula="mean_in_flight / concurrency, in closed loop without scheduled pauses (`active`)",
        better="neither",
        kind="concurrency",
        expression=pl.when((pl.col("response_count") == 0) & _IS_BLOCK).then(
            in_seconds(over("in_flight_sum_ns", "continuous_concurrency")) / pl.col("seconds")
        ),
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
        formula="I/Os started / I/Os due, from the start of the run to the end of the load, in open loop",
        better="higher",
        kind="concurrency",
        expression=over("started", "due"),
    ),
    Metric(
        name="cpu_user_ns_per_operation",
        title="User CPU time per operation",
        unit="ns",
        formula="user time of the engine process / operations",
        better="lower",
        kind="cpu",
        expression=over("process_user_ns", "count"),
    ),
    Metric(
        name="cpu_system_ns_per_operation",
        title="System CPU time per operation",
        unit="ns",
        formula="system time of the engine process / operations",
        better="lower",
        kind="cpu",
        expression=over("process_system_ns", "count"),
    ),
    Metric(
        name="cpu_ns_per_operation",
        title="CPU time per operation",
        unit="ns",
        formula="(user + system time of the engine process) / operations",
        better="lower",
        kind="cpu",
        expression=over("process_user_ns", "count") + over("process_system_ns", "count"),
    ),
    Metric(
        name="iops_per_core",
        title="Operations per second of CPU time",
        unit="1/s",
        formula="operations / (user + system time of the engine process)",
        better="higher",
        kind="cpu",
        expression=1e9 / (over("process_user_ns", "count") + over("process_system_ns", "count")),
    ),
    Metric(
        name="cpu_ns_per_byte",
        title="CPU time per byte",
        unit="ns",
        formula="(user + system time of the engine process) / bytes",
        better="lower",
        kind="cpu",
        expression=over("process_user_ns", "bytes") + over("process_system_ns", "bytes"),
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
        name="busiest_core_utilisation",
        title="Time that the busiest core was not idle",
        unit="",
        formula="largest (time not idle) / time of any core, all processes included",
        better="lower",
        kind="cpu",
        expression=pl.col("busiest_core_share"),
    ),
    Metric(
        name="engine_stalled_fraction",
        title="Engine stalled",
        unit="",
        formula="time in the measurement during which the engine itself did not run / seconds",
        better="lower",
        kind="cpu",
        expression=in_seconds(pl.col("engine_stalled_ns")) / pl.col("seconds"),
    ),
    Metric(
        name="kernel_cpu_ns_per_byte",
        title="CPU time of kernel threads per byte",
        unit="ns",
        formula="CPU time of all kernel threads / bytes",
        better="lower",
        kind="cpu",
        expression=over("kernel_cpu_ns", "bytes"),
    ),
    Metric(
        name="device_read_amplification",
        title="Device reads over application reads",
        unit="",
        formula="bytes the block device read, without those of other processes / bytes the application read; "
        "withheld with more than 5 % of other processes",
        better="lower",
        kind="device",
        expression=over(own("device_read_bytes", "foreign_read_share"), "read_bytes"),
    ),
    Metric(
        name="device_write_amplification",
        title="Device writes over application writes",
        unit="",
        formula="bytes the block device wrote, without those of other processes / bytes the application wrote; "
        "withheld with more than 5 % of other processes",
        better="lower",
        kind="device",
        expression=over(own("device_write_bytes", "foreign_write_share"), "write_bytes"),
    ),
    media.AMPLIFICATION,
    Metric(
        name="device_bytes_per_second",
        title="Device bandwidth",
        unit="B/s",
        formula="bytes the block device read and wrote / seconds",
        better="higher",
        kind="device",
        expression=(pl.col("device_read_bytes") + pl.col("device_write_bytes")) / pl.col("seconds"),
    ),
    Metric(
        name="member_ios_per_operation",
        title="Member I/Os per I/O",
        unit="",
        formula="reads and writes that the members of the array completed / operations",
        better="lower",
        kind="device",
        expression=over("member_reads", "count") + over("member_writes", "count"),
    ),
    Metric(
        name="member_reads_per_operation",
        title="Member reads per I/O",
        unit="",
        formula="reads that the members of the array completed / operations",
        better="lower",
        kind="device",
        expression=over("member_reads", "count"),
    ),
    Metric(
        name="member_bytes_per_byte",
        title="Member bytes per byte",
        unit="",
        formula="bytes that the members of the array read and wrote / bytes",
        better="lower",
        kind="device",
        expression=over(_MEMBER_BYTES, "bytes"),
    ),
    Metric(
        name="member_utilisation",
        title="Utilisation of the members",
        unit="",
        formula="mean over the members of the time with any I/O in flight / seconds",
        better="neither",
        kind="device",
        expression=over(
            in_seconds(pl.col("member_busy_ns")),
            pl.coalesce(in_seconds(pl.col("member_counted_ns")), "seconds"),
        ),
    ),
    Metric(
        name="member_imbalance",
        title="Imbalance of the members",
        unit="",
        formula="bytes of the member with most / mean of the members",
        better="lower",
        kind="device",
        expression=over("member_most_bytes", _MEMBER_BYTES) * pl.col("member_count"),
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
        formula="mean IOPS of the last quarter of the rounds since the last step",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="steady_bandwidth",
        title="Steady-state bandwidth",
        unit="B/s",
        formula="mean bandwidth of the last quarter of the rounds since the last step",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="steady_fraction",
        title="Steady state over peak",
        unit="",
        formula="tracking variable in that last quarter / in the best round",
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
        formula="end of the measurement window - start of the measurement",
        better="lower",
        kind="sustained",
    ),
    Metric(
        name="seconds_to_cliff",
        title="Time to the write cliff",
        unit="s",
        formula="end of the plateau before the largest drop - start of the measurement",
        better="higher",
        kind="sustained",
    ),
    Metric(
        name="gibibytes_to_cliff",
        title="GiB until the write cliff",
        unit="",
        formula="bytes written until the end of that plateau / 2^30",
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
        formula="sectors of 512 bytes that differ from the written data",
        better="lower",
        kind="count",
    ),
    *server.METRICS,
    *_OF_FEATURES,
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _LIST}
"""Every metric of iosonde's own by name, in the order of docs/metrics.md."""

RATES_OF_FEATURES = tuple(each.name for each in _OF_FEATURES if each.is_rate)
COMPARED_OF_FEATURES = tuple(each.name for each in _OF_FEATURES if each.is_compared)
RATES = ("iops", "ops_per_sec", *RATES_OF_FEATURES)
"""Rates of a whole load, of which a run has one besides `bandwidth`."""

_DECLARED: dict[str, Metric] = {}
"""Metrics that studies of external commands define, as far as this process has read them."""


def declare(name: str, *, title: str, unit: str, better: Literal["higher", "lower", "neither"]) -> None:
    """Add a metric that a study defines, or replace its definition.

    Reading named values declares their metrics (`named.py`), and so does reading a study.
    """
    _DECLARED[name] = Metric(
        name=name,
        title=title,
        unit=unit,
        formula="value in the output of the command",
        better=better,
        kind="named",
        # Rates, sizes and times cannot be; a number without a unit may be anything.
        can_be_negative=not unit,
    )


def find(name: str) -> Metric | None:
    """The metric of that name; None if there is none."""
    return METRICS.get(name) or _DECLARED.get(name)


def metric(name: str) -> Metric:
    """The metric of that name, which exists."""
    found = find(name)
    if found is None:
        raise KeyError(name)
    return found


def least_value(name: str) -> float:
    """Smallest possible value of a metric: 0, or minus infinity where it can be negative or is unknown."""
    found = find(name)
    return 0.0 if found is not None and not found.can_be_negative else -math.inf


def known_names() -> list[str]:
    """The names of all metrics, those of studies last."""
    return [*METRICS, *_DECLARED]


def headline_rates(present: Iterable[str]) -> list[str]:
    """Of these metrics, those by which a whole load is judged: its rate, or what a study names with a direction."""
    names = set(present)
    return [name for name in RATES if name in names] or named_among(names)


def named_among(present: Iterable[str], *, directed: bool = True) -> list[str]:
    """Of these metrics, those that a study names; `directed`: only where more or less is better."""
    names = set(present)
    return [name for name, each in _DECLARED.items() if name in names and not (directed and each.better == "neither")]
