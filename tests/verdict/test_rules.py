"""Facts in, verdict out: each rule fires on what it is for, and on nothing that is sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from facts import BLOCK, COUNT, GIB, SECOND, as_writes, device, job, sound, stream

from iosonde.verdict.evidence import Evidence, Interval, Total, VerdictFacts
from iosonde.verdict.remote import Remote
from iosonde.verdict.verdict import Kind, Verdict, is_disturbed, judge, of_repeats, with_disturbances
from iosonde.verdict.warning_kinds import WARNINGS

Change = Callable[[VerdictFacts], VerdictFacts | None]


def changed(change: Change) -> VerdictFacts:
    facts = sound()
    return change(facts) or facts


def codes(facts: VerdictFacts) -> list[str]:
    return [warning.code for warning in judge(facts).warnings]


def test_a_sound_run_is_the_disks_and_has_no_warning() -> None:
    verdict = judge(sound())
    assert verdict.kind == "device-limited"
    assert verdict.warnings == ()
    assert verdict.because == (
        "I/Os were in flight 98 % of the time, the busiest job used 30 % of a core, harness overhead was 0.2 % of "
        "its time",
    )


def test_sound_writes_are_the_disks_too() -> None:
    verdict = judge(as_writes(sound()))
    assert (verdict.kind, verdict.warnings) == ("device-limited", ())


def saturated(facts: VerdictFacts) -> None:
    job(facts)["usage"].update(user_ns=4 * SECOND, system_ns=56 * SECOND // 10)


def busy_making_blocks(facts: VerdictFacts) -> VerdictFacts:
    """A quarter of the time goes into filling a block, and as much less into waiting for the disk."""
    job(facts)["pacing"]["turnaround_ns"] = 10 * SECOND
    return replace(facts, totals=[replace(facts.totals[0], completion_latency_ns_sum=30 * SECOND)])


def one_at_a_time_and_fast(facts: VerdictFacts) -> VerdictFacts:
    """0.9 million reads a second, one at a time: 130 ns of 1,100 are the harness'."""
    stream(facts)["queue_depth"] = 1
    count = 9 * 10**6
    job(facts).update(operations=count)
    job(facts)["pacing"]["turnaround_ns"] = SECOND // 10
    total = Total(
        stream="main", operation="read", count=count, bytes=COUNT * BLOCK, completion_latency_ns_sum=95 * SECOND // 10
    )
    return replace(facts, totals=[total], harness={"streams": {"main": {"ns_per_io": 130.0}}})


def slow_clock(facts: VerdictFacts) -> VerdictFacts:
    return replace(facts, engine={"clock": "monotonic", "clock_read_ns": 800.0})


def nothing_real(facts: VerdictFacts) -> None:
    facts.result["backend"]["kind"] = "null"


def half_cached(facts: VerdictFacts) -> VerdictFacts:
    stream(facts)["io_mode"] = "buffered"
    facts.result["process"]["fs_inputs"] //= 4
    facts.result["devices"][0]["read_bytes"] //= 4
    return facts


def not_yet_written(facts: VerdictFacts) -> VerdictFacts:
    facts = as_writes(facts)
    stream(facts)["io_mode"] = "buffered"
    facts.result["devices"][0]["write_bytes"] //= 5
    return facts


def in_memory(facts: VerdictFacts) -> VerdictFacts:
    return replace(facts, target={"file_system": {"kind": "tmpfs"}, "devices": []})


def holes(facts: VerdictFacts) -> None:
    facts.result["evidence"]["extents_before"] = {
        **facts.result["evidence"]["extents_before"],
        "missing_bytes": 40 * GIB,
    }


def over(facts: VerdictFacts, *, dio: str, passed: float | None) -> None:
    """A loop device, and the share of its bytes that reached a visible device below; None if there is none."""
    device(facts).update(kind="loop", name="loop0", loop_dio=dio)
    if passed is not None:
        device(facts)["under"] = ["nvme0n1"]
        facts.target["devices"].append({"device": "259:2", "name": "nvme0n1", "kind": "disk", "under": []})
        moved = int(COUNT * BLOCK * passed)
        facts.result["devices"].append({"device": "259:2", "read_bytes": moved, "write_bytes": 0})


def loop_over_memory(facts: VerdictFacts) -> None:
    over(facts, dio="0", passed=0.2)


def loop_over_what_is_not_visible(facts: VerdictFacts) -> None:
    over(facts, dio="0", passed=None)


def suspended(facts: VerdictFacts) -> None:
    facts.result["evidence"]["stalls"] = {"stalled_ns": 3 * SECOND, "longest_ns": 3 * SECOND, "count": 1}


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


def crowded(facts: VerdictFacts) -> None:
    job(facts)["pacing"]["cpu_wait_ns"] = 2 * SECOND


def stolen(facts: VerdictFacts) -> None:
    facts.result["evidence"]["machine"].update(steal_ns=4 * SECOND, idle_ns=73 * SECOND)


def interrupted(facts: VerdictFacts) -> None:
    stream(facts)["cpus"] = [3]
    facts.result["evidence"]["pinned"] = [{"cpu": 3, "interrupts": 3 * COUNT + 200_000}]


def shared_disk(facts: VerdictFacts) -> None:
    facts.result["devices"][0]["read_bytes"] += COUNT * BLOCK // 10


def throttled(facts: VerdictFacts) -> None:
    device(facts)["limits"] = ["read_iops_device 2000"]


def hot(facts: VerdictFacts) -> VerdictFacts:
    return replace(facts, target_after={"devices": [{"name": "nvme0n1", "temperature_celsius": 84.0}]})


def deeper_than_the_kernel(facts: VerdictFacts) -> VerdictFacts:
    stream(facts)["queue_depth"] = 128
    device(facts).update(nr_requests=64, hardware_queues=1)
    return replace(facts, totals=[replace(facts.totals[0], completion_latency_ns_sum=1275 * SECOND)])


@pytest.mark.parametrize(("in_flight", "fires"), [(40, False), (100, True)])
def test_the_queue_depth_of_an_open_loop_is_only_a_limit(in_flight: int, fires: bool) -> None:
    """The mean number in flight fills the queue of the kernel: 40 or 100 of at most 1,024, with 64 slots."""
    facts = sound()
    stream(facts).update(arrival={"kind": "constant", "rate": 40_000.0}, queue_depth=1024)
    device(facts).update(nr_requests=64, hardware_queues=1)
    job(facts)["schedule"] = {"due": COUNT, "started": COUNT, "start_lag_ns_sum": 0}
    waited = replace(facts.totals[0], completion_latency_ns_sum=in_flight * 10 * SECOND)
    assert ("queue_too_short" in codes(replace(facts, totals=[waited]))) == fires


def small_span(facts: VerdictFacts) -> None:
    facts.result["evidence"]["page_cache"]["addressed_bytes"] = 32 << 20


def over_the_network(facts: VerdictFacts) -> VerdictFacts:
    facts.result["devices"].clear()
    return replace(facts, target={"file_system": {"kind": "nfs4"}, "devices": []})


def on_a_daemon(facts: VerdictFacts) -> VerdictFacts:
    facts.result["devices"].clear()
    return replace(facts, target={"file_system": {"kind": "fuse.archive", "source": "archive"}, "devices": []})


def compressed(facts: VerdictFacts) -> None:
    """Direct reads that the file system serves through the page cache, and that reach the device nevertheless."""
    facts.result["evidence"]["page_cache"]["after_bytes"] = 32 * GIB


def without_duration(facts: VerdictFacts) -> VerdictFacts:
    return replace(facts, totals=[replace(facts.totals[0], count=13, completion_latency_ns_sum=39 * SECOND)], tail=None)


def of_unknown_cause(facts: VerdictFacts) -> VerdictFacts:
    return replace(facts, totals=[replace(facts.totals[0], completion_latency_ns_sum=20 * SECOND)])


def cold(facts: VerdictFacts) -> None:
    stream(facts)["io_mode"] = "buffered"
    facts.spec["workload"]["page_cache"] = "drop"


def buffered(facts: VerdictFacts) -> None:
    stream(facts)["io_mode"] = "buffered"
    facts.result["evidence"]["page_cache"]["addressed_bytes"] = 8 * GIB


def counted_late(facts: VerdictFacts) -> None:
    """The thread that keeps time had no CPU for six of ten seconds: what it counted is not all that was read."""
    facts.result["process"] = {**facts.result["process"], "wall_ns": 4 * SECOND, "fs_inputs": COUNT * BLOCK // 512 // 5}
    facts.result["devices"][0]["read_bytes"] = COUNT * BLOCK // 5


def narrow(facts: VerdictFacts) -> VerdictFacts:
    stream(facts)["jobs"] = 2
    device(facts)["hardware_queues"] = 1
    return fast(facts)


def scheduled(facts: VerdictFacts) -> VerdictFacts:
    device(facts)["scheduler"] = "bfq"
    return fast(facts)


def fast(facts: VerdictFacts) -> VerdictFacts:
    """The same bytes in more I/Os, so that nothing but the rate changes."""
    return replace(facts, totals=[replace(facts.totals[0], count=2 * COUNT)])


def lazy_processor(facts: VerdictFacts) -> VerdictFacts:
    return replace(facts, environment={**facts.environment, "cpu": {"governor": "powersave"}})


def copying(facts: VerdictFacts) -> None:
    facts.target["file_system"]["kind"] = "btrfs"  # type: ignore[index]


def compressing(facts: VerdictFacts) -> None:
    facts.target["file_system"].update(options=["rw", "compress=zstd:3"])


def zeros(facts: VerdictFacts) -> None:
    stream(facts)["payload"] = {"kind": "zeros"}


def brief(facts: VerdictFacts) -> VerdictFacts:
    return replace(facts, tail="p99_9999")


READ = COUNT * BLOCK


def on_nfs(**wire: Any) -> Change:
    """The sound run, whose mean latency is 97.5 µs, on NFS with 90 µs a call unless given."""
    remote = Remote(
        **{"load_read_bytes": READ, "load_write_bytes": 0, "read_bytes": READ, "write_bytes": 0}
        | {"round_trip_ns": 90_000.0, "queue_ns": 0.0, "is_one_call": True, "payload_ns": 0.0}
        | wire
    )

    def change(facts: VerdictFacts) -> VerdictFacts:
        return replace(over_the_network(facts), remote=remote)

    return change


@pytest.mark.parametrize(
    ("empty_calls_ns", "part"),
    [
        ((30_000,) * 6, "its storage"),
        ((40_000,) * 6, None),
        ((30_000,) * 5 + (300_000,), None),
        ((70_000,) * 6, "its threads or CPU"),
    ],
)
def test_empty_calls_separate_threads_of_the_server_from_its_storage(
    empty_calls_ns: tuple[int, ...], part: str | None
) -> None:
    [text] = judge(changed(on_nfs(network_ns=20_000.0, empty_calls_ns=empty_calls_ns))).because
    assert (part in text) if part else ("its" not in text)


def on_a_device_of_a_server(**wire: Any) -> Change:
    """97.5 µs, of which the device took 90 and the network 20 at least, unless given."""
    found = {"load_read_bytes": 0, "read_bytes": 0, "network_ns": 20_000.0} | wire
    return lambda facts: replace(facts, remote=changed(on_nfs(**found)).remote)


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


@pytest.mark.parametrize(("cpu_ns", "kind"), [(60_000.0, "server-limited"), (20_000.0, "undetermined")])
def test_cpu_time_of_a_fuse_daemon_is_time_of_the_server(cpu_ns: float, kind: Kind) -> None:
    daemon = changed(on_nfs(load_read_bytes=0, read_bytes=0, round_trip_ns=None, daemon_ns=cpu_ns)).remote
    assert judge(replace(changed(on_a_daemon), remote=daemon)).kind == kind


def test_a_fuse_daemon_that_answers_before_its_network_could_is_not_limited_by_it() -> None:
    """97.5 µs an operation, and 120 µs a round trip."""
    remote = changed(on_nfs(load_read_bytes=0, read_bytes=0, round_trip_ns=None, network_ns=120_000.0)).remote
    assert remote
    assert judge(replace(changed(on_a_daemon), remote=remote)).kind == "network-limited"
    assert judge(replace(changed(on_a_daemon), remote=replace(remote, daemon_ns=0.0))).kind == "undetermined"


def test_a_client_without_cpu_is_the_limit_on_network_storage() -> None:
    """A run on a local device is disturbed."""
    facts = changed(on_nfs(load_read_bytes=0, read_bytes=0, round_trip_ns=None, network_ns=20_000.0))
    for each in (facts, local := sound()):
        stalled_ns = 6 * (each.result["end_ns"] - each.result["begin_ns"]) // 10
        each.result["evidence"]["stalls"] = {"stalled_ns": stalled_ns, "longest_ns": SECOND, "count": 9}
    assert (judge(facts).kind, judge(local).kind) == ("harness-limited", "undetermined")


SERVER = {"network_ns": 20_000.0, "empty_calls_ns": (40_000,) * 6}
"""70 µs of the server, of which empty calls decide nothing."""


@pytest.mark.parametrize(
    ("counters", "part"),
    [
        ({"server_device_ns": 50_000.0}, "its drives took 50 µs of an operation: its storage"),
        ({"server_device_ns": 20_000.0}, None),
        ({"server_device_share": 0.98, "server_cpu_share": 0.4}, "was in use 98 % of the time: its storage"),
        ({"server_device_share": 0.3, "server_cpu_share": 0.97}, "its CPUs were busy 97 % of the time: its CPU"),
        ({"server_device_share": 0.98, "server_cpu_share": 0.97}, None),
        ({"server_device_ns": 5_000.0, "calls_without_thread_share": 0.6}, "found no idle thread: its threads or CPU"),
        ({"server_device_ns": 20_000.0, "calls_without_thread_share": 0.6}, None),
        ({"calls_without_thread_share": 0.6}, None),
    ],
)
def test_counters_of_the_server_name_its_part(counters: dict[str, float], part: str | None) -> None:
    verdict = judge(changed(on_nfs(**SERVER, **counters)))
    assert verdict.kind == "server-limited"
    [text] = verdict.because
    assert (part in text) if part else ("its" not in text)


def test_lost_packets_are_named_with_the_network() -> None:
    [text] = judge(changed(on_nfs(network_ns=60_000.0, is_lossy=True))).because
    assert text.endswith("; packets were lost as well")


@pytest.mark.parametrize("network_ns", [20_000.0, 70_000.0])
@pytest.mark.parametrize(("stalled", "is_decided"), [(0.06, True), (0.3, False)])
def test_a_part_that_exceeds_half_by_more_than_the_time_without_a_cpu_is_named(
    network_ns: float, stalled: float, is_decided: bool
) -> None:
    """Network or server take 70 of 97.5 µs: 72 %."""
    facts = changed(on_nfs(network_ns=network_ns))
    stalled_ns = round(stalled * 10 * SECOND)
    facts.result["evidence"]["stalls"] = {"stalled_ns": stalled_ns, "longest_ns": SECOND // 2, "count": 1}
    verdict = judge(facts)
    limit = "network-limited" if network_ns > 50_000 else "server-limited"
    assert verdict.kind == (limit if is_decided else "undetermined")
    assert "engine_stalled" in {each.code for each in verdict.warnings}, "its latencies are disturbed all the same"


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
    on_wire = on_nfs(load_read_bytes=0, read_bytes=0, load_write_bytes=READ, write_bytes=READ // 4)
    facts = on_wire(as_writes(sound()))
    assert facts
    assert judge(facts).kind == "cache-served"


def test_a_disturbed_run_on_nfs_is_undetermined() -> None:
    facts = changed(on_nfs(network_ns=60_000.0))
    suspended(facts)
    assert judge(facts).kind == "undetermined"


@pytest.mark.parametrize(
    ("code", "change", "kind"),
    [
        ("core_saturated", saturated, "harness-limited"),
        ("turnaround", busy_making_blocks, "harness-limited"),
        ("harness_cost", one_at_a_time_and_fast, "harness-limited"),
        ("slow_clock", slow_clock, "harness-limited"),
        ("null_backend", nothing_real, "harness-limited"),
        ("reads_from_memory", half_cached, "cache-served"),
        ("writes_to_memory", not_yet_written, "cache-served"),
        ("memory_file_system", in_memory, "cache-served"),
        ("unwritten_extents", holes, "cache-served"),
        ("cache_below", loop_over_memory, "cache-served"),
        ("cache_unknown", loop_over_what_is_not_visible, "undetermined"),
        ("engine_stalled", suspended, "undetermined"),
        ("device_stalled", stalled_device, "device-limited"),
        ("cpu_contention", crowded, "undetermined"),
        ("steal_time", stolen, "undetermined"),
        ("foreign_interrupts", interrupted, "undetermined"),
        ("other_io", shared_disk, "undetermined"),
        ("throttled_device", throttled, "undetermined"),
        ("hot_device", hot, "undetermined"),
        ("queue_too_short", deeper_than_the_kernel, "undetermined"),
        ("span_fits_device_cache", small_span, "undetermined"),
        ("network_file_system", over_the_network, "undetermined"),
        ("network_limited", on_nfs(network_ns=60_000.0), "network-limited"),
        ("server_limited", on_nfs(network_ns=20_000.0), "server-limited"),
        ("network_or_server", on_a_device_of_a_server(longest_network_ns=60_000.0), "undetermined"),
        ("connection_limited", on_nfs(window_share=0.6, connections=2), "network-limited"),
        ("connection_limited", on_nfs(window_share=0.6, connections=8, connections_used=1), "network-limited"),
        ("packets_lost", on_nfs(is_lossy=True), "undetermined"),
        ("split_calls", on_nfs(is_one_call=False, calls_per_operation=2.0, largest_call_bytes=4096), "undetermined"),
        ("client_limited", on_nfs(network_ns=20_000.0, round_trip_ns=40_000.0), "harness-limited"),
        ("no_block_device", on_a_daemon, "undetermined"),
        ("not_direct", compressed, "device-limited"),
        ("short_run", without_duration, "undetermined"),
        ("queue_underutilized", of_unknown_cause, "undetermined"),
        ("span_fits_memory", buffered, "device-limited"),
        ("late_counters", counted_late, "undetermined"),
        ("one_hardware_queue", narrow, "device-limited"),
        ("io_scheduler", scheduled, "device-limited"),
        ("cpu_governor", lazy_processor, "device-limited"),
        ("copying_file_system", lambda facts: copying(facts) or as_writes(facts), "device-limited"),
        ("compressing_file_system", compressing, "device-limited"),
        ("compressible_data", lambda facts: zeros(facts) or as_writes(facts), "device-limited"),
        ("short_for_tail", brief, "device-limited"),
        ("cold_start", cold, "device-limited"),
    ],
)
def test_each_rule_fires_on_its_fact_alone(code: str, change: Change, kind: Kind) -> None:
    verdict = judge(changed(change))
    assert [warning.code for warning in verdict.warnings] == [code]
    assert verdict.kind == kind
    if kind != "device-limited":
        assert verdict.because == (verdict.warnings[0].message,)


def test_every_rule_is_tried() -> None:
    (mark,) = test_each_rule_fires_on_its_fact_alone.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} | {"cpus_shared"} == set(WARNINGS)  # Of servers alone, below.


def with_other_processes(facts: VerdictFacts) -> VerdictFacts:
    """Two CPUs for ten seconds: 3 s of the engine, 10 s of its server, 6 s of others, 1 s idle."""
    times = {"user_ns": 15 * SECOND, "system_ns": 4 * SECOND, "idle_ns": SECOND // 2, "io_wait_ns": SECOND // 2}
    facts.result["evidence"]["machine"] = {"cpus": 2, "steal_ns": 0, **times}
    return replace(facts, server_cpu_ns=10 * SECOND)


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
    verdict = with_disturbances(by_shares(kind), changed(with_other_processes))
    assert (verdict.kind, [each.code for each in verdict.warnings]) == (disturbed, ["cpus_shared"])
    message = "other processes used 30 % of all CPU time, and 5.0 % was left idle"
    assert verdict.warnings[0].message == message
    assert verdict.because == ((message,) if kind not in ("harness-limited", "cache-served") else ("a reason",))
    assert verdict.evidence["device_busy_share"] == 0.9
    assert verdict.evidence["other_cpu_share"] == 0.3


def test_other_processes_do_not_matter_while_cpus_are_idle_or_without_an_account_of_the_server() -> None:
    idle = changed(with_other_processes)
    idle.result["evidence"]["machine"].update(user_ns=13 * SECOND, idle_ns=5 * SECOND // 2)
    assert with_disturbances(by_shares("device-limited"), idle).warnings == ()
    unknown = replace(changed(with_other_processes), server_cpu_ns=None)
    assert with_disturbances(by_shares("device-limited"), unknown).warnings == ()


@pytest.mark.parametrize(
    ("code", "change"),
    [("engine_stalled", suspended), ("steal_time", stolen), ("throttled_device", throttled), ("hot_device", hot)],
)
def test_what_disturbs_a_run_on_a_device_disturbs_every_other(code: str, change: Change) -> None:
    verdict = with_disturbances(by_shares("device-limited"), changed(change))
    assert (verdict.kind, [each.code for each in verdict.warnings]) == ("undetermined", [code])
    assert is_disturbed([code]) and not is_disturbed(["cpu_governor", "core_saturated", "of_the_engine"])


def test_the_busiest_core_is_everybodys() -> None:
    facts = sound()
    assert Evidence(facts).busiest_core_share is None
    facts.result["evidence"]["cores"] = [{"cpu": 0, "busy_ns": 3, "idle_ns": 7}, {"cpu": 1, "busy_ns": 9, "idle_ns": 1}]
    assert Evidence(facts).busiest_core_share == pytest.approx(0.9)


def test_own_ios_in_flight_at_the_ends_are_not_others() -> None:
    """A run of six mean latencies: the device counts a sixth more than completed in it."""
    facts = sound()
    more = replace(facts.totals[0], completion_latency_ns_sum=COUNT * 10 * SECOND // 6)
    facts.result["devices"][0]["read_bytes"] += COUNT * BLOCK // 6
    assert Evidence(replace(facts, totals=[more])).other_bytes == pytest.approx(0, abs=BLOCK)
    assert Evidence(facts).other_bytes == pytest.approx(COUNT * BLOCK / 6, rel=0.01)


# Where a rule must not apply -----------------------------------------------------------------------------------------


def test_reads_at_the_edges_of_a_limited_run_are_no_fault_of_the_tool() -> None:
    """The old false alarm: 64 in flight, a limit reached after most of the time, and a long last I/O."""
    facts = sound()
    job(facts)["pacing"].update(first_start_ns=SECOND // 2, exhausted_ns=8 * SECOND)
    facts = replace(facts, totals=[replace(facts.totals[0], completion_latency_ns_sum=31 * SECOND)])
    verdict = judge(facts)
    assert (verdict.kind, verdict.warnings) == ("device-limited", ())
    assert verdict.evidence["in_flight_share"] == pytest.approx(0.775)
    assert verdict.evidence["edge_share"] == pytest.approx(0.25)


def test_a_stream_that_rests_for_half_of_the_run_is_judged_by_the_other_half() -> None:
    facts = sound()
    stream(facts)["active"] = {"begin_ns": 5 * SECOND, "end_ns": None}
    job(facts)["pacing"]["first_start_ns"] = 5 * SECOND + 5_000
    facts = replace(facts, totals=[replace(facts.totals[0], completion_latency_ns_sum=19 * SECOND)])
    verdict = judge(facts)
    assert (verdict.kind, verdict.warnings) == ("device-limited", ())


def short_delays_of_the_heartbeat(facts: VerdictFacts) -> None:
    facts.result["evidence"]["stalls"] = {"stalled_ns": SECOND // 10, "longest_ns": SECOND // 50, "count": 10}


def polling(facts: VerdictFacts) -> None:
    """It keeps a core busy by design."""
    saturated(facts)
    facts.result["backend"]["features"] = ["completion_polling"]


def writes_of_a_journal(facts: VerdictFacts) -> VerdictFacts:
    facts = as_writes(facts)
    stream(facts)["durability"] = {"kind": "dsync"}
    facts.result["devices"][0]["write_bytes"] *= 2
    return facts


def btrfs_without_copies(facts: VerdictFacts) -> VerdictFacts:
    copying(facts)
    facts.target["file_system"]["options"] = ["rw", "nodatacow"]  # type: ignore[index]
    return as_writes(facts)


def a_loop_device_that_passes_everything_on(facts: VerdictFacts) -> None:
    over(facts, dio="0", passed=1.0)


@pytest.mark.parametrize(
    "change",
    [
        *(short_delays_of_the_heartbeat, polling, writes_of_a_journal, btrfs_without_copies),
        a_loop_device_that_passes_everything_on,
    ],
)
def test_what_is_sound_has_no_warning(change: Change) -> None:
    assert codes(changed(change)) == []


def test_an_open_loop_that_keeps_its_schedule_may_keep_its_core_busy() -> None:
    facts = changed(saturated)
    stream(facts)["arrival"] = {"kind": "constant", "rate": 40_000.0}
    job(facts)["schedule"] = {"due": COUNT, "started": COUNT - 3, "start_lag_ns_sum": 10**7}
    assert codes(facts) == []
    job(facts)["schedule"]["started"] = COUNT // 2
    assert codes(facts) == ["core_saturated"]


def test_a_core_shared_with_others_is_saturated_when_nothing_is_left() -> None:
    facts = sound()
    job(facts)["usage"].update(user_ns=SECOND, system_ns=4 * SECOND)
    job(facts)["pacing"]["cpu_wait_ns"] = 5 * SECOND
    verdict = judge(facts)
    assert [warning.code for warning in verdict.warnings] == ["core_saturated", "cpu_contention"]
    assert verdict.kind == "harness-limited"
    assert "waited for it 50 %" in verdict.because[0]


def test_without_schedstat_context_switches_show_contention() -> None:
    facts = sound()
    job(facts)["pacing"]["cpu_wait_ns"] = None
    assert codes(facts) == []
    job(facts)["usage"]["involuntary_switches"] = 20_000
    assert codes(facts) == ["cpu_contention"]


def test_a_device_without_a_reported_limit_is_hot_at_70_degrees() -> None:
    facts = sound()
    device(facts).pop("temperature_max_celsius")
    device(facts)["temperature_celsius"] = 69.0
    assert codes(facts) == []
    device(facts)["temperature_celsius"] = 71.0
    assert codes(facts) == ["hot_device"]


def test_a_tenth_from_the_page_cache_is_undetermined_and_half_is_cache_served() -> None:
    facts = sound()
    stream(facts)["io_mode"] = "buffered"
    facts.result["process"]["fs_inputs"] = int(facts.result["process"]["fs_inputs"] * 0.8)
    facts.result["devices"][0]["read_bytes"] = int(facts.result["devices"][0]["read_bytes"] * 0.8)
    assert judge(facts).kind == "undetermined"
    assert judge(changed(half_cached)).kind == "cache-served"


def device_moved(facts: VerdictFacts, share: float) -> VerdictFacts:
    """The process requested, and the device moved, that share of the bytes of the load."""
    facts.result["process"]["fs_inputs"] = int(facts.result["process"]["fs_inputs"] * share)
    usage = facts.result["devices"][0]
    usage.update({name: int(usage[name] * share) for name in ("read_bytes", "write_bytes")})
    return facts


@pytest.mark.parametrize(
    ("share", "expected"), [(0.95, "device-limited"), (0.8, "undetermined"), (0.3, "cache-served"), (0, "cache-served")]
)
def test_direct_io_is_judged_by_the_bytes_that_the_device_moved(share: float, expected: Kind) -> None:
    reading, writing = device_moved(sound(), share), device_moved(as_writes(sound()), share)
    for facts, number in ((reading, "read_from_memory_share"), (writing, "written_to_memory_share")):
        verdict = judge(facts)
        assert verdict.kind == expected
        assert verdict.evidence[number] == pytest.approx(1 - share, abs=0.001)


def test_direct_reads_of_holes_have_one_warning() -> None:
    facts = device_moved(changed(holes), 3 / 8)
    assert codes(facts) == ["unwritten_extents"]


def test_own_reads_in_flight_at_the_start_were_requested_before_it() -> None:
    """A run of six mean latencies."""
    facts = device_moved(sound(), 5 / 6)
    waiting = replace(facts.totals[0], completion_latency_ns_sum=COUNT * 10 * SECOND // 6)
    assert Evidence(replace(facts, totals=[waiting])).read_from_memory_share == pytest.approx(0, abs=0.001)


def test_bytes_of_other_processes_do_not_hide_a_cache() -> None:
    """The device moved all bytes of the load, but for another process."""
    reading = sound()
    reading.result["process"]["fs_inputs"] //= 4
    assert judge(reading).kind == "cache-served"
    moved = COUNT * BLOCK
    row = {"device": "259:0", "read_bytes": 0, "write_bytes": moved, "own_read_bytes": 0, "own_write_bytes": moved // 4}
    own_io = {"version": 2, "measure": [row], "others": {"are_present": True, "write_bytes": 0, "unreadable": 0}}
    writing = replace(as_writes(sound()), own_io=own_io)
    assert Evidence(writing).written_to_memory_share == pytest.approx(0.75)
    assert judge(writing).kind == "cache-served"


def not_counted_for_processes(facts: VerdictFacts) -> None:
    """A kernel without `CONFIG_TASK_IO_ACCOUNTING`."""
    facts.result["process"]["fs_inputs"] = 0


def without_iostats(facts: VerdictFacts) -> VerdictFacts:
    device(facts)["io_counters"] = "off"
    return device_moved(as_writes(facts), 0)


def by_passthrough(facts: VerdictFacts) -> VerdictFacts:
    facts.result["backend"]["kind"] = "uring_nvme"
    return device_moved(facts, 0)


def on_persistent_memory(facts: VerdictFacts) -> VerdictFacts:
    facts.target["file_system"]["options"] = ["rw", "dax=always"]  # type: ignore[index]
    return device_moved(facts, 0)


def read_ahead(facts: VerdictFacts) -> VerdictFacts:
    stream(facts)["io_mode"] = "buffered"
    return device_moved(facts, 3)


def mirrored(facts: VerdictFacts) -> VerdictFacts:
    """btrfs has its members directly below it."""
    facts = as_writes(facts)
    copying(facts)
    facts.target["devices"].append({"device": "259:2", "name": "nvme1n1", "kind": "disk", "under": []})
    facts.result["devices"].append({**facts.result["devices"][0], "device": "259:2"})
    return facts


@pytest.mark.parametrize(
    "change",
    [not_counted_for_processes, without_iostats, by_passthrough, on_persistent_memory, read_ahead, mirrored],
)
def test_no_cache_is_claimed_where_bytes_are_not_counted_or_are_more(change: Change) -> None:
    verdict = judge(changed(change))
    assert verdict.kind == "device-limited"
    assert {"reads_from_memory", "writes_to_memory"}.isdisjoint(each.code for each in verdict.warnings)


def test_a_warning_about_writes_names_what_the_record_shows() -> None:
    facts = device_moved(as_writes(changed(compressing)), 0.05)
    zeros(facts)
    facts.target["file_system"]["direct_writes"] = "page cache"  # type: ignore[index]
    facts.result["evidence"]["page_cache"].update(addressed_bytes=GIB // 2, dirty_after_bytes=GIB // 8)
    assert judge(facts).because == (
        "95 % of the bytes written did not reach the device during the measurement; 25 % of the span was in the page cache "
        "and not yet written back; the file system compresses (it is mounted with `compress=zstd:3`); the payload is "
        "`zeros`; each block was written 3.1 times, which a cache merges",
    )
    nothing_shown = judge(device_moved(as_writes(sound()), 0.05)).because
    assert nothing_shown == ("95 % of the bytes written did not reach the device during the measurement",)


def test_the_device_of_a_daemon_is_read_by_another_process() -> None:
    """Its bytes count, although they are not those of the engine, and none of them is foreign."""
    facts = sound()
    facts.target["file_system"]["kind"] = "fuseblk"  # type: ignore[index]
    facts.result["process"]["fs_inputs"] = 16
    assert (judge(facts).kind, Evidence(facts).other_bytes) == ("device-limited", None)
    facts.result["devices"][0]["read_bytes"] = 0
    verdict = judge(facts)
    assert (verdict.kind, len(verdict.warnings)) == ("cache-served", 1)
    assert "FUSE daemon" in verdict.because[0]


def test_direct_io_of_a_loop_device_is_no_proof_that_the_device_below_moved_its_bytes() -> None:
    """Its backing file has holes, or is compressed."""
    facts = sound()
    over(facts, dio="1", passed=0.2)
    assert codes(facts) == ["cache_below"]
    facts.target["devices"][1]["io_counters"] = "off"
    assert codes(facts) == []


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
    facts = as_writes(sound())
    device(facts).update(kind="md", name="md127", under=["sda", "sdb"])
    for number, name in enumerate(("sda", "sdb")):
        facts.target["devices"].append({"device": f"8:{number}", "name": name, "kind": "disk", "under": []})
        moved = {"read_bytes": int(COUNT * BLOCK * read_bytes), "write_bytes": int(COUNT * BLOCK * write_bytes)}
        facts.result["devices"].append({"device": f"8:{number}", **moved})
    assert codes(facts) == (["cache_below"] if fires else [])
    if fires:
        assert judge(facts).warnings[0].message == "90 % of the bytes of `md127` did not reach the devices below it"
        del facts.result["devices"][2]
        assert codes(facts) == [], "a member without counters may have moved the rest"


def test_reads_from_a_thin_volume_that_was_never_written_are_not_the_disks() -> None:
    facts = sound()
    over(facts, dio="", passed=0.0)
    device(facts).update(kind="dm", name="dm-3")
    assert codes(facts) == ["cache_below"]


def test_a_loop_device_with_direct_io_over_an_invisible_device_is_device_limited() -> None:
    """Such as the throttled devices of the lab, over FUSE."""
    facts = sound()
    over(facts, dio="1", passed=None)
    verdict = judge(facts)
    assert (verdict.kind, verdict.warnings, verdict.evidence["below_cache_share"]) == ("device-limited", (), None)
    verdict = judge(changed(loop_over_what_is_not_visible))
    assert (verdict.kind, verdict.evidence["below_cache_share"]) == ("undetermined", None)


def test_a_stall_between_completion_and_submission_is_not_submission_overhead() -> None:
    """Also where the heartbeat was late by less than the slots were free: it sees each stall only from its next beat on."""
    facts = sound()
    facts.result["evidence"]["stalls"] = {"stalled_ns": 10 * SECOND, "longest_ns": 10 * SECOND, "count": 1}
    job(facts)["pacing"]["turnaround_ns"] = 30 * SECOND
    verdict = judge(facts)
    assert verdict.kind == "undetermined"
    assert {warning.code for warning in verdict.warnings} == {"engine_stalled"}


def test_a_stalled_engine_is_not_a_stalled_device() -> None:
    facts = changed(stalled_device)
    suspended(facts)
    assert codes(facts) == ["engine_stalled"]


def test_a_stall_names_what_an_open_loop_would_have_seen() -> None:
    """A tenth of all requests would have arrived during the stall, and waited for up to one second."""
    stall = Evidence(changed(stalled_device)).device_stall
    assert stall is not None and stall.length_ns == SECOND
    assert stall.open_p99_ns == pytest.approx(0.9 * SECOND)


def test_one_slow_io_among_many_is_no_stall() -> None:
    facts = changed(stalled_device)
    flowing = [replace(each, count=COUNT // 90) for each in facts.intervals]
    assert codes(replace(facts, intervals=flowing)) == []


def key_value(facts: VerdictFacts) -> VerdictFacts:
    """The same facts about a store: its streams have neither queue depth nor span."""
    stream = {"name": "main", "jobs": 1, "arrival": {"kind": "closed"}}
    return replace(facts, spec={"workload": {"kind": "kv", "streams": [stream]}})


def test_key_value_runs_have_verdicts_and_the_warnings_of_machine_and_device() -> None:
    assert judge(key_value(sound())).kind == "device-limited"
    for change, code in (
        (crowded, "cpu_contention"),
        (stolen, "steal_time"),
        (suspended, "engine_stalled"),
        (shared_disk, "other_io"),
        (in_memory, "memory_file_system"),
    ):
        facts = sound()
        assert code in codes(key_value(change(facts) or facts))


def test_reads_from_memory_of_a_store_may_be_of_its_own_caches() -> None:
    """With direct I/O the page cache has none of them."""
    of_files, of_store = (judge(change(half_cached(sound()))) for change in (lambda facts: facts, key_value))
    messages = [
        next(each.message for each in found.warnings if each.code == "reads_from_memory")
        for found in (of_files, of_store)
    ]
    assert "served from the page cache" in messages[0]
    assert "served from memory: caches of the store or the page cache" in messages[1]


def test_flushed_writes_of_the_page_cache_may_fit_in_memory() -> None:
    """A write-ahead log: memory could serve its reads only, of which there are none."""
    facts = as_writes(changed(buffered))
    assert "span_fits_memory" in codes(facts)
    stream(facts)["durability"] = {"kind": "flush", "every": 1, "data_only": True}
    assert "span_fits_memory" not in codes(facts)


def test_an_incompressible_payload_by_another_name_is_sound() -> None:
    facts = as_writes(sound())
    stream(facts)["payload"] = {"kind": "reducible", "compression_ratio": 1.0, "duplicate_fraction": 0.0}
    assert codes(facts) == []
    stream(facts)["payload"]["compression_ratio"] = 2.0
    assert codes(facts) == ["compressible_data"]


def test_writes_to_a_reflinked_file_are_copies() -> None:
    facts = as_writes(sound())
    facts.result["evidence"]["extents_before"] = {
        **facts.result["evidence"]["extents_before"],
        "shared_bytes": 16 * GIB,
    }
    assert codes(facts) == ["copying_file_system"]


def test_missing_facts_give_no_number_and_no_warning() -> None:
    facts = sound(harness=None, environment={}, target={"devices": []})
    facts.result.update(evidence=None, devices=[])
    job(facts)["pacing"] = None
    verdict = judge(facts)
    assert (verdict.kind, verdict.warnings) == ("device-limited", ())
    unknown = {name for name, value in verdict.evidence.items() if value is None}
    assert {"turnaround_share", "cpu_wait_share", "steal_share", "missing_share", "harness_ns_per_io"} <= unknown


def test_a_simulated_device_is_the_disk() -> None:
    facts = sound()
    facts.result["backend"]["kind"] = "simulated"
    assert judge(facts).kind == "device-limited"


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


def test_the_shares_of_a_closed_loop_add_up() -> None:
    evidence = Evidence(changed(of_unknown_cause))
    shares = [evidence.in_flight_share, evidence.turnaround_share, evidence.edge_share, evidence.unexplained_share]
    assert sum(share or 0 for share in shares) == pytest.approx(1)


def test_a_cold_start_that_the_study_names_is_no_warning() -> None:
    facts = changed(cold)
    assert codes(facts) == ["cold_start"]
    assert codes(replace(facts, cold_start=True)) == []
    facts.spec["workload"]["ramp"]["duration_ns"] = SECOND
    assert codes(facts) == []


def test_i_o_of_other_processes_is_known_from_the_control_group() -> None:
    """A tenth of the bytes read is not the engine's; the process's own counter does not matter then."""
    moved = COUNT * BLOCK
    row = {"device": "259:0", "read_bytes": moved, "write_bytes": 0, "own_write_bytes": 0}
    others = {"are_present": False, "write_bytes": 0, "unreadable": 0}
    own_io = {"version": 2, "measure": [row | {"own_read_bytes": moved * 9 // 10}], "others": others}
    assert codes(replace(sound(), own_io=own_io)) == ["other_io"]
    own_io = own_io | {"measure": [row | {"own_read_bytes": moved}]}
    assert codes(replace(changed(shared_disk), own_io=own_io)) == []


def test_few_writes_of_others_do_not_disturb_a_load_that_only_reads() -> None:
    """Such as the kernel's, which initializes the tables of a new ext4: they are all of the writes, and 2 % of the bytes."""
    moved = COUNT * BLOCK
    row = {"device": "259:0", "read_bytes": moved, "own_read_bytes": moved, "own_write_bytes": 0}
    others = {"are_present": True, "write_bytes": moved, "unreadable": 0}
    for written, expected in ((moved // 50, []), (moved // 5, ["other_io"])):
        facts = sound()
        facts.result["devices"][0]["write_bytes"] = written
        own_io = {"version": 2, "measure": [row | {"write_bytes": written}], "others": others}
        assert codes(replace(facts, own_io=own_io)) == expected
