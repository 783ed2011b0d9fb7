"""Facts in, verdict out: each rule fires on what it is for, and on nothing that is sound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from facts import COUNT, GIB, READ, SECOND, Change, as_writes, device, having, job, latency, sound, stream

from iosonde.features.network_storage.verdict import Remote
from iosonde.metrics.verdict.evidence import Evidence, Interval, VerdictFacts
from iosonde.metrics.verdict.rules import rules
from iosonde.metrics.verdict.verdict import Kind, Verdict, is_disturbed, judge, of_repeats, with_disturbances


def changed(*changes: Change) -> VerdictFacts:
    facts = sound()
    for change in changes:
        facts = change(facts)
    return facts


def codes(facts: VerdictFacts) -> list[str]:
    return [warning.code for warning in judge(facts).warnings]


def test_a_sound_run_is_the_disks_and_has_no_warning() -> None:
    verdict = judge(sound())
    assert (verdict.kind, verdict.warnings) == ("device-limited", ())
    assert verdict.because == (
        "I/Os were in flight 98 % of the time, the busiest job used 30 % of a core, harness overhead was 0.2 % of "
        "its time",
    )
    for change in (as_writes, having(backend={"kind": "simulated"})):
        assert (judge(changed(change)).kind, judge(changed(change)).warnings) == ("device-limited", ())


def stalled(seconds: float, longest_s: float | None = None) -> Change:
    """The engine itself did not run."""
    longest_ns = round((seconds if longest_s is None else longest_s) * SECOND)
    return having(evidence={"stalls": {"stalled_ns": round(seconds * SECOND), "longest_ns": longest_ns, "count": 9}})


def with_accelerators(**each: int) -> Change:
    """Two accelerators, for each of which four batches are read ahead."""

    def change(facts: VerdictFacts) -> VerdictFacts:
        of_one = {"running_ns": 100, "steps": 40, **each}
        facts = having(workload={"read_threads": 4, "prefetch": 2, "loader": "samples"})(facts)
        return replace(facts, result={**facts.result, "ai": {"accelerators": [of_one, of_one]}})

    return change


def stalled_device(facts: VerdictFacts) -> VerdictFacts:
    """Nothing completes for one second of ten, at 100 µs otherwise."""
    each, length = SECOND // 10, SECOND
    intervals = [
        Interval(
            begin_ns=number * each,
            end_ns=(number + 1) * each,
            count=0 if 40 <= number < 50 else COUNT // 90,
            completion_latency_ns_max=length if number == 50 else 200_000,
        )
        for number in range(100)
    ]
    return replace(facts, intervals=intervals)


def over(*, dio: str, passed: float | None, **changed: Any) -> Change:
    """A loop device, and the share of its bytes that reached a visible device below; None if there is none."""

    def change(facts: VerdictFacts) -> VerdictFacts:
        device(facts).update({"kind": "loop", "name": "loop0", "loop_dio": dio, **changed})
        if passed is not None:
            device(facts)["under"] = ["nvme0n1"]
            facts.target["devices"].append({"device": "259:2", "name": "nvme0n1", "kind": "disk", "under": []})
            facts.result["devices"].append({"device": "259:2", "read_bytes": int(READ * passed), "write_bytes": 0})
        return facts

    return change


def device_moved(share: float) -> Change:
    """The process requested, and the device moved, that share of the bytes of the load."""

    def change(facts: VerdictFacts) -> VerdictFacts:
        for counted in (facts.result["process"], facts.result["devices"][0]):
            for name in counted.keys() & {"fs_inputs", "read_bytes", "write_bytes"}:
                counted[name] = int(counted[name] * share)
        return facts

    return change


def without_devices(**file_system: str) -> Change:
    return lambda facts: replace(
        facts, target={"file_system": file_system, "devices": []}, result=facts.result | {"devices": []}
    )


def on_nfs(**wire: Any) -> Change:
    """The sound run, whose mean latency is 97.5 µs, on NFS with 90 µs a call unless given."""
    remote = Remote(
        **{"load_read_bytes": READ, "load_write_bytes": 0, "read_bytes": READ, "write_bytes": 0}
        | {"round_trip_ns": 90_000.0, "queue_ns": 0.0, "is_one_call": True, "payload_ns": 0.0}
        | wire
    )
    return lambda facts: replace(without_devices(kind="nfs4")(facts), storage=remote)


def on_a_device_of_a_server(**wire: Any) -> Change:
    """97.5 µs, of which the device took 90 and the network 20 at least, unless given."""
    found = {"load_read_bytes": 0, "read_bytes": 0, "network_ns": 20_000.0} | wire
    return lambda facts: replace(facts, storage=on_nfs(**found)(sound()).storage)


def on_a_daemon(**wire: Any) -> Change:
    """A FUSE daemon, of which nothing is known unless given."""
    remote = on_nfs(load_read_bytes=0, read_bytes=0, round_trip_ns=None, **wire)(sound()).storage
    place = without_devices(kind="fuse.archive", source="archive")
    return lambda facts: replace(place(facts), storage=remote if wire else None)


BUFFERED = having(stream={"io_mode": "buffered"})
FAST = having(total={"count": 2 * COUNT})
"""The same bytes in more I/Os, so that nothing but the rate changes."""
RESTING = having(stream={"active": {"begin_ns": 5 * SECOND, "end_ns": None}})
SATURATED = having(usage={"user_ns": 4 * SECOND, "system_ns": 56 * SECOND // 10})
HOLES = having(extents={"missing_bytes": 40 * GIB})
CROWDED = having(pacing={"cpu_wait_ns": 2 * SECOND})
ON_TWO_CPUS = having(
    evidence={"job_cpus": ["0,1"]},
    pacing={"threads": {"count": 10, "busiest_cpu_ns": SECOND, "busiest_cpu_wait_ns": 2 * SECOND}},
)
WITHOUT_SCHEDSTAT = having(pacing={"cpu_wait_ns": None})
STOLEN = having(machine={"steal_ns": 4 * SECOND, "idle_ns": 73 * SECOND})
SHARED_DISK = having(moved={"read_bytes": READ + READ // 10})
THROTTLED = having(device={"limits": ["read_iops_device 2000"]})
HOT = having(target_after={"devices": [{"name": "nvme0n1", "temperature_celsius": 84.0}]})
IN_MEMORY = having(target={"file_system": {"kind": "tmpfs"}, "devices": []})
COPYING = having(file_system={"kind": "btrfs"})
COMPRESSING = having(file_system={"options": ["rw", "compress=zstd:3"]})
ZEROS = having(stream={"payload": {"kind": "zeros"}})
LATE = having(
    # The thread that keeps time had no CPU for six of ten seconds: what it counted is not all that was read.
    process={"wall_ns": 4 * SECOND, "fs_inputs": READ // 512 // 5},
    moved={"read_bytes": READ // 5},
)
ONE_AT_A_TIME = having(
    # 0.9 million reads a second: 130 ns of 1,100 are the harness'.
    stream={"queue_depth": 1},
    job={"operations": 9 * 10**6},
    pacing={"turnaround_ns": SECOND // 10},
    total={"count": 9 * 10**6, **latency(9.5)},
    harness={"streams": {"main": {"ns_per_io": 130.0}}},
)
FOREIGN_INTERRUPTS = having(stream={"cpus": [3]}, evidence={"pinned": [{"cpu": 3, "interrupts": 3 * COUNT + 200_000}]})
DEEPER_THAN_THE_KERNEL = having(
    stream={"queue_depth": 128}, device={"nr_requests": 64, "hardware_queues": 1}, total=latency(1275)
)


def reducible(ratio: float = 1.0, duplicates: float = 0.0) -> Change:
    payload = {"kind": "reducible", "compression_ratio": ratio, "duplicate_fraction": duplicates}
    return having(stream={"payload": payload})


BEHIND_THE_SCHEDULE = {"due": COUNT, "started": COUNT // 2, "start_lag_ns_sum": 10**7}
OPEN = having(
    stream={"arrival": {"kind": "constant", "rate": 40_000.0}},
    job={"schedule": BEHIND_THE_SCHEDULE | {"started": COUNT - 3}},
)


@pytest.mark.parametrize(
    ("code", "changes", "kind"),
    [
        ("core_saturated", (SATURATED,), "harness-limited"),
        # A quarter of the time goes into filling a block, and as much less into waiting for the disk.
        ("turnaround", (having(pacing={"turnaround_ns": 10 * SECOND}, total=latency(30)),), "harness-limited"),
        ("harness_cost", (ONE_AT_A_TIME,), "harness-limited"),
        ("slow_clock", (having(engine={"clock": "monotonic", "clock_read_ns": 800.0}),), "harness-limited"),
        ("null_backend", (having(backend={"kind": "null"}),), "harness-limited"),
        ("reads_from_memory", (BUFFERED, device_moved(0.25)), "cache-served"),
        ("writes_to_memory", (as_writes, BUFFERED, device_moved(0.2)), "cache-served"),
        ("memory_file_system", (IN_MEMORY,), "cache-served"),
        ("unwritten_extents", (HOLES,), "cache-served"),
        ("cache_below", (over(dio="0", passed=0.2),), "cache-served"),
        ("cache_unknown", (over(dio="0", passed=None),), "undetermined"),
        ("engine_stalled", (stalled(3),), "undetermined"),
        ("device_stalled", (stalled_device,), "device-limited"),
        ("cpu_contention", (CROWDED,), "undetermined"),
        ("jobs_share_cpus", (ON_TWO_CPUS,), "harness-limited"),
        ("cpu_contention", (ON_TWO_CPUS, having(machine={"user_ns": 4 * SECOND})), "undetermined"),
        ("steal_time", (STOLEN,), "undetermined"),
        ("foreign_interrupts", (FOREIGN_INTERRUPTS,), "undetermined"),
        ("other_io", (SHARED_DISK,), "undetermined"),
        ("throttled_device", (THROTTLED,), "undetermined"),
        ("hot_device", (HOT,), "undetermined"),
        ("queue_too_short", (DEEPER_THAN_THE_KERNEL,), "undetermined"),
        ("span_fits_device_cache", (having(page_cache={"addressed_bytes": 32 << 20}),), "undetermined"),
        ("network_file_system", (without_devices(kind="nfs4"),), "undetermined"),
        ("network_limited", (on_nfs(network_ns=60_000.0),), "network-limited"),
        ("server_limited", (on_nfs(network_ns=20_000.0),), "server-limited"),
        ("network_or_server", (on_a_device_of_a_server(longest_network_ns=60_000.0),), "undetermined"),
        ("connection_limited", (on_nfs(window_share=0.6, connections=2),), "network-limited"),
        ("connection_limited", (on_nfs(window_share=0.6, connections=8, connections_used=1),), "network-limited"),
        ("packets_lost", (on_nfs(is_lossy=True),), "undetermined"),
        ("split_calls", (on_nfs(is_one_call=False, calls_per_operation=2.0, largest_call_bytes=4096),), "undetermined"),
        ("accelerators_busy", (with_accelerators(compute_ns=96),), "harness-limited"),
        ("few_steps", (with_accelerators(compute_ns=50, steps=39),), "undetermined"),
        ("client_limited", (on_nfs(network_ns=20_000.0, round_trip_ns=40_000.0),), "harness-limited"),
        ("no_block_device", (on_a_daemon(),), "undetermined"),
        # Direct reads that the file system serves through the page cache, and that reach the device nevertheless.
        ("not_direct", (having(page_cache={"after_bytes": 32 * GIB}),), "device-limited"),
        ("short_run", (having(total={"count": 13, **latency(39)}, tail=None),), "undetermined"),
        ("queue_underutilized", (having(total=latency(20)),), "undetermined"),
        ("span_fits_memory", (BUFFERED, having(page_cache={"addressed_bytes": 8 * GIB})), "device-limited"),
        ("late_counters", (LATE,), "undetermined"),
        ("counters_disagree", (having(usage={"user_ns": 30 * SECOND}),), "undetermined"),
        ("one_hardware_queue", (having(stream={"jobs": 2}, device={"hardware_queues": 1}), FAST), "device-limited"),
        ("io_scheduler", (having(device={"scheduler": "bfq"}), FAST), "device-limited"),
        ("cpu_governor", (having(environment={"cpu": {"governor": "powersave"}}),), "device-limited"),
        ("copying_file_system", (COPYING, as_writes), "device-limited"),
        # Of a reflinked file.
        ("copying_file_system", (having(extents={"shared_bytes": 16 * GIB}), as_writes), "device-limited"),
        ("compressing_file_system", (COMPRESSING,), "device-limited"),
        ("compressible_data", (ZEROS, as_writes), "device-limited"),
        ("short_for_tail", (having(tail="p99_9999"),), "device-limited"),
        ("cold_start", (BUFFERED, having(workload={"page_cache": "drop"})), "device-limited"),
        # An open loop that is behind its schedule.
        ("core_saturated", (SATURATED, OPEN, having(job={"schedule": BEHIND_THE_SCHEDULE})), "harness-limited"),
        ("cpu_contention", (WITHOUT_SCHEDSTAT, having(usage={"involuntary_switches": 20_000})), "undetermined"),
        ("hot_device", (having(device={"temperature_max_celsius": None, "temperature_celsius": 71}),), "undetermined"),
        ("compressible_data", (as_writes, reducible(ratio=2.0)), "device-limited"),
        ("compressible_data", (as_writes, reducible(duplicates=0.3)), "device-limited"),
        # A thin volume that was never written, and a loop device whose backing file has holes or is compressed.
        ("cache_below", (over(dio="", passed=0.0, kind="dm", name="dm-3"),), "cache-served"),
        ("cache_below", (over(dio="1", passed=0.2),), "cache-served"),
        ("unwritten_extents", (HOLES, device_moved(3 / 8)), "cache-served"),
        # A stalled engine is not a stalled device, and its time between completion and submission no overhead. The
        # heartbeat may be late by less than the slots were free: it sees each stall only from its next beat on.
        ("engine_stalled", (stalled_device, stalled(3)), "undetermined"),
        # Neither is a job without a CPU.
        ("cpu_contention", (stalled_device, CROWDED), "undetermined"),
        ("engine_stalled", (having(pacing={"turnaround_ns": 30 * SECOND}), stalled(10)), "undetermined"),
    ],
)
def test_each_rule_fires_on_its_fact_alone(code: str, changes: tuple[Change, ...], kind: Kind) -> None:
    verdict = judge(changed(*changes))
    assert [warning.code for warning in verdict.warnings] == [code]
    assert verdict.kind == kind
    if kind != "device-limited":
        assert verdict.because == (verdict.warnings[0].message,)


def test_every_rule_is_tried() -> None:
    (mark,) = test_each_rule_fires_on_its_fact_alone.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} | {"cpus_shared"} == set(rules())  # Of servers alone, below.


@pytest.mark.parametrize(
    "changes",
    [
        (stalled(0.1, longest_s=0.02),),
        (having(device={"scheduler": "bfq"}),),
        # Busy by design, and an open loop that keeps its schedule.
        (SATURATED, having(backend={"features": ["completion_polling"]})),
        (SATURATED, OPEN),
        (with_accelerators(compute_ns=50),),
        # A journal's writes.
        (as_writes, having(stream={"durability": {"kind": "dsync"}}, moved={"write_bytes": 2 * READ})),
        (having(file_system={"kind": "btrfs", "options": ["rw", "nodatacow"]}), as_writes),
        (over(dio="0", passed=1.0),),
        # Half of the run is the stream's pause.
        (RESTING, having(pacing={"first_start_ns": 5 * SECOND + 5_000}, total=latency(19))),
        # Incompressible by another name.
        (as_writes, reducible()),
        # A cold start that the study names, and one with a ramp.
        (BUFFERED, having(workload={"page_cache": "drop"}, cold_start=True)),
        (BUFFERED, having(workload={"page_cache": "drop", "ramp": {"duration_ns": SECOND, "bytes": None}})),
        (WITHOUT_SCHEDSTAT,),
        (having(device={"temperature_max_celsius": None, "temperature_celsius": 69.0}),),
    ],
)
def test_what_is_sound_has_no_warning(changes: tuple[Change, ...]) -> None:
    assert codes(changed(*changes)) == []


@pytest.mark.parametrize(
    ("change", "codes_found", "kind"),
    [
        # Another process has the CPU for the other half.
        (having(), ["cpu_contention"], "undetermined"),
        # The engine's eight jobs share four CPUs, which they use completely.
        (having(process={"user_ns": 4 * SECOND, "system_ns": 35 * SECOND}, evidence={"job_cpus": ["0-3"] * 8}),
         ["core_saturated", "cpu_contention"], "harness-limited"),
    ],
)  # fmt: skip
def test_waiting_for_a_cpu_is_a_limit_of_the_engine_only_where_it_uses_all_of_them(
    change: Change, codes_found: list[str], kind: Kind
) -> None:
    waiting = having(usage={"user_ns": SECOND, "system_ns": 4 * SECOND}, pacing={"cpu_wait_ns": 5 * SECOND})
    verdict = judge(changed(waiting, change))
    assert ([warning.code for warning in verdict.warnings], verdict.kind) == (codes_found, kind)


@pytest.mark.parametrize(("occupied_s", "kind"), [(10, "harness-limited"), (5, "undetermined")])
def test_a_replay_whose_threads_are_never_idle_is_limited_by_a_cpu_that_it_uses_completely(
    occupied_s: float, kind: Kind
) -> None:
    """Such as a KV cache, with eight threads on one CPU. Threads that are idle half of the time would not be faster with another."""
    eight = having(process={"user_ns": 4 * SECOND, "system_ns": 6 * SECOND}, evidence={"job_cpus": ["0"] * 8})
    used = {"user_ns": SECOND, "system_ns": 0, "voluntary_switches": 100}
    waiting = having(latency(occupied_s), pacing={"cpu_wait_ns": 8 * SECOND}, usage=used)
    replay = having(stream={"arrival": {"kind": "trace", "speed": 1.0}})
    assert judge(changed(eight, waiting, replay)).kind == kind


@pytest.mark.parametrize(("in_flight", "fires"), [(40, False), (100, True)])
def test_the_queue_depth_of_an_open_loop_is_only_a_limit(in_flight: int, fires: bool) -> None:
    """The mean number in flight fills the queue of the kernel: 40 or 100 of at most 1,024, with 64 slots."""
    deep = having(
        stream={"queue_depth": 1024}, device={"nr_requests": 64, "hardware_queues": 1}, total=latency(10 * in_flight)
    )
    assert ("queue_too_short" in codes(changed(OPEN, deep))) == fires


def test_reads_at_the_edges_of_a_limited_run_are_no_fault_of_the_tool() -> None:
    """The old false alarm: 64 in flight, a limit reached after most of the time, and a long last I/O."""
    edges = having(pacing={"first_start_ns": SECOND // 2, "exhausted_ns": 8 * SECOND}, total=latency(31))
    verdict = judge(changed(edges))
    assert (verdict.kind, verdict.warnings) == ("device-limited", ())
    assert verdict.evidence["in_flight_share"] == pytest.approx(0.775)
    assert verdict.evidence["edge_share"] == pytest.approx(0.25)


def test_the_shares_of_a_closed_loop_add_up() -> None:
    evidence = Evidence(changed(having(total=latency(20))))
    shares = [evidence.in_flight_share, evidence.turnaround_share, evidence.edge_share, evidence.unexplained_share]
    assert sum(share or 0 for share in shares) == pytest.approx(1)


def test_a_stall_names_what_an_open_loop_would_have_seen_and_one_slow_io_among_many_is_none() -> None:
    """A tenth of all requests would have arrived during the stall, and waited for up to one second."""
    facts = changed(stalled_device)
    assert Evidence(facts).device_stall_ns == SECOND
    [stalled] = [each.message for each in judge(facts).warnings if each.code == "device_stalled"]
    assert (
        stalled == "hardly any I/O completed for 1 s; an open loop at the same rate would have had p99 900 ms or more"
    )
    flowing = [replace(each, count=COUNT // 90) for each in facts.intervals]
    assert codes(replace(facts, intervals=flowing)) == []


def test_the_busiest_core_is_everybodys_and_the_job_that_waits_most_counts() -> None:
    assert Evidence(sound()).busiest_core_share is None
    facts = changed(CROWDED)
    facts.result["jobs"].append(sound().result["jobs"][0])
    assert Evidence(facts).cpu_wait_share == pytest.approx(0.2)
    cores = [{"cpu": 0, "busy_ns": 3, "idle_ns": 7}, {"cpu": 1, "busy_ns": 9, "idle_ns": 1}]
    assert Evidence(changed(having(evidence={"cores": cores}))).busiest_core_share == pytest.approx(0.9)


NO_SWITCHES = {"voluntary_switches": 0, "involuntary_switches": 0}


def test_an_open_loop_waits_for_a_cpu_in_a_share_of_its_operations_and_not_of_its_idle_time() -> None:
    """Operations took half a second of ten, and the job waited as long for a CPU. A closed loop always has something to do."""
    facts = changed(having(latency(0.5), pacing={"cpu_wait_ns": SECOND // 2}, usage=NO_SWITCHES))
    assert Evidence(facts).busy_cpu_wait_share == pytest.approx(0.05)
    stream(facts)["arrival"] = {"kind": "poisson", "rate": 100.0}
    evidence = Evidence(facts)
    assert (evidence.cpu_wait_share, evidence.busy_cpu_wait_share) == (pytest.approx(0.05), pytest.approx(0.5))
    [warned] = [each.message for each in judge(facts).warnings if each.code == "cpu_contention"]
    assert "50 % of the time, without its idle time" in warned
    busy = replace(facts, totals=sound().totals)
    assert Evidence(busy).busy_cpu_wait_share == pytest.approx(0.05)
    facts.result["jobs"][0]["usage"]["voluntary_switches"] = 4000
    assert Evidence(facts).busy_cpu_wait_share == pytest.approx(0.1), "less 100 us for each wake-up"
    facts.result["jobs"][0]["usage"]["voluntary_switches"] = 10_000
    assert codes(facts) == []


def test_a_job_that_had_nothing_to_do_does_not_wait_for_a_cpu() -> None:
    """It ended at once, and had no CPU for most of that moment, such as threads that store blocks of a trace without new ones."""
    facts = sound()
    idle = sound().result["jobs"][0]
    idle["usage"]["wall_ns"], idle["pacing"]["cpu_wait_ns"] = 200_000, 170_000
    facts.result["jobs"].append(idle)
    assert Evidence(facts).cpu_wait_share == pytest.approx(0.005)


def test_missing_facts_give_no_number_and_no_warning() -> None:
    facts = sound(harness=None, environment={}, target={"devices": []})
    facts.result.update(evidence=None, devices=[])
    job(facts)["pacing"] = None
    assert Evidence(facts).addressed_bytes == 64 * GIB, "the span"
    verdict = judge(facts)
    assert (verdict.kind, verdict.warnings) == ("device-limited", ())
    unknown = {name for name, value in verdict.evidence.items() if value is None}
    assert {"turnaround_share", "cpu_wait_share", "steal_share", "missing_share", "harness_ns_per_io"} <= unknown


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        (["device-limited", "device-limited", "undetermined"], "device-limited"),
        (["harness-limited", "harness-limited", "harness-limited"], "harness-limited"),
        (["device-limited", "harness-limited"], "undetermined"),
        (["device-limited", "harness-limited", "cache-served"], "undetermined"),
        ([], None),
    ],
)
def test_a_case_is_what_most_of_its_runs_are(kinds: list[Any], verdict: str | None) -> None:
    assert of_repeats(kinds) == verdict


# Caches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "expected"), [(0.95, "device-limited"), (0.8, "undetermined"), (0.3, "cache-served"), (0, "cache-served")]
)
def test_direct_io_is_judged_by_the_bytes_that_the_device_moved(share: float, expected: Kind) -> None:
    reading, writing = changed(device_moved(share)), changed(as_writes, device_moved(share))
    for facts, number in ((reading, "read_from_memory_share"), (writing, "written_to_memory_share")):
        verdict = judge(facts)
        assert verdict.kind == expected
        assert verdict.evidence[number] == pytest.approx(1 - share, abs=0.001)


def test_own_ios_in_flight_at_the_ends_are_neither_from_a_cache_nor_of_others() -> None:
    """A run of six mean latencies: the device counts a sixth less or more than completed in it."""
    long = having(total=latency(COUNT * 10 / 6))
    fewer, more = device_moved(5 / 6), having(moved={"read_bytes": READ + READ // 6})
    assert Evidence(changed(fewer, long)).read_from_memory_share == pytest.approx(0, abs=0.001)
    assert Evidence(changed(more, long)).other_bytes == pytest.approx(0, abs=4096)
    assert Evidence(changed(more)).other_bytes == pytest.approx(READ / 6, rel=0.01)


def own_io(*, are_present: bool = True, others_wrote: int = 0, **row: int) -> Change:
    """The kernel's account of the engine's own I/O on the device, by control group."""
    device = dict.fromkeys(("read_bytes", "write_bytes", "own_read_bytes", "own_write_bytes"), 0)
    others = {"are_present": are_present, "write_bytes": others_wrote, "unreadable": 0}
    return having(own_io={"version": 2, "measure": [{"device": "259:0", **device, **row}], "others": others})


def test_bytes_of_other_processes_do_not_hide_a_cache() -> None:
    """The device moved all bytes of the load, but for another process."""
    assert judge(changed(having(process={"fs_inputs": READ // 512 // 4}))).kind == "cache-served"
    reading = changed(having(process={"fs_inputs": 0}), own_io(read_bytes=READ, own_read_bytes=READ // 4))
    assert judge(reading).kind == "cache-served"
    writing = changed(as_writes, own_io(write_bytes=READ, own_write_bytes=READ // 4))
    assert Evidence(writing).written_to_memory_share == pytest.approx(0.75)
    assert judge(writing).kind == "cache-served"


def test_bytes_that_others_moved_before_the_measurement_are_not_missing_in_it() -> None:
    """The account of processes begins earlier than the engine's reading of the device, which has every byte written."""
    facts = changed(as_writes, own_io(write_bytes=50 * READ, own_write_bytes=READ))
    assert Evidence(facts).written_to_memory_share == 0


def test_bytes_that_an_account_read_late_lacks_are_not_missing_on_the_device() -> None:
    """Without an idle CPU the account starts after the measurement: it has a third of what the engine read there."""
    facts = changed(as_writes, own_io(write_bytes=READ // 3, own_write_bytes=READ // 3))
    assert Evidence(facts).written_to_memory_share == 0
    assert "writes_to_memory" not in codes(facts)


def test_a_counter_that_was_reset_says_nothing() -> None:
    facts = changed(as_writes, own_io(write_bytes=READ, own_write_bytes=-15 * READ))
    assert Evidence(facts).written_to_memory_share == 0
    assert codes(facts) == []


def test_i_o_of_other_processes_is_known_from_the_control_group() -> None:
    """A tenth of the bytes read is not the engine's; the process's own counter does not matter then."""
    others = own_io(are_present=False, read_bytes=READ, own_read_bytes=READ * 9 // 10)
    assert codes(changed(others)) == ["other_io"]
    none = own_io(are_present=False, read_bytes=READ, own_read_bytes=READ)
    assert codes(changed(SHARED_DISK, none)) == []


def without_durability(facts: VerdictFacts) -> VerdictFacts:
    """Streams of loads that only read, such as loads of weights, have none."""
    del stream(facts)["durability"]
    return facts


def test_i_o_of_other_processes_is_known_without_a_control_group_where_a_load_has_no_durability() -> None:
    """Control groups are root's: the bytes of an ordinary user are those that its processes and the load count."""
    assert codes(changed(without_durability)) == []
    assert codes(changed(without_durability, SHARED_DISK)) == ["other_io"]


@pytest.mark.parametrize(("written", "expected"), [(READ // 50, []), (READ // 5, ["other_io"])])
def test_few_writes_of_others_do_not_disturb_a_load_that_only_reads(written: int, expected: list[str]) -> None:
    """Such as the kernel's, which initializes the tables of a new ext4: they are all of the writes, and 2 % of the bytes."""
    account = own_io(others_wrote=READ, read_bytes=READ, own_read_bytes=READ, write_bytes=written)
    assert codes(changed(having(moved={"write_bytes": written}), account)) == expected


def mirrored(facts: VerdictFacts) -> VerdictFacts:
    """btrfs has its members directly below it."""
    facts = COPYING(as_writes(facts))
    facts.target["devices"].append({"device": "259:2", "name": "nvme1n1", "kind": "disk", "under": []})
    facts.result["devices"].append({**facts.result["devices"][0], "device": "259:2"})
    return facts


@pytest.mark.parametrize(
    "changes",
    [
        # A kernel without `CONFIG_TASK_IO_ACCOUNTING`.
        (having(process={"fs_inputs": 0}),),
        (having(device={"io_counters": "off"}), as_writes, device_moved(0)),
        (having(backend={"kind": "uring_nvme"}), device_moved(0)),
        # Persistent memory.
        (having(file_system={"options": ["rw", "dax=always"]}), device_moved(0)),
        # Read-ahead.
        (BUFFERED, device_moved(3)),
        (mirrored,),
    ],
)
def test_no_cache_is_claimed_where_bytes_are_not_counted_or_are_more(changes: tuple[Change, ...]) -> None:
    verdict = judge(changed(*changes))
    assert verdict.kind == "device-limited"
    assert {"reads_from_memory", "writes_to_memory"}.isdisjoint(each.code for each in verdict.warnings)


def test_bytes_that_a_job_asked_for_before_the_counter_of_the_process_was_read_come_from_the_device() -> None:
    facts = changed(having(process={"fs_inputs": READ // 512 * 82 // 100}))
    assert "reads_from_memory" in {each.code for each in judge(facts).warnings}
    facts.result["jobs"][0]["usage"]["fs_inputs"] = READ // 512
    assert "reads_from_memory" not in {each.code for each in judge(facts).warnings}


def test_a_warning_about_writes_names_what_the_record_shows() -> None:
    assert judge(changed(as_writes, device_moved(0.05))).because == (
        "95 % of the bytes written did not reach the device during the measurement",
    )
    shown = having(
        file_system={"direct_writes": "page cache"},
        page_cache={"addressed_bytes": GIB // 2, "dirty_after_bytes": GIB // 8},
    )
    assert judge(changed(COMPRESSING, as_writes, device_moved(0.05), ZEROS, shown)).because == (
        "95 % of the bytes written did not reach the device during the measurement; 25 % of the span was in the page cache "
        "and not yet written back; the file system compresses (it is mounted with `compress=zstd:3`); the payload is "
        "`zeros`; each block was written 3.1 times, which a cache merges",
    )


def test_the_device_of_a_daemon_is_read_by_another_process() -> None:
    """Its bytes count, although they are not those of the engine, and none of them is foreign."""
    facts = changed(having(file_system={"kind": "fuseblk"}, process={"fs_inputs": 16}))
    assert (judge(facts).kind, Evidence(facts).other_bytes) == ("device-limited", None)
    facts.result["devices"][0]["read_bytes"] = 0
    verdict = judge(facts)
    assert (verdict.kind, len(verdict.warnings)) == ("cache-served", 1)
    assert "FUSE daemon" in verdict.because[0]


@pytest.mark.parametrize(
    ("read_bytes", "write_bytes", "fires"),
    [
        (0, 1.0, False),  # RAID 1: a write on each.
        (0.5, 1.0, False),  # RAID 5: data and parity, read before they are written.
        (0.6, 0.5, False),  # RAID 0, of which one member moved more.
        (0, 0.05, True),  # Overwrites in the memory of an array.
    ],
)
def test_members_of_an_array_move_at_least_the_bytes_of_the_array(
    read_bytes: float, write_bytes: float, fires: bool
) -> None:
    facts = changed(as_writes, having(device={"kind": "md", "name": "md127", "under": ["sda", "sdb"]}))
    for number, name in enumerate(("sda", "sdb")):
        facts.target["devices"].append({"device": f"8:{number}", "name": name, "kind": "disk", "under": []})
        moved = {"read_bytes": int(READ * read_bytes), "write_bytes": int(READ * write_bytes)}
        facts.result["devices"].append({"device": f"8:{number}", **moved})
    assert codes(facts) == (["cache_below"] if fires else [])
    if fires:
        assert judge(facts).warnings[0].message == "90 % of the bytes of `md127` did not reach the devices below it"
        del facts.result["devices"][2]
        assert codes(facts) == [], "a member without counters may have moved the rest"


def test_a_loop_device_over_a_device_that_is_invisible_or_has_no_counters_is_no_cache() -> None:
    """Such as the throttled devices of the lab, over FUSE."""
    verdict = judge(changed(over(dio="1", passed=None)))
    assert (verdict.kind, verdict.warnings, verdict.evidence["below_cache_share"]) == ("device-limited", (), None)
    facts = changed(over(dio="1", passed=0.2))
    facts.target["devices"][1]["io_counters"] = "off"
    assert codes(facts) == []


def test_flushed_writes_of_the_page_cache_may_fit_in_memory() -> None:
    """A write-ahead log: memory could serve its reads only, of which there are none."""
    small = (BUFFERED, having(page_cache={"addressed_bytes": 8 * GIB}), as_writes)
    flushed = having(stream={"durability": {"kind": "flush", "every": 1, "data_only": True}})
    assert "span_fits_memory" in codes(changed(*small))
    assert "span_fits_memory" not in codes(changed(*small, flushed))


def key_value(facts: VerdictFacts) -> VerdictFacts:
    """The same facts about a store: its streams have neither queue depth nor span."""
    stream = {"name": "main", "jobs": 1, "arrival": {"kind": "closed"}}
    return replace(facts, spec={"workload": {"kind": "kv", "streams": [stream]}})


def test_key_value_runs_have_verdicts_and_the_warnings_of_machine_and_device() -> None:
    assert judge(key_value(sound())).kind == "device-limited"
    for change, code in (
        (CROWDED, "cpu_contention"),
        (STOLEN, "steal_time"),
        (stalled(3), "engine_stalled"),
        (SHARED_DISK, "other_io"),
        (IN_MEMORY, "memory_file_system"),
    ):
        assert code in codes(changed(change, key_value))


def test_interrupts_of_an_operation_of_many_ios_are_its_own() -> None:
    facts = changed(FOREIGN_INTERRUPTS, key_value)
    assert "foreign_interrupts" in codes(facts)
    facts.result["devices"][0].update({"reads": COUNT + 100_000, "writes": 0})
    assert "foreign_interrupts" not in codes(facts)


CACHED = having(page_cache={"before_bytes": 48 * GIB, "after_bytes": 64 * GIB})


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("were served from the page cache; 75 % of the span was cached before the first I/O", (BUFFERED, CACHED)),
        ("although direct I/O was requested; 100 % of the span was cached after the last I/O", (CACHED,)),
        ("were served from memory: caches of the store or the page cache; 0.0 % of the span", (BUFFERED, key_value)),
        (
            "of an operation outside the client's queue; packets were lost",
            (on_nfs(network_ns=60_000.0, is_lossy=True),),
        ),
        ("of 8 TCP connections the load used 1, which", (on_nfs(window_share=0.6, connections=8, connections_used=1),)),
        ("each of 2 TCP connections had data to send", (on_nfs(window_share=0.6, connections=2),)),
    ],
)
def test_a_warning_states_the_numbers_behind_it(message: str, changes: tuple[Change, ...]) -> None:
    assert message in " ".join(each.message for each in judge(changed(device_moved(0.25), *changes)).warnings)


# Network and servers -------------------------------------------------------------------------------------------------

SEVERAL = {"is_one_call": False}
"""An operation of the load is several calls."""


@pytest.mark.parametrize(
    ("wire", "kind", "codes"),
    [
        ({"read_bytes": READ // 8, **SEVERAL}, "cache-served", {"reads_from_memory", "network_file_system"}),
        ({"read_bytes": 7 * READ // 10, **SEVERAL}, "undetermined", {"reads_from_memory", "network_file_system"}),
        ({"read_bytes": 2 * READ, **SEVERAL}, "undetermined", {"network_file_system"}),
        ({"link_share": 0.95, **SEVERAL}, "network-limited", {"network_limited"}),
        ({"link_share": 0.5}, "undetermined", {"network_file_system"}),
        ({"network_ns": 60_000.0, "payload_ns": None}, "network-limited", {"network_limited"}),
        ({"network_ns": 20_000.0, "payload_ns": 60_000.0}, "network-limited", {"network_limited"}),
        ({"network_ns": 20_000.0, "payload_ns": None}, "undetermined", {"network_file_system"}),
        ({"network_ns": 20_000.0, "is_lossy": True}, "undetermined", {"packets_lost"}),
        ({"calls_per_operation": 16.0, "largest_call_bytes": 4096, **SEVERAL}, "undetermined", {"split_calls"}),
        ({"largest_call_bytes": 4096, **SEVERAL}, "undetermined", {"network_file_system"}),
        ({"window_share": 0.7, "connections": 1, **SEVERAL}, "network-limited", {"connection_limited"}),
        ({"network_ns": 60_000.0, "window_share": 0.2}, "network-limited", {"network_limited"}),
        ({"network_ns": 20_000.0, **SEVERAL}, "undetermined", {"network_file_system"}),
        ({"network_ns": 20_000.0, "round_trip_ns": 60_000.0}, "undetermined", {"network_file_system"}),
        ({"network_ns": 20_000.0, "round_trip_ns": 60_000.0, "queue_ns": 3e4}, "server-limited", {"server_limited"}),
        ({"network_ns": 60_000.0, "round_trip_ns": 40_000.0}, "harness-limited", {"client_limited"}),
        # An echo takes that long as well.
        ({"network_ns": 20_000.0, "longest_network_ns": 40_000.0}, "server-limited", {"server_limited"}),
        ({"network_ns": 20_000.0, "longest_network_ns": 70_000.0}, "undetermined", {"network_file_system"}),
    ],
)
def test_a_run_on_nfs_is_limited_by_the_part_that_took_most_of_its_time(
    wire: dict[str, Any], kind: Kind, codes: set[str]
) -> None:
    verdict = judge(changed(on_nfs(**wire)))
    assert (verdict.kind, {each.code for each in verdict.warnings}) == (kind, codes)


def test_writes_that_did_not_go_over_the_wire_are_in_the_cache_of_the_client() -> None:
    wire = {"load_read_bytes": 0, "read_bytes": 0, "load_write_bytes": READ, "write_bytes": READ // 4}
    assert judge(changed(as_writes, on_nfs(**wire))).kind == "cache-served"


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        ({"longest_network_ns": 35_000.0}, "server-limited"),
        ({"longest_network_ns": 60_000.0}, "undetermined"),
        ({"longest_network_ns": 60_000.0, "network_ns": 50_000.0}, "network-limited"),
        ({"longest_network_ns": 25_000.0, "round_trip_ns": 40_000.0}, "harness-limited"),
        ({"longest_network_ns": 45_000.0}, "device-limited"),
        ({"longest_network_ns": 35_000.0, "payload_ns": None}, "device-limited"),
        ({"longest_network_ns": 35_000.0, "is_lossy": True}, "undetermined"),
        ({"network_ns": 60_000.0, "round_trip_ns": None}, "network-limited"),
        ({"round_trip_ns": None}, "device-limited"),
    ],
)
def test_time_of_a_device_of_a_server_without_the_longest_way_is_that_of_the_server(
    wire: dict[str, Any], kind: Kind
) -> None:
    assert judge(changed(on_a_device_of_a_server(**wire))).kind == kind


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        ({"daemon_ns": 60_000.0}, "server-limited"),
        ({"daemon_ns": 20_000.0}, "undetermined"),
        # It answers in 97.5 µs, before its network could.
        ({"network_ns": 120_000.0}, "network-limited"),
        ({"network_ns": 120_000.0, "daemon_ns": 0.0}, "undetermined"),
    ],
)
def test_cpu_time_of_a_fuse_daemon_is_time_of_the_server(wire: dict[str, float], kind: Kind) -> None:
    assert judge(changed(on_a_daemon(**wire))).kind == kind


def test_a_client_without_cpu_is_the_limit_on_network_storage() -> None:
    """A run on a local device is disturbed."""
    remote = on_nfs(load_read_bytes=0, read_bytes=0, round_trip_ns=None, network_ns=20_000.0)
    paused = stalled(6, longest_s=1)
    assert judge(changed(remote, paused)).kind == "harness-limited"
    assert judge(changed(paused)).kind == "undetermined"


SERVER = {"network_ns": 20_000.0, "empty_calls_ns": (40_000,) * 6}
"""70 µs of the server, of which empty calls decide nothing."""


@pytest.mark.parametrize(
    ("wire", "part"),
    [
        ({"empty_calls_ns": (30_000,) * 6}, "its storage"),
        ({"empty_calls_ns": (40_000,) * 6}, None),
        ({"empty_calls_ns": (30_000,) * 5 + (300_000,)}, None),
        ({"empty_calls_ns": (70_000,) * 6}, "its threads or CPU"),
        ({"server_device_ns": 48_750.0}, "its drives took 48.8 µs of an operation: its storage"),
        ({"server_device_ns": 20_000.0}, None),
        ({"server_device_share": 0.98, "server_cpu_share": 0.4}, "was in use 98 % of the time: its storage"),
        ({"server_device_share": 0.3, "server_cpu_share": 0.97}, "its CPUs were busy 97 % of the time: its CPU"),
        ({"server_device_share": 0.98, "server_cpu_share": 0.97}, None),
        ({"server_device_ns": 5_000.0, "calls_without_thread_share": 0.6}, "found no idle thread: its threads or CPU"),
        ({"server_device_ns": 20_000.0, "calls_without_thread_share": 0.6}, None),
        ({"calls_without_thread_share": 0.6}, None),
    ],
)
def test_empty_calls_and_counters_of_the_server_name_its_part(wire: dict[str, Any], part: str | None) -> None:
    verdict = judge(changed(on_nfs(**SERVER | wire)))
    assert verdict.kind == "server-limited"
    [text] = verdict.because
    assert (part in text) if part else ("its" not in text)


@pytest.mark.parametrize("network_ns", [20_000.0, 70_000.0])
@pytest.mark.parametrize(("lost_s", "is_decided"), [(0.6, True), (3, False)])
def test_a_part_that_exceeds_half_by_more_than_the_time_without_a_cpu_is_named(
    network_ns: float, lost_s: float, is_decided: bool
) -> None:
    """Network or server take 70 of 97.5 µs: 72 %."""
    verdict = judge(changed(on_nfs(network_ns=network_ns), stalled(lost_s, longest_s=0.5)))
    limit = "network-limited" if network_ns > 50_000 else "server-limited"
    assert verdict.kind == (limit if is_decided else "undetermined")
    assert "engine_stalled" in {each.code for each in verdict.warnings}, "its latencies are disturbed all the same"


@pytest.mark.parametrize(("share", "kind"), [(0.15, "server-limited"), (0.8, "harness-limited")])
def test_a_part_that_takes_more_of_the_time_than_iosonde_is_named(share: float, kind: Kind) -> None:
    """The server takes 72 % of the time of an operation; in 10 s a job has 400,000, one after the other."""
    harness = {"streams": {"main": {"ns_per_io": share * 25_000}}}
    verdict = judge(changed(on_nfs(network_ns=20_000.0), having(stream={"queue_depth": 1}, harness=harness)))
    assert verdict.kind == kind
    assert "harness_cost" in {each.code for each in verdict.warnings}, "it is a note at least"


# Verdicts by shares of resources -------------------------------------------------------------------------------------


def with_other_processes(**machine: int) -> Change:
    """Two CPUs for ten seconds: 3 s of the engine, 10 s of its server, 6 s of others, 1 s idle."""
    times = {"user_ns": 15 * SECOND, "system_ns": 4 * SECOND, "idle_ns": SECOND // 2, "io_wait_ns": SECOND // 2}
    return having(machine={"cpus": 2, "steal_ns": 0, **times, **machine}, server_cpu_ns=10 * SECOND)


def by_shares(kind: Kind) -> Verdict:
    return Verdict(kind=kind, because=("a reason",), warnings=(), evidence={"device_busy_share": 0.9})


@pytest.mark.parametrize(
    ("kind", "disturbed"),
    [
        ("device-limited", "undetermined"),
        ("server-CPU-limited", "undetermined"),
        ("lock-limited", "undetermined"),
        ("undetermined", "undetermined"),
        ("harness-limited", "harness-limited"),
        ("cache-served", "cache-served"),
    ],
)
def test_other_processes_on_its_cpus_leave_the_limit_of_a_server_undetermined(kind: Kind, disturbed: Kind) -> None:
    verdict = with_disturbances(by_shares(kind), changed(with_other_processes()))
    assert (verdict.kind, [each.code for each in verdict.warnings]) == (disturbed, ["cpus_shared"])
    message = "other processes used 30 % of all CPU time, and 5.0 % was left idle"
    assert verdict.warnings[0].message == message
    assert verdict.because == ((message,) if kind not in ("harness-limited", "cache-served") else ("a reason",))
    assert (verdict.evidence["device_busy_share"], verdict.evidence["other_cpu_share"]) == (0.9, 0.3)


def test_other_processes_do_not_matter_while_cpus_are_idle_or_without_an_account_of_the_server() -> None:
    idle = with_other_processes(user_ns=13 * SECOND, idle_ns=5 * SECOND // 2)
    for changes in ((idle,), (with_other_processes(), having(server_cpu_ns=None))):
        assert with_disturbances(by_shares("device-limited"), changed(*changes)).warnings == ()


@pytest.mark.parametrize(
    ("code", "change"),
    [("engine_stalled", stalled(3)), ("steal_time", STOLEN), ("throttled_device", THROTTLED), ("hot_device", HOT)],
)
def test_what_disturbs_a_run_on_a_device_disturbs_every_other(code: str, change: Change) -> None:
    verdict = with_disturbances(by_shares("device-limited"), changed(change))
    assert (verdict.kind, [each.code for each in verdict.warnings]) == ("undetermined", [code])
    assert is_disturbed([code, "cpu_governor"]) and not is_disturbed(
        ["cpu_governor", "core_saturated", "of_the_engine"]
    )
