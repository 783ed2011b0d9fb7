"""Verdict on a run: what limited it, with the warnings behind that.

    device-limited   the device was the limit, as far as iosonde can observe
    harness-limited  iosonde or its CPU was the limit
    cache-served     the page cache or the file system served the I/O
    server-CPU-limited, lock-limited  of runs on a database server (`server.py`)
    network-limited, server-limited  of runs on network storage
    undetermined     the run was disturbed, or the limit cannot be identified

`judge` is a pure function. Each rule checks one condition and returns at most one warning; the most severe decides:
`cache-served`, then `harness-limited`, `undetermined`, `network-limited` and `server-limited`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, get_args

from iosonde.verdict import warning_kinds as limits
from iosonde.verdict.evidence import COPYING_FILE_SYSTEMS, NETWORK_FILE_SYSTEMS, Evidence, VerdictFacts
from iosonde.verdict.remote import Remote
from iosonde.verdict.warning_kinds import WARNINGS, PointsTo
from iosonde.workload.block.backends import ON_VIRTUAL_TIME

Kind = Literal[
    "device-limited",
    "harness-limited",
    "cache-served",
    "network-limited",
    "server-limited",
    "server-CPU-limited",
    "lock-limited",
    "undetermined",
]
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


@dataclass(frozen=True, kw_only=True)
class RunWarning:
    """A warning with the numbers of a run."""

    code: str
    message: str
    points_to: PointsTo

    @property
    def hint(self) -> str:
        return WARNINGS[self.code].hint


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Limiting factor of a run, and the evidence."""

    kind: Kind
    because: tuple[str, ...]
    """Sentences, the most severe first."""
    warnings: tuple[RunWarning, ...]
    evidence: dict[str, float | None]


def judge(facts: VerdictFacts) -> Verdict:
    """Return the verdict on a run that has a result."""
    evidence = Evidence(facts)
    warnings = tuple(_rules_for(evidence))
    if _is_decided_without_cpu_time(evidence):
        warnings = tuple(replace(each, points_to="note") if each.code in _OUTWEIGHED else each for each in warnings)
    pointed = {warning.points_to for warning in warnings}
    kind: Kind = next((each for each in _WEIGHT if each in pointed), "device-limited")
    because = tuple(warning.message for warning in warnings if warning.points_to == kind) or (
        _reasons_for_device_limited(evidence),
    )
    return Verdict(kind=kind, because=because, warnings=warnings, evidence=evidence.numbers())


def with_disturbances(verdict: Verdict, facts: VerdictFacts) -> Verdict:
    """Return a verdict by shares of resources as `undetermined` if something disturbed the run.

    `cache-served` and `harness-limited` stay: what led to them is more severe.
    """
    evidence = Evidence(facts)
    found = tuple(warning for rule in _DISTURBANCES if (warning := rule(evidence)))
    decided = {**verdict.evidence, **evidence.numbers(_OF_DISTURBANCES)}
    if not found or verdict.kind in _WEIGHT[:2]:
        return replace(verdict, warnings=found, evidence=decided)
    because = tuple(warning.message for warning in found)
    return Verdict(kind="undetermined", because=because, warnings=found, evidence=decided)


def is_disturbed(codes: Iterable[str]) -> bool:
    """Return True if warnings with these codes include one that leads to `undetermined`."""
    return any(code in WARNINGS and WARNINGS[code].points_to == "undetermined" for code in codes)


def of_repeats(kinds: Sequence[Kind]) -> Kind | None:
    """Return the verdict on the median of some repeats: that of a majority, else `undetermined`."""
    counts = Counter(kinds).most_common()
    if not counts:
        return None
    kind, most = counts[0]
    return kind if 2 * most > len(kinds) else "undetermined"


def _rules_for(evidence: Evidence) -> Iterator[RunWarning]:
    """Apply every rule; without a device only its absence is a warning."""
    if evidence.backend == "null":
        yield _warning("null_backend", "the backend is `null`: every I/O completes at once")
    elif evidence.backend not in ON_VIRTUAL_TIME:
        for rule in _KEY_VALUE_RULES if evidence.has_own_cache else _RULES:
            found = rule(evidence)
            if found is not None:
                yield found


def _reasons_for_device_limited(evidence: Evidence) -> str:
    if evidence.backend in ON_VIRTUAL_TIME:
        return "a simulated device on a virtual clock"
    parts = []
    if evidence.in_flight_share is not None:
        parts.append(f"I/Os were in flight {_percent(min(1.0, evidence.in_flight_share))} of the time")
    if evidence.core_utilisation is not None:
        parts.append(f"the busiest job used {_percent(evidence.core_utilisation)} of a core")
    if evidence.harness_share is not None:
        parts.append(f"harness overhead was {_percent(evidence.harness_share)} of its time")
    return ", ".join(parts) or "no warnings"


# Harness and CPU ----------------------------------------------------------------------------------------


def _core_saturated(evidence: Evidence) -> RunWarning | None:
    """CPU time that was used: a job that waits for a CPU which others use is no limit of the job."""
    used, of_all = evidence.core_used, evidence.cpus_used_share
    if used is None or evidence.is_polling:
        return None
    if used >= limits.BUSY:
        return _warning("core_saturated", f"a job used {_percent(used)} of its core")
    if of_all is not None and of_all >= limits.BUSY:
        return _warning("core_saturated", f"the engine used {_percent(of_all)} of all CPUs that its jobs may use")
    return None


def _turnaround(evidence: Evidence) -> RunWarning | None:
    share = evidence.turnaround_share
    not_running = (evidence.cpu_wait_share or 0.0) + (evidence.stalled_share or 0.0)
    if share is None or share - not_running < limits.HARNESS_SHARE or _engine_stalled(evidence) is not None:
        return None
    each = evidence.turnaround_ns_per_io or 0.0
    harness = evidence.harness_ns_per_io
    rest = f", {harness:.0f} ns of it harness overhead without filling blocks" if harness is not None else ""
    return _warning(
        "turnaround",
        f"queue slots were free {_percent(share)} of the time between completion and submission "
        f"({_time(each)} per I/O{rest})",
    )


def _harness_cost(evidence: Evidence) -> RunWarning | None:
    share, cost = evidence.harness_share, evidence.harness_ns_per_io
    alone = all(stream["queue_depth"] == 1 for stream in evidence.streams.values())
    if share is None or cost is None or not alone or share < limits.HARNESS_SHARE:
        return None
    return _warning("harness_cost", f"harness overhead is {cost:.0f} ns per I/O, {_percent(share)} of the time")


def _slow_clock(evidence: Evidence) -> RunWarning | None:
    share = evidence.clock_share
    if share is None or share < limits.CLOCK_SHARE:
        return None
    clock, cost = evidence.facts.engine.get("clock"), evidence.facts.engine["clock_read_ns"]
    return _warning("slow_clock", f"reading the clock (`{clock}`) takes {cost:.0f} ns, {_percent(share)} of the time")


def _engine_stalled(evidence: Evidence) -> RunWarning | None:
    share, longest = evidence.stalled_share, evidence.longest_stall_ns
    if share is None or longest is None or (share < limits.STALLED_SHARE and longest < limits.STALL_NS):
        return None
    return _warning(
        "engine_stalled", f"the engine did not run {_percent(share)} of the time, for up to {_time(longest)} at once"
    )


def _device_stalled(evidence: Evidence) -> RunWarning | None:
    stall = evidence.device_stall
    if stall is None or _engine_stalled(evidence) or _cpu_contention(evidence):  # It may be the job that waited.
        return None
    waiting = f"had p99 {_time(stall.open_p99_ns)} or more" if stall.open_p99_ns else "queued requests in that time"
    return _warning(
        "device_stalled",
        f"hardly any I/O completed for {_time(stall.length_ns)}; an open loop at the same rate would have {waiting}",
    )


def _cpu_contention(evidence: Evidence) -> RunWarning | None:
    wait, switches = evidence.cpu_wait_share, evidence.involuntary_switches_per_second or 0.0
    if wait is None and switches >= limits.SWITCHES_PER_SECOND:
        return _warning("cpu_contention", f"a job was preempted {switches:,.0f} times a second")
    if wait is None or wait < limits.WAIT_SHARE:
        return None
    return _warning(
        "cpu_contention",
        f"a job was ready to run and had no CPU {_percent(wait)} of the time ({switches:,.0f} involuntary context "
        "switches a second)",
    )


def _late_counters(evidence: Evidence) -> RunWarning | None:
    share = evidence.counted_share
    if share is None or share >= 1 - limits.SOME:
        return None
    return _warning(
        "late_counters",
        f"counters of process and devices cover {_percent(share)} of the measurement: the thread that reads them "
        "had no CPU at the start",
    )


def _cpus_shared(evidence: Evidence) -> RunWarning | None:
    other, idle = evidence.other_cpu_share, evidence.idle_cpu_share
    if evidence.facts.server_cpu_ns is None or other is None or idle is None:
        return None
    if other < limits.OTHER_CPU_SHARE or idle > limits.IDLE_CPU_SHARE:
        return None
    return _warning(
        "cpus_shared", f"other processes used {_percent(other)} of all CPU time, and {_percent(idle)} was left idle"
    )


def _steal_time(evidence: Evidence) -> RunWarning | None:
    share = evidence.steal_share
    if share is None or share < limits.STEAL_SHARE or evidence.observed["machine"]["steal_ns"] < limits.STEAL_NS:
        return None
    return _warning("steal_time", f"the hypervisor stole {_percent(share)} of all CPU time")


def _foreign_interrupts(evidence: Evidence) -> RunWarning | None:
    rate = evidence.interrupts_per_second
    if rate is None or rate < limits.INTERRUPTS_PER_SECOND:
        return None
    return _warning("foreign_interrupts", f"a pinned core served {rate:,.0f} interrupts a second of other devices")


def _cpu_governor(evidence: Evidence) -> RunWarning | None:
    governor = (evidence.facts.environment.get("cpu") or {}).get("governor")
    if not governor or governor == "performance":
        return None
    return _warning("cpu_governor", f"the CPU frequency governor is `{governor}`")


def _counters_disagree(evidence: Evidence) -> RunWarning | None:
    evidence.numbers()
    if not evidence.contradictory:
        return None
    name, value = next(iter(evidence.contradictory.items()))
    return _warning("counters_disagree", f"counters disagree: `{name}` would be {value:,.2f}, and is between 0 and 1")


# Page cache and file system ------------------------------------------------------------------------------------------


def _memory_file_system(evidence: Evidence) -> RunWarning | None:
    if not evidence.is_in_memory:
        return None
    return _warning("memory_file_system", f"the target is in memory (`{evidence.file_systems[-1]['kind']}`)")


def _reads_from_memory(evidence: Evidence) -> RunWarning | None:
    share = evidence.read_from_memory_share
    in_holes = evidence.missing_share or 0.0
    if evidence.is_in_memory or share is None or share - in_holes < limits.SOME:
        return None
    if evidence.has_own_cache:
        what = "were served from memory: caches of the store or the page cache"
    elif evidence.is_buffered:
        what = "were served from the page cache"
    else:
        what = "did not come from a device, although direct I/O was requested"
    before, after = evidence.cached_before_share, evidence.cached_after_share or 0.0
    encoded = evidence.encoded_share or 0.0
    is_after = after >= limits.SOME and not evidence.is_buffered
    is_before = before is not None and evidence.is_buffered
    shown = [
        f"{_percent(before or 0.0)} of the span was cached before the first I/O" if is_before else "",
        f"{_percent(after)} of the span was cached after the last I/O" if is_after else "",
        f"{_percent(encoded)} of the span is stored compressed or encrypted" if encoded >= limits.MISSING_SHARE else "",
        _daemon_cache(evidence),
    ]
    text = f"{_percent(share)} of the bytes read {what}"
    return _warning("reads_from_memory", "; ".join(filter(None, [text, *shown])), share=share)


def _writes_to_memory(evidence: Evidence) -> RunWarning | None:
    share = evidence.written_to_memory_share
    if evidence.is_in_memory or share is None or share < limits.SOME:
        return None
    dirty, times = evidence.dirty_after_share or 0.0, evidence.overwrites or 0.0
    compressing = _compression(evidence)
    shown = [
        f"{_percent(dirty)} of the span was in the page cache and not yet written back" if dirty >= 0.01 else "",
        f"the file system compresses ({compressing})" if compressing else "",
        f"the payload is `{'`, `'.join(evidence.reducible_payloads)}`" if evidence.reducible_payloads else "",
        f"each block was written {times:,.1f} times, which a cache merges"
        if times >= 1.05 and evidence.writes_to_page_cache
        else "",
        _daemon_cache(evidence),
    ]
    text = f"{_percent(share)} of the bytes written did not reach the device during the measurement"
    return _warning("writes_to_memory", "; ".join(filter(None, [text, *shown])), share=share)


def _daemon_cache(evidence: Evidence) -> str:
    return "a FUSE daemon does the I/O, and its caches are not visible" if evidence.is_served_by_daemon else ""


def _not_direct(evidence: Evidence) -> RunWarning | None:
    if evidence.is_in_memory or evidence.is_buffered:
        return None
    found = []
    if evidence.writes and evidence.writes_to_page_cache:
        found.append(
            f"a direct write to a new file on `{evidence.file_systems[-1]['kind']}` left its page in the page cache"
        )
    added = (evidence.cached_after_share or 0.0) - (evidence.cached_before_share or 0.0)
    if evidence.reads and added >= limits.SOME:
        found.append(f"reads put {_percent(added)} of the span into the page cache")
    return _warning("not_direct", f"direct I/O was requested, but {' and '.join(found)}") if found else None


def _cache_below(evidence: Evidence) -> RunWarning | None:
    share = evidence.below_cache_share
    if share is None or share < limits.SOME:
        return None
    device = evidence.absorbing_device or {}
    devices = "device" if len(device["under"]) == 1 else "devices"
    text = f"{_percent(share)} of the bytes of `{device['name']}` did not reach the {devices} below it"
    return _warning("cache_below", text, share=share)


def _cache_unknown(evidence: Evidence) -> RunWarning | None:
    name = evidence.unchecked_loop
    if name is None or not evidence.has_device_io:
        return None
    return _warning(
        "cache_unknown", f"`{name}` has no direct I/O, and the device under its backing file is not visible"
    )


def _unwritten_extents(evidence: Evidence) -> RunWarning | None:
    share = evidence.missing_share
    if share is None or share < limits.MISSING_SHARE:
        return None
    return _warning(
        "unwritten_extents",
        f"{_percent(share)} of the bytes under reads were never written, or were punched",
        share=share,
    )


def _no_block_device(evidence: Evidence) -> RunWarning | None:
    lowest = evidence.file_systems[-1]
    kind, source = str(lowest.get("kind") or ""), str(lowest.get("source") or "")
    if evidence.facts.target.get("devices") or evidence.is_in_memory or not kind:
        return None
    if found := _part_that_limits(evidence):
        return found
    if kind in NETWORK_FILE_SYSTEMS or re.match(r"//|[^/]+:", source):
        return _warning("network_file_system", f"the file system `{kind}` is that of a server")
    return _warning("no_block_device", f"no block device is visible under the file system `{kind}`")


def _path_to_device(evidence: Evidence) -> RunWarning | None:
    """The same of a block device of a server; and whether it may be the network."""
    if not evidence.remote or not evidence.facts.target.get("devices"):
        return None
    if found := _part_that_limits(evidence):
        return found
    most = evidence.network_share_most
    if most is None or most < limits.MOST:
        return None
    return _warning(
        "network_or_server",
        f"the network took {_percent(evidence.network_share or 0.0)} of the time of an "
        f"operation at least, and {_percent(most)} at most",
    )


def _part_that_limits(evidence: Evidence) -> RunWarning | None:
    """The part of the way to a server that took most of the time; None if none did, or if it is not known."""
    link, remote = evidence.remote and evidence.remote.link_share, evidence.remote
    if link and link >= limits.LINK_SHARE:
        return _warning("network_limited", f"the interface carried {_percent(link)} of its speed")
    if remote and remote.window_share and remote.window_share >= limits.MOST:
        text = f"had data to send and a full window or buffer {_percent(remote.window_share)} of the time"
        return _warning("connection_limited", f"{_connections(remote)} {text}")
    network, server, client = evidence.network_share, evidence.server_share_least, evidence.client_share
    if network and network >= limits.MOST:
        text = f"a round trip of the network took {_time(evidence.network_ns)}, {_percent(network)} of the time"
        lost = "; packets were lost as well" if remote and remote.is_lossy else ""
        return _warning("network_limited", f"{text} of an operation outside the client's queue{lost}")
    if server and server >= limits.MOST:
        return _warning(
            "server_limited",
            f"the server took {_percent(server)} of the time of an operation outside the client's queue"
            + _part_of_server(evidence),
        )
    without_cpu = max(evidence.cpu_wait_share or 0.0, evidence.stalled_share or 0.0)
    if remote and without_cpu >= limits.MOST and evidence.core_used is not None:
        return _warning("client_limited", f"the engine or a job had no CPU {_percent(without_cpu)} of the time")
    if evidence.daemon_share and evidence.daemon_share >= limits.MOST:
        text = (
            f"the FUSE daemon used CPU or waited for it {_percent(evidence.daemon_share)} of the time of an operation"
        )
        return _warning("server_limited", text)
    if client and client >= limits.MOST:
        return _warning(
            "client_limited", f"the client took {_percent(client)} of the time of an operation outside its queue"
        )
    return _reason_for_no_part(remote) if remote else None


def _connections(remote: Remote) -> str:
    """Subject of a sentence about the connections that moved the data."""
    if remote.connections == 1:
        return "the TCP connection"
    if 0 < remote.connections_used < remote.connections:
        return f"of {remote.connections} TCP connections the load used {remote.connections_used}, which"
    return f"each of {remote.connections} TCP connections"


def _is_decided_without_cpu_time(evidence: Evidence) -> bool:
    """Return True if network or server took most of the latency even without all of the time that had no CPU."""
    remote, lost = evidence.remote, evidence.not_running_share
    if remote is None or lost is None:
        return False
    parts = (evidence.network_share, evidence.server_share_least, evidence.daemon_share, remote.window_share)
    return max(each or 0.0 for each in parts) - lost >= limits.MOST


def _part_of_server(evidence: Evidence) -> str:
    """Clause about the part of the server that took the time; empty if neither counters nor empty calls decide it."""
    if not evidence.remote:
        return ""
    if found := _counted_part_of_server(evidence, evidence.remote):
        return found
    middle, mean = evidence.server_thread_share, evidence.server_thread_share_mean
    if middle is None or mean is None or (middle < limits.MOST and mean > limits.FEW_OF_SERVER):
        return ""
    part = "threads or CPU" if middle >= limits.MOST else "storage"
    return f"; an empty call took {_time(median(evidence.remote.empty_calls_ns))}: its {part}"


def _counted_part_of_server(evidence: Evidence, remote: Remote) -> str:
    """The same by the counters of the server itself, where it is a host of the study."""
    device, busy, cpu = evidence.server_device_share, remote.server_device_share or 0.0, remote.server_cpu_share or 0.0
    if device and device >= limits.MOST:
        return f"; its drives took {_time(remote.server_device_ns or 0.0)} of an operation: its storage"
    if (busy >= limits.BUSY) != (cpu >= limits.BUSY):
        return (
            f"; its busiest drive was in use {_percent(busy)} of the time: its storage"
            if busy > cpu
            else (f"; its CPUs were busy {_percent(cpu)} of the time: its CPU")
        )
    waited = remote.calls_without_thread_share or 0.0
    if device is not None and device <= limits.FEW_OF_SERVER and waited >= limits.MOST:
        return f"; {_percent(waited)} of the calls found no idle thread: its threads or CPU"
    return ""


def _reason_for_no_part(remote: Remote) -> RunWarning | None:
    """Why the time is not divided, where it can be named."""
    if remote.is_lossy:
        return _warning("packets_lost", "packets were lost: the time until they were sent again is not known")
    calls, size = remote.calls_per_operation, remote.largest_call_bytes
    if calls and size and calls >= limits.SPLIT and remote.load_read_bytes + remote.load_write_bytes:
        return _warning("split_calls", f"an operation was {calls:.1f} calls of {_bytes(size)} at most")
    return None


def _span_fits_memory(evidence: Evidence) -> RunWarning | None:
    memory = evidence.facts.environment.get("memory") or {}
    limits_known = [size for name in ("total_bytes", "limit_bytes") if (size := memory.get(name))]
    if not evidence.is_buffered or not limits_known or evidence.addressed_bytes > min(limits_known):
        return None
    if not evidence.reads and evidence.flushes_writes:
        return None
    return _warning(
        "span_fits_memory",
        f"buffered I/O on {_bytes(evidence.addressed_bytes)}, which fit into {_bytes(min(limits_known))} of memory",
    )


def _span_fits_device_cache(evidence: Evidence) -> RunWarning | None:
    passes = evidence.passes
    small = evidence.addressed_bytes <= limits.DEVICE_CACHE_BYTES
    if evidence.is_buffered or evidence.is_in_memory or not small or passes is None or passes < 2:
        return None
    return _warning(
        "span_fits_device_cache",
        f"{_bytes(evidence.addressed_bytes)} were covered {passes:,.0f} times: they fit in a device's own cache",
    )


def _copying_file_system(evidence: Evidence) -> RunWarning | None:
    lowest = evidence.file_systems[-1]
    shared = evidence.shared_share or 0.0
    if not evidence.writes:
        return None
    if lowest.get("kind") in COPYING_FILE_SYSTEMS and "nodatacow" not in (lowest.get("options") or []):
        return _warning("copying_file_system", f"`{lowest['kind']}` copies on write")
    if shared >= limits.MISSING_SHARE:
        return _warning(
            "copying_file_system", f"{_percent(shared)} of the file is shared with other files: writes copy"
        )
    return None


def _compressing_file_system(evidence: Evidence) -> RunWarning | None:
    why = _compression(evidence)
    return _warning("compressing_file_system", f"the file system compresses: {why}") if why else None


def _compression(evidence: Evidence) -> str:
    """Evidence that the file system compresses; empty if there is none."""
    options = [str(option) for option in evidence.file_systems[-1].get("options") or []]
    named = next((option for option in options if option.startswith("compress") and not option.endswith("=no")), None)
    encoded = evidence.encoded_share or 0.0
    if named is not None:
        return f"it is mounted with `{named}`"
    return f"{_percent(encoded)} of the bytes under reads are stored encoded" if encoded else ""


def _cold_start(evidence: Evidence) -> RunWarning | None:
    workload = evidence.facts.spec["workload"]
    transition = workload.get("transition") or workload
    has_ramp = (workload.get("ramp") or {}).get("duration_ns", 0) > 0
    is_cold = transition.get("page_cache") == "drop" and not has_ramp
    starts_empty = (workload.get("database") or {}).get("kind") == "empty"
    if not is_cold or starts_empty or evidence.facts.cold_start or not evidence.reads_through_page_cache:
        return None
    return _warning("cold_start", "the page cache was dropped, and the measurement started without a ramp")


def _compressible_data(evidence: Evidence) -> RunWarning | None:
    if not evidence.writes or not evidence.reducible_payloads:
        return None
    return _warning("compressible_data", f"the payload written is `{'`, `'.join(evidence.reducible_payloads)}`")


# The device ----------------------------------------------------------------------------------------------------------


def _other_io(evidence: Evidence) -> RunWarning | None:
    share, size = evidence.other_bytes_share, evidence.other_bytes
    if evidence.has_other_hosts:
        return None  # Theirs may be on the same device; the total of all hosts is judged by this rule.
    if share is None or size is None or share < limits.OTHER_SHARE or size < limits.OTHER_BYTES:
        return None
    return _warning("other_io", f"other processes moved {_bytes(size)} on the device, {_percent(share)} of its bytes")


def _throttled_device(evidence: Evidence) -> RunWarning | None:
    limited = [(device["name"], each) for device in evidence.facts.target.get("devices") or []
               for each in device.get("limits", [])]  # fmt: skip
    if not limited:
        return None
    name, limit = limited[0]
    return _warning("throttled_device", f"a control group limits `{name}`: `{limit}`")


def _hot_device(evidence: Evidence) -> RunWarning | None:
    hot = [(name, value) for name, value, most in evidence.temperatures if value >= (most or limits.HOT_CELSIUS)]
    if not hot:
        return None
    name, value = max(hot, key=lambda one: one[1])
    return _warning("hot_device", f"`{name}` was at {value:.0f} °C")


def _queue_too_short(evidence: Evidence) -> RunWarning | None:
    places = [device["nr_requests"] * device.get("hardware_queues", 1)
              for device in evidence.top_devices if "nr_requests" in device]  # fmt: skip
    if not places or evidence.is_buffered or evidence.concurrency <= sum(places):
        return None
    return _warning(
        "queue_too_short",
        f"{evidence.concurrency} I/Os in flight, the kernel's queue of the device has {sum(places)} slots",
    )


def _one_hardware_queue(evidence: Evidence) -> RunWarning | None:
    jobs = sum(stream["jobs"] for stream in evidence.streams.values())
    narrow = [d["name"] for d in evidence.top_devices if d.get("hardware_queues") == 1 and not d.get("rotational")]
    if not narrow or jobs < 2 or evidence.iops < limits.HIGH_IOPS:
        return None
    return _warning("one_hardware_queue", f"{jobs} jobs share the one hardware queue of `{narrow[0]}`")


def _io_scheduler(evidence: Evidence) -> RunWarning | None:
    found = [d for d in evidence.top_devices if d.get("scheduler", "none") != "none" and not d.get("rotational")]
    if not found or evidence.iops < limits.HIGH_IOPS:
        return None
    return _warning("io_scheduler", f"`{found[0]['name']}` has the I/O scheduler `{found[0]['scheduler']}`")


# The run -------------------------------------------------------------------------------------------------------------


def _short_run(evidence: Evidence) -> RunWarning | None:
    share = evidence.mean_latency_share
    if share is None or share * limits.LATENCIES_IN_A_RUN <= 1:
        return None
    return _warning("short_run", f"the measurement lasted only {1 / share:.1f} mean latencies")


def _queue_underutilized(evidence: Evidence) -> RunWarning | None:
    share = evidence.unexplained_share
    if share is None or share < limits.HARNESS_SHARE + (evidence.mean_latency_share or 0.0):
        return None
    return _warning("queue_underutilized", f"queue slots were free {_percent(share)} of the time for no known reason")


def _short_for_tail(evidence: Evidence) -> RunWarning | None:
    from iosonde.metrics.histogram import MILLION, PERCENTILES, SAMPLES_BEYOND

    name = evidence.facts.tail
    if name is None:
        return None
    needed = SAMPLES_BEYOND * MILLION // (MILLION - PERCENTILES[name])
    fewest = min((total.count for total in evidence.facts.totals if total.operation != "flush"), default=0)
    if fewest >= needed:
        return None
    return _warning(
        "short_for_tail", f"{fewest:,} I/Os are too few for {name.replace('_', '.')}, which requires {needed:,}"
    )


_RULES: tuple[Callable[[Evidence], RunWarning | None], ...] = (
    _memory_file_system,
    _reads_from_memory,
    _writes_to_memory,
    _not_direct,
    _unwritten_extents,
    _cache_below,
    _cache_unknown,
    _core_saturated,
    _turnaround,
    _harness_cost,
    _slow_clock,
    _engine_stalled,
    _device_stalled,
    _cpu_contention,
    _late_counters,
    _counters_disagree,
    _steal_time,
    _foreign_interrupts,
    _other_io,
    _throttled_device,
    _hot_device,
    _queue_too_short,
    _span_fits_device_cache,
    _no_block_device,
    _path_to_device,
    _short_run,
    _queue_underutilized,
    _span_fits_memory,
    _one_hardware_queue,
    _io_scheduler,
    _cpu_governor,
    _copying_file_system,
    _compressing_file_system,
    _compressible_data,
    _cold_start,
    _short_for_tail,
)


_KEY_VALUE_RULES: tuple[Callable[[Evidence], RunWarning | None], ...] = (
    _memory_file_system,
    _reads_from_memory,
    _writes_to_memory,
    _cache_below,
    _cache_unknown,
    _core_saturated,
    _engine_stalled,
    _cpu_contention,
    _late_counters,
    _counters_disagree,
    _steal_time,
    _foreign_interrupts,
    _other_io,
    _throttled_device,
    _hot_device,
    _no_block_device,
    _cpu_governor,
    _cold_start,
)
"""Rules that apply to a store, whose I/O is not iosonde's own."""

_DISTURBANCES = (_engine_stalled, _cpus_shared, _steal_time, _throttled_device, _hot_device)
"""Rules that apply to every run on a real clock, whatever decides its limit."""

_OUTWEIGHED = ("engine_stalled", "cpu_contention", "steal_time", "span_fits_device_cache")
"""Warnings that are notes if the way to a server decides: `Evidence.not_running_share` bounds the time of the first
three, and a cache of the server's device makes no network or server faster than it is."""

_OF_DISTURBANCES = ("stalled_share", "longest_stall_ns", "other_cpu_share", "idle_cpu_share", "steal_share")


def _warning(code: str, message: str, *, share: float | None = None) -> RunWarning:
    """Return a warning; a share of bytes below half makes a run undetermined."""
    points_to = WARNINGS[code].points_to
    if share is not None and share < limits.MOST:
        points_to = "undetermined"
    return RunWarning(code=code, message=message, points_to=points_to)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _bytes(size: float) -> str:
    from iosonde.units import format_bytes

    return format_bytes(round(size))


def _time(nanoseconds: float) -> str:
    from iosonde.units import format_latency

    return format_latency(nanoseconds)
