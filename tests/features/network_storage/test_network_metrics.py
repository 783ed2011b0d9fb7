"""Metrics of network storage, of a server that is a host and of several clients, from readings with known increases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import hand_plan
from samples import Samples, write

from iosonde.features.network_storage.facts import NetworkFacts, ServerFacts, longer_by
from iosonde.features.network_storage.load import LoadProgress
from iosonde.features.network_storage.record import NetworkReading
from iosonde.features.network_storage.verdict import Remote, remote
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet
from iosonde.results.schema import ServerCounters, ServerReading

NFS = {"transport": "nfs", "server": "10.0.0.2", "options": {}}
ZERO = {
    f"{operation}_{name}": 0
    for operation in ("read", "write", "commit", "other")
    for name in (
        *("operations", "transmissions", "timeouts", "bytes_sent", "bytes_received"),
        *("queue_ms", "round_trip_ms", "execute_ms"),
    )
} | dict.fromkeys(
    ("server_read_bytes", "server_write_bytes", "load_operations", "load_read_bytes", "load_write_bytes"), 0
)
READS = {
    **{"read_operations": 100, "read_transmissions": 101, "read_bytes_sent": 18_000, "read_bytes_received": 420_000},
    **{"read_queue_ms": 100, "read_round_trip_ms": 800, "read_execute_ms": 950, "server_read_bytes": 409_600},
    **{"load_operations": 100, "load_read_bytes": 409_600},
}
PROBES = [2_000_000] * 20


def reading(
    *, probes: list[int] = PROBES, payload_ms: int = 0, echoes: int = 6, lost: int = 0, **changes: int
) -> NetworkReading:
    """Probes whose payload takes 1 ms to the server, and `payload_ms` back."""
    calls = {"connect_ns": probes, "call_ns": [3_000_000] * 6, "echo_ns": [2_500_000] * echoes, "lost_probes": lost}
    padded = {"payload_bytes": 4096, "padded_call_ns": [4_000_000] * 6}
    padded |= {"padded_echo_ns": [3_500_000 + 1_000_000 * payload_ms] * echoes}
    return NetworkReading(transport=NFS, at_start=ZERO, at_end=ZERO | READS | changes, **calls, **padded)  # type: ignore[arg-type]


def results_of(directory: Path, *parts: Any) -> ResultSet:
    results = ResultSet.create(directory / "set", hand_plan(levels=("x",), factor="mode", repeats=1))
    samples = [Samples(completion_ns=[10_000_000] * 100)]
    with results.lock():
        write(results, results.plan.runs[0], samples, parts={part.name: part.model_dump() for part in parts})
    return results


def metrics(results: ResultSet) -> dict[str, float]:
    return dict(run_metrics(results).filter(operation="all").select("metric", "value").iter_rows())


def metrics_of(directory: Path, *parts: Any) -> dict[str, float]:
    return metrics(results_of(directory, *parts))


def test_latency_is_divided_into_client_network_and_server(tmp_path: Path) -> None:
    found = metrics_of(tmp_path, reading())
    parts = {name: found[f"network_path_{name}_ns_mean"] for name in ("client", "network", "server")}
    assert parts == {"client": 2_000_000, "network": 2_000_000, "server": 6_000_000}
    assert sum(parts.values()) == found["network_path_ns_mean"] == found["completion_latency_ns_mean"]
    assert found["rpc_round_trip_ns_mean"] == 8_000_000
    assert found["rpc_queue_ns_mean"] == 1_000_000
    assert found["rpc_execute_ns_mean"] == 9_500_000
    assert found["rpc_retransmits"] == 1
    assert found["wire_bytes_per_operation"] == 4380
    assert found["wire_read_ratio"] == 1
    assert found["empty_call_ns_p50"] == 3_000_000
    assert "wire_write_ratio" not in found, "nothing was written"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"probes": PROBES[:5]}, "5 probes of the network; 6 are required"),
        ({"load_operations": 50}, "2.00 calls for each operation, not one"),
        ({"server_read_bytes": 100 << 18}, "a call moves 256 KiB; probes have 4 KiB at most"),
        ({"echoes": 5}, "5 echoes with the payload of a call; 6 are required"),
        ({"lost": 1}, "packets were lost, and the time until they were sent again is not known"),
        ({"read_operations": 0, "read_transmissions": 0}, "no calls"),
    ],
)
def test_latency_is_not_divided_without_evidence(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    part = reading(**changes)
    found = metrics_of(tmp_path, part)
    assert not [name for name in found if name.startswith("network_path_")]
    record = ResultSet.open(tmp_path / "set").records()[0]
    assert NetworkFacts(record).unseparated == reason


def test_a_payload_is_not_hidden_by_a_queue_that_all_probes_wait_in() -> None:
    """Half of the padded calls waited 4 ms behind replies of the load, and a third of the empty ones."""
    assert longer_by([0, 0, 4, 4], [0, 0, 4]) == 0
    assert longer_by([4, 5, 6, 7], [0, 1, 2, 3]) == 4, "each waits up to 4 ms, and the payload takes 4 ms"
    assert longer_by([8, 3, 8, 7, 8], [1, 0, 0, 8, 0]) == 7
    assert longer_by([1, 1], [2, 2]) == 0
    assert longer_by([5] * 4000, range(3000)) == 0


def test_the_time_of_the_payload_on_the_way_is_time_of_the_network(tmp_path: Path) -> None:
    found = metrics_of(tmp_path / "reads", reading(payload_ms=5))
    assert found["network_payload_ns_mean"] == 5_000_000
    parts = {name: found[f"network_path_{name}_ns_mean"] for name in ("client", "network", "server")}
    assert parts == {"client": 2_000_000, "network": 7_000_000, "server": 1_000_000}
    writes = {name.replace("read", "write"): value for name, value in READS.items() if name.startswith("read")}
    part = reading(payload_ms=5, **dict.fromkeys(READS, 0) | writes | {"load_operations": 100})
    assert metrics_of(tmp_path / "writes", part)["network_payload_ns_mean"] == 1_000_000
    served = reading(load_read_bytes=8 * 409_600, load_operations=800)
    assert metrics_of(tmp_path / "served", served)["wire_read_ratio"] == pytest.approx(0.125), "from the page cache"
    reset = reading().model_copy(update={"at_start": ZERO | {"read_operations": 1000}})
    assert "rpc_round_trip_ns_mean" not in metrics_of(tmp_path / "reset", reset)


@pytest.mark.parametrize(("mount", "ratio"), [(409_600, 1), (600_000, 4096 / 4000), (204_800, 2)])
def test_bytes_of_the_mount_replace_interpolated_ones_if_they_agree(tmp_path: Path, mount: int, ratio: float) -> None:
    """The load is 400,000 bytes by interpolation, at most those of the mount; at 600,000 another process used that."""
    counters = {"normal_read_bytes": 0, "direct_read_bytes": mount}
    part = reading(load_read_bytes=400_000, **counters).model_copy(
        update={"at_start": ZERO | dict.fromkeys(counters, 0)}
    )
    assert metrics_of(tmp_path, part)["wire_read_ratio"] == ratio


@pytest.mark.parametrize(
    ("connections", "used", "share"),
    [
        ([(700, 1500), (700, 500)], 2, 0.5),
        # Queues of a controller that the load does not use.
        ([(990, 2000), (10, 0), (0, 0)], 1, 0.99),
        # More than the time between the readings: they are not at one instant.
        ([(100, 2100)], 1, 1),
        ([(0, 0)], 0, None),
    ],
)
def test_a_full_window_is_a_share_of_the_time_of_the_connections_that_moved_the_data(
    tmp_path: Path, connections: list[tuple[int, int]], used: int, share: float | None
) -> None:
    counted = {"clock_ns": 2_000_000}
    for port, (moved, limited_us) in enumerate(connections):
        counted |= {f"tcp_connection_[::1]:{port}_bytes": moved, f"tcp_connection_[::1]:{port}_limited_us": limited_us}
    part = NetworkReading(transport=NFS, at_start=dict.fromkeys(counted, 0), at_end=counted)
    metrics_of(tmp_path, part)
    facts = NetworkFacts(ResultSet.open(tmp_path / "set").records()[0])
    assert (facts.connections_used, facts.window_share) == (used, share)


HELLO, RESULT = {"realtime_ns": 1000}, {"begin_ns": 100, "end_ns": 400}


def interval(begin_ns: int, count: int) -> Any:
    operation = {"operation": "read", "count": count, "bytes": 10 * count}
    return {"begin_ns": begin_ns, "end_ns": begin_ns + 100, "streams": [{"operations": [operation]}]}


def test_the_load_is_interpolated_at_the_times_of_samples() -> None:
    """The first sample is late, and the last one was read after the measurement."""
    load = LoadProgress()
    for begin_ns, count in ((0, 1000), (100, 10), (200, 20), (300, 30)):
        load.add(interval(begin_ns, count))
    samples = [{"time_ns": 1000 + at, "other": at} for at in (50, 150, 210, 350, 401)]
    start, end = load.ends(samples, HELLO, RESULT)
    loaded = {"load_operations": 1005, "load_read_bytes": 10050, "load_write_bytes": 0}
    assert start == {"time_ns": 1150, "other": 150} | loaded
    assert (end["other"], end["load_operations"]) == (350, 1045)
    assert load.ends(samples[1:2], HELLO, RESULT) == ({}, {}), "a single sample gives no increase"
    assert LoadProgress().ends(samples, HELLO, RESULT) == ({}, {})


def test_a_sample_within_a_pause_of_the_machine_is_not_used() -> None:
    """The first was read 300 ns late: what had completed depends on when the engine did not run."""
    load = LoadProgress()
    load.add(interval(0, 100))
    load.add(interval(100, 100) | {"end_ns": 500, "stalled_ns": 300})
    load.add(interval(500, 100))
    samples = [{"time_ns": 1000 + at} for at in (400, 501, 600)]
    start, end = load.ends(samples, HELLO, {"begin_ns": 100, "end_ns": 600})
    assert (start["time_ns"], start["load_operations"], end["load_operations"]) == (1501, 201, 300)
    at_once = [{"time_ns": 1101}, *samples]
    assert load.ends(at_once, HELLO, {"begin_ns": 100, "end_ns": 600})[0]["time_ns"] == 1101
    assert load.ends(samples[:2], HELLO, {"begin_ns": 100, "end_ns": 600}) == ({}, {})


COUNTED = {
    **{"time_ns": 10**9, "cpu_ns": 10**9, "disk_reads": 50, "disk_read_bytes": 204_800, "disk_read_ms": 200},
    **{"disk_writes": 0, "disk_write_bytes": 0, "busy_ms.sda": 200, "busy_ms.sdb": 100},
    **{"nfsd_arrived": 100, "nfsd_without_thread": 60},
    **{"load_operations": 100, "load_read_bytes": 409_600, "load_write_bytes": 0},
}


def serving(**changes: int) -> ServerReading:
    counters = COUNTED | changes
    server = ServerCounters(host="nas", machine="m", cpus=4, at_start=dict.fromkeys(counters, 0), at_end=counters)
    return ServerReading(servers=[server])


def test_the_part_of_a_server_is_divided_into_its_device_and_the_rest(tmp_path: Path) -> None:
    """100 operations of 10 ms: 6 ms in the server, whose drives read for 200 ms in all."""
    results = results_of(tmp_path, reading(), serving())
    found = remote(results.records()[0])
    assert found and (found.server_device_ns, found.server_device_share) == (2_000_000, 0.2)
    assert (found.server_cpu_share, found.calls_without_thread_share) == (0.25, 0.6)
    found = metrics(results)
    assert found["network_path_server_ns_mean"] == 6_000_000
    assert found["network_path_server_device_ns_mean"] == 2_000_000
    assert found["network_path_server_queue_ns_mean"] == 4_000_000
    assert found["server_host_cpu_share"] == 0.25
    assert found["server_disk_busy_share"] == 0.2
    assert found["server_thread_wait_share"] == 0.6
    assert found["server_disk_read_ratio"] == 0.5, "its page cache served the other half"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"load_write_bytes": 1}, "writes may reach the drives after their calls"),
        ({"disk_reads": 200}, "2.00 reads of the drives for each operation"),
        ({"disk_writes": 50}, "the drives were written to during a load of reads"),
        ({"load_operations": 0}, "the server has no counters of drives"),
    ],
)
def test_a_server_s_part_is_not_divided_without_evidence(tmp_path: Path, changes: dict[str, int], reason: str) -> None:
    results = results_of(tmp_path, reading(), serving(**changes))
    found = metrics(results)
    assert "network_path_server_device_ns_mean" not in found
    assert found["network_path_server_whole_ns_mean"] == 6_000_000
    assert ServerFacts(results.records()[0]).unseparated == reason


def test_the_counters_of_several_clients_are_divided_as_those_of_one(tmp_path: Path) -> None:
    far, near = {"tcp_min_round_trip_us": 9, "tcp_connections": 1}, {"tcp_min_round_trip_us": 2, "tcp_connections": 2}
    merged = NetworkReading.of_hosts([reading(**far), reading(**near)])
    assert merged and {"tcp_connections": 3, "tcp_min_round_trip_us": 2}.items() <= merged.at_end.items()
    found = metrics_of(tmp_path, merged, serving(load_operations=200, disk_reads=100))
    assert found["network_path_server_device_ns_mean"] == 1_000_000
    names = {name for name in metrics_of(tmp_path / "alone", reading()) if "server_" in name}
    assert names == {"network_path_server_ns_mean", "network_path_server_whole_ns_mean"}, "no server among the hosts"
    lossy = [reading(lost=1), reading(lost=2)]
    assert (NetworkReading.of_hosts(lossy) or lossy[0]).lost_probes == 3


@pytest.mark.parametrize("io_mode", ["direct", "buffered"])
def test_direct_io_without_counters_of_calls_has_its_least_time_as_evidence(tmp_path: Path, io_mode: str) -> None:
    """100 operations; 10 ms of CPU time are one tick."""
    end = {"tcp_min_round_trip_us": 9, "daemon_cpu_ticks": 20, "daemon_waiting_ns": 10**9, "load_operations": 100}
    part = NetworkReading(transport={"transport": "fuse"}, at_start=dict.fromkeys(end, 0), at_end=end)
    record = results_of(tmp_path, part).records()[0]
    for stream in record.spec["workload"]["streams"]:
        stream["io_mode"] = io_mode
    found = remote(record)
    assert (found and (found.network_ns, found.daemon_ns)) == ((9_000, 12_000_000) if io_mode == "direct" else None)


def test_data_that_a_fuse_daemon_had_no_time_to_serve_came_from_the_page_cache(tmp_path: Path) -> None:
    """A tick and the uncertainty of another one suffice for 800 MB."""
    end = {"daemon_cpu_ticks": 1, "load_operations": 100, "load_read_bytes": 3_200_000_000, "load_write_bytes": 0}
    part = NetworkReading(transport={"transport": "fuse"}, at_start=dict.fromkeys(end, 0), at_end=end)
    found = remote(results_of(tmp_path, part).records()[0])
    assert found and (found.load_read_bytes, found.read_bytes) == (3_200_000_000, 800_000_000)


@pytest.mark.parametrize(
    ("changes", "is_cached"),
    [
        ({}, True),
        ({"daemon_read_bytes": 400_000}, False),
        ({"daemon_written_bytes": 400_000}, False),
        ({"tcp_received_bytes": 400_000}, False),
        ({"tcp_connection_10.0.0.2:9_bytes": 1}, False),
    ],
)
def test_data_that_a_fuse_daemon_did_not_move_came_from_the_page_cache(
    tmp_path: Path, changes: dict[str, int], *, is_cached: bool
) -> None:
    """A daemon may splice, receive compressed data, or have had another connection that is gone: then nothing is known."""
    end = {"load_operations": 100, "load_read_bytes": 409_600, "load_write_bytes": 0, "daemon_cpu_ticks": 1}
    end |= {"daemon_read_bytes": 1000, "daemon_written_bytes": 900, "tcp_received_bytes": 800} | changes
    end |= {"tcp_acknowledged_bytes": 700}
    start = {name: 0 for name in end if name not in changes or not name.startswith("tcp_connection")}
    part = NetworkReading(transport={"transport": "fuse"}, at_start=start, at_end=end)
    found = remote(results_of(tmp_path, part).records()[0])
    assert found and (found.load_read_bytes, found.read_bytes) == ((409_600, 1000) if is_cached else (0, 0))


@pytest.mark.parametrize("received", [409_600, 204_800])
def test_a_fuse_daemon_uses_its_network_if_all_data_went_over_it(tmp_path: Path, received: int) -> None:
    """The path became longer than the shortest round trip that the kernel remembers."""
    end = {"load_operations": 100, "load_read_bytes": 409_600, "load_write_bytes": 0, "daemon_cpu_ticks": 1}
    end |= {"tcp_min_round_trip_us": 9, "tcp_received_bytes": received, "tcp_acknowledged_bytes": 9_000}
    echoes = {"echo_ns": [5_000_000] * 6}
    part = NetworkReading(transport={"transport": "fuse"}, at_start=dict.fromkeys(end, 0), at_end=end, **echoes)
    record = results_of(tmp_path, part).records()[0]
    for stream in record.spec["workload"]["streams"]:
        stream["io_mode"] = "direct"
    found = remote(record)
    assert found and found.network_ns == (5_000_000 if received == 409_600 else None)


ON_DEVICE = {
    **{"device_read_operations": 100, "device_read_wait_ms": 900, "device_read_bytes": 4096},
    # Of the file system, while the load reads.
    **{"device_write_operations": 40, "device_write_wait_ms": 4000, "device_write_bytes": 0},
}


def on_device(directory: Path, *, io_mode: str = "direct", payload: int = 1 << 20, **counters: int) -> Remote | None:
    """100 operations of a block device, whose echoes take 2 ms, and 5 ms with a payload."""
    load = {"load_operations": 100, "load_read_bytes": 1 << 20, "load_write_bytes": 0}
    end = {"clock_ns": 10**9, "tcp_min_round_trip_us": 9} | load | ON_DEVICE | counters
    echoes = {"echo_ns": [2_000_000] * 5 + [4_000_000], "padded_echo_ns": [5_000_000] * 5 + [9_000_000]}
    part = NetworkReading(
        transport={"transport": "nvme-tcp"}, at_start=dict.fromkeys(end, 0), at_end=end, payload_bytes=payload, **echoes
    )
    record = results_of(directory, part).records()[0]
    for stream in record.spec["workload"]["streams"]:
        stream["io_mode"] = io_mode
    return remote(record)


def test_direct_io_of_a_device_has_its_time_and_echoes_as_evidence(tmp_path: Path) -> None:
    """The kernel remembers a round trip of 9 µs, from before the path became longer."""
    found = on_device(tmp_path)
    assert found
    assert (found.network_ns, found.longest_network_ns, found.round_trip_ns) == (2_000_000, 5_000_000, 9_000_000)
    assert (found.payload_ns, found.is_lossy, found.is_one_call) == (0, False, True)
    assert (found.load_read_bytes, found.read_bytes) == (0, 0)
    others = on_device(tmp_path / "others", device_read_operations=200)
    assert others and (others.network_ns, others.round_trip_ns) == (9_000, None), "not those of the load"
    small = on_device(tmp_path / "small", payload=0)
    assert small and small.payload_ns is None
    lossy = on_device(tmp_path / "lossy", tcp_retransmits=9, tcp_needless_retransmits=0)
    assert lossy and lossy.is_lossy
    buffered = on_device(tmp_path / "buffered", io_mode="buffered")
    assert buffered and (buffered.load_read_bytes, buffered.read_bytes, buffered.write_bytes) == (1 << 20, 4096, 0)
    assert (buffered.is_one_call, buffered.round_trip_ns) == (False, None)


def test_counters_of_clients_are_added_and_those_of_interfaces_are_not() -> None:
    parts = [reading(nic_rx_bytes=10), reading(nic_rx_bytes=30)]
    parts = [each.model_copy(update={"at_start": each.at_start | {"nic_rx_bytes": 0}}) for each in parts]
    found = NetworkReading.of_hosts(parts)
    assert found and found.transport == NFS
    assert found.at_end["read_operations"] == 2 * READS["read_operations"]
    assert found.at_end["nic_rx_bytes"] == 30
    assert found.connect_ns == 2 * PROBES
    assert (found.payload_bytes, found.lost_probes) == (parts[0].payload_bytes, 0)
    other = parts[0].model_copy(update={"transport": NFS | {"server": "10.0.0.3"}})
    assert NetworkReading.of_hosts([parts[0], other]) is None
    reset = parts[0].model_copy(update={"at_start": ZERO | {"read_operations": 1000}})
    assert "read_operations" not in (NetworkReading.of_hosts([parts[0], reset]) or parts[0]).at_end
