"""The transport below a target, from tables that a kernel wrote with NFS mounted (`recorded`)."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from plans import hand_plan
from samples import Samples, write

from iosonde.execution import nfs_server
from iosonde.features.network_storage import mountstats, path, tcp, transport
from iosonde.features.network_storage.probe import Probe
from iosonde.features.network_storage.record import NetworkReading
from iosonde.report import write as write_report
from iosonde.results import ResultSet
from iosonde.storage.block_layer.mounts import Mount, mounts_in

RECORDED = Path(__file__).parent / "recorded"
STATISTICS = (RECORDED / "mountstats").read_text()


def mount(point: str) -> Mount:
    [found] = [each for each in mounts_in(RECORDED / "mountinfo") if each.point == point]
    return found


def described(point: str) -> dict[str, Any]:
    return transport.nfs(mount(point), mountstats.parse(STATISTICS, point))


def test_an_nfs_mount_is_described_by_version_server_and_options() -> None:
    assert described("/mnt/network/drive") == {
        "transport": "nfs",
        "version": "4.2",
        "server": "10.77.0.2",
        "port": 2049,
        "source": "10.77.0.2:/drive",
        "mount_point": "/mnt/network/drive",
        "options": {
            **{"vers": "4.2", "rsize": 262144, "wsize": 262144, "proto": "tcp", "nconnect": 2, "hard": True},
            **{"acregmin": 5, "acregmax": 5, "acdirmin": 5, "acdirmax": 5},
            **{"timeo": 600, "retrans": 2, "sec": "sys", "local_lock": "none"},
        },
        "connections": 2,
    }


def test_counters_are_those_of_the_mount_at_the_point() -> None:
    outer, inner = (mountstats.parse(STATISTICS, point) for point in ("/mnt/network", "/mnt/network/drive"))
    assert outer
    assert inner
    assert outer.counters["read_operations"] != inner.counters["read_operations"] > 0
    for found in (outer, inner):
        counters = found.counters
        assert counters["read_transmissions"] == counters["read_operations"]
        assert 0 < counters["server_read_bytes"] <= 4096 * counters["read_operations"] < counters["read_bytes_received"]
        assert counters["read_execute_ms"] >= counters["read_round_trip_ms"] > 0
    assert mountstats.parse(STATISTICS, "/mnt") is None
    assert mountstats.parse(STATISTICS, "/export/drive") is None, "not one of NFS"


def test_counters_of_the_server_are_read() -> None:
    expected = {"nfsd_read_bytes": 8192000, "nfsd_write_bytes": 33554432, "nfsd_calls": 2161, "nfsd_threads": 8}
    assert nfs_server.counters(RECORDED / "nfsd") == expected
    assert nfs_server.counters(RECORDED / "missing") == {}


def test_options_of_others_are_known_ones_that_can_be_written() -> None:
    """User names and unknown options are left out, and bytes that are not UTF-8 are escaped."""
    hostile = ["vers=4.2", "username=me", "<b>=1", "sec=\udcff", "rsize=١", "soft", ""]
    found = transport.options_of(hostile, transport.NFS_OPTIONS)
    assert found == {"vers": "4.2", "sec": "\\udcff", "rsize": "١", "soft": True}
    json.dumps(found).encode()


def test_a_device_that_is_not_remote_has_no_transport(tmp_path: Path) -> None:
    for name in ("", "..", "../../etc", "sda/x", "nosuchdevice", "rbd99"):
        assert transport.of_device(name) == {}
    assert transport.describe(tmp_path, [{"name": "nosuchdevice"}]) == {}


def test_the_route_to_this_machine_is_local() -> None:
    found = path.describe("127.0.0.1")
    assert found["interface"] == "lo"
    assert found["server_is_local"] is True
    assert found["mtu_bytes"] >= 1500
    assert "speed_bits_per_second" not in found, "a virtual interface has none"
    assert path.describe("not an address") == {}
    counters = path.counters("lo")
    assert counters["nic_rx_bytes"] == counters["nic_tx_bytes"] or set(counters) >= {"nic_rx_dropped", "nic_tx_bytes"}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server of empty calls: it replies to each record with an accepted reply."""

    def serve(connection: socket.socket) -> None:
        with closing(connection):
            while head := connection.recv(4, socket.MSG_WAITALL):
                length = struct.unpack(">I", head)[0] & 0x7FFFFFFF
                call = struct.unpack_from(">10I", connection.recv(length, socket.MSG_WAITALL))
                connection.sendall(struct.pack(">7I", 0x80000018, call[0], 1, 0, 0, 0, 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening
        listening.shutdown(socket.SHUT_RDWR)


def test_connections_to_a_server_are_found_with_their_counters(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(struct.pack(">11I", 0x80000028, *range(10)))
        assert link.recv(28, socket.MSG_WAITALL)
        assert tcp.connections("127.0.0.1", port, but=[link.getsockname()[1]]) == {}, "the probe's own"
        assert ("127.0.0.1", port) in tcp.servers(os.getpid())
        [(name, found)] = tcp.connections("127.0.0.1", port).items()
        assert name == f"127.0.0.1:{link.getsockname()[1]}"
    assert found["received_bytes"] == 28
    assert found["acknowledged_bytes"] == 45, "and the SYN"
    assert 0 < found["min_round_trip_us"] <= found["round_trip_us"]
    counted = tcp.counters({"10.0.0.1:1": found, "10.0.0.1:2": found})
    assert counted["tcp_received_bytes"] == 56
    assert counted["tcp_connection_10.0.0.1:2_bytes"] == 28 + 45
    assert tcp.connections("127.0.0.2", port) == tcp.connections("127.0.0.1", 1) == {}


def test_probes_measure_connections_calls_and_echoes(listener: socket.socket) -> None:
    probe = Probe("127.0.0.1", listener.getsockname()[1], 4, 4096)
    probe.start()
    while not {"connect", "call", "padded_call"} <= {each.of for each in probe.samples}:
        threading.Event().wait(0.01)
    probe.stop()
    assert min(each.ns for each in probe.samples) > 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refused = Probe("127.0.0.1", taken.getsockname()[1], 4)
        refused.start()
        refused.stop()
    assert refused.samples == []


def test_a_report_lists_the_transport_and_escapes_it(tmp_path: Path) -> None:
    results = ResultSet.create(tmp_path / "set", hand_plan(levels=("x",), factor="mode", repeats=1))
    facts = described("/mnt/network") | {"source": "<script>", "daemon_pid": 7}
    part = NetworkReading(transport=facts)
    with results.lock():
        write(results, results.plan.runs[0], [Samples(completion_ns=[1000])], parts={part.name: part.model_dump()})
    page, *_ = write_report([results], tmp_path / "report.md", format="md")
    text = page.read_text()
    assert "- options.nconnect: 2" in text
    assert "daemon pid" not in text
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("place", ["nvme3n1/device/nvme3/nvme3c7n1/stat", "nvme3n1/stat"])
def test_counters_of_a_device_are_those_of_its_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Before Linux 6.2 the device of native multipath counts nothing."""
    monkeypatch.setattr(transport, "SYS", tmp_path)
    own, counted = tmp_path / "block/nvme3n1/stat", tmp_path / "block" / place
    for file, text in ((own, "0 " * 17), (counted, "10 0 80 30 5 1 16 20 0 50 50")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert transport.device_counters("nvme3n1") == {
        "device_read_operations": 10,
        "device_write_operations": 5,
        "device_read_wait_ms": 30,
        "device_write_wait_ms": 20,
        "device_read_bytes": 40960,
        "device_write_bytes": 8192,
    }
    assert transport.device_counters("nvme3n2") == {}
    (counted.parent / "queue").mkdir()
    (counted.parent / "queue/iostats").write_text("0\n")
    assert transport.device_counters("nvme3n1") == {}
