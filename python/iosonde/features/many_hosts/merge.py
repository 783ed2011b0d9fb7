"""The record of a run on many hosts, from the record of each host.

Counts, bytes, latencies and CPU time are added over the time in which all hosts measured. Devices of one machine count
once. The verdict is that of the total by the ordinary rules, unless that of a host is more severe: a total limited by
the CPUs of some hosts is not the storage's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from iosonde.base.features import contributed
from iosonde.execution.attempt import Attempt, judged
from iosonde.execution.conversation import EngineRun
from iosonde.features.many_hosts.clock import Clock
from iosonde.features.many_hosts.record import CarrierCost, Hosts, HostShare, TcpSegments
from iosonde.metrics.scopes import PERCENTILES, percentiles
from iosonde.metrics.verdict.rules import rules
from iosonde.plan import Run
from iosonde.results.schema import (
    HISTOGRAMS,
    INTERVALS,
    USAGE,
    Failure,
    Record,
    RecordPart,
    RecordVerdict,
    RecordWarning,
    ServerReading,
)
from iosonde.study.workload import described

SKEW_WARNING = 0.01
"""Skew of the starts over the measurement with which the total has a warning."""
SKEW_FAILURE = 0.05
"""The same with which the run has failed."""
SKEW_UNKNOWN = 0.02
"""Largest error of the skew over the measurement above which the total has a warning."""

_SEVERE = ("cache-served", "harness-limited", "undetermined", "network-limited", "server-limited")
"""Verdicts of one host that are those of the total, the most severe first."""
_SAME_LENGTH = 0.9
"""Shortest interval of a host over the longest, for an interval that all measured."""

_NOT_ADDED = ("start", "process", "backend", "evidence")
"""Parts of a result that are not sums over hosts."""

_SUMS = ("count", "bytes", "errors", "completion_latency_ns_sum", "backlog_max")
_SUMS_OR_NULL = ("response_latency_ns_sum",)
_LEAST = ("completion_latency_ns_min", "response_latency_ns_min")
_MOST = ("completion_latency_ns_max", "response_latency_ns_max", "engine_stalled_ns")


@dataclass(frozen=True, kw_only=True)
class HostRun:
    """The record of a run on one host, with its tables."""

    host: str
    machine: str
    clock: Clock
    record: Record
    manifest_sha256: str
    intervals: pl.DataFrame
    histograms: pl.DataFrame
    usage: pl.DataFrame

    @property
    def started_ns(self) -> int:
        """When its load started, on the clock of the coordinator."""
        return self._start["started_unix_ns"] - self.clock.offset_ns

    @property
    def last_job_ns(self) -> int:
        """When the last of its jobs started, on the clock of the coordinator."""
        return self.zero_ns + self._start["last_job_ns"]

    @property
    def begin_ns(self) -> int:
        """Start of its measurement on the clock of the coordinator."""
        return self.zero_ns + int(self.result["begin_ns"])

    @property
    def zero_ns(self) -> int:
        """The 0 of its run on the clock of the coordinator."""
        return self.started_ns - self._start["started_ns"]

    def measured(self) -> pl.DataFrame:
        """The intervals of its measurement, in order: number and times."""
        rows = self.usage.filter(pl.col("phase") == "measure", pl.col("device") == "process")
        return rows.select("interval", "begin_ns", "end_ns").sort("interval")

    @property
    def length_ns(self) -> int:
        """Length of its measurement."""
        return int(self.measured().select((pl.col("end_ns") - pl.col("begin_ns")).sum()).item())

    @property
    def result(self) -> dict[str, Any]:
        """The result of its engine."""
        return self.record.result or {}

    @property
    def _start(self) -> dict[str, int]:
        return self.result["start"]  # type: ignore[no-any-return]


def total(
    hosts: Sequence[HostRun], run: Run, number: int, *, session: str, environment: Mapping[str, Any], name: str,
    study: Mapping[str, Any],
    servers: Callable[[int, int, pl.DataFrame], ServerReading | None] = lambda *_: None,
    coordinator_cpu_share: float | None = None,
) -> Attempt:  # fmt: skip
    """Merge the records of one run; the total has failed if a host has, or if the hosts did not measure together.

    `environment` is that of the coordinator, under its hash `name`; `servers` returns the counters of servers between
    two instants of its clock.
    """
    record = _base(hosts, run, number, session, name)
    failure = _failure(hosts)
    ends_by_itself = described(run.spec["workload"]).ends_by_itself
    merged = None if failure else merge(hosts, whole=ends_by_itself)
    if failure is None and merged is None:
        failure = Failure(
            code="no_common_time",
            message="there is no interval that all hosts measured",
            context=", ".join(f"{host.host}: {host.length_ns / 1e9:.3g} s" for host in hosts),
            hint="measure for a time (`duration`) instead of a number of bytes, or use a shorter `interval`",
        )
    if merged is None:
        assert failure
        return _failed(record, failure)
    part = _part(hosts, merged).model_copy(update={"coordinator_cpu_share": coordinator_cpu_share})
    if (share := part.skew_ns / max(1, part.window_ns)) > SKEW_FAILURE:
        late = max(part.shares, key=lambda each: each.late_ns)
        failure = Failure(
            code="start_skew",
            message=f"`{late.host}` started {late.late_ns / 1e6:.3g} ms after the first host, {100 * share:.1f} % of "
            "the measurement",
            hint="free a CPU on that host, or measure longer",
        )
        return _failed(record, failure)
    begin_ns = merged.reference.zero_ns + merged.begin_ns
    serving = servers(begin_ns, begin_ns + part.window_ns, merged.intervals)
    parts = [part, *([serving] if serving else []), *_parts_of_features(hosts)]
    record = record.model_copy(
        update={
            "result": _result(hosts, merged, record),
            "parts": {each.name: each.model_dump() for each in parts},
            "warnings": [],
        }
    )
    decided = judged(record, merged.intervals, environment=environment, study=study)
    done = EngineRun(failure=None, intervals=merged.intervals, histograms=merged.histograms, usage=merged.usage)
    return Attempt(record=_with_hosts(decided, hosts, part), done=done)


def _failed(record: Record, failure: Failure) -> Attempt:
    record = record.model_copy(update={"outcome": "failed", "failure": failure, "result": None, "warnings": []})
    return Attempt(record=record, done=EngineRun(failure=failure))


def _failure(hosts: Sequence[HostRun]) -> Failure | None:
    """That of the first host that failed, under its name."""
    for host in hosts:
        if failure := host.record.failure:
            return failure.model_copy(update={"message": f"on host `{host.host}`: {failure.message}"})
        if host.record.outcome != "complete":
            return Failure(code="stopped", message=f"on host `{host.host}`: the measurement was stopped early")
    return None


def _base(hosts: Sequence[HostRun], run: Run, number: int, session: str, environment: str) -> Record:
    """The first host's record with what the hosts share, without a verdict."""
    records = [host.record for host in hosts]
    first = records[0]
    return first.model_copy(
        update={
            "attempt": number,
            "spec": run.spec | {"workload": _load(run, hosts)},
            "session": session,
            "environment": environment,
            "started_at": min(each.started_at for each in records),
            "ended_at": max(each.ended_at for each in records),
            "child": _added([each.child for each in records]) | {"wall_ns": first.child.get("wall_ns", 0)},
            "target": _targets(hosts, "target"),
            "target_after": _targets(hosts, "target_after"),
            "own_io": _own_io(hosts),
            "drives": [drive for host in _machines(hosts) for drive in host.record.drives],
            "verdict": None,
            "parts": {},
        }
    )


def _load(run: Run, hosts: Sequence[HostRun]) -> dict[str, Any]:
    """The load of all hosts, on the target of the plan."""
    load: Mapping[str, Any] = run.spec["workload"]
    own = [host.record.spec["workload"] for host in hosts]
    return described(load).of_hosts(own) | {"target": load["target"]}


def _machines(hosts: Sequence[HostRun]) -> list[HostRun]:
    """One host of each machine."""
    return list({host.machine: host for host in reversed(hosts)}.values())[::-1]


def _targets(hosts: Sequence[HostRun], field: str) -> dict[str, Any]:
    """The first host's target, with the devices of all machines."""
    described: dict[str, Any] = dict(getattr(hosts[0].record, field))
    devices: dict[str, dict[str, Any]] = {}
    for host in hosts:
        for device in getattr(host.record, field).get("devices") or []:
            by = _prefix(host, hosts)
            named = device | {key: f"{by}{device[key]}" for key in ("device", "name") if key in device}
            if "under" in device:
                named["under"] = [f"{by}{name}" for name in device["under"]]
            devices.setdefault(named.get("device") or named["name"], named)
    return described | ({"devices": list(devices.values())} if devices else {})


def _own_io(hosts: Sequence[HostRun]) -> dict[str, Any] | None:
    """Bytes of each device once, and those of the engines of all hosts on it."""
    known = [(host, host.record.own_io) for host in hosts if host.record.own_io is not None]
    if len(known) < len(hosts):
        return None
    merged: dict[str, Any] = dict(known[0][1])
    for period in ("run", "measure"):
        rows: dict[str, list[dict[str, Any]]] = {}
        for host, own_io in known:
            for row in own_io[period]:
                rows.setdefault(f"{_prefix(host, hosts)}{row['device']}", []).append(row)
        merged[period] = [_own_bytes(device, each) for device, each in rows.items()]
    others = [own_io["others"] for _, own_io in known]
    merged["others"] = others[0] | {"are_present": any(each["are_present"] for each in others)}
    merged["dirtied_bytes"] = sum(own_io["dirtied_bytes"] for _, own_io in known)
    return merged


def _own_bytes(device: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The most that a host saw of a device, and what all of them moved, which is not more."""
    whole = {name: max(row[name] for row in rows) for name in ("read_bytes", "write_bytes")}
    own = {f"own_{name}": min(most, sum(row[f"own_{name}"] for row in rows)) for name, most in whole.items()}
    return {**rows[0], **whole, **own, "device": device}


def _prefix(host: HostRun, hosts: Sequence[HostRun]) -> str:
    """Prefix of the names of a machine's devices among those of others: its first host; empty for one machine."""
    machines = _machines(hosts)
    return next(f"{each.host}/" for each in machines if each.machine == host.machine) if len(machines) > 1 else ""


def _result(hosts: Sequence[HostRun], merged: Merged, record: Record) -> dict[str, Any]:
    """The engine's result of all hosts."""
    results = [host.result for host in hosts]
    jobs = [
        job | {"job": number * len(result["jobs"]) + job["job"], "host": host.host}
        for number, (host, result) in enumerate(zip(hosts, results, strict=True))
        for job in _shifted(result["jobs"], merged.begin_ns - int(result["begin_ns"]))
    ]
    usage = merged.usage.drop("run_id", "phase", "interval", "begin_ns", "end_ns")
    used = {str(row.pop("device")): row for row in usage.group_by("device").agg(pl.all().sum()).to_dicts()}
    known = results[0]
    process = {name: int(used["process"][name]) for name in known["process"]}
    per_device = {name for device in known["devices"] for name in device} - {"device", "media", "in_flight"}
    devices = [
        {"device": device, "in_flight": 0, **{name: int(row[name] or 0) for name in sorted(per_device)}}
        for device, row in sorted(used.items())
        if device != "process"
    ]
    common = {name: value for name, value in known.items() if name != "start"}
    facts = [name for name, value in known.items() if isinstance(value, Mapping) and name not in _NOT_ADDED]
    added = {name: _added([result[name] for result in results]) for name in facts}
    shifts = [host.zero_ns - merged.reference.zero_ns for host in hosts]
    added = described(record.spec["workload"]).result_of_hosts(added, list(zip(results, shifts, strict=True)))
    return (
        common
        | added
        | {
            "begin_ns": merged.begin_ns,
            "end_ns": merged.end_ns,
            "jobs": jobs,
            "process": process,
            "devices": devices,
            "peak_memory_bytes": sum(int(result.get("peak_memory_bytes") or 0) for result in results),
            "evidence": _evidence(hosts),
        }
    )


def _shifted(jobs: Sequence[Mapping[str, Any]], by_ns: int) -> list[dict[str, Any]]:
    """Jobs with their instants in the time of the total."""
    shifted = []
    for job in jobs:
        moved = dict(job)
        if job.get("last_completion_ns"):
            moved["last_completion_ns"] = max(0, job["last_completion_ns"] + by_ns)
        if pacing := job.get("pacing"):
            times = {name: max(0, pacing[name] + by_ns) for name in ("first_start_ns", "exhausted_ns") if pacing[name]}
            moved["pacing"] = pacing | times
        shifted.append(moved)
    return shifted


def _evidence(hosts: Sequence[HostRun]) -> dict[str, Any] | None:
    """Evidence of machines once, of files and engines added."""
    if any(host.result.get("evidence") is None for host in hosts):
        return None
    own = [host.result["evidence"] for host in hosts]
    apart = [host.result["evidence"] for host in _machines(hosts)]
    merged = dict(own[0])
    for name in ("page_cache", "extents_before", "extents_after"):
        looks = [each[name] for each in own if each.get(name)]
        merged |= {name: _added(looks)} if len(looks) == len(own) else {name: None}
    if all(each.get("machine") for each in apart):
        merged["machine"] = _added([each["machine"] for each in apart])
    for name, of in (("cores", apart), ("pinned", own), ("job_cpus", own)):
        merged[name] = [each for evidence in of for each in evidence.get(name) or []]
    stalls = [each["stalls"] for each in own if each.get("stalls")]
    if stalls:
        merged["stalls"] = {name: max(each[name] for each in stalls) for name in stalls[0]}
    return merged


def _added(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers added, lists joined, anything else that of the first."""
    added: dict[str, Any] = {}
    for name, first in values[0].items():
        all_of = [value[name] for value in values if value.get(name) is not None]
        if isinstance(first, bool | str) or not all_of:
            added[name] = first
        elif isinstance(first, Mapping):
            added[name] = _added(all_of)
        elif isinstance(first, list):
            added[name] = [each for value in all_of for each in value]
        else:
            added[name] = sum(all_of)
    return added


def _parts_of_features(hosts: Sequence[HostRun]) -> list[RecordPart]:
    """The parts that features compose from those of all hosts."""
    kinds: tuple[type[RecordPart], ...] = contributed("record", "PARTS")
    found = []
    for kind in kinds:
        own = [host.record.of(kind) for host in hosts]
        known = [each for each in own if each is not None]
        if len(known) == len(hosts) and (merged := kind.of_hosts(known)):
            found.append(merged)
    return found


def _part(hosts: Sequence[HostRun], merged: Merged) -> Hosts:
    started = [host.started_ns for host in hosts]
    bounds = sorted(host.clock.bound_ns for host in hosts)
    return Hosts(
        shares=[_share(host, late_ns=host.last_job_ns - min(started)) for host in merged.by_host],
        window_ns=merged.end_ns - merged.begin_ns,
        skew_ns=max(host.last_job_ns for host in hosts) - min(started),
        skew_bound_ns=sum(bounds[-2:]),
    )


def _share(host: HostRun, *, late_ns: int) -> HostShare:
    counted = host.intervals.filter(pl.col("operation") != "flush")
    latencies = host.histograms.filter(pl.col("latency") == "completion", pl.col("operation") != "flush")
    p99 = percentiles(latencies, by=["latency"], parts={"p99": PERCENTILES["p99"]})["p99"].to_list()
    process = host.usage.filter(pl.col("device") == "process")
    verdict = host.record.verdict
    return HostShare(
        host=host.host,
        machine=host.machine,
        run_id=host.record.run_id,
        attempt=host.record.attempt,
        manifest_sha256=host.manifest_sha256,
        verdict=verdict.kind if verdict else None,
        because=verdict.because[0] if verdict and verdict.because else "",
        count=int(counted["count"].sum()),
        bytes=int(counted["bytes"].sum()),
        errors=int(counted["errors"].sum()),
        completion_latency_ns_p99=p99[0] if p99 else None,
        cpu_ns=int(process["user_ns"].sum()) + int(process["system_ns"].sum()),
        late_ns=late_ns,
        clock_offset_ns=host.clock.offset_ns,
        clock_bound_ns=host.clock.bound_ns,
        clock_drift_ppm=host.clock.drift_ppm,
        clock_drift_bound_ppm=host.clock.drift_bound_ppm,
        retransmitted_share=tcp.sent_again / tcp.sent if (tcp := host.record.of(TcpSegments)) and tcp.sent else None,
        device_busy_share=_busy_share(host),
        carrier_cpu_share=cost.share if (cost := host.record.of(CarrierCost)) else None,
        warnings=[each.code for each in host.record.warnings if not _is_note(each)],
    )


def _busy_share(host: HostRun) -> float | None:
    busy = host.usage.filter(pl.col("device") != "process").group_by("device").agg(pl.col("busy_ns").sum())["busy_ns"]
    most = busy.max()
    return min(1.0, float(most) / host.length_ns) if isinstance(most, int) and host.length_ns else None


def _with_hosts(record: Record, hosts: Sequence[HostRun], part: Hosts) -> Record:
    """The record with the warnings and the verdict that follow from those of the hosts."""
    warnings = _warnings_of(hosts)
    # Besides those the total's warnings that no host has by itself, and its notes.
    known = {each.code for each in warnings}
    warnings += [each for each in record.warnings if each.code not in known]
    share, bound = (each / max(1, part.window_ns) for each in (part.skew_ns, part.skew_bound_ns))
    if share > SKEW_WARNING or bound > SKEW_UNKNOWN:
        skew, error = f"{part.skew_ns / 1e6:.3g} ms apart", f" ± {part.skew_bound_ns / 1e6:.3g} ms"
        warnings.append(
            RecordWarning(
                code="start_skew",
                message=f"hosts started {skew}{error if part.skew_bound_ns else ''}: {100 * share:.1f} % of the "
                f"measurement, known to {100 * bound:.1f} %",
                hint="measure longer, free CPUs on the hosts, or start iosonde nearer to them",
            )
        )
    return record.model_copy(update={"warnings": warnings, "verdict": _verdict(record.verdict, hosts)})


def _warnings_of(hosts: Sequence[HostRun]) -> list[RecordWarning]:
    """One warning of each kind, with the hosts that have it; notes are left to the rules of the total."""
    by_code: dict[str, list[tuple[str, RecordWarning]]] = {}
    for host in hosts:
        for warning in host.record.warnings:
            if not _is_note(warning):
                by_code.setdefault(warning.code, []).append((host.host, warning))
    merged = []
    for (first, warning), *others in by_code.values():
        # That of the first host, since each has values of its own.
        also = f" (also on {_named([host for host, _ in others])})" if others else ""
        merged.append(warning.model_copy(update={"message": f"`{first}`: {warning.message}{also}"}))
    return merged


def _is_note(warning: RecordWarning) -> bool:
    """Return True if it leads to no verdict, such as too few I/Os of one host for a percentile."""
    return warning.code in rules() and rules()[warning.code].points_to == "note"


def _verdict(own: RecordVerdict | None, hosts: Sequence[HostRun]) -> RecordVerdict | None:
    verdicts = [(host.host, host.record.verdict) for host in hosts if host.record.verdict]
    if not verdicts:
        return own
    kinds = {verdict.kind for _, verdict in verdicts if verdict} | ({own.kind} if own else set())
    kind = next((each for each in _SEVERE if each in kinds), None)
    evidence = own.evidence if own else {}
    if kind is None or (own and own.kind == kind and all(verdict and verdict.kind != kind for _, verdict in verdicts)):
        return own
    named = [(host, verdict) for host, verdict in verdicts if verdict and verdict.kind == kind]
    reasons: dict[str, list[str]] = {}
    for host, verdict in named:
        for reason in verdict.because:
            reasons.setdefault(reason, []).append(host)
    because = [f"{_named(where)}: {reason}" for reason, where in reasons.items()]
    return RecordVerdict(kind=kind, because=because, evidence=evidence)


def _named(hosts: Sequence[str]) -> str:
    return ", ".join(f"`{host}`" for host in hosts)


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The tables of the total."""

    begin_ns: int
    """Of the first interval, in the time of `reference`."""
    end_ns: int
    reference: HostRun
    """The host that began last; of runs that are merged as a whole, the one that measured longest."""
    intervals: pl.DataFrame
    histograms: pl.DataFrame
    usage: pl.DataFrame
    by_host: list[HostRun]
    """Those of each host over the same time, with the numbers of the total's intervals."""


def merge(hosts: Sequence[HostRun], *, whole: bool = False) -> Merged | None:
    """Add the tables of hosts; None if there is no interval that all of them measured.

    Interval *j* of the total consists of the interval of each host that begins closest to interval *j* of the host that
    began last. Only intervals that all hosts measured entirely are kept; with `whole` all of the one that measured
    longest, and those of other hosts by their number.
    """
    last = max(hosts, key=lambda host: host.length_ns if whole else host.begin_ns)
    kept = last.measured().with_columns(pl.col("interval").cast(pl.Int64)) if whole else _kept(hosts, last)
    if kept.is_empty():
        return None
    by_host = [_renumbered(host, kept, 0 if whole else _shift(host, last)) for host in hosts]
    return Merged(
        begin_ns=int(kept["begin_ns"].item(0)),
        end_ns=int(kept["end_ns"].item(-1)),
        reference=last,
        intervals=_intervals([host.intervals for host in by_host]),
        histograms=_histograms([host.histograms for host in by_host]),
        usage=_usage(by_host),
        by_host=by_host,
    )


def _kept(hosts: Sequence[HostRun], last: HostRun) -> pl.DataFrame:
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


def _shift(host: HostRun, last: HostRun) -> int:
    """Number of intervals that a host had started when the last one began its first."""
    own = host.measured()
    if own.is_empty():
        return 0
    length = int(own["end_ns"].item(0)) - int(own["begin_ns"].item(0))
    return round((last.begin_ns - host.begin_ns) / length) if length else 0


def _renumbered(host: HostRun, kept: pl.DataFrame, shift: int) -> HostRun:
    first = int(kept["interval"].item(0))
    times = kept.with_columns(interval=(pl.col("interval") - first).cast(pl.UInt32))

    def renumber(table: pl.DataFrame) -> pl.DataFrame:
        number = pl.col("interval").cast(pl.Int64) - shift - first
        rows = table.filter(pl.col("phase") == "measure").with_columns(interval=number)
        rows = rows.filter(pl.col("interval").is_between(0, len(kept) - 1)).with_columns(
            pl.col("interval").cast(pl.UInt32)
        )
        if "begin_ns" not in table.columns:
            return rows
        return rows.drop("begin_ns", "end_ns").join(times, on="interval").select(table.columns)

    return replace(
        host,
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


def _usage(hosts: Sequence[HostRun]) -> pl.DataFrame:
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


def _devices(hosts: Sequence[HostRun]) -> pl.DataFrame:
    """The rows of devices, named after the first host of their machine: those of the first host that has the device."""
    rows = [
        host.usage.filter(pl.col("device") != "process").with_columns(
            device=pl.lit(_prefix(host, hosts)) + pl.col("device")
        )
        for host in hosts
    ]
    return pl.concat(rows).unique(("interval", "device"), keep="first", maintain_order=True)
