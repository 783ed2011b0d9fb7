"""Evidence of one run as numbers: shares of time, of bytes, of queue slots.

Pure arithmetic over a record; `rules.py` decides what a number means for the verdict. A number is None if the engine
or the kernel did not report what it is computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Literal

from iosonde.base.features import contributed
from iosonde.results import accounting
from iosonde.study.workload import described, streams_of
from iosonde.study.workload.block.backends import BACKENDS

Json = Mapping[str, Any]

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
COPYING_FILE_SYSTEMS = ("btrfs", "zfs", "bcachefs", "nilfs2")
"""File systems that write elsewhere than they read."""
FS_INPUT_BYTES = 512

WAKING_NS = 100_000
"""Longest time from the end of a thread's sleep until it has a CPU that other threads are not the cause of."""
SATURATED = 0.95
"""CPU time used, as a share, at which a core is saturated."""
APART = 0.1
"""Share by which counters that advance in ticks or are read at different instants may differ."""
MOST = 0.5
SOME = 0.10
"""Shares of bytes served from the page cache: the one that decides the verdict, and the smallest with a warning."""
STALL_NS = 100_000_000
LATENCIES_IN_A_STALL = 20


@dataclass(frozen=True, kw_only=True)
class Total:
    """One operation of one stream over the measurement."""

    stream: str
    operation: str
    count: int
    bytes: int
    completion_latency_ns_sum: int


@dataclass(frozen=True, kw_only=True)
class Interval:
    """All closed-loop operations of one interval of the measurement."""

    begin_ns: int
    end_ns: int
    count: int
    completion_latency_ns_max: int


@dataclass(frozen=True, kw_only=True)
class StorageBytes:
    """Bytes that a load moved, and those that its storage moved meanwhile, by counters other than those of devices."""

    load_read_bytes: int
    load_write_bytes: int
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, kw_only=True)
class VerdictFacts:
    """Facts of one run, as its record has them."""

    spec: Json
    result: Json
    engine: Json
    totals: Sequence[Total]
    target: Json = field(default_factory=dict)
    target_after: Json = field(default_factory=dict)
    environment: Json = field(default_factory=dict)
    harness: Json | None = None
    own_io: Json | None = None
    storage: StorageBytes | None = None
    """As a feature counted them (`STORAGE` of its `verdict.py`), with evidence of its own."""
    server_cpu_ns: int | None = None
    """CPU time over the measurement of the server that iosonde started."""
    cold_start: bool = False
    """True if the study requests a cold start."""
    tail: str | None = None
    """The highest percentile that the study shows of this case, such as `p99_9`."""
    intervals: Sequence[Interval] = ()
    """Of closed-loop runs, in order."""


def share(compute: Callable[[Evidence], float | None]) -> cached_property[float | None]:
    """Make a property of a number that is between 0 and 1 by what it is.

    Counters advance in ticks and at different instants, so a little more or less is 1 or 0. Anything else says that its
    counters contradict each other: the number is unknown then, and `Evidence.contradictory` has it.
    """

    @wraps(compute)
    def checked(evidence: Evidence) -> float | None:
        value = compute(evidence)
        if value is not None and not -APART <= value <= 1 + APART:
            evidence.contradictory[compute.__name__] = value
            return None
        return None if value is None else min(1.0, max(0.0, value))

    return cached_property(checked)


class Evidence:
    """The numbers of one run."""

    def __init__(self, facts: VerdictFacts) -> None:
        self.facts = facts
        self.contradictory: dict[str, float] = {}
        """Shares whose counters contradict each other, with what would follow from them."""
        self.streams: dict[str, Json] = {stream["name"]: stream for stream in streams_of(facts.spec["workload"])}
        self.jobs: list[Json] = list(facts.result["jobs"])
        self.observed: Json = facts.result.get("evidence") or {}

    def numbers(self, names: Sequence[str] = ()) -> dict[str, float | None]:
        """Every number, or those named, for the record; those of features (`EVIDENCE` of `verdict.py`) come last."""
        found = {name: getattr(self, name) for name in names or _numbers(type(self))}
        for kind in () if names else contributed("verdict", "EVIDENCE", type):
            found |= {name: getattr(kind(self), name) for name in _numbers(kind)}
        return rounded(found)

    # Time

    @property
    def wall_ns(self) -> int:
        """Length of the measurement."""
        return int(self.facts.result["end_ns"]) - int(self.facts.result["begin_ns"])

    @property
    def machine(self) -> Json:
        """CPU time of the machine, by what it was used for; empty where the kernel does not report it."""
        return self.observed.get("machine") or {}

    @property
    def machine_ns(self) -> int:
        """All CPU time of the machine, as the same counters have it: they advance in ticks, and may be read late."""
        return sum(int(value) for name, value in self.machine.items() if name != "cpus")

    @share
    def in_flight_share(self) -> float | None:
        """Share of the time of all queue slots of closed loops in which they held an I/O.

        At most 1: an I/O that was in flight when the measurement started counts with its whole latency.
        """
        held = sum(t.completion_latency_ns_sum for t in self.facts.totals if self._is_closed(t.stream))
        return share_of(held, self._places_ns)

    @share
    def turnaround_share(self) -> float | None:
        """Share in which they were free between a completion and the next submission."""
        waits = [pacing["turnaround_ns"] for job in self._closed_jobs if (pacing := job.get("pacing"))]
        return share_of(sum(waits), self._places_ns) if waits else None

    @cached_property
    def turnaround_ns_per_io(self) -> float | None:
        """Mean time between a completion and the next submission."""
        waits = [pacing["turnaround_ns"] for job in self._closed_jobs if (pacing := job.get("pacing"))]
        return _ratio(sum(waits), sum(job["operations"] for job in self._closed_jobs)) if waits else None

    @share
    def edge_share(self) -> float | None:
        """Share before the load started, and after it had reached its limit or its last I/O had completed, at most."""
        return _ratio(sum(self._edges_ns(job) for job in self._closed_jobs), self._places_ns)

    @share
    def unexplained_share(self) -> float | None:
        """Remaining share: slots that were free for no known reason."""
        if self.in_flight_share is None or self.turnaround_share is None or self.edge_share is None:
            return None
        if described(self.facts.spec["workload"]).is_paced:
            return None
        return max(0.0, 1 - self.in_flight_share - self.turnaround_share - self.edge_share)

    @share
    def mean_latency_share(self) -> float | None:
        """Mean completion latency as a share of the measurement; at most 1, as of I/Os that started before it."""
        count = sum(t.count for t in self.facts.totals)
        total = sum(t.completion_latency_ns_sum for t in self.facts.totals)
        return share_of(total, count * self.wall_ns)

    # Processor

    @share
    def core_utilisation(self) -> float | None:
        """CPU time over real time of the busiest thread of a job."""
        return max((self._busy(job) for job in self.jobs), default=None)

    @share
    def core_used(self) -> float | None:
        """The same of closed and overloaded open loops, which more CPU time would make faster."""
        return max((self._busy(job) for job in self.jobs if self._could_do_more(job)), default=None)

    @share
    def cpus_used_share(self) -> float | None:
        """CPU time of the engine over that of all CPUs that its jobs may use."""
        process = self.facts.result["process"]
        used_ns = process["user_ns"] + process["system_ns"]
        return _ratio(used_ns, process["wall_ns"] * accounting.allowed_cpus(self.observed))

    @share
    def busiest_core_share(self) -> float | None:
        """Share of time that the busiest core was not idle, in any process."""
        return accounting.busiest_core_share(self.observed)

    @share
    def cpu_wait_share(self) -> float | None:
        """Largest share of time that a job's thread was ready to run and had no CPU."""
        return self._most_cpu_wait(lambda job, wait_ns: _ratio(wait_ns, job["usage"]["wall_ns"]))

    @share
    def busy_cpu_wait_share(self) -> float | None:
        """The same of the time in which a job had operations or waited for a CPU: in a closed loop, all of it.

        In an open loop a wait of up to 100 us at each wake-up does not count.
        """
        return self._most_cpu_wait(self._busy_cpu_wait)

    @property
    def waits_for_own_threads(self) -> bool:
        """True if there are more job threads than CPUs for them, of which all else on the machine took less than 10 %.

        At worst, all else ran on these CPUs only.
        """
        cpus, threads = accounting.allowed_cpus(self.observed), sum(map(accounting.thread_count, self.jobs))
        if not 0 < cpus < threads or self.other_cpu_share is None:
            return False
        return (self.other_cpu_share + (self.steal_share or 0.0)) * int(self.machine["cpus"]) < 0.1 * cpus

    @cached_property
    def involuntary_switches_per_second(self) -> float | None:
        """Preemptions per second of the job with most."""
        rates = [_ratio(1e9 * job["usage"]["involuntary_switches"], job["usage"]["wall_ns"]) for job in self.jobs]
        return max((rate for rate in rates if rate is not None), default=None)

    @share
    def steal_share(self) -> float | None:
        """Share of all CPU time that the hypervisor stole."""
        return _ratio(self.machine["steal_ns"], self.machine_ns) if "steal_ns" in self.machine else None

    @share
    def other_cpu_share(self) -> float | None:
        """Share of all CPU time that processes other than the engine and its server used, kernel threads included."""
        if "user_ns" not in self.machine:
            return None
        own = self.facts.result["process"]["user_ns"] + self.facts.result["process"]["system_ns"]
        other = self.machine["user_ns"] + self.machine["system_ns"] - own - (self.facts.server_cpu_ns or 0)
        return _ratio(max(0, other), self.machine_ns)

    @share
    def idle_cpu_share(self) -> float | None:
        """Share of all CPU time in which a CPU had nothing to run."""
        if "idle_ns" not in self.machine:
            return None
        return _ratio(self.machine["idle_ns"] + self.machine["io_wait_ns"], self.machine_ns)

    @cached_property
    def interrupts_per_second(self) -> float | None:
        """Interrupts beyond three per own I/O, of the pinned CPU with most."""
        return max((self._foreign_interrupts(cpu) for cpu in self.observed.get("pinned") or []), default=None)

    @cached_property
    def harness_ns_per_io(self) -> float | None:
        """Cost of an I/O of this shape on the null backend, of the most expensive stream."""
        costs = self._harness_costs()
        return max(costs.values(), default=None)

    @share
    def harness_share(self) -> float | None:
        """Harness overhead over real time, of the threads of the busiest job; an estimate."""
        costs = self._harness_costs()
        shares = [
            share_of(job["operations"] * costs[job["stream"]], accounting.thread_count(job) * self.wall_ns)
            for job in self.jobs
            if job["stream"] in costs
        ]
        return max((share for share in shares if share is not None), default=None)

    @share
    def clock_share(self) -> float | None:
        """Time spent reading the clock, at most twice per I/O, of the threads of the busiest job; an estimate."""
        cost = self.facts.engine.get("clock_read_ns")
        most = max((job["operations"] / accounting.thread_count(job) for job in self.jobs), default=0)
        return None if cost is None else share_of(2 * cost * most, self.wall_ns)

    @share
    def stalled_share(self) -> float | None:
        """Share of the measurement in which the engine itself did not run, by its heartbeat."""
        stalls = self.observed.get("stalls")
        return _ratio(stalls["stalled_ns"], self.wall_ns) if stalls else None

    @cached_property
    def longest_stall_ns(self) -> float | None:
        """The longest time without a break in which it did not run."""
        stalls = self.observed.get("stalls")
        return float(stalls["longest_ns"]) if stalls else None

    @cached_property
    def device_stall_ns(self) -> float | None:
        """The longest time in which a closed loop waited for the device and next to nothing completed.

        One slow I/O among many in flight is no stall: half of the I/Os expected at the mean rate in that time
        must be missing.
        """
        longest = max(self.facts.intervals, key=lambda each: each.completion_latency_ns_max, default=None)
        latency = self.mean_latency_share
        if longest is None or latency is None or not self.wall_ns:
            return None
        length = float(longest.completion_latency_ns_max)
        if length < STALL_NS or length < LATENCIES_IN_A_STALL * latency * self.wall_ns:
            return None
        start = longest.end_ns - length - (longest.end_ns - longest.begin_ns)
        during = [each for each in self.facts.intervals if start < each.end_ns <= longest.end_ns]
        others = [each for each in self.facts.intervals if each not in during]
        usual_ns = sum(each.end_ns - each.begin_ns for each in others)
        rate = sum(each.count for each in others) / usual_ns if usual_ns else 0.0
        expected = rate * sum(each.end_ns - each.begin_ns for each in during)
        is_stall = rate and expected - sum(each.count for each in during) >= MOST * rate * length
        return length if is_stall else None

    # Bytes

    @share
    def counted_share(self) -> float | None:
        """Share of the measurement that the counters of process and devices cover; less if they were read late."""
        return share_of(self.facts.result["process"]["wall_ns"], self.wall_ns)

    @share
    def read_from_memory_share(self) -> float | None:
        """Share of the bytes read that were not requested from a device; unknown if none is visible."""
        if (known := self.facts.storage) and known.load_read_bytes:
            return max(0.0, 1 - known.read_bytes / known.load_read_bytes - (self.mean_latency_share or 0.0))
        read, requested = self.bytes_of("read"), self._requested_bytes
        if not read or requested is None:
            return None
        return max(0.0, 1 - requested / read - (self.mean_latency_share or 0.0))

    @share
    def written_to_memory_share(self) -> float | None:
        """Share of the bytes written that had not reached a device at the end, at least; unknown if none is visible."""
        if (known := self.facts.storage) and known.load_write_bytes:
            return max(0.0, 1 - known.write_bytes / known.load_write_bytes - (self.mean_latency_share or 0.0))
        written = self.bytes_of("write")
        if not written:
            return None
        if self.is_in_memory:
            return 1.0
        arrived = self._moved_bytes("write")
        return None if arrived is None else max(0.0, 1 - arrived / written)

    @share
    def below_cache_share(self) -> float | None:
        """Share of the bytes of a stacked device that did not reach the devices below it; unknown if not visible."""
        device = self.absorbing_device
        return self._absorbed(device) if device else None

    @share
    def other_bytes_share(self) -> float | None:
        """Share of the bytes of the device that were not this run's, of the same counters over the same time."""
        foreign = self._foreign
        if foreign is not None:
            return foreign.share
        moved = sum(device["read_bytes"] + device["write_bytes"] for device in self.top_devices)
        return _ratio(self.other_bytes, moved) if self.other_bytes is not None else None

    @cached_property
    def other_bytes(self) -> float | None:
        """Bytes that the device moved for other processes, as far as they can be distinguished."""
        if self._foreign is not None:
            return float((self._foreign.read_bytes or 0) + (self._foreign.write_bytes or 0))
        top = self.top_devices
        if not top or self.is_served_by_daemon:
            return None
        # Its own that were in flight at either end are the device's in the measurement, and not the run's.
        in_flight = self.mean_latency_share or 0.0
        # Where the kernel counts none for the process, the load's.
        own_read = (self._asked_bytes or self.bytes_of("read")) + in_flight * self.bytes_of("read")
        read = sum(device["read_bytes"] for device in top) - own_read
        own = (1 + in_flight) * self.bytes_of("write")
        written = sum(device["write_bytes"] for device in top) - own if self._writes_are_plain else 0
        return float(max(0, read) + max(0, written))

    @share
    def missing_share(self) -> float | None:
        """Share of the bytes under reads in holes and in extents that were never written, before or after."""
        looks = [look for name in ("extents_before", "extents_after") if (look := self.observed.get(name))]
        return max((_ratio(look["missing_bytes"], look["addressed_bytes"]) or 0.0 for look in looks), default=None)

    @share
    def encoded_share(self) -> float | None:
        """Share of the bytes under reads that the file system stores compressed or encrypted."""
        return self._share_addressed("extents_before", "encoded_bytes")

    @share
    def shared_share(self) -> float | None:
        """Share of the bytes under reads in extents that other files share: a write there is copied."""
        return self._share_addressed("extents_before", "shared_bytes")

    @share
    def cached_before_share(self) -> float | None:
        """Share of the bytes addressed in the page cache before the first I/O."""
        return self._share_addressed("page_cache", "before_bytes")

    @share
    def cached_after_share(self) -> float | None:
        """Share of them after the last I/O."""
        return self._share_addressed("page_cache", "after_bytes")

    @share
    def dirty_after_share(self) -> float | None:
        """Share of them that was not yet written back."""
        return self._share_addressed("page_cache", "dirty_after_bytes")

    @cached_property
    def passes(self) -> float | None:
        """Mean number of times that the span was covered."""
        moved = self.bytes_of("read") + self.bytes_of("write")
        return _ratio(moved, self.addressed_bytes)

    # Device

    @cached_property
    def temperature_celsius(self) -> float | None:
        """Temperature of the hottest device, before or after the run."""
        return max((value for _, value, _ in self.temperatures), default=None)

    # Inputs of the numbers, and of rules

    @property
    def absorbing_device(self) -> Json | None:
        """The stacked device with the largest share of bytes that did not reach the devices below it."""
        known = [device for device in self.devices if self._absorbed(device) is not None]
        return max(known, key=lambda device: self._absorbed(device) or 0.0, default=None)

    @property
    def has_own_cache(self) -> bool:
        """True if a store is between operations and devices."""
        return described(self.facts.spec["workload"]).io == "store"

    @property
    def is_one_pass(self) -> bool:
        """True if a run accesses each byte once, so that only what was cached before it can serve it."""
        return described(self.facts.spec["workload"]).is_one_pass

    @property
    def backend(self) -> str:
        """Kind of backend in effect, as the engine reported it."""
        return str(self.facts.result.get("backend", {}).get("kind", ""))

    @property
    def is_polling(self) -> bool:
        """True if threads are busy by design: they poll for completions, or the kernel polls for submissions."""
        return bool(
            {"completion_polling", "submission_polling"} & set(self.facts.result["backend"].get("features", []))
        )

    @property
    def is_in_memory(self) -> bool:
        """True if the file system has only memory under it."""
        return self.lowest_file_system.get("kind") in MEMORY_FILE_SYSTEMS

    @property
    def is_served_by_daemon(self) -> bool:
        """Return True if a FUSE daemon does the I/O: not the engine's, and not distinguished from that of others."""
        return any(str(each.get("kind")).partition(".")[0] in ("fuse", "fuseblk") for each in self.file_systems)

    @property
    def file_systems(self) -> list[Json]:
        """The file system of the target's files, and those in which an overlay or a FUSE daemon keeps them."""
        found = [self.file_system]
        while below := found[-1].get("below"):
            found.append(below)
        return found

    @property
    def lowest_file_system(self) -> Json:
        return self.file_systems[-1]

    @property
    def file_system(self) -> Json:
        return self.facts.target.get("file_system") or {}

    @property
    def is_buffered(self) -> bool:
        """True if any stream goes through the page cache; the files of key-value stores do."""
        return any(stream.get("io_mode", "buffered") == "buffered" for stream in self.streams.values())

    @property
    def writes_to_page_cache(self) -> bool:
        """True if writes go through the page cache: as requested, or because direct writes do not bypass it here."""
        return self.is_buffered or self.file_system.get("direct_writes") == "page cache"

    @property
    def reducible_payloads(self) -> list[str]:
        """Payloads that could be compressed or deduplicated, by kind."""
        payloads = (stream["payload"] for stream in self.streams.values() if "payload" in stream)
        return sorted({payload["kind"] for payload in payloads if is_reducible(payload)})

    @property
    def reads(self) -> bool:
        return self.bytes_of("read") > 0

    @property
    def writes(self) -> bool:
        return self.bytes_of("write") > 0

    @property
    def iops(self) -> float:
        """I/Os per second of all streams, without flushes."""
        count = sum(total.count for total in self.facts.totals if total.operation != "flush")
        return 1e9 * count / self.wall_ns if self.wall_ns else 0.0

    @property
    def concurrency(self) -> int:
        """I/Os in flight: of closed loops at most, of open loops the mean, since their queue depth is only a limit."""
        closed = sum(stream["jobs"] * _depth(stream) for name, stream in self.streams.items() if self._is_closed(name))
        waited = sum(t.completion_latency_ns_sum for t in self.facts.totals if not self._is_closed(t.stream))
        return int(closed + round(waited / max(1, self.wall_ns)))

    @property
    def addressed_bytes(self) -> int:
        """The range that all streams address: as the engine found it, else the largest span; 0 of key-value stores."""
        pages = self.observed.get("page_cache")
        if pages:
            return int(pages["addressed_bytes"])
        return max(stream["span"]["bytes"] if "span" in stream else 0 for stream in self.streams.values())

    @property
    def devices(self) -> list[Json]:
        """Every watched device with its facts and its I/O."""
        known = {device.get("device"): device for device in self.facts.target.get("devices") or []}
        done = self.facts.result.get("devices") or []
        return [{**known.get(usage["device"], {}), **usage} for usage in done]

    @property
    def top_devices(self) -> list[Json]:
        """The devices directly under the file system, a partition's disk for the partition."""
        below = {name for device in self.facts.target.get("devices") or [] for name in self._under(device)}
        return [device for device in self.devices if device.get("name") not in below]

    @property
    def temperatures(self) -> list[tuple[str, float, float | None]]:
        """Name, temperature and what the device calls too hot, before and after."""
        devices = [*(self.facts.target.get("devices") or []), *(self.facts.target_after.get("devices") or [])]
        return [
            (device["name"], device["temperature_celsius"], device.get("temperature_max_celsius"))
            for device in devices
            if "temperature_celsius" in device
        ]

    def _share_addressed(self, look: str, part: str) -> float | None:
        """Share of the bytes addressed that the engine found in one of its looks at them."""
        found = self.observed.get(look) or {}
        return _ratio(found[part], found["addressed_bytes"]) if found.get(part) is not None else None

    @property
    def _foreign(self) -> accounting.Foreign | None:
        """I/O of other processes, where the kernel counts the engine's own."""
        facts = self.facts.own_io
        if facts is None or facts.get("version") is None:
            return None
        return accounting.foreign(facts, self.facts.spec["workload"])

    @property
    def _closed_jobs(self) -> list[Json]:
        return [job for job in self.jobs if self._is_closed(job["stream"])]

    @property
    def _asked_bytes(self) -> int:
        """Bytes that this process asked devices for at least, whatever came between.

        The counter of the process may be read late at the start of the measurement, and nothing is asked for after its
        end. Those of the jobs are read by their own threads, and lack what other threads of the kernel did for them.
        """
        counted = (self.facts.result["process"]["fs_inputs"], sum(job["usage"]["fs_inputs"] for job in self.jobs))
        return int(max(counted)) * FS_INPUT_BYTES

    @property
    def _requested_bytes(self) -> int | None:
        """Bytes that devices were asked to read for the run; None if unknown.

        By this process as the kernel counts it, which includes read-ahead; by a FUSE daemon, or where the kernel counts
        nothing for a process, by the devices.
        """
        if self.is_in_memory:
            return self._asked_bytes
        if not self._is_counted:
            return None
        if self._asked_bytes and not self.is_served_by_daemon:
            return self._asked_bytes
        return self._moved_bytes("read")

    def _moved_bytes(self, operation: Literal["read", "write"]) -> int | None:
        """Bytes of the load that the devices moved in the measurement, at most; None if unknown.

        At most all that they moved, and at most the engine's own in the account of processes. That account may begin
        before; where it was read late, on a machine without idle CPUs, what it lacks of the devices may be own too.
        """
        top = self.top_devices
        if not self._is_counted or not top or any(device.get("io_counters") == "off" for device in top):
            return None
        is_attributed = not self.has_own_cache and (operation == "read" or self._writes_are_plain)
        moved = sum(int(device[f"{operation}_bytes"]) for device in top)
        account = accounting.own_bytes(self.facts.own_io, self.facts.spec["workload"], operation)
        if account is None or not is_attributed or self.is_served_by_daemon:
            return moved
        own, counted = account
        return min(moved, own + max(0, moved - counted))

    @property
    def _is_counted(self) -> bool:
        """Return True if the kernel counts the load's I/O on visible devices, and its counters were read in time.

        I/O on persistent memory (`dax`) is no block I/O.
        """
        dax = {"dax", "dax=always"} & set(self.lowest_file_system.get("options") or [])
        backend = BACKENDS.get(self.backend)
        is_block_io = (backend is None or backend.is_counted) and not dax
        # Else so much is missing that bytes would seem to be served from the page cache.
        in_time = self.counted_share is None or self.counted_share >= 1 - SOME
        return bool(self.facts.target.get("devices")) and is_block_io and in_time

    @property
    def _places_ns(self) -> float:
        """Places in queues times the time that they were to be used."""
        active = ((job, *self._window(job)) for job in self._closed_jobs)
        return float(sum(_depth(self.streams[job["stream"]]) * (end - begin) for job, begin, end in active))

    @property
    def _writes_are_plain(self) -> bool:
        """True if every byte written is one byte on the device, at once: no metadata, no copies, no page cache."""
        if self.has_own_cache:
            return False
        plain = all(stream.get("durability", {"kind": "none"})["kind"] == "none" for stream in self.streams.values())
        return (
            plain
            and not self.writes_to_page_cache
            and self.lowest_file_system.get("kind") not in (*COPYING_FILE_SYSTEMS, "overlay")
        )

    def _busy(self, job: Json) -> float:
        """CPU time over real time of a job's busiest thread."""
        return _ratio(accounting.busiest_thread_cpu_ns(job), job["usage"]["wall_ns"]) or 0.0

    def _is_closed(self, stream: str) -> bool:
        return bool(self.streams[stream]["arrival"]["kind"] == "closed")

    def _most_cpu_wait(self, share: Callable[[Json, int], float | None]) -> float | None:
        lasting = [job for job in self.jobs if job["usage"]["wall_ns"] >= SOME * self.wall_ns]
        waits = [(job, accounting.busiest_thread_wait_ns(job)) for job in lasting]
        shares = [share(job, wait_ns) for job, wait_ns in waits if wait_ns is not None]
        return max((each for each in shares if each is not None), default=None)

    def _busy_cpu_wait(self, job: Json, wait_ns: int) -> float | None:
        usage, waking_ns = job["usage"], 0
        if not self._is_closed(job["stream"]):  # Threads also wake up to find that there is nothing to do.
            waking_ns = WAKING_NS * (usage.get("voluntary_switches", 0) + usage.get("involuntary_switches", 0))
        return _ratio(max(0, wait_ns - waking_ns), self._occupied_ns(job, wait_ns))

    def _occupied_ns(self, job: Json, wait_ns: int) -> float:
        wall_ns, stream = float(job["usage"]["wall_ns"]), job["stream"]
        if self._is_closed(stream):
            return wall_ns
        latency_ns = sum(each.completion_latency_ns_sum for each in self.facts.totals if each.stream == stream)
        return float(min(wall_ns, latency_ns / sum(each["stream"] == stream for each in self.jobs) + wait_ns))

    def _could_do_more(self, job: Json) -> bool:
        """A closed loop always; an open one only where it fell behind its schedule, or its threads were never idle."""
        due = job.get("schedule") or {"due": 0, "started": 0}
        is_behind = due["due"] - due["started"] > 0.01 * due["due"]
        is_of_trace = self.streams[job["stream"]]["arrival"]["kind"] == "trace"
        is_full = is_of_trace and self._occupied_ns(job, 0) >= SATURATED * job["usage"]["wall_ns"]
        return self._is_closed(job["stream"]) or is_behind or is_full

    def _window(self, job: Json) -> tuple[int, int]:
        """Start and end of the time in which the job's stream was to load the target, in nanoseconds."""
        begin, end = self.facts.result["begin_ns"], self.facts.result["end_ns"]
        active = self.streams[job["stream"]].get("active") or {"begin_ns": 0, "end_ns": None}
        last = end if active["end_ns"] is None else min(end, begin + active["end_ns"])
        return min(begin + active["begin_ns"], last), last

    def _edges_ns(self, job: Json) -> float:
        pacing, (begin, end) = job.get("pacing"), self._window(job)
        if not pacing:
            return 0.0
        first, exhausted = pacing["first_start_ns"], pacing["exhausted_ns"]
        late = (end - begin) if first is None else max(0, min(first, end) - begin)
        completed = job.get("last_completion_ns") or end  # I/Os in flight at the end are not counted otherwise.
        early = max(0, end - min(completed, end if exhausted is None else exhausted))
        return float(min(end - begin, late + early) * _depth(self.streams[job["stream"]]))

    def _foreign_interrupts(self, pinned: Json) -> float:
        own = 0
        for job in self.jobs:
            cpus = self.streams[job["stream"]].get("cpus")
            own += job["operations"] if cpus and cpus[job["job"] % len(cpus)] == pinned["cpu"] else 0
        if described(self.facts.spec["workload"]).io != "blocks":  # An operation may be many I/Os.
            own = sum(device.get("reads", 0) + device.get("writes", 0) for device in self.top_devices)
        return max(0.0, 1e9 * (pinned["interrupts"] - 3 * own) / self.wall_ns) if self.wall_ns else 0.0

    def _harness_costs(self) -> dict[str, float]:
        streams = (self.facts.harness or {}).get("streams", {})
        return {name: cost["ns_per_io"] for name, cost in streams.items() if cost}

    def _absorbed(self, device: Json) -> float | None:
        """Share of the bytes of a stacked device that did not reach the devices below it, all of which must be visible.

        Together these move at least as much: an array writes copies or parity, a degraded one reads more, a cache reads
        from one device and writes to the other. Less is moved for holes of a loop device's file or a thin volume, for
        blocks that are compressed or deduplicated, and for stripes in the memory of an array.
        """
        moved = device["read_bytes"] + device["write_bytes"]
        lower = self.devices_under(device)
        is_visible = {each.get("name") for each in lower} == {*self._under(device)}
        is_counted = not any(other.get("io_counters") == "off" for other in lower)
        if moved < 1 << 20 or not lower or not is_visible or not is_counted:
            return None
        passed = sum(min(device[kind], sum(other[kind] for other in lower)) for kind in ("read_bytes", "write_bytes"))
        return _ratio(moved - passed, moved)

    def devices_under(self, device: Json) -> list[Json]:
        """The visible devices directly below a device, with what they did."""
        under = self._under(device)
        return [other for other in self.devices if other.get("name") in under]

    def _under(self, device: Json) -> list[str]:
        """Names of the devices below a device: of a partition none, since its disk counts for it."""
        if device.get("kind") == "partition":
            return []
        disks = {
            d["name"]: d.get("under", []) for d in self.facts.target.get("devices") or [] if d["kind"] == "partition"
        }
        return [disk for name in device.get("under", []) for disk in disks.get(name, [name])]

    def bytes_of(self, operation: str) -> int:
        return sum(total.bytes for total in self.facts.totals if total.operation == operation)


def rounded(numbers: Mapping[str, float | None]) -> dict[str, float | None]:
    """Numbers for the record, with the digits that a reader can use."""
    return {name: None if value is None else float(f"{value:.4g}") for name, value in numbers.items()}


def _numbers(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if isinstance(value, cached_property)]


def _depth(stream: Json) -> int:
    """I/Os in flight per job; a job of a key-value workload has one operation in flight."""
    return int(stream.get("queue_depth", 1))


def is_reducible(payload: Json) -> bool:
    """Return True if a device could compress or deduplicate the payload."""
    if payload["kind"] == "reducible":
        return bool(payload["compression_ratio"] > 1 or payload["duplicate_fraction"] > 0)
    return bool(payload["kind"] != "random")


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def share_of(part: float | None, whole: float) -> float | None:
    """Return a share, at most 1, of a part that may be larger: an estimate, or I/Os and waits that started before."""
    return None if part is None or whole <= 0 else min(1.0, part / whole)
