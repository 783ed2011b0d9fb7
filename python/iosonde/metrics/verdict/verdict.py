"""Verdict on a run: what limited it, with the warnings behind that.

    device-limited   the device was the limit, as far as iosonde can observe
    harness-limited  iosonde or its CPU was the limit
    cache-served     the page cache or the file system served the I/O
    server-CPU-limited, lock-limited  of runs on a database server
    network-limited, server-limited  of runs on network storage
    undetermined     the run was disturbed, or the limit cannot be identified

Where the engine sees the I/O of a load, `judge` applies the rules of `rules.py`, and the most severe warning decides.
Where a server or another program does the I/O, the shares of resources decide that the run used: by `judge_server`, or
by rules of a feature (`JUDGES` of its `verdict.py`). `time_use` divides the time of any run. All are pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from iosonde.base.features import contributed
from iosonde.metrics.verdict.evidence import MOST, Evidence, StorageBytes, Total, VerdictFacts, rounded, share_of
from iosonde.metrics.verdict.rules import Found, Judged, PointsTo, Rule, percent, rules
from iosonde.results.accounting import COUNTED_NS
from iosonde.results.schema import Record, RecordWarning, VerdictKind
from iosonde.study.workload import streams_of
from iosonde.study.workload.block.backends import ON_VIRTUAL_TIME

Kind = VerdictKind
KINDS: tuple[Kind, ...] = get_args(Kind)

MEANING: dict[Kind, str] = {
    "device-limited": "the device was the limit, as far as iosonde can observe",
    "harness-limited": "iosonde or its CPU was the limit: the device may be faster",
    "cache-served": "the page cache or the file system served the I/O, not the device",
    "network-limited": "the network to the server of the storage took most of the time",
    "server-limited": "the server of the storage took most of the time",
    "server-CPU-limited": "the database server used all CPU time that it could get",
    "lock-limited": "transactions waited for each other's locks",
    "undetermined": "the run was disturbed, or the limit cannot be identified",
}

_WEIGHT: tuple[Kind, ...] = ("cache-served", "harness-limited", "undetermined", "network-limited", "server-limited")

BUSY = 0.85
"""Share of its CPUs, or of the time, at which a resource is a limit."""
WAITING = 0.3
"""Share of the sessions' time at which waiting is a limit."""
IDLE = 0.02
"""Share of the time at which something counts as used at all."""
SIGNIFICANT_CORES = 0.5
"""CPU time, in cores, at which it is named as what takes the time."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Limiting factor of a run, and the evidence."""

    kind: Kind
    because: tuple[str, ...]
    """Sentences, the most severe first."""
    warnings: tuple[RecordWarning, ...] = ()
    evidence: dict[str, float | None]


def judge(facts: VerdictFacts) -> Verdict:
    """Return the verdict on a run that has a result."""
    evidence = Evidence(facts)
    found: list[tuple[PointsTo, RecordWarning]] = []
    if evidence.backend not in ON_VIRTUAL_TIME:
        by: Judged = "null" if evidence.backend == "null" else "stores" if evidence.has_own_cache else "own I/O"
        found = _warnings(evidence, by)
    pointed = {points_to for points_to, _ in found}
    kind: Kind = next((each for each in _WEIGHT if each in pointed), "device-limited")
    because = tuple(warning.message for points_to, warning in found if points_to == kind)
    return Verdict(
        kind=kind,
        because=because or (_reasons_for_device_limited(evidence),),
        warnings=tuple(warning for _, warning in found),
        evidence=evidence.numbers(),
    )


def with_disturbances(verdict: Verdict, facts: VerdictFacts) -> Verdict:
    """Return a verdict by shares of resources as `undetermined` if something disturbed the run.

    `cache-served` and `harness-limited` stay: what led to them is more severe.
    """
    evidence = Evidence(facts)
    found = tuple(warning for _, warning in _warnings(evidence, "shares"))
    decided = {**verdict.evidence, **evidence.numbers(_OF_DISTURBANCES)}
    if not found or verdict.kind in _WEIGHT[:2]:
        return replace(verdict, warnings=found, evidence=decided)
    because = tuple(warning.message for warning in found)
    return Verdict(kind="undetermined", because=because, warnings=found, evidence=decided)


def is_disturbed(codes: Iterable[str]) -> bool:
    """Return True if warnings with these codes include one that leads to `undetermined`."""
    known = rules()
    return any(code in known and known[code].points_to == "undetermined" for code in codes)


def of_repeats(kinds: Sequence[Kind]) -> Kind | None:
    """Return the verdict on the median of some repeats: that of a majority, else `undetermined`."""
    counts = Counter(kinds).most_common()
    if not counts:
        return None
    kind, most = counts[0]
    return kind if 2 * most > len(kinds) else "undetermined"


_OF_DISTURBANCES = ("stalled_share", "longest_stall_ns", "other_cpu_share", "idle_cpu_share", "steal_share")


def _warnings(evidence: Evidence, runs: Judged) -> list[tuple[PointsTo, RecordWarning]]:
    """The warnings of all rules for such runs, in their order, and the verdict that each leads to."""
    found: list[tuple[Rule, Found]] = []
    is_path_known = False
    for rule in rules().values():
        if runs not in rule.of or (rule.is_about_path and is_path_known):
            continue
        if (result := rule.find(evidence)) is not None:
            found.append((rule, Found(result) if isinstance(result, str) else result))
            is_path_known |= rule.is_about_path
    outweighs = any(each.outweighs for _, each in found)
    warnings: list[tuple[PointsTo, RecordWarning]] = []
    for rule, each in found:
        points_to = "undetermined" if each.share < MOST else rule.points_to
        points_to = "note" if outweighs and rule.is_outweighed else points_to
        warnings.append((points_to, RecordWarning(code=rule.code, message=each.message, hint=rule.hint)))
    return warnings


def _reasons_for_device_limited(evidence: Evidence) -> str:
    if evidence.backend in ON_VIRTUAL_TIME:
        return "a simulated device on a virtual clock"
    parts = []
    if evidence.in_flight_share is not None:
        parts.append(f"I/Os were in flight {percent(min(1.0, evidence.in_flight_share))} of the time")
    if evidence.core_utilisation is not None:
        parts.append(f"the busiest job used {percent(evidence.core_utilisation)} of a core")
    if evidence.harness_share is not None:
        parts.append(f"harness overhead was {percent(evidence.harness_share)} of its time")
    return ", ".join(parts) or "no warnings"


# Evidence of features ------------------------------------------------------------------------------------------------


def storage_of(record: Record) -> StorageBytes | None:
    """Bytes by counters of a feature; None of local storage and where nothing counts them."""
    sources: tuple[Callable[[Record], StorageBytes | None], ...] = contributed("verdict", "STORAGE")
    return next((found for source in sources if (found := source(record)) is not None), None)


# Shares of resources -------------------------------------------------------------------------------------------------

Judge = Callable[[Record, Sequence[Total], int], Verdict | None]
"""From a record with a result, the sums of its operations and the number of CPUs; None without evidence."""


def judge_of(name: str) -> Judge:
    """The rules of that name in `Workload.rules`, other than `evidence`."""
    of_features: tuple[tuple[str, Judge], ...] = contributed("verdict", "JUDGES")
    return {"server": judge_server, **dict(of_features)}[name]


def judge_server(record: Record, totals: Sequence[Total], cpus: int) -> Verdict:
    """Verdict on a run on a database server, by what server, kernel and client counted over the measurement."""
    result: Json = record.result or {}
    means: Json = (record.server or {}).get("statistics_mean") or {}
    sessions = max(1, sum(stream["jobs"] for stream in streams_of(record.spec["workload"])))
    clients = job_cpu_shares(result)
    lock_ms = server_increase(record, "lock_wait_ms")
    locks = None if lock_ms is None else share_of(lock_ms * 1e6, statistics_ns(record) * sessions)
    server, client = server_cpu_share(record, cpus), share_of(sum(clients), cpus)
    shares = {
        "server_cpu_share": server,
        "client_cpu_share": client,
        "busiest_client_share": max(clients, default=0.0),
        "lock_wait_share": _mean_share("sessions_waiting_for_lock", means) if locks is None else locks,
        "log_wait_share": _mean_share("sessions_waiting_for_log", means),
        "io_wait_share": _mean_share("sessions_waiting_for_io", means),
        "device_busy_share": device_busy_share(result),
    }
    together = ((server or 0.0) + (client or 0.0)) / BUSY
    of_both = f"the server used {whole_percent(server)} of all CPU time and the client {whole_percent(client)}"
    of_client = f"the client used {whole_percent(client)} of all CPU time"
    is_of_server = server is not None and server >= (client or 0.0)
    limits: list[Limit] = [
        (together, "server-CPU-limited", of_both) if is_of_server else (together, "harness-limited", of_client)
    ]
    for name, limit, kind, text in _OF_SERVERS:
        limits.append((over(shares[name], limit), kind, text.format(whole_percent(shares[name]))))
    return nearest(limits, shares)


_OF_SERVERS: tuple[tuple[str, float, Kind, str], ...] = (
    ("busiest_client_share", BUSY, "harness-limited", "the client's busiest connection used {} of a core"),
    ("lock_wait_share", WAITING, "lock-limited", "transactions waited for locks {} of the time"),
    ("log_wait_share", WAITING, "device-limited", "transactions waited for the write-ahead log {} of the time"),
    ("io_wait_share", WAITING, "device-limited", "transactions waited for data files {} of the time"),
    ("device_busy_share", BUSY, "device-limited", "the device was busy {} of the time"),
)

Limit = tuple[float | None, Kind, str]
"""Use of a resource as a share of its limit, the verdict that follows, and the reason."""


def nearest(limits: Sequence[Limit], shares: Mapping[str, float | None]) -> Verdict:
    """Return the verdict of the resource that exceeds its limit most; `undetermined` if none reaches it."""
    ordered = sorted(((used, kind, text) for used, kind, text in limits if used is not None), key=lambda each: -each[0])
    reached = [(kind, text) for used, kind, text in ordered if used >= 1]
    kind: Kind = reached[0][0] if reached else "undetermined"
    because = [text for each, text in reached if each == kind] or [
        "no share reached its limit: " + "; ".join(text for _, _, text in ordered[:3])
    ]
    return Verdict(kind=kind, because=tuple(because), evidence=rounded(shares))


def first(reached: Sequence[tuple[bool, Kind, str]], otherwise: str, shares: Mapping[str, float | None]) -> Verdict:
    """Return the verdict of the first condition that holds, with its reason; `undetermined` if none does."""
    kind, because = next(((kind, text) for holds, kind, text in reached if holds), ("undetermined", otherwise))
    return Verdict(kind=kind, because=(because,), evidence=rounded(shares))


def over(share: float | None, limit: float) -> float | None:
    """A share relative to its limit."""
    return None if share is None else share / limit


def whole_percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"


def job_cpu_shares(result: Json) -> list[float]:
    """CPU time of each job over the time in which it was counted."""
    used = [(job["usage"]["user_ns"] + job["usage"]["system_ns"], job["usage"]["wall_ns"]) for job in result["jobs"]]
    return [cpu_ns / counted if counted else 0.0 for cpu_ns, counted in used]


def mean_job_cpu_share(result: Json) -> float:
    """Their mean; 0 without jobs."""
    return _mean(job_cpu_shares(result)) or 0.0


def device_busy_share(result: Json) -> float | None:
    """Share of the measurement in which the busiest device had I/O in flight."""
    busy = (share_of(each["busy_ns"], counted_ns(result)) for each in result["devices"])
    return max((each for each in busy if each is not None), default=None)


def wall_ns(result: Json) -> int:
    """Length of the measurement."""
    return max(1, int(result["end_ns"]) - int(result["begin_ns"]))


def counted_ns(result: Json) -> int:
    """Time between the two readings of the counters of process and devices."""
    return int(result["process"]["wall_ns"]) or wall_ns(result)


def server_increase(record: Record, name: str) -> int | None:
    """Increase of a counter of the server over the measurement; None where there is none."""
    server: Json = record.server or {}
    start, end = server.get("statistics_at_start") or {}, server.get("statistics_at_end") or {}
    return int(end[name]) - int(start[name]) if name in start and name in end else None


def server_cpu_share(record: Record, cpus: int) -> float | None:
    """CPU time of the server that iosonde started over that of all CPUs; None without one."""
    return share_of(server_increase(record, "server_cpu_ns"), statistics_ns(record) * cpus)


def statistics_ns(record: Record) -> int:
    """Time between the readings of the server's counters; the measured time without any."""
    return server_increase(record, COUNTED_NS) or wall_ns(record.result or {})


def _mean_share(state: str, means: Json) -> float | None:
    active = means.get("sessions_active")
    return means[state] / active if active and state in means else None


# Breakdown of time ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TimeUse:
    """Time of one run, or the mean of several: device, kernel, application, locks; None where nothing was reported.

    Shares are of the measurement; CPU times are in cores (CPU seconds for each second). They overlap: a device is busy
    while the CPU works for another job. What a faster device can gain at most follows from its busy time alone.
    """

    device_busy: float | None
    """Share of the time in which the busiest device below the target had I/O in flight, at most: the kernel's own busy
    time is counted in ticks and misses short I/Os, so the sum of latencies counts where it is larger."""
    application_cores: float
    """CPU time in user mode of the engine with all threads of an embedded store, and of the server or command."""
    kernel_cores: float
    """Their CPU time in kernel mode."""
    lock_waits: float | None
    """Share of the sessions' time in which they waited for locks; reported by database servers only."""

    @property
    def most_gain(self) -> float | None:
        """Upper bound of the speedup, for a device with zero latency; None if unknown or unbounded."""
        if self.device_busy is None:
            return None
        return 1 / (1 - self.device_busy) if self.device_busy < 1 - IDLE else None

    def to_json(self) -> dict[str, float | None]:
        return {**vars(self), "most_gain": self.most_gain}

    @property
    def _shares(self) -> dict[str, tuple[float, float]]:
        """Each share of the time, and that at which it alone explains a small gain."""
        return {
            "device": (self.device_busy or 0.0, BUSY),
            "application": (self.application_cores, SIGNIFICANT_CORES),
            "kernel": (self.kernel_cores, SIGNIFICANT_CORES),
            "locks": (self.lock_waits or 0.0, WAITING),
        }

    @property
    def largest(self) -> str:
        """Largest share of time: `device`, `application`, `kernel` or `locks`.

        Cores may exceed 1 and a share cannot, so a device that was busy for most of the time takes precedence.
        """
        shares = self._shares
        return "device" if shares["device"][0] >= BUSY else max(shares, key=lambda name: shares[name][0])

    @property
    def is_significant(self) -> bool:
        """True if the largest share alone explains a small gain."""
        share, least = self._shares[self.largest]
        return share >= least


def time_use(record: Record) -> TimeUse | None:
    """Breakdown of a run's time; None without a result on a real clock."""
    result: Json = record.result or {}
    if not result.get("devices") or record.target.get("simulated"):
        return None
    of_server, of_kernel = (server_increase(record, name) or 0 for name in ("server_cpu_ns", "server_system_cpu_ns"))
    # The process, not its jobs: stores flush, compact and evict in threads of their own. Of a command, its processes.
    process: Json = result["process"]
    process_ns, server_ns = counted_ns(result), statistics_ns(record)
    occupied = (max(each["busy_ns"], each["read_wait_ns"] + each["write_wait_ns"]) for each in result["devices"])
    return TimeUse(
        device_busy=share_of(max(occupied), process_ns),
        application_cores=process["user_ns"] / process_ns + (of_server - of_kernel) / server_ns,
        kernel_cores=process["system_ns"] / process_ns + of_kernel / server_ns,
        lock_waits=record.verdict.evidence.get("lock_wait_share") if record.verdict else None,
    )


def mean_of(uses: Sequence[TimeUse]) -> TimeUse | None:
    """The mean of several runs."""
    if not uses:
        return None
    return TimeUse(
        device_busy=_mean([each.device_busy for each in uses if each.device_busy is not None]),
        application_cores=_mean([each.application_cores for each in uses]) or 0.0,
        kernel_cores=_mean([each.kernel_cores for each in uses]) or 0.0,
        lock_waits=_mean([each.lock_waits for each in uses if each.lock_waits is not None]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
