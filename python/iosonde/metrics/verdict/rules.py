"""Rules of the verdict: each warning with its condition, its sentence and its hint.

A rule checks one condition of a run and returns the sentence of its warning with the numbers of the run; None where it
does not hold. It is added here, or by a feature (`RULES` of its `verdict.py`); docs/warnings.md, which has the limits
of every condition in words, is compared with `rules`. Rules apply in the order of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from iosonde.base.features import contributed
from iosonde.metrics.verdict.evidence import COPYING_FILE_SYSTEMS, SATURATED, SOME, STALL_NS, Evidence
from iosonde.units import format_bytes, format_latency

PointsTo = Literal["harness-limited", "cache-served", "network-limited", "server-limited", "undetermined", "note"]
"""The verdict that a warning leads to; a note leads to none."""

Bias = Literal["none", "slower", "faster", "faster reads", "unknown"]
"""How storage looks to an application in such a run: as it is, slower or faster than it is. Reads look faster only if
nothing shows that they reached storage. That of a note does not count."""

Judged = Literal["own I/O", "stores", "null", "shares"]
"""Runs to which a rule applies: the engine does the I/O itself, or through a store; the null backend completes it; any
that are judged by shares of resources."""

HARNESS_SHARE = 0.10
"""Share of the time of an I/O at which the harness is a limit."""
MISSING_SHARE = 0.01
HIGH_IOPS = 50_000
"""Rate at which the work of the block layer is noticeable."""


@dataclass(frozen=True)
class Found:
    """A warning of a run."""

    message: str
    share: float = 1.0
    """Share of the bytes that it is about; below half it makes the run `undetermined`."""
    outweighs: bool = False
    """True if rules with `is_outweighed` cannot have led to it: their warnings are notes."""


Result = Found | str | None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A named warning: a decorator of the function with its condition and sentence, whose name is the code."""

    title: str
    """The condition, without the numbers of a run."""
    hint: str
    points_to: PointsTo = "undetermined"
    bias: Bias = "unknown"
    of: tuple[Judged, ...] = ("own I/O", "stores")
    is_about_path: bool = False
    """Of the rules about the path to storage only the first that applies gives a warning."""
    is_outweighed: bool = False
    code: str = ""
    find: Callable[[Evidence], Result] = lambda run: None

    def __call__(self, find: Callable[[Evidence], Result]) -> Rule:
        return replace(self, code=find.__name__, find=find)


@cache
def rules() -> Mapping[str, Rule]:
    """All by code, in the order in which they apply: those of features before the core's about the path to storage."""
    own = [each for each in globals().values() if isinstance(each, Rule)]
    at = own.index(no_block_device)
    return {each.code: each for each in (*own[:at], *contributed("verdict", "RULES", Rule), *own[at:])}


@Rule(
    title="The null backend completes every I/O at once: no device is measured",
    hint="name a directory as the target to measure a device",
    points_to="harness-limited",
    bias="faster",
    of=("null",),
)
def null_backend(run: Evidence) -> Result:
    return "the backend is `null`: every I/O completes at once"


# Page cache and file system -------------------------------------------------------------------------------------------


@Rule(
    title="The target is in memory",
    hint="name a directory on a device",
    points_to="cache-served",
    bias="faster",
)
def memory_file_system(run: Evidence) -> Result:
    return f"the target is in memory (`{run.lowest_file_system['kind']}`)" if run.is_in_memory else None


@Rule(
    title="Reads were not served by a device",
    hint='use `io_mode = "direct"` and `payload = "random"` on ext4 or XFS, or make the `span` several times the '
    "size of memory",
    points_to="cache-served",
    bias="faster",
)
def reads_from_memory(run: Evidence) -> Result:
    share = run.read_from_memory_share
    in_holes = run.missing_share or 0.0
    if run.is_in_memory or share is None or share - in_holes < SOME:
        return None
    if run.has_own_cache:
        what = "were served from memory: caches of the store or the page cache"
    elif run.is_buffered:
        what = "were served from the page cache"
    else:
        what = "did not come from a device, although direct I/O was requested"
    before, after = run.cached_before_share, run.cached_after_share or 0.0
    encoded = run.encoded_share or 0.0
    is_after = after >= SOME and not run.is_buffered
    is_before = before is not None and run.is_buffered
    shown = [
        f"{percent(before or 0.0)} of the span was cached before the first I/O" if is_before else "",
        f"{percent(after)} of the span was cached after the last I/O" if is_after else "",
        f"{percent(encoded)} of the span is stored compressed or encrypted" if encoded >= MISSING_SHARE else "",
        _daemon_cache(run),
    ]
    text = f"{percent(share)} of the bytes read {what}"
    return Found("; ".join(filter(None, [text, *shown])), share=share)


@Rule(
    title="Writes had not reached the device when the measurement ended",
    hint='use `io_mode = "direct"` or `durability`, and `payload = "random"`, or run until write-back keeps up',
    points_to="cache-served",
    bias="faster",
)
def writes_to_memory(run: Evidence) -> Result:
    share = run.written_to_memory_share
    if run.is_in_memory or share is None or share < SOME:
        return None
    dirty, spans = run.dirty_after_share or 0.0, run.addressed_bytes
    times = run.bytes_of("write") / spans if spans else 0.0
    compressing, is_merged = _compression(run), times >= 1.05 and run.writes_to_page_cache
    shown = [
        f"{percent(dirty)} of the span was in the page cache and not yet written back" if dirty >= 0.01 else "",
        f"the file system compresses ({compressing})" if compressing else "",
        f"the payload is `{'`, `'.join(run.reducible_payloads)}`" if run.reducible_payloads else "",
        f"each block was written {times:,.1f} times, which a cache merges" if is_merged else "",
        _daemon_cache(run),
    ]
    text = f"{percent(share)} of the bytes written did not reach the device during the measurement"
    return Found("; ".join(filter(None, [text, *shown])), share=share)


@Rule(
    title="Direct I/O went through the page cache",
    hint="on btrfs disable checksums and compression (mount option `nodatacow`, or `chattr +C` for the directory), "
    "or measure on ext4 or XFS",
    points_to="note",
    of=("own I/O",),
)
def not_direct(run: Evidence) -> Result:
    if run.is_in_memory or run.is_buffered:
        return None
    found = []
    if run.writes and run.writes_to_page_cache:
        found.append(
            f"a direct write to a new file on `{run.lowest_file_system['kind']}` left its page in the page cache"
        )
    added = (run.cached_after_share or 0.0) - (run.cached_before_share or 0.0)
    if run.reads and added >= SOME:
        found.append(f"reads put {percent(added)} of the span into the page cache")
    return (f"direct I/O was requested, but {' and '.join(found)}") if found else None


@Rule(
    title="Reads of extents that were never written",
    hint='write them first with `layout = "missing"`; with trims in the mix, trim another span',
    points_to="cache-served",
    bias="faster",
    of=("own I/O",),
)
def unwritten_extents(run: Evidence) -> Result:
    share = run.missing_share or 0.0
    if share < MISSING_SHARE:
        return None
    return Found(f"{percent(share)} of the bytes under reads were never written, or were punched", share=share)


@Rule(
    title="I/O of a stacked device did not reach the devices below it",
    hint="write the device once before reads of it; attach a loop device with `losetup --direct-io=on`; use a span "
    "larger than the stripe cache of an array",
    points_to="cache-served",
    bias="faster",
)
def cache_below(run: Evidence) -> Result:
    share = run.below_cache_share or 0.0
    if share < SOME:
        return None
    device = run.absorbing_device or {}
    devices = "device" if len(device["under"]) == 1 else "devices"
    text = f"{percent(share)} of the bytes of `{device['name']}` did not reach the {devices} below it"
    return Found(text, share=share)


@Rule(
    title="Page cache under a loop device cannot be checked",
    hint="attach it with `losetup --direct-io=on`",
    bias="faster",
)
def cache_unknown(run: Evidence) -> Result:
    if sum(device["read_bytes"] + device["write_bytes"] for device in run.devices) < 1 << 20:
        return None
    for device in run.devices:
        if device.get("kind") == "loop" and device.get("loop_dio") != "1" and not run.devices_under(device):
            return f"`{device['name']}` has no direct I/O, and the device under its backing file is not visible"
    return None


# Harness and CPU ------------------------------------------------------------------------------------------------------


@Rule(
    title="A job used all CPU time of its core: CPU-limited",
    hint="use more `jobs`, larger blocks or a faster core; see `cpu_ns_per_operation`",
    points_to="harness-limited",
    bias="slower",
)
def core_saturated(run: Evidence) -> Result:
    """CPU time that was used: a job that waits for a CPU which others use is no limit of the job."""
    used, of_all = run.core_used, run.cpus_used_share
    if used is None or run.is_polling:
        return None
    if used >= SATURATED:
        return f"a job used {percent(used)} of its core"
    if of_all is not None and of_all >= SATURATED:
        return f"the engine used {percent(of_all)} of all CPUs that its jobs may use"
    return None


@Rule(
    title="Queue slots stayed free between a completion and the next submission",
    hint='increase `queue_depth` or `jobs`; `payload = "zeros"` shows the cost of filling blocks',
    points_to="harness-limited",
    bias="slower",
    of=("own I/O",),
)
def turnaround(run: Evidence) -> Result:
    share = run.turnaround_share
    not_running = (run.cpu_wait_share or 0.0) + (run.stalled_share or 0.0)
    if share is None or share - not_running < HARNESS_SHARE or engine_stalled.find(run) is not None:
        return None
    each = run.turnaround_ns_per_io or 0.0
    harness = run.harness_ns_per_io
    rest = f", {harness:.0f} ns of it harness overhead without filling blocks" if harness is not None else ""
    return (
        f"queue slots were free {percent(share)} of the time between completion and submission "
        f"({format_latency(each)} per I/O{rest})"
    )


@Rule(
    title="Harness overhead is a noticeable part of each I/O",
    hint="compare with the null backend: `iosonde io --target null:`",
    points_to="harness-limited",
    bias="slower",
    of=("own I/O",),
    is_outweighed=True,
)
def harness_cost(run: Evidence) -> Result:
    share, cost = run.harness_share, run.harness_ns_per_io
    alone = all(stream["queue_depth"] == 1 for stream in run.streams.values())
    if share is None or cost is None or not alone or share < HARNESS_SHARE:
        return None
    return f"harness overhead is {cost:.0f} ns per I/O, {percent(share)} of the time"


@Rule(
    title="Reading the clock takes a noticeable part of each I/O",
    hint="use the CPU's time-stamp counter (`clocksource=tsc`), if it is stable",
    points_to="harness-limited",
    bias="slower",
    of=("own I/O",),
    is_outweighed=True,
)
def slow_clock(run: Evidence) -> Result:
    if (run.clock_share or 0.0) < 0.05:
        return None
    clock, cost = run.facts.engine.get("clock"), run.facts.engine["clock_read_ns"]
    return f"reading the clock (`{clock}`) takes {cost:.0f} ns, {percent(run.clock_share)} of the time"


@Rule(
    title="The engine did not run for part of the measurement",
    hint="latencies of that time are not the device's; repeat the run without suspending it, on an idle machine",
    bias="slower",
    of=("own I/O", "stores", "shares"),
    is_outweighed=True,
)
def engine_stalled(run: Evidence) -> Result:
    share, longest = run.stalled_share, run.longest_stall_ns
    if share is None or longest is None or (share < 0.05 and longest < STALL_NS):
        return None
    return f"the engine did not run {percent(share)} of the time, for up to {format_latency(longest)} at once"


@Rule(
    title="The device stalled: closed-loop latencies hide the waiting of later requests",
    hint="measure with an open loop (`arrival`, `rate`) to include the waiting time",
    points_to="note",
    of=("own I/O",),
)
def device_stalled(run: Evidence) -> Result:
    """During a stall of length L an open loop at rate r queues r L requests, which wait for L to 0.

    Of all requests that is the share L / measurement, spread evenly. p99 of the open loop follows from that share.
    """
    length = run.device_stall_ns
    if length is None or engine_stalled.find(run) or _waiting_for_cpu(run):  # It may be the job that waited.
        return None
    p99 = length * max(0.0, 1 - 0.01 / min(1.0, length / run.wall_ns))
    waiting = f"had p99 {format_latency(p99)} or more" if p99 else "queued requests in that time"
    return f"hardly any I/O completed for {format_latency(length)}; an open loop at the same rate would have {waiting}"


@Rule(
    title="Job threads waited for CPU",
    hint="stop other work, or give the jobs CPUs of their own with `cpus`",
    bias="slower",
    is_outweighed=True,
)
def cpu_contention(run: Evidence) -> Result:
    return None if run.waits_for_own_threads else _waiting_for_cpu(run)


@Rule(
    title="Job threads waited for one another's CPU",
    hint="use fewer `jobs` with deeper queues, or more CPUs",
    points_to="harness-limited",
    bias="slower",
    is_outweighed=True,
)
def jobs_share_cpus(run: Evidence) -> Result:
    found = _waiting_for_cpu(run) if run.waits_for_own_threads else None
    return f"{found}; other programs used nearly none" if found else None


def _waiting_for_cpu(run: Evidence) -> str | None:
    wait, switches = run.busy_cpu_wait_share, run.involuntary_switches_per_second or 0.0
    if wait is None and switches >= 1000:
        return f"a job was preempted {switches:,.0f} times a second"
    if wait is None or wait < 0.10:
        return None
    idle = "" if wait == run.cpu_wait_share else ", without its idle time"
    return (
        f"a job was ready to run and had no CPU {percent(wait)} of the time{idle} ({switches:,.0f} involuntary context "
        "switches a second)"
    )


@Rule(
    title="Kernel counters were read late: page-cache hits are unknown",
    hint="leave a core to the supervising thread: fewer `jobs`, or `cpus` for them",
)
def late_counters(run: Evidence) -> Result:
    share = run.counted_share
    if share is None or share >= 1 - SOME:
        return None
    return (
        f"counters of process and devices cover {percent(share)} of the measurement: the thread that reads them "
        "had no CPU at the start"
    )


@Rule(
    title="Counters of the run contradict each other",
    hint="read the counters in `record.json`; a counter that was reset, or a defect of kernel or iosonde",
)
def counters_disagree(run: Evidence) -> Result:
    run.numbers()
    if not run.contradictory:
        return None
    name, value = next(iter(run.contradictory.items()))
    return f"counters disagree: `{name}` would be {value:,.2f}, and is between 0 and 1"


@Rule(
    title="Other processes took CPU time that the server and its client could have used",
    hint="stop other work, or give the server and its client CPUs of their own (`taskset`, `cpuset`)",
    of=("shares",),
)
def cpus_shared(run: Evidence) -> Result:
    other, idle = run.other_cpu_share, run.idle_cpu_share
    if run.facts.server_cpu_ns is None or other is None or idle is None:
        return None
    if other < 0.20 or idle > 0.10:
        return None
    return f"other processes used {percent(other)} of all CPU time, and {percent(idle)} was left idle"


@Rule(
    title="CPU time stolen by the hypervisor",
    hint="measure when the host is idle, or on one whose CPUs are not shared",
    bias="slower",
    of=("own I/O", "stores", "shares"),
    is_outweighed=True,
)
def steal_time(run: Evidence) -> Result:
    if (run.steal_share or 0.0) < 0.02 or run.observed["machine"]["steal_ns"] < 30_000_000:
        return None
    return f"the hypervisor stole {percent(run.steal_share)} of all CPU time"


@Rule(
    title="A pinned core served interrupts of other devices",
    hint="pin the job elsewhere with `cpus`, or move the interrupts (`/proc/irq/*/smp_affinity`)",
    bias="slower",
)
def foreign_interrupts(run: Evidence) -> Result:
    rate = run.interrupts_per_second or 0.0
    return f"a pinned core served {rate:,.0f} interrupts a second of other devices" if rate >= 10_000 else None


# Device ---------------------------------------------------------------------------------------------------------------


@Rule(
    title="Concurrent I/O from other processes",
    hint="stop other users of the device; `iotop` and `fatrace` show them",
    bias="slower",
)
def other_io(run: Evidence) -> Result:
    share, moved = run.other_bytes_share or 0.0, run.other_bytes or 0.0
    # Those of other hosts may be on the same device; the total of all hosts is judged by this rule.
    if run.facts.result.get("start") or share < 0.05 or moved < 1 << 20:
        return None
    return f"other processes moved {format_bytes(round(moved))} on the device, {percent(share)} of its bytes"


@Rule(
    title="A control group limits I/O on the device",
    hint="lift the limit, or measure from another control group",
    of=("own I/O", "stores", "shares"),
)
def throttled_device(run: Evidence) -> Result:
    for device in run.facts.target.get("devices") or []:
        for limit in device.get("limits", []):
            return f"a control group limits `{device['name']}`: `{limit}`"
    return None


@Rule(
    title="Device temperature may cause throttling",
    hint="cool the device, or let it rest between runs",
    of=("own I/O", "stores", "shares"),
)
def hot_device(run: Evidence) -> Result:
    hot = [(value, name) for name, value, most in run.temperatures if value >= (most or 70.0)]
    return f"`{max(hot)[1]}` was at {max(hot)[0]:.0f} °C" if hot else None


@Rule(
    title="Queue depth exceeds the device's queue in the kernel",
    hint="raise `/sys/block/DEVICE/queue/nr_requests`, or use a smaller `queue_depth`",
    bias="none",
    of=("own I/O",),
)
def queue_too_short(run: Evidence) -> Result:
    places = [device["nr_requests"] * device.get("hardware_queues", 1)
              for device in run.top_devices if "nr_requests" in device]  # fmt: skip
    if not places or run.is_buffered or run.concurrency <= sum(places):
        return None
    return f"{run.concurrency} I/Os in flight, the kernel's queue of the device has {sum(places)} slots"


@Rule(
    title="The span fits in the device's own cache",
    hint="use a `span` of several GiB, larger than any device cache",
    bias="faster",
    of=("own I/O",),
    is_outweighed=True,
)
def span_fits_device_cache(run: Evidence) -> Result:
    """Current drives have at least 64 MiB of memory, and none reports how much."""
    passes = run.passes or 0.0
    if run.is_buffered or run.is_in_memory or run.addressed_bytes > 64 << 20 or passes < 2:
        return None
    return f"{format_bytes(run.addressed_bytes)} were covered {passes:,.0f} times: they fit in a device's own cache"


# Path to storage ------------------------------------------------------------------------------------------------------


@Rule(
    title="No block device visible under the target",
    hint="name a directory on a file system with a visible device, such as a volume of the container",
    bias="faster reads",
    is_about_path=True,
)
def no_block_device(run: Evidence) -> Result:
    if run.facts.target.get("devices") or run.is_in_memory or not run.lowest_file_system.get("kind"):
        return None
    return f"no block device is visible under the file system `{run.lowest_file_system['kind']}`"


# Run ------------------------------------------------------------------------------------------------------------------


@Rule(
    title="The run is too short for its latency",
    hint="use a longer `duration`, or a larger `limit_bytes`",
    bias="none",
    of=("own I/O",),
)
def short_run(run: Evidence) -> Result:
    share = run.mean_latency_share or 0.0
    return f"the measurement lasted only {1 / share:.1f} mean latencies" if share * 5 > 1 else None


@Rule(
    title="Unexplained queue underutilization",
    hint="look at the run over time",
    of=("own I/O",),
)
def queue_underutilized(run: Evidence) -> Result:
    if (run.unexplained_share or 0.0) < HARNESS_SHARE + (run.mean_latency_share or 0.0):
        return None
    return f"queue slots were free {percent(run.unexplained_share)} of the time for no known reason"


@Rule(
    title="The span fits in memory",
    hint="make the `span` several times the size of memory, or use direct I/O",
    points_to="note",
    of=("own I/O",),
)
def span_fits_memory(run: Evidence) -> Result:
    memory = run.facts.environment.get("memory") or {}
    limits = [limit for name in ("total_bytes", "limit_bytes") if (limit := memory.get(name))]
    durabilities = (stream.get("durability", {"kind": "none"})["kind"] for stream in run.streams.values())
    is_flushed = not run.reads and "none" not in durabilities
    if not run.is_buffered or is_flushed or run.is_one_pass or not limits or run.addressed_bytes > min(limits):
        return None
    return f"buffered I/O on {format_bytes(run.addressed_bytes)}, which fit into {format_bytes(min(limits))} of memory"


@Rule(
    title="All jobs share one hardware queue",
    hint="the driver or the virtual machine sets the number of queues",
    points_to="note",
    of=("own I/O",),
)
def one_hardware_queue(run: Evidence) -> Result:
    jobs = sum(stream["jobs"] for stream in run.streams.values())
    narrow = [d["name"] for d in run.top_devices if d.get("hardware_queues") == 1 and not d.get("rotational")]
    if not narrow or jobs < 2 or run.iops < HIGH_IOPS:
        return None
    return f"{jobs} jobs share the one hardware queue of `{narrow[0]}`"


@Rule(
    title="A fast device has an I/O scheduler",
    hint='compare with `io_scheduler = "none"` (`--set io_scheduler=none`)',
    points_to="note",
    of=("own I/O",),
)
def io_scheduler(run: Evidence) -> Result:
    found = [d for d in run.top_devices if d.get("scheduler", "none") != "none" and not d.get("rotational")]
    if not found or run.iops < HIGH_IOPS:
        return None
    return f"`{found[0]['name']}` has the I/O scheduler `{found[0]['scheduler']}`"


# Machine, file system and study ---------------------------------------------------------------------------------------


@Rule(
    title="CPU frequency varies with load",
    hint="`cpupower frequency-set -g performance`",
    points_to="note",
)
def cpu_governor(run: Evidence) -> Result:
    governor = (run.facts.environment.get("cpu") or {}).get("governor") or "performance"
    return f"the CPU frequency governor is `{governor}`" if governor != "performance" else None


@Rule(
    title="The file system copies on write",
    hint="for the device alone measure on ext4 or XFS; on btrfs with `nodatacow`",
    points_to="note",
    of=("own I/O",),
)
def copying_file_system(run: Evidence) -> Result:
    lowest, shared = run.lowest_file_system, run.shared_share or 0.0
    if not run.writes:
        return None
    if lowest.get("kind") in COPYING_FILE_SYSTEMS and "nodatacow" not in (lowest.get("options") or []):
        return f"`{lowest['kind']}` copies on write"
    if shared >= MISSING_SHARE:
        return f"{percent(shared)} of the file is shared with other files: writes copy"
    return None


@Rule(
    title="The file system compresses data",
    hint="mount it without compression; the default payload cannot be compressed",
    points_to="note",
    of=("own I/O",),
)
def compressing_file_system(run: Evidence) -> Result:
    why = _compression(run)
    return (f"the file system compresses: {why}") if why else None


@Rule(
    title="Written data can be compressed or deduplicated by the device",
    hint='use `payload = "random"`',
    points_to="note",
    of=("own I/O",),
)
def compressible_data(run: Evidence) -> Result:
    if not run.writes or not run.reducible_payloads:
        return None
    return f"the payload written is `{'`, `'.join(run.reducible_payloads)}`"


@Rule(
    title="The measurement includes the warm-up of the page cache",
    hint='use `ramp` with `ramp_until = "steady"`, or request the cold start: `start = "cold"`',
    points_to="note",
)
def cold_start(run: Evidence) -> Result:
    workload = run.facts.spec["workload"]
    transition = workload.get("transition") or workload
    has_ramp = (workload.get("ramp") or {}).get("duration_ns", 0) > 0
    is_cold = transition.get("page_cache") == "drop" and not has_ramp
    starts_empty = (workload.get("database") or {}).get("kind") == "empty"
    read = sum(total.bytes for total in run.facts.totals if total.operation not in ("write", "trim", "delete"))
    is_cached = run.is_buffered and not run.is_in_memory and read > 0
    if not is_cold or starts_empty or run.facts.cold_start or run.is_one_pass or not is_cached:
        return None
    return "the page cache was dropped, and the measurement started without a ramp"


@Rule(
    title="Too few I/Os for a percentile of the study",
    hint="use a longer `duration`",
    points_to="note",
    of=("own I/O",),
)
def short_for_tail(run: Evidence) -> Result:
    from iosonde.metrics.scopes import MILLION, PERCENTILES, SAMPLES_BEYOND

    name = run.facts.tail
    if name is None:
        return None
    needed = SAMPLES_BEYOND * MILLION // (MILLION - PERCENTILES[name])
    fewest = min((total.count for total in run.facts.totals if total.operation != "flush"), default=0)
    if fewest >= needed:
        return None
    return f"{fewest:,} I/Os are too few for {name.replace('_', '.')}, which requires {needed:,}"


# Words ---------------------------------------------------------------------------------------------------------------


def percent(share: float | None) -> str:
    share = share or 0.0
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _daemon_cache(run: Evidence) -> str:
    return "a FUSE daemon does the I/O, and its caches are not visible" if run.is_served_by_daemon else ""


def _compression(run: Evidence) -> str:
    """Evidence that the file system compresses; empty if there is none."""
    options = [str(option) for option in run.lowest_file_system.get("options") or []]
    named = next((option for option in options if option.startswith("compress") and not option.endswith("=no")), None)
    if named is not None:
        return f"it is mounted with `{named}`"
    return f"{percent(run.encoded_share)} of the bytes under reads are stored encoded" if run.encoded_share else ""
