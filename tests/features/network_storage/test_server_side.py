"""Metrics of a server that is a host of the study, and the counters of several clients together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import hand_plan
from samples import Samples, write
from test_network_metrics import NFS, PROBES, READS, ZERO, reading

from iosonde.features.network_storage.record import NetworkReading
from iosonde.features.network_storage.server_side import ServerFacts
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet
from iosonde.results.server_reading import ServerCounters, ServerReading
from iosonde.verdict.remote import Remote, remote_of

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


def results_of(directory: Path, *parts: Any) -> ResultSet:
    results = ResultSet.create(directory / "set", hand_plan(levels=("x",), factor="mode", repeats=1))
    with results.lock():
        write(
            results,
            results.plan.runs[0],
            [Samples(completion_ns=[10_000_000] * 100)],
            parts={part.name: part.model_dump() for part in parts},
        )
    return results


def metrics(results: ResultSet) -> dict[str, float]:
    return dict(run_metrics(results).filter(operation="all").select("metric", "value").iter_rows())


def test_the_part_of_a_server_is_divided_into_its_device_and_the_rest(tmp_path: Path) -> None:
    """100 operations of 10 ms: 6 ms in the server, whose drives read for 200 ms in all."""
    results = results_of(tmp_path, reading(), serving())
    remote = remote_of(results.records()[0])
    assert remote and (remote.server_device_ns, remote.server_device_share) == (2_000_000, 0.2)
    assert (remote.server_cpu_share, remote.calls_without_thread_share) == (0.25, 0.6)
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
def test_the_part_of_a_server_is_not_divided_without_evidence(
    tmp_path: Path, changes: dict[str, int], reason: str
) -> None:
    results = results_of(tmp_path, reading(), serving(**changes))
    found = metrics(results)
    assert "network_path_server_device_ns_mean" not in found
    assert found["network_path_server_whole_ns_mean"] == 6_000_000
    assert ServerFacts(results.records()[0]).unseparated == reason


def test_the_counters_of_several_clients_are_divided_as_those_of_one(tmp_path: Path) -> None:
    far, near = {"tcp_min_round_trip_us": 9, "tcp_connections": 1}, {"tcp_min_round_trip_us": 2, "tcp_connections": 2}
    merged = NetworkReading.of_hosts([reading(**far), reading(**near)])
    assert merged and {"tcp_connections": 3, "tcp_min_round_trip_us": 2}.items() <= merged.at_end.items()
    found = metrics(results_of(tmp_path, merged, serving(load_operations=200, disk_reads=100)))
    assert found["network_path_server_device_ns_mean"] == 1_000_000
    names = {name for name in metrics(results_of(tmp_path / "alone", reading())) if "server_" in name}
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
    found = remote_of(record)
    assert (found and (found.network_ns, found.daemon_ns)) == ((9_000, 12_000_000) if io_mode == "direct" else None)


def test_data_that_a_fuse_daemon_had_no_time_to_serve_came_from_the_page_cache(tmp_path: Path) -> None:
    """A tick and the uncertainty of another one suffice for 800 MB."""
    end = {"daemon_cpu_ticks": 1, "load_operations": 100, "load_read_bytes": 3_200_000_000, "load_write_bytes": 0}
    part = NetworkReading(transport={"transport": "fuse"}, at_start=dict.fromkeys(end, 0), at_end=end)
    found = remote_of(results_of(tmp_path, part).records()[0])
    assert found and (found.load_read_bytes, found.read_bytes) == (3_200_000_000, 800_000_000)


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
    found = remote_of(record)
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
    return remote_of(record)


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
