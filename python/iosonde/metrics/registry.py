"""The registry of metrics: name, unit, formula, direction and expression, one row each.

The values of runs and intervals, the tables `metrics` and `case_metrics`, the words of reports and the check of
docs/metrics.md follow from it. A new metric is one row here, or in `facts.py` of its feature. Facts, which
expressions name as columns, are rows of `iosonde.results.run_facts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.base.features import contributed
from iosonde.metrics.metric import SERVER_SECONDS, Metric, in_seconds, over, own
from iosonde.metrics.scopes import MILLION, PERCENTILES
from iosonde.study.workload import names_where

_OF_SERVERS = (
    Metric("server_cores", "Cores used by the server", "", "neither", "store",
        "CPU time of the server's processes / seconds", over(in_seconds(pl.col("server_cpu_ns")), SERVER_SECONDS),
        per_interval=True),
    Metric("wal_bandwidth", "Write-ahead log bandwidth", "B/s", "neither", "store",
        "bytes of log that the server generated / seconds", over("wal_bytes", SERVER_SECONDS), per_interval=True),
    Metric("server_data_bandwidth", "Bandwidth of data page writes", "B/s", "neither", "store",
        "bytes of data pages that the server wrote (checkpoints, background writers, sessions) / seconds",
        over("server_data_bytes", SERVER_SECONDS), per_interval=True),
    Metric("server_write_bandwidth", "File system write bandwidth of the server", "B/s", "neither", "store",
        "bytes that the server's control group wrote / seconds", over("group_write_bytes", SERVER_SECONDS),
        per_interval=True),
    Metric("buffer_hit_ratio", "Buffer hit ratio", "", "higher", "store",
        "page requests that hit the buffer pool / page requests",
        over(pl.col("buffer_hits"), pl.col("buffer_hits") + pl.col("buffer_reads")), per_interval=True),
    *(
        Metric(f"waiting_for_{what}_share", f"Share of sessions waiting for {short}", "", "lower", "store",
            f"mean number of sessions waiting for {long} / mean number of active sessions",
            f"sessions_waiting_for_{what} / sessions_active", per_interval=True)
        for what, short, long in (
            ("lock", "locks", "a lock"),
            ("log", "the log", "the write-ahead log"),
            ("io", "I/O", "reads or writes of data files"),
        )
    ),
    Metric("checkpoints_per_minute", "Checkpoints per minute", "", "neither", "store",
        "checkpoints in the measurement / minutes", over(60 * pl.col("checkpoints"), SERVER_SECONDS),
        per_interval=True),
    Metric("lost_commits", "Acknowledged commits lost", "", "lower", "count",
        "acknowledged commits that the restarted server does not have"),
    Metric("acknowledged_commits", "Acknowledged commits", "", "neither", "count",
        "commits that were acknowledged before the server was killed"),
    Metric("recovery_seconds", "Recovery time", "s", "lower", "time",
        "first accepted connection - restart of the killed server"),
    Metric("restore_seconds", "Time to restore the database", "s", "lower", "time",
        "copying the template and comparing the copy"),
)  # fmt: skip
"""Metrics of runs on a database server, in the order of docs/metrics.md."""


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
        words = f"{title}, {statistic}"
        yield Metric(f"{name}_ns_{statistic}", words, "ns", "lower", "latency", formula, expression, per_interval=True)
    for percentile, part in PERCENTILES.items():
        share = f"{100 * part / MILLION:g}"
        formula = f"smallest latency that {share} % of (completion - {begin}) do not exceed"
        # The midpoint of a bucket may be beyond the exact extremes; no sample does.
        column = f"{name}_ns_{percentile}"
        within = pl.col(column).clip(low, high)
        yield Metric(column, f"{title}, p{share}", "ns", "lower", "latency", formula, within, per_interval=True)


_OF_FEATURES = contributed("facts", "METRICS", Metric)

_LIST = (
    Metric("iops", "IOPS", "1/s", "higher", "rate",
        "operations / seconds", pl.when(_IS_BLOCK).then(over("count", "seconds")), per_interval=True, counted="IOPS"),
    Metric("ops_per_sec", "Operations per second", "1/s", "higher", "rate",
        "operations / seconds, of a key-value or object store, or accesses to memory / seconds",
        pl.when(_COUNTS_OPERATIONS).then(over("count", "seconds")), per_interval=True, counted="operations/s"),
    Metric("bandwidth", "Bandwidth", "B/s", "higher", "rate", "bytes / seconds", "bytes / seconds", per_interval=True),
    Metric("operations", "Operations", "", "neither", "count",
        "operations completed without error", "count", per_interval=True),
    Metric("errors", "Errors", "", "lower", "count", "operations that failed or were short"),
    Metric("seconds", "Measured time", "s", "neither", "time", "end of the measurement - its start"),
    *_latency_metrics("completion_latency", "Completion latency", "submission", "count"),
    *_latency_metrics("response_latency", "Response latency", "intended start", "response_count"),
    Metric("durable_write_ns_mean", "Time per durable write, mean", "ns", "lower", "latency",
        "(sum of completion latencies of writes and flushes) / writes, where durability is `flush`",
        "durable_write_sum_ns / count"),
    Metric("mean_in_flight", "Mean in flight", "", "neither", "concurrency",
        "sum of completion latencies / measured time", in_seconds(pl.col("in_flight_sum_ns")) / pl.col("seconds")),
    Metric("concurrency", "Concurrency", "", "neither", "concurrency", "jobs x queue depth", "stream_concurrency"),
    Metric("littles_law_ratio", "Mean in flight over concurrency", "", "neither", "concurrency",
        "mean_in_flight / concurrency, in closed loop without scheduled pauses (`active`)",
        pl.when((pl.col("response_count") == 0) & _IS_BLOCK).then(
            in_seconds(over("in_flight_sum_ns", "continuous_concurrency")) / pl.col("seconds"))),
    Metric("backlog_max", "Largest backlog", "", "lower", "concurrency",
        "most operations that were due but not started at any moment"),
    Metric("achieved_rate_fraction", "Achieved over offered rate", "", "higher", "concurrency",
        "I/Os started / I/Os due, from the start of the run to the end of the load, in open loop", "started / due"),
    Metric("cpu_user_ns_per_operation", "User CPU time per operation", "ns", "lower", "cpu",
        "user time of the engine process / operations", "process_user_ns / count"),
    Metric("cpu_system_ns_per_operation", "System CPU time per operation", "ns", "lower", "cpu",
        "system time of the engine process / operations", "process_system_ns / count"),
    Metric("cpu_ns_per_operation", "CPU time per operation", "ns", "lower", "cpu",
        "(user + system time of the engine process) / operations",
        over("process_user_ns", "count") + over("process_system_ns", "count")),
    Metric("iops_per_core", "Operations per second of CPU time", "1/s", "higher", "cpu",
        "operations / (user + system time of the engine process)",
        1e9 / (over("process_user_ns", "count") + over("process_system_ns", "count"))),
    Metric("cpu_ns_per_byte", "CPU time per byte", "ns", "lower", "cpu",
        "(user + system time of the engine process) / bytes",
        over("process_user_ns", "bytes") + over("process_system_ns", "bytes")),
    Metric("core_utilisation", "Utilisation of the busiest core", "", "lower", "cpu",
        "largest (user + system time) / wall time of any job's thread"),
    Metric("busiest_core_utilisation", "Time that the busiest core was not idle", "", "lower", "cpu",
        "largest (time not idle) / time of any core, all processes included", "busiest_core_share"),
    Metric("engine_stalled_fraction", "Engine stalled", "", "lower", "cpu",
        "time in the measurement during which the engine itself did not run / seconds",
        in_seconds(pl.col("engine_stalled_ns")) / pl.col("seconds")),
    Metric("kernel_cpu_ns_per_byte", "CPU time of kernel threads per byte", "ns", "lower", "cpu",
        "CPU time of all kernel threads / bytes", "kernel_cpu_ns / bytes"),
    Metric("device_read_amplification", "Device reads over application reads", "", "lower", "device",
        "bytes the block device read, without those of other processes / bytes the application read; "
        "withheld with more than 5 % of other processes",
        over(own("device_read_bytes", "foreign_read_share"), "read_bytes")),
    Metric("device_write_amplification", "Device writes over application writes", "", "lower", "device",
        "bytes the block device wrote, without those of other processes / bytes the application wrote; "
        "withheld with more than 5 % of other processes",
        over(own("device_write_bytes", "foreign_write_share"), "write_bytes")),
    Metric("media_write_amplification", "Device to media", "", "lower", "device",
        "bytes the drives wrote to their media / bytes the drives received", "media_write_bytes / media_taken_bytes"),
    Metric("device_bytes_per_second", "Device bandwidth", "B/s", "higher", "device",
        "bytes the block device read and wrote / seconds",
        (pl.col("device_read_bytes") + pl.col("device_write_bytes")) / pl.col("seconds")),
    Metric("member_ios_per_operation", "Member I/Os per I/O", "", "lower", "device",
        "reads and writes that the members of the array completed / operations",
        over("member_reads", "count") + over("member_writes", "count")),
    Metric("member_reads_per_operation", "Member reads per I/O", "", "lower", "device",
        "reads that the members of the array completed / operations", "member_reads / count"),
    Metric("member_bytes_per_byte", "Member bytes per byte", "", "lower", "device",
        "bytes that the members of the array read and wrote / bytes", over(_MEMBER_BYTES, "bytes")),
    Metric("member_utilisation", "Utilisation of the members", "", "neither", "device",
        "mean over the members of the time with any I/O in flight / seconds",
        over(in_seconds(pl.col("member_busy_ns")), pl.coalesce(in_seconds(pl.col("member_counted_ns")), "seconds"))),
    Metric("member_imbalance", "Imbalance of the members", "", "lower", "device",
        "bytes of the member with most / mean of the members",
        over("member_most_bytes", _MEMBER_BYTES) * pl.col("member_count")),
    Metric("iops_variation", "Variation of IOPS", "", "lower", "spread",
        "standard deviation / mean of IOPS over the intervals of the run"),
    Metric("peak_iops", "IOPS of the best round", "1/s", "higher", "sustained", "largest IOPS of any round of the run"),
    Metric("steady_iops", "Steady-state IOPS", "1/s", "higher", "sustained",
        "mean IOPS of the last quarter of the rounds since the last step"),
    Metric("steady_bandwidth", "Steady-state bandwidth", "B/s", "higher", "sustained",
        "mean bandwidth of the last quarter of the rounds since the last step"),
    Metric("steady_fraction", "Steady state over peak", "", "higher", "sustained",
        "tracking variable in that last quarter / in the best round"),
    Metric("final_fraction", "Last rounds over peak", "", "higher", "sustained",
        "tracking variable in the last window, steady or not / in the best round"),
    Metric("seconds_to_steady_state", "Time to steady state", "s", "lower", "sustained",
        "end of the measurement window - start of the measurement"),
    Metric("seconds_to_cliff", "Time to the write cliff", "s", "higher", "sustained",
        "end of the plateau before the largest drop - start of the measurement"),
    Metric("gibibytes_to_cliff", "GiB until the write cliff", "", "higher", "sustained",
        "bytes written until the end of that plateau / 2^30"),
    Metric("verified_bytes", "Bytes verified", "", "neither", "count", "bytes read and checked by verification"),
    Metric("wrong_sectors", "Wrong sectors", "", "lower", "count",
        "sectors of 512 bytes that differ from the written data"),
    *_OF_SERVERS,
    *_OF_FEATURES,
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _LIST}
"""Every metric of iosonde's own by name, in the order of docs/metrics.md."""

RATES_OF_FEATURES = tuple(each.name for each in _OF_FEATURES if each.is_rate)
COMPARED_OF_FEATURES = tuple(each.name for each in _OF_FEATURES if each.is_compared)
RATES = ("iops", "ops_per_sec", *RATES_OF_FEATURES)
"""Rates of a whole load, of which a run has one besides `bandwidth`."""

_DECLARED: dict[str, Metric] = {}
"""Metrics that studies of external commands define, as far as this process has read them."""


def declare(metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """Add metrics that a study defines by `title`, `unit` and `better`, or replace their definitions.

    Reading named values declares their metrics (`metrics.py`), and so does reading a study.
    """
    formula = "value in the output of the command"
    for name, each in metrics.items():
        title, unit, better = each["title"], each["unit"], each["better"]
        # Rates, sizes and times cannot be negative; a number without a unit may be anything.
        _DECLARED[name] = Metric(name, title, unit, better, "named", formula, can_be_negative=not unit)


def find(name: str) -> Metric | None:
    """The metric of that name; None if there is none."""
    return METRICS.get(name) or _DECLARED.get(name)


def metric(name: str) -> Metric:
    """The metric of that name, which exists."""
    return METRICS.get(name) or _DECLARED[name]


def least_value(name: str) -> float:
    """Smallest possible value of a metric: 0, or minus infinity where it can be negative or is unknown."""
    found = find(name)
    return 0.0 if found is not None and not found.can_be_negative else -math.inf


def known_names() -> list[str]:
    """The names of all metrics, those of studies last."""
    return [*METRICS, *_DECLARED]


def named_among(present: Iterable[str], *, directed: bool = True) -> list[str]:
    """Of these metrics, those that a study names; `directed`: only where more or less is better."""
    names = set(present)
    return [name for name, each in _DECLARED.items() if name in names and not (directed and each.better == "neither")]
