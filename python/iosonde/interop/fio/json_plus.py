"""Runs as fio's json+: one file a run, one of fio's jobs a stream, read by fio's own tools.

Latencies are counted in fio's bins, percentiles are those of iosonde's finer buckets, and every other figure
is as fio defines it: `clat_ns` is completion latency,
`lat_ns` response latency where there is an open-loop schedule and completion latency where there is none, `bw` is in
KiB/s, times are in ms. What fio writes and no record holds (submission latency, how many were submitted at once) is
zero or left out. Runs that did not come to their end have no file, and neither have loads other than block I/O, for
which fio has no words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from iosonde.base.python_process import installed_version
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.results import accounting
from iosonde.results.column import lower_ns, midpoint_ns
from iosonde.results.result_set import ResultSet
from iosonde.results.schema import Record
from iosonde.study.workload import described

SUFFIX = ".json"
PERCENTILES_FROM = "nearest rank in iosonde's histogram (0.1 %), within min and max; `bins` are fio's and end at 17.2 s"
WHAT = (
    "json+ of fio, one file a run: each stream is a job, `clat_ns` is completion latency, `lat_ns` response latency; "
    f"percentiles: {PERCENTILES_FROM}"
)
PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999)
"""fio's own list, and the one that `jo2024` reports."""
_PARTS = 100_000
"""Parts of a whole in which percentiles are whole numbers."""

Scope = tuple[str, str, str]
"""Run, stream, operation."""

_OPERATIONS = ("read", "write", "trim")
_SHARES = (2, 4, 10, 20, 50, 100, 250, 500, 750, 1000)
"""Upper ends of the ranges in which fio reports shares of latencies, in ns, us and ms."""


def files(results: ResultSet) -> Iterator[tuple[str, bytes]]:
    """Name and content of the file of each run of block I/O that came to its end."""
    facts = _Facts(results)
    for record in results.records():
        if record.outcome == "complete" and described(record.spec["workload"]).io == "blocks":
            yield record.run_id + SUFFIX, json.dumps(_document(record, facts), indent=1).encode()


@dataclass(frozen=True, kw_only=True)
class _Latency:
    """A latency of a scope: exact count, sum, extremes, and buckets of the samples."""

    count: int
    sum_ns: int
    min_ns: int
    max_ns: int
    buckets: pl.DataFrame


class _Facts:
    """All that is needed of a result set, by scope."""

    def __init__(self, results: ResultSet) -> None:
        facts = Facts(results)
        self.counts = {_scope(row): row for row in facts.counts(per="run").iter_rows(named=True)}
        buckets = pl.concat(facts.histograms(per="run"))
        self._buckets = buckets.partition_by("member", "response", as_dict=True)
        wanted = ("iops", "bandwidth")
        self.rates = _by_metric(run_metrics(results).filter(pl.col("metric").is_in(wanted)))
        of_intervals = interval_metrics(results, metrics=wanted).filter(phase="measure").sort("interval")
        grouped = of_intervals.group_by("run_id", "stream", "operation", "metric", maintain_order=True)
        self.samples = _by_metric(grouped.agg("value"))

    def latency(self, scope: Scope, kind: str) -> _Latency | None:
        """Completion or response latency; None where there is none."""
        row = self.counts.get(scope)
        buckets = self._buckets.get((row["member"], kind == "response")) if row else None
        if row is None or buckets is None or not row["count"] or row[f"{kind}_sum_ns"] is None:
            return None
        return _Latency(
            count=row["count"],
            sum_ns=row[f"{kind}_sum_ns"],
            min_ns=row[f"{kind}_min_ns"],
            max_ns=row[f"{kind}_max_ns"],
            buckets=buckets,
        )


def _scope(row: Mapping[str, Any]) -> Scope:
    return row["run_id"], row["stream"], row["operation"]


def _by_metric(frame: pl.DataFrame) -> dict[Scope, dict[str, Any]]:
    found: dict[Scope, dict[str, Any]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault(_scope(row), {})[row["metric"]] = row["value"]
    return found


def _document(record: Record, facts: _Facts) -> dict[str, Any]:
    ended = datetime.fromisoformat(record.ended_at)
    return {
        "fio version": f"iosonde-{installed_version('iosonde') or 'unknown'}",
        "timestamp": int(ended.timestamp()),
        "timestamp_ms": int(ended.timestamp() * 1000),
        "time": ended.strftime("%a %b %e %H:%M:%S %Y"),
        # fio's readers pass over what they do not know, and this is what leads back from here.
        "iosonde": {
            "run_id": record.run_id,
            "case_id": record.case_id,
            "levels": record.levels,
            "simulated": bool(record.target.get("simulated", False)),
            "percentiles": PERCENTILES_FROM,
        },
        "jobs": [_job(record, stream, facts, group) for group, stream in enumerate(record.spec["workload"]["streams"])],
        "disk_util": _disk_util(record),
    }


def _job(record: Record, stream: Mapping[str, Any], facts: _Facts, group: int) -> dict[str, Any]:
    assert record.result is not None, "a complete run has a result"
    runtime_ms = (record.result["end_ns"] - record.result["begin_ns"]) // 10**6
    scopes = {operation: (record.run_id, stream["name"], operation) for operation in (*_OPERATIONS, "flush")}
    flushes = facts.latency(scopes["flush"], "completion")
    # fio's `lat` is response latency where there is one.
    totals = [
        facts.latency(scopes[name], "response") or facts.latency(scopes[name], "completion") for name in _OPERATIONS
    ]
    errors = sum(facts.counts[scope]["errors"] for scope in scopes.values() if scope in facts.counts)
    return {
        "jobname": stream["name"],
        "groupid": group,
        "error": 0,
        "eta": 0,
        "elapsed": math.ceil(runtime_ms / 1000),
        "job options": job_options(stream, record.spec["workload"], backend=record.result["backend"]["kind"]),
        **{operation: _operation(scopes[operation], facts, runtime_ms) for operation in _OPERATIONS},
        "sync": {"total_ios": flushes.count if flushes else 0, "lat_ns": _distribution(flushes)},
        "job_runtime": runtime_ms,
        **_usage(record.result, stream),
        **_shares(list(filter(None, totals))),
        "total_err": errors,
    }


def _operation(scope: Scope, facts: _Facts, runtime_ms: int) -> dict[str, Any]:
    row = facts.counts.get(scope, {"bytes": 0, "count": 0})
    rates = facts.rates.get(scope, {})
    completion, response = facts.latency(scope, "completion"), facts.latency(scope, "response")
    return {
        "io_bytes": row["bytes"],
        "io_kbytes": row["bytes"] >> 10,
        "bw_bytes": int(rates.get("bandwidth", 0)),
        "bw": int(rates.get("bandwidth", 0)) >> 10,
        "iops": round(rates.get("iops", 0.0), 6),
        "runtime": runtime_ms if row["count"] else 0,
        "total_ios": row["count"],
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": _summary(None),
        "clat_ns": _distribution(completion),
        "lat_ns": _distribution(response) if response else _summary(completion),
        **_samples(facts.samples.get(scope, {})),
    }


def _summary(latency: _Latency | None) -> dict[str, Any]:
    """Extremes, mean and deviation, the latter from the buckets, whose midpoints are within 0.1 % of their values."""
    if latency is None:
        return {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    mean = latency.sum_ns / latency.count
    away = midpoint_ns(latency.buckets["bucket"].to_numpy()).astype(np.float64) - mean
    square = float((latency.buckets["count"].to_numpy() * away**2).sum())
    return {
        "min": latency.min_ns,
        "max": latency.max_ns,
        "mean": round(mean, 6),
        "stddev": round(math.sqrt(square / (latency.count - 1)), 6) if latency.count > 1 else 0.0,
        "N": latency.count,
    }


def _distribution(latency: _Latency | None) -> dict[str, Any]:
    if latency is None:
        return _summary(None)
    counts = bins_of_buckets(latency.buckets["bucket"].to_numpy(), latency.buckets["count"].to_numpy())
    return {**_summary(latency), "percentile": _percentiles(latency), "bins": occupied_bins(counts)}


def _percentiles(latency: _Latency) -> dict[str, int]:
    """Not from fio's bins: all latencies above 17.2 s are in the last of them."""
    ordered = latency.buckets.sort("bucket")
    reached = np.cumsum(ordered["count"].to_numpy())
    values = np.clip(midpoint_ns(ordered["bucket"].to_numpy()), latency.min_ns, latency.max_ns)
    ranks = [-(-int(reached[-1]) * round(percent * _PARTS / 100) // _PARTS) for percent in PERCENTILES]
    found = values[np.searchsorted(reached, ranks)]
    return {f"{percent:.6f}": int(value) for percent, value in zip(PERCENTILES, found, strict=True)}


def _samples(rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """fio takes a sample each half second; here each interval is one."""
    bandwidth = np.array(rates.get("bandwidth", [])) / 1024
    iops = np.array(rates.get("iops", []))
    return {
        "bw_min": int(bandwidth.min(initial=math.inf)) if bandwidth.size else 0,
        "bw_max": int(bandwidth.max(initial=0)),
        "bw_agg": 100.0 if bandwidth.any() else 0.0,
        "bw_mean": _mean(bandwidth),
        "bw_dev": _spread(bandwidth),
        "bw_samples": bandwidth.size,
        "iops_min": int(iops.min(initial=math.inf)) if iops.size else 0,
        "iops_max": int(iops.max(initial=0)),
        "iops_mean": _mean(iops),
        "iops_stddev": _spread(iops),
        "iops_samples": iops.size,
    }


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return round(float(values.mean()), 6) if values.size else 0.0


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return round(float(values.std(ddof=1)), 6) if values.size > 1 else 0.0


def _usage(result: Mapping[str, Any], stream: Mapping[str, Any]) -> dict[str, Any]:
    """Of the stream's threads together, as fio with `group_reporting`."""
    jobs = [job for job in result["jobs"] if job["stream"] == stream["name"]]
    threads = [accounting.thread_count(job) for job in jobs]
    sums = {name: sum(job["usage"][name] for job in jobs) for name in jobs[0]["usage"]} if jobs else {}
    wall_ns = sum(count * job["usage"]["wall_ns"] for count, job in zip(threads, jobs, strict=True)) or 1
    return {
        "usr_cpu": round(100 * sums.get("user_ns", 0) / wall_ns, 6),
        "sys_cpu": round(100 * sums.get("system_ns", 0) / wall_ns, 6),
        "ctx": sums.get("voluntary_switches", 0) + sums.get("involuntary_switches", 0),
        "majf": sums.get("major_faults", 0),
        "minf": sums.get("minor_faults", 0),
    }


def _shares(latencies: Sequence[_Latency]) -> dict[str, dict[str, float]]:
    """Share of the I/Os between each two of the limits 2, 4, 10 ... ns, us and ms."""
    values = [midpoint_ns(latency.buckets["bucket"].to_numpy()) for latency in latencies]
    counts = [latency.buckets["count"].to_numpy() for latency in latencies]
    ends = [end * unit for unit in (1, 10**3, 10**6) for end in _SHARES] + [2 * 10**9]
    # 1000 ns end the nanoseconds and are below the first end of the microseconds, so edges ascend.
    found = np.zeros(len(ends) + 1)
    if values:
        place = np.searchsorted(ends, np.concatenate(values), side="right")
        np.add.at(found, place, np.concatenate(counts))
        found *= 100 / found.sum()
    shares = [round(float(share), 6) for share in found]
    names = [str(end) for end in _SHARES]
    return {
        "latency_ns": dict(zip(names, shares[:10], strict=True)),
        "latency_us": dict(zip(names, shares[10:20], strict=True)),
        "latency_ms": dict(zip([*names, "2000", ">=2000"], shares[20:], strict=True)),
    }


def _disk_util(record: Record) -> list[dict[str, Any]]:
    """Every block device under the target, over the measurement."""
    assert record.result is not None, "a complete run has a result"
    names = {each.get("device"): each.get("name") for each in record.target.get("devices", [])}
    elapsed_ns = max(1, record.result["end_ns"] - record.result["begin_ns"])
    return [
        {
            "name": names.get(device["device"]) or device["device"],
            "read_ios": device["reads"],
            "write_ios": device["writes"],
            "read_merges": device["read_merges"],
            "write_merges": device["write_merges"],
            "read_ticks": device["read_wait_ns"] // 10**6,
            "write_ticks": device["write_wait_ns"] // 10**6,
            "in_queue": (device["read_wait_ns"] + device["write_wait_ns"]) // 10**6,
            "util": round(min(100 * device["busy_ns"] / elapsed_ns, 100.0), 6),
        }
        for device in record.result["devices"]
    ]


# fio's latency histogram
#
# It has 64 bins to each power of two, exact below 128 ns, everything from 17.2 s on in the last. Our buckets are finer
# and never cross one of its bins, so counts in bins are what fio itself would have counted from the same latencies.
# What is lost is resolution: a bin's midpoint is within 0.78 % of its values, a bucket's within 0.1 %.


_BITS = 6
_PER_OCTAVE = 1 << _BITS
BIN_COUNT = 29 * _PER_OCTAVE
"""Number of bins; the last is open."""

Counts = npt.NDArray[np.int64]


def bins_of_buckets(buckets: npt.ArrayLike, counts: npt.ArrayLike) -> Counts:
    """Counts of all bins from counts of our buckets."""
    found = np.zeros(BIN_COUNT, dtype=np.int64)
    np.add.at(found, bin_of(lower_ns(buckets)), np.asarray(counts, dtype=np.int64))
    return found


def bin_of(values_ns: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The bin that each latency falls into."""
    values = np.asarray(values_ns, dtype=np.uint64)
    # Exact: a float holds 53 bits, and only the position of the highest counts. Above 2**53 all are in the last bin.
    shift = np.maximum(np.frexp(np.minimum(values, np.uint64(1 << 53)).astype(np.float64))[1] - 1 - _BITS, 0)
    within = (values >> shift.astype(np.uint64)).astype(np.int64)
    numbers: npt.NDArray[np.intp] = np.minimum(shift * _PER_OCTAVE + within, BIN_COUNT - 1).astype(np.intp)
    return numbers


def bin_midpoint_ns(number: int) -> int:
    """The latency that represents a bin."""
    if number < 2 * _PER_OCTAVE:
        return number
    shift = number // _PER_OCTAVE - 1
    return ((number - shift * _PER_OCTAVE) << shift) + (1 << shift >> 1)


def occupied_bins(counts: Counts) -> dict[str, int]:
    """Bins as json+ has them: midpoint in ns to count."""
    return {str(bin_midpoint_ns(int(number))): int(counts[number]) for number in np.flatnonzero(counts)}


# The load of a stream in fio's options
#
# Not a job file: what fio cannot express (a span split among jobs, an open-loop schedule as ours) becomes its nearest
# option, so that users of fio recognise the load.


_ENGINES = {"uring": "io_uring", "sync": "psync", "preadv2": "pvsync2"}


def job_options(stream: Mapping[str, Any], workload: Mapping[str, Any], *, backend: str) -> dict[str, str]:
    """fio's options, as text, of one stream of a spec."""
    jobs, span, sizes, arrival = stream["jobs"], stream["span"], stream["block_sizes"], stream["arrival"]
    part = span["bytes"] if span["sharing"] == "shared" else span["bytes"] // jobs
    total = sum(size["weight"] for size in sizes)
    split = ":".join(f"{size['bytes']}/{100 * size['weight'] / total:.0f}" for size in sizes)
    # fio limits each job, the engine the stream.
    limits = {name: stream.get(f"limit_{name}") for name in ("bytes", "operations")}
    of_job = {name: None if limit is None else limit // jobs for name, limit in limits.items()}
    duration_ns, ramp_ns = workload["duration_ns"], workload["ramp"]["duration_ns"]
    options = {
        "ioengine": _ENGINES.get(backend, backend),
        **_direction(stream),
        **({"bs": sizes[0]["bytes"]} if len(sizes) == 1 else {"bssplit": split}),
        "iodepth": stream["queue_depth"],
        "numjobs": jobs,
        "direct": int(stream["io_mode"] == "direct"),
        "size": part,
        "offset": span["offset_bytes"],
        "offset_increment": None if span["sharing"] == "shared" else part,
        "sync": "dsync" if stream["durability"]["kind"] == "dsync" else None,
        "fdatasync": stream["durability"].get("every"),
        "rate_iops": round(arrival["rate"] / jobs) if "rate" in arrival else None,
        "rate_process": "poisson" if arrival["kind"] == "poisson" else None,
        "io_size": of_job["bytes"],
        "number_ios": of_job["operations"],
        "runtime": f"{duration_ns // 10**6}ms" if duration_ns else None,
        "ramp_time": f"{ramp_ns // 10**6}ms" if ramp_ns else None,
    }
    return {name: str(value) for name, value in options.items() if value is not None}


def _direction(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Operations and the order of offsets."""
    read, trim = stream["mix"]["read_fraction"], stream["mix"]["trim_fraction"]
    operation = "read" if read == 1 else "trim" if trim == 1 else "write" if read == trim == 0 else "rw"
    mixed = {"rwmixread": round(100 * read)} if operation == "rw" else {}
    access = stream["access"]
    if access["kind"] == "strided":
        hop = access["stride_bytes"] - max(size["bytes"] for size in stream["block_sizes"])
        return {"rw": f"{operation}:{hop}", **mixed}
    if access["kind"] not in ("random", "aging"):
        return {"rw": operation, **mixed}
    found = {"rw": f"rand{operation}", **mixed}
    if access["kind"] == "aging":
        return found
    if access.get("coverage") != "each_once":
        found["norandommap"] = 1
    distribution = access["distribution"]
    if distribution["kind"] == "zipfian":
        found["random_distribution"] = f"zipf:{distribution['theta']:g}"
    elif distribution["kind"] == "hot_cold":
        access_percent, span_percent = 100 * distribution["hot_access"], 100 * distribution["hot_span"]
        rest = f"{100 - access_percent:g}/{100 - span_percent:g}"
        found["random_distribution"] = f"zoned:{access_percent:g}/{span_percent:g}:{rest}"
    return found
