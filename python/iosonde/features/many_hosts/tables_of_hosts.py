"""Tables of several hosts as those of one run: rows added, on the clock of one host.

Interval *j* of the total consists of the interval of each host that begins closest to interval *j* of the host that
began last. Only intervals that all hosts measured entirely are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from iosonde.results.schema import HISTOGRAMS, INTERVALS, USAGE

_SAME_LENGTH = 0.9
"""Shortest interval of a host over the longest, for an interval that all measured."""

_SUMS = ("count", "bytes", "errors", "completion_latency_ns_sum", "backlog_max")
_SUMS_OR_NULL = ("response_latency_ns_sum",)
_LEAST = ("completion_latency_ns_min", "response_latency_ns_min")
_MOST = ("completion_latency_ns_max", "response_latency_ns_max", "engine_stalled_ns")


@dataclass(frozen=True, kw_only=True)
class HostTables:
    """The tables of a host's run, and when it measured."""

    host: str
    machine: str
    begin_ns: int
    """Start of its measurement on the clock of the coordinator."""
    intervals: pl.DataFrame
    histograms: pl.DataFrame
    usage: pl.DataFrame

    def measured(self) -> pl.DataFrame:
        """The intervals of its measurement, in order: number and times."""
        rows = self.usage.filter(pl.col("phase") == "measure", pl.col("device") == "process")
        return rows.select("interval", "begin_ns", "end_ns").sort("interval")


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The tables of the total."""

    begin_ns: int
    """Of the first interval, in the time of the host that began last."""
    end_ns: int
    intervals: pl.DataFrame
    histograms: pl.DataFrame
    usage: pl.DataFrame
    by_host: list[HostTables]
    """Those of each host over the same time, with the numbers of the total's intervals."""


def merge(hosts: Sequence[HostTables]) -> Merged | None:
    """Add the tables of hosts; None if there is no interval that all of them measured."""
    last = max(hosts, key=lambda host: host.begin_ns)
    kept = _kept(hosts, last)
    if kept.is_empty():
        return None
    by_host = [_renumbered(host, last, kept) for host in hosts]
    return Merged(
        begin_ns=int(kept["begin_ns"].item(0)),
        end_ns=int(kept["end_ns"].item(-1)),
        intervals=_intervals([host.intervals for host in by_host]),
        histograms=_histograms([host.histograms for host in by_host]),
        usage=_usage(by_host),
        by_host=by_host,
    )


def _kept(hosts: Sequence[HostTables], last: HostTables) -> pl.DataFrame:
    """Number and times, in the time of the last host, of the intervals that all hosts measured."""
    lengths = pl.concat(
        host.measured().select(
            pl.col("interval").cast(pl.Int64) - _shift(host, last), length=pl.col("end_ns") - pl.col("begin_ns")
        )
        for host in hosts
    )
    common = (
        lengths.group_by("interval")
        .agg(hosts=pl.len(), shortest=pl.col("length").min(), longest=pl.col("length").max())
        .filter(pl.col("hosts") == len(hosts), pl.col("shortest") >= _SAME_LENGTH * pl.col("longest"))
    )
    own = last.measured().with_columns(pl.col("interval").cast(pl.Int64))
    kept = own.join(common.select("interval"), on="interval", how="semi").sort("interval")
    # A gap ends it: later intervals would not adjoin.
    return kept.filter(pl.col("interval") - pl.col("interval").first() == pl.int_range(pl.len()))


def _shift(host: HostTables, last: HostTables) -> int:
    """Number of intervals that a host had started when the last one began its first."""
    own = host.measured()
    if own.is_empty():
        return 0
    length = int(own["end_ns"].item(0)) - int(own["begin_ns"].item(0))
    return round((last.begin_ns - host.begin_ns) / length) if length else 0


def _renumbered(host: HostTables, last: HostTables, kept: pl.DataFrame) -> HostTables:
    first = int(kept["interval"].item(0))
    times = kept.with_columns(interval=(pl.col("interval") - first).cast(pl.UInt32))

    def renumber(table: pl.DataFrame) -> pl.DataFrame:
        number = pl.col("interval").cast(pl.Int64) - _shift(host, last) - first
        rows = table.filter(pl.col("phase") == "measure").with_columns(interval=number)
        rows = rows.filter(pl.col("interval").is_between(0, len(kept) - 1)).with_columns(
            pl.col("interval").cast(pl.UInt32)
        )
        if "begin_ns" not in table.columns:
            return rows
        return rows.drop("begin_ns", "end_ns").join(times, on="interval").select(table.columns)

    return HostTables(
        host=host.host,
        machine=host.machine,
        begin_ns=host.begin_ns,
        intervals=renumber(host.intervals),
        histograms=renumber(host.histograms),
        usage=renumber(host.usage),
    )


def _intervals(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    keys = ("run_id", "phase", "interval", "begin_ns", "end_ns", "stream", "operation")
    summed = (
        pl.concat(tables)
        .group_by(keys)
        .agg(
            pl.col(_SUMS).sum(),
            *(pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name) for name in _SUMS_OR_NULL),
            pl.col(_LEAST).min(),
            pl.col(_MOST).max(),
        )
    )
    return summed.select(INTERVALS.names()).cast(INTERVALS).sort("begin_ns", "stream", "operation")


def _histograms(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    keys = [name for name in HISTOGRAMS.names() if name != "count"]
    summed = pl.concat(tables).group_by(keys).agg(pl.col("count").sum())
    return summed.select(HISTOGRAMS.names()).cast(HISTOGRAMS).sort(keys)


def _usage(hosts: Sequence[HostTables]) -> pl.DataFrame:
    """The process rows of all hosts added; each device once, since hosts of one machine read the same counters."""
    places = ("run_id", "phase", "interval", "begin_ns", "end_ns", "device")
    processes = pl.concat(host.usage.filter(pl.col("device") == "process") for host in hosts)
    counters = [name for name in USAGE.names() if name not in places]
    known = [name for name in counters if processes[name].count()]
    added = processes.group_by(places).agg(
        pl.col("wall_ns").min(), *(pl.col(name).sum() for name in known if name != "wall_ns")
    )
    rows = pl.concat([added, _devices(hosts)], how="diagonal_relaxed")
    missing = [pl.lit(None).alias(name) for name in USAGE.names() if name not in rows.columns]
    return rows.with_columns(missing).select(USAGE.names()).cast(USAGE).sort("begin_ns", "device")


def _devices(hosts: Sequence[HostTables]) -> pl.DataFrame:
    """The rows of devices, named after the first host of their machine: those of the first host that has the device."""
    machines = [host.machine for host in hosts]
    names = {host.machine: host.host for host in reversed(hosts)}
    rows = [
        host.usage.filter(pl.col("device") != "process").with_columns(
            device=pl.lit(prefix(names[host.machine], machines)) + pl.col("device")
        )
        for host in hosts
    ]
    return pl.concat(rows).unique(("interval", "device"), keep="first", maintain_order=True)


def prefix(host: str, machines: Sequence[str]) -> str:
    """Return what distinguishes names of devices of several machines; empty for one machine."""
    return f"{host}/" if len(set(machines)) > 1 else ""
