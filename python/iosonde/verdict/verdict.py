"""The disk or the tool? From the facts of one run to a verdict, with the warnings that it rests on.

    disk     nothing known stands between the disk and the figure
    tool     the tool, or the processor under it, was the limit
    cache    memory or the file system answered, and not the disk
    unclear  something disturbed the run, or what answered cannot be told

`judge` is a pure function. Each rule looks at one thing and says at most one warning; the verdict is that of the
heaviest: `cache`, then `tool`, then `unclear`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from iosonde.verdict import warning_kinds as limits
from iosonde.verdict.evidence import COPYING_FILE_SYSTEMS, Evidence, RunFacts, is_reducible
from iosonde.verdict.warning_kinds import WARNINGS, PointsTo

Kind = Literal["device-limited", "harness-limited", "cache-served", "undetermined"]
KINDS: tuple[Kind, ...] = ("device-limited", "harness-limited", "cache-served", "undetermined")

MEANING: dict[Kind, str] = {
    "device-limited": "the device was the limit, as far as iosonde can observe",
    "harness-limited": "iosonde or its CPU was the limit: the device may be faster",
    "cache-served": "the page cache or the file system served the I/O, not the device",
    "undetermined": "the run was disturbed, or the limit cannot be identified",
}

_WEIGHT: tuple[Kind, ...] = ("cache-served", "harness-limited", "undetermined")


@dataclass(frozen=True, kw_only=True)
class Told:
    """A warning with the numbers of a run."""

    code: str
    message: str
    points_to: PointsTo

    @property
    def hint(self) -> str:
        """What to do about it."""
        return WARNINGS[self.code].hint


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What set the figures of a run, and why."""

    kind: Kind
    because: tuple[str, ...]
    """Sentences, the heaviest first."""
    warnings: tuple[Told, ...]
    evidence: dict[str, float | None]


_ON_VIRTUAL_TIME = ("simulated", "ssd")
"""Backends whose time is not the tool's."""


def judge(facts: RunFacts) -> Verdict:
    """Return the verdict on a run that has a result."""
    evidence = Evidence(facts)
    told = tuple(_rules_for(evidence))
    pointed = {warning.points_to for warning in told}
    kind: Kind = next((each for each in _WEIGHT if each in pointed), "device-limited")
    because = tuple(warning.message for warning in told if warning.points_to == kind) or (_praise(evidence),)
    return Verdict(kind=kind, because=because, warnings=told, evidence=evidence.numbers())


def of_repeats(kinds: Sequence[Kind]) -> Kind | None:
    """Return the verdict on the median of some repeats: that of most of them, `unclear` where none has most."""
    counts = Counter(kinds).most_common()
    if not counts:
        return None
    kind, most = counts[0]
    return kind if 2 * most > len(kinds) else "undetermined"


def _rules_for(evidence: Evidence) -> Iterator[Told]:
    """Where there is no device, nothing else is worth saying."""
    if evidence.backend == "null":
        yield _told("null_backend", "the backend is `null`: every I/O completes at once, so the figures are the tool's")
    elif evidence.backend not in _ON_VIRTUAL_TIME:
        for rule in _RULES:
            found = rule(evidence)
            if found is not None:
                yield found


def _praise(evidence: Evidence) -> str:
    if evidence.backend in _ON_VIRTUAL_TIME:
        return "a simulated device on a virtual clock: the tool takes no time"
    parts = []
    if evidence.in_flight_share is not None:
        parts.append(f"I/Os were in flight {_percent(min(1.0, evidence.in_flight_share))} of the time")
    if evidence.core_utilisation is not None:
        parts.append(f"the busiest job used {_percent(evidence.core_utilisation)} of a core")
    if evidence.harness_share is not None:
        parts.append(f"the harness itself takes {_percent(evidence.harness_share)} of its time")
    return ", ".join(parts) or "nothing stands against it"


# The tool and its processor ----------------------------------------------------------------------------------------


def _core_saturated(evidence: Evidence) -> Told | None:
    taken = evidence.core_taken
    if taken is None or taken < limits.BUSY or evidence.is_polling:
        return None
    used, wait = evidence.core_utilisation or 0.0, evidence.cpu_wait_share or 0.0
    waited = f", and waited for it {_percent(wait)}" if wait >= limits.SOME else ""
    return _told("core_saturated", f"a job used its core {_percent(used)} of the time{waited}: nothing was left")


def _turnaround(evidence: Evidence) -> Told | None:
    share = evidence.turnaround_share
    if share is None or share - (evidence.cpu_wait_share or 0.0) < limits.TOOL_SHARE:
        return None
    each = evidence.turnaround_ns_per_io or 0.0
    harness = evidence.harness_ns_per_io
    rest = f", of which the harness alone takes {harness:.0f} ns" if harness is not None else ""
    return _told(
        "turnaround",
        f"the queue was underfilled {_percent(share)} of the time while the next I/O was prepared "
        f"({_time(each)} an I/O{rest})",
    )


def _harness_cost(evidence: Evidence) -> Told | None:
    share, cost = evidence.harness_share, evidence.harness_ns_per_io
    alone = all(stream["queue_depth"] == 1 for stream in evidence.streams.values())
    if share is None or cost is None or not alone or share < limits.TOOL_SHARE:
        return None
    return _told("harness_cost", f"the harness takes {cost:.0f} ns of each I/O, {_percent(share)} of the time")


def _slow_clock(evidence: Evidence) -> Told | None:
    share = evidence.clock_share
    if share is None or share < limits.CLOCK_SHARE:
        return None
    clock, cost = evidence.facts.engine.get("clock"), evidence.facts.engine["clock_read_ns"]
    return _told("slow_clock", f"reading the clock (`{clock}`) takes {cost:.0f} ns, {_percent(share)} of the time")


def _cpu_contention(evidence: Evidence) -> Told | None:
    wait, switches = evidence.cpu_wait_share, evidence.involuntary_switches_per_second or 0.0
    if wait is None and switches >= limits.SWITCHES_PER_SECOND:
        return _told("cpu_contention", f"a job lost its CPU {switches:,.0f} times a second")
    if wait is None or wait < limits.WAIT_SHARE:
        return None
    return _told(
        "cpu_contention",
        f"a job was ready to run and had no CPU {_percent(wait)} of the time ({switches:,.0f} involuntary context "
        "switches a second)",
    )


def _late_counters(evidence: Evidence) -> Told | None:
    share = evidence.counted_share
    if share is None or share >= 1 - limits.SOME:
        return None
    return _told(
        "late_counters",
        f"the counters of process and devices cover {_percent(share)} of the measurement: the thread that reads them "
        "had no CPU when it began",
    )


def _steal_time(evidence: Evidence) -> Told | None:
    share = evidence.steal_share
    if share is None or share < limits.STEAL_SHARE or evidence.told["machine"]["steal_ns"] < limits.STEAL_NS:
        return None
    return _told("steal_time", f"the hypervisor took {_percent(share)} of all CPUs' time")


def _foreign_interrupts(evidence: Evidence) -> Told | None:
    rate = evidence.interrupts_per_second
    if rate is None or rate < limits.INTERRUPTS_PER_SECOND:
        return None
    return _told(
        "foreign_interrupts", f"a core with a job pinned to it served {rate:,.0f} interrupts a second of others"
    )


def _cpu_governor(evidence: Evidence) -> Told | None:
    governor = (evidence.facts.environment.get("cpu") or {}).get("governor")
    if not governor or governor == "performance":
        return None
    return _told("cpu_governor", f"the CPU frequency governor is `{governor}`: the processor's speed varies with load")


# What answered -----------------------------------------------------------------------------------------------------


def _memory_file_system(evidence: Evidence) -> Told | None:
    if not evidence.is_in_memory:
        return None
    return _told("memory_file_system", f"the target lies in memory (`{evidence.file_system['kind']}`)")


def _reads_from_memory(evidence: Evidence) -> Told | None:
    share = evidence.read_from_memory_share
    if evidence.is_in_memory or share is None or share < limits.SOME:
        return None
    before = evidence.cached_before_share
    known = f"; {_percent(before)} of the span was cached before the first" if before is not None else ""
    return _told(
        "reads_from_memory", f"{_percent(share)} of the bytes read were served from the page cache{known}", share=share
    )


def _writes_to_memory(evidence: Evidence) -> Told | None:
    share = evidence.written_to_memory_share
    if evidence.is_in_memory or share is None or share < limits.SOME:
        return None
    text = f"{_percent(share)} of the bytes written had not reached the device when the measurement ended"
    return _told("writes_to_memory", text, share=share)


def _cache_below(evidence: Evidence) -> Told | None:
    share = evidence.below_cache_share
    if share is None or share < limits.SOME:
        return None
    text = f"the page cache under a loop device took {_percent(share)} of its bytes"
    return _told("cache_below", text, share=share)


def _unwritten_extents(evidence: Evidence) -> Told | None:
    share = evidence.missing_share
    if share is None or share < limits.MISSING_SHARE:
        return None
    return _told(
        "unwritten_extents", f"{_percent(share)} of what is read was never written, or was punched", share=share
    )


def _no_block_device(evidence: Evidence) -> Told | None:
    kind = evidence.file_system.get("kind")
    if evidence.facts.target.get("devices") or evidence.is_in_memory or not kind:
        return None
    return _told("no_block_device", f"no block device is visible under the file system `{kind}`")


def _span_fits_memory(evidence: Evidence) -> Told | None:
    memory = evidence.facts.environment.get("memory") or {}
    limits_known = [size for name in ("total_bytes", "limit_bytes") if (size := memory.get(name))]
    if not evidence.is_buffered or not limits_known or evidence.addressed_bytes > min(limits_known):
        return None
    return _told(
        "span_fits_memory",
        f"the load goes through the page cache, and its {_bytes(evidence.addressed_bytes)} fit into "
        f"{_bytes(min(limits_known))} of memory",
    )


def _span_fits_device_cache(evidence: Evidence) -> Told | None:
    passes = evidence.passes
    small = evidence.addressed_bytes <= limits.DEVICE_CACHE_BYTES
    if evidence.is_buffered or evidence.is_in_memory or not small or passes is None or passes < 2:
        return None
    return _told(
        "span_fits_device_cache",
        f"{_bytes(evidence.addressed_bytes)} were gone over {passes:,.0f} times: a device's own memory can hold them",
    )


def _copying_file_system(evidence: Evidence) -> Told | None:
    kind, options = evidence.file_system.get("kind"), evidence.file_system.get("options") or []
    shared = evidence.shared_share or 0.0
    if not evidence.writes:
        return None
    if kind in COPYING_FILE_SYSTEMS and "nodatacow" not in options:
        return _told("copying_file_system", f"`{kind}` writes elsewhere than it reads: its own work is in the figures")
    if shared >= limits.MISSING_SHARE:
        return _told("copying_file_system", f"{_percent(shared)} of the file is shared with others: a write is a copy")
    return None


def _compressing_file_system(evidence: Evidence) -> Told | None:
    options = [str(option) for option in evidence.file_system.get("options") or []]
    named = next((option for option in options if option.startswith("compress") and not option.endswith("=no")), None)
    encoded = evidence.encoded_share or 0.0
    if named is None and not encoded:
        return None
    why = f"it is mounted with `{named}`" if named else f"{_percent(encoded)} of what is read is stored encoded"
    return _told("compressing_file_system", f"the file system compresses: {why}")


def _compressible_data(evidence: Evidence) -> Told | None:
    kinds = {stream["payload"]["kind"] for stream in evidence.streams.values() if is_reducible(stream["payload"])}
    if not evidence.writes or not kinds:
        return None
    return _told("compressible_data", f"the payload written is `{'`, `'.join(sorted(kinds))}`")


# The device ----------------------------------------------------------------------------------------------------------


def _other_io(evidence: Evidence) -> Told | None:
    share, size = evidence.other_bytes_share, evidence.other_bytes
    if share is None or size is None or share < limits.OTHER_SHARE or size < limits.OTHER_BYTES:
        return None
    return _told(
        "other_io", f"others moved {_bytes(size)} on the device during the run, {_percent(share)} of its bytes"
    )


def _throttled_device(evidence: Evidence) -> Told | None:
    limited = [(device["name"], each) for device in evidence.facts.target.get("devices") or []
               for each in device.get("limits", [])]  # fmt: skip
    if not limited:
        return None
    name, limit = limited[0]
    return _told("throttled_device", f"a cgroup limits `{name}`: `{limit}`")


def _hot_device(evidence: Evidence) -> Told | None:
    hot = [(name, value) for name, value, most in evidence.temperatures if value >= (most or limits.HOT_CELSIUS)]
    if not hot:
        return None
    name, value = max(hot, key=lambda one: one[1])
    return _told("hot_device", f"`{name}` has {value:.0f} °C")


def _array_thread_saturated(evidence: Evidence) -> Told | None:
    share = evidence.array_thread_share
    if share is None or share < limits.BUSY:
        return None
    name = evidence.array_threads["array_thread"]
    return _told(
        "array_thread_saturated", f"`{name}` used {_percent(share)} of one core: what the array's own thread can do"
    )


def _queue_too_short(evidence: Evidence) -> Told | None:
    places = [device["nr_requests"] * device.get("hardware_queues", 1)
              for device in evidence.top_devices if "nr_requests" in device]  # fmt: skip
    if not places or evidence.is_buffered or evidence.concurrency <= sum(places):
        return None
    return _told(
        "queue_too_short",
        f"{evidence.concurrency} I/Os were asked for, and the kernel lets the device have {sum(places)}",
    )


def _one_hardware_queue(evidence: Evidence) -> Told | None:
    jobs = sum(stream["jobs"] for stream in evidence.streams.values())
    narrow = [d["name"] for d in evidence.top_devices if d.get("hardware_queues") == 1 and not d.get("rotational")]
    if not narrow or jobs < 2 or evidence.iops < limits.HIGH_IOPS:
        return None
    return _told("one_hardware_queue", f"{jobs} jobs go through the one hardware queue of `{narrow[0]}`")


def _io_scheduler(evidence: Evidence) -> Told | None:
    found = [d for d in evidence.top_devices if d.get("scheduler", "none") != "none" and not d.get("rotational")]
    if not found or evidence.iops < limits.HIGH_IOPS:
        return None
    return _told("io_scheduler", f"`{found[0]['name']}` has the I/O scheduler `{found[0]['scheduler']}`")


# The run -------------------------------------------------------------------------------------------------------------


def _short_run(evidence: Evidence) -> Told | None:
    share = evidence.mean_latency_share
    if share is None or share * limits.LATENCIES_IN_A_RUN <= 1:
        return None
    return _told("short_run", f"the measurement lasted {1 / share:.1f} times the mean latency")


def _places_free(evidence: Evidence) -> Told | None:
    share = evidence.unexplained_share
    if share is None or share < limits.TOOL_SHARE + (evidence.mean_latency_share or 0.0):
        return None
    return _told("places_free", f"the queue was underfilled {_percent(share)} of the time for no reason that is known")


def _short_for_tail(evidence: Evidence) -> Told | None:
    from iosonde.metrics.histogram import MILLION, PERCENTILES, SAMPLES_BEYOND

    name = evidence.facts.tail
    if name is None:
        return None
    needed = SAMPLES_BEYOND * MILLION // (MILLION - PERCENTILES[name])
    fewest = min((total.count for total in evidence.facts.totals if total.operation != "flush"), default=0)
    if fewest >= needed:
        return None
    return _told("short_for_tail", f"{fewest:,} I/Os are too few for {name.replace('_', '.')}, which takes {needed:,}")


_RULES: tuple[Callable[[Evidence], Told | None], ...] = (
    _memory_file_system,
    _reads_from_memory,
    _writes_to_memory,
    _unwritten_extents,
    _cache_below,
    _core_saturated,
    _turnaround,
    _harness_cost,
    _slow_clock,
    _cpu_contention,
    _late_counters,
    _steal_time,
    _foreign_interrupts,
    _other_io,
    _throttled_device,
    _hot_device,
    _array_thread_saturated,
    _queue_too_short,
    _span_fits_device_cache,
    _no_block_device,
    _short_run,
    _places_free,
    _span_fits_memory,
    _one_hardware_queue,
    _io_scheduler,
    _cpu_governor,
    _copying_file_system,
    _compressing_file_system,
    _compressible_data,
    _short_for_tail,
)


def _told(code: str, message: str, *, share: float | None = None) -> Told:
    """A share of bytes below half makes a figure doubtful, not another's."""
    points_to = WARNINGS[code].points_to
    if share is not None and share < limits.MOST:
        points_to = "undetermined"
    return Told(code=code, message=message, points_to=points_to)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _bytes(size: float) -> str:
    from iosonde.units import format_bytes

    return format_bytes(round(size))


def _time(nanoseconds: float) -> str:
    from iosonde.units import format_latency

    return format_latency(nanoseconds)
