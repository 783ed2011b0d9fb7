"""The transport below a target, from tables that a kernel wrote (`recorded`); setups with network storage; and outages."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from plans import hand_plan
from samples import Samples, write

from iosonde.base.tools import USES
from iosonde.engine.supervisor.account import nfs_server_counters
from iosonde.errors import StudyError, TargetError
from iosonde.execution.attempt import instrument_kinds
from iosonde.features.network_storage import run, tcp, transport
from iosonde.features.network_storage.link import Link
from iosonde.features.network_storage.outage import Interval, Outage, unavailability
from iosonde.features.network_storage.probe import Probe
from iosonde.features.network_storage.record import NetworkReading, OutageReading
from iosonde.features.network_storage.run import REQUIREMENTS
from iosonde.features.network_storage.setup import FabricSetup, NfsSetup
from iosonde.features.network_storage.setups import nfs, nvme_tcp
from iosonde.features.network_storage.storage import SOURCE, ServerExport
from iosonde.plan import Setup
from iosonde.report import write as write_report
from iosonde.results import ResultSet
from iosonde.storage import open_target, tools
from iosonde.storage.block_layer.mounts import Mount, mounts_in
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import Entry
from iosonde.storage.setups import file_systems
from iosonde.study.setup import resolve

RECORDED = Path(__file__).parent / "recorded"
STATISTICS = (RECORDED / "mountstats").read_text()


def mount(point: str) -> Mount:
    [found] = [each for each in mounts_in(RECORDED / "mountinfo") if each.point == point]
    return found


def described(point: str) -> dict[str, Any]:
    return transport.nfs(mount(point), transport.parse_statistics(STATISTICS, point))


def test_an_nfs_mount_is_described_by_version_server_and_options() -> None:
    options = {"vers": "4.2", "rsize": 262144, "wsize": 262144, "proto": "tcp", "nconnect": 2, "hard": True}
    options |= {"acregmin": 5, "acregmax": 5, "acdirmin": 5, "acdirmax": 5}
    options |= {"timeo": 600, "retrans": 2, "sec": "sys", "local_lock": "none"}
    assert described("/mnt/network/drive") == {
        **{"transport": "nfs", "version": "4.2", "server": "10.77.0.2", "port": 2049, "source": "10.77.0.2:/drive"},
        **{"mount_point": "/mnt/network/drive", "connections": 2, "options": options},
    }


def test_counters_are_those_of_the_mount_at_the_point() -> None:
    outer, inner = (transport.parse_statistics(STATISTICS, point) for point in ("/mnt/network", "/mnt/network/drive"))
    assert outer
    assert inner
    assert outer.counters["read_operations"] != inner.counters["read_operations"] > 0
    for found in (outer, inner):
        counters = found.counters
        assert counters["read_transmissions"] == counters["read_operations"]
        assert 0 < counters["server_read_bytes"] <= 4096 * counters["read_operations"] < counters["read_bytes_received"]
        assert counters["read_execute_ms"] >= counters["read_round_trip_ms"] > 0
    assert transport.parse_statistics(STATISTICS, "/mnt") is None
    assert transport.parse_statistics(STATISTICS, "/export/drive") is None, "not one of NFS"


def test_counters_of_the_server_are_read() -> None:
    expected = {"nfsd_read_bytes": 8192000, "nfsd_write_bytes": 33554432, "nfsd_calls": 2161, "nfsd_threads": 8}
    assert nfs_server_counters(RECORDED / "nfsd") == expected
    assert nfs_server_counters(RECORDED / "missing") == {}


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
    found = transport.describe_path("127.0.0.1")
    assert found["interface"] == "lo"
    assert found["server_is_local"] is True
    assert found["mtu_bytes"] >= 1500
    assert "speed_bits_per_second" not in found, "a virtual interface has none"
    assert transport.describe_path("not an address") == {}
    counters = transport.counters("lo")
    assert counters["nic_rx_bytes"] == counters["nic_tx_bytes"] or set(counters) >= {"nic_rx_dropped", "nic_tx_bytes"}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("between", "is_found"), [("socket pair", True), ("pipes", True), ("pipe", False), ("standard streams", False)]
)
def test_the_connection_of_a_daemon_may_be_that_of_a_program_with_another_parent(between: str, is_found: bool) -> None:
    """As of sshfs and its ssh. Neither has started the other; a pipe in one direction is that of a shell or a log."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as link:
        server = listening.getsockname()
        pairs = [os.pipe(), os.pipe()[::-1]] if between == "pipes" else [os.pipe()]
        if between in ("socket pair", "standard streams"):
            pairs = [tuple(each.detach() for each in socket.socketpair())]
        own, their = zip(*pairs, strict=True)
        stdin = {"stdin": own[0]} if between == "standard streams" else {"pass_fds": own}
        with (
            subprocess.Popen(["sleep", "600"], **cast("Any", stdin)) as daemon,
            subprocess.Popen(["sleep", "600"], pass_fds=[*their, link.fileno()]) as holder,
        ):
            for descriptor in (*own, *their):
                os.close(descriptor)
            found = tcp.servers(daemon.pid)
            daemon.kill()
            holder.kill()
    assert found == ({server: {holder.pid}} if is_found else {})


def test_a_kernel_that_does_not_list_unix_sockets_lists_connections(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without CONFIG_UNIX_DIAG it refuses the request (sock_diag(7))."""
    asked = tcp.request

    def request(family: int, kind: int, payload: bytes, *, is_dump: bool = False) -> Iterator[bytes]:
        if payload[0] == socket.AF_UNIX:
            raise FileNotFoundError(errno.ENOENT, "netlink request failed")
        return asked(family, kind, payload, is_dump=is_dump)

    monkeypatch.setattr(tcp, "request", request)
    with socket.create_connection(listener.getsockname()[:2]):
        assert listener.getsockname()[:2] in tcp.servers(os.getpid())


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
    facts = described("/mnt/network") | {"source": "<script>", "daemon_pid": 7, "connection_pids": [8]}
    part = NetworkReading(transport=facts)
    with results.lock():
        write(results, results.plan.runs[0], [Samples(completion_ns=[1000])], parts={part.name: part.model_dump()})
    page, *_ = write_report([results], tmp_path / "report.md", format="md")
    text = page.read_text()
    assert "- options.nconnect: 2" in text
    assert "daemon pid" not in text
    assert "connection pids" not in text
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("place", ["nvme3n1/device/nvme3/nvme3c7n1/stat", "nvme3n1/stat"])
def test_counters_of_a_device_are_of_its_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Before Linux 6.2 the device of native multipath counts nothing."""
    monkeypatch.setattr(transport, "SYS", tmp_path)
    own, counted = tmp_path / "block/nvme3n1/stat", tmp_path / "block" / place
    for file, text in ((own, "0 " * 17), (counted, "10 0 80 30 5 1 16 20 0 50 50")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    of_device = {"read_operations": 10, "read_wait_ms": 30, "read_bytes": 40960}
    of_device |= {"write_operations": 5, "write_wait_ms": 20, "write_bytes": 8192}
    assert transport.device_counters("nvme3n1") == {f"device_{name}": value for name, value in of_device.items()}
    assert transport.device_counters("nvme3n2") == {}
    (counted.parent / "queue").mkdir()
    (counted.parent / "queue/iostats").write_text("0\n")
    assert transport.device_counters("nvme3n1") == {}


OWN = "iosonde-0123abcd"
MS = 1_000_000


def setup(**parameters: Any) -> Setup:
    found = resolve(parameters, devices=1)
    assert found
    return found


def test_local_access_creates_nothing_and_nvme_tcp_is_described_with_its_options() -> None:
    assert setup(fabric="none").is_plain
    found = setup(fabric="nvme-tcp", fabric_queues=1, fabric_poll_queues=2, fabric_data_digest=True)
    assert found.text == "one device, over NVMe/TCP, 1 queue, 2 polled, data digest"
    assert found.parameters.items() >= {"fabric": "nvme-tcp", "fabric_queues": 1, "fabric_poll_queues": 2}.items()
    assert setup(fabric="nvme-tcp", file_system="ext4").file_system == "ext4"


def test_a_kernel_without_modules_is_named_before_another_target_is_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setups that need a device, on a directory: loop devices would need the same modules."""
    monkeypatch.setattr(tools, "SYS", tmp_path / "sys")
    monkeypatch.setattr(tools, "MODULE_FILES", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(TargetError, match="this kernel has no `nvmet-tcp` and no `nvme-tcp`"):
        open_target(str(tmp_path)).with_setup(setup(fabric="nvme-tcp"))
    assert [(each.name, each.state) for each in run.CHECKS[0]()] == [("NVMe/TCP", "note"), ("NFS", "note")]
    assert {each.name for each in run.CHECKS[0]()} == set(USES["network storage"])


def test_options_of_nfs_are_those_of_mount() -> None:
    found = setup(
        file_system="nfs", nfs_connections=4, nfs_rsize="64KiB", nfs_wsize="128KiB", nfs_attribute_cache="3s",
        nfs_writes="sync",
    )  # fmt: skip
    part = found.layer(NfsSetup)
    assert part
    assert part.options == "vers=4.2,proto=tcp,nconnect=4,rsize=65536,wsize=131072,actimeo=3,hard,nosharecache,sync"
    text = "one device, NFS 4.2, 4 connections, rsize 64 KiB, wsize 128 KiB, attribute cache 3 s, sync, nfs"
    assert found.text == text
    assert setup(nfs_rsize="64KiB").file_system == "nfs"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"file_system": "ext4", "nfs_rsize": "64KiB"}, "options of NFS require"),
        ({"file_system": "nfs", "fabric": "nvme-tcp"}, "`fabric` requires one block device"),
        ({"nfs_rsize": "2MiB"}, "multiple of 1 KiB"),
        ({"nfs_attribute_cache": "1500ms"}, "whole seconds"),
    ],
)
def test_what_cannot_be_combined_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        setup(**parameters)


def test_an_export_is_a_server_and_a_path() -> None:
    for text in ("server:/export", "10.0.0.2:/", "[fe80::1%eth0]:/a/b", "nas.example.org:/vol-1"):
        assert SOURCE.fullmatch(text) and file_systems.source_of(Path(text)) == text
    for text in ("/export", "server", "server:export", "a b:/x", "server:/x,ro", ":/x"):
        assert not SOURCE.fullmatch(text)
    assert {"secure", "rw", "sync"} <= set(nfs.EXPORT_OPTIONS.split(",")), "it accepts ports of root only"


def test_an_entry_of_something_that_is_gone_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill may come between the entry and the first command."""
    nvme_tcp.undo(Entry(path=str(nvme_tcp.key_of(OWN)), what=nvme_tcp.JOURNALED, owner="",
                        facts={"own": OWN, "port": "59999", "mounted": ""}))  # fmt: skip
    threads = tmp_path / "threads"
    monkeypatch.setattr(nfs, "THREADS", threads)
    entry = Entry(path=str(threads), what=nfs.THREADS_CHANGED, owner="", facts={"value": "8"})
    for before, after in (("4", "4"), ("0", "8")):
        threads.write_text(before)
        nfs.undo_threads(entry)
        assert threads.read_text() == after


@pytest.mark.parametrize(
    ("log_restricted", "first_port", "problem"),
    [
        ("1", "1024", ""),
        ("0", "1024", "a kernel log that only root can read"),
        ("1", "1023", "other users of this machine may use ports below 1024"),
    ],
)
def test_nvme_tcp_requires_that_other_users_cannot_learn_the_name_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_restricted: str, first_port: str, problem: str
) -> None:
    """The target writes it into the kernel log, and the host sends it to the port of the target."""
    monkeypatch.setattr(nvme_tcp, "require_root", lambda _: None)
    monkeypatch.setattr(nvme_tcp, "MODULES", ())
    for module, name, text in ((nvme_tcp, "LOG_RESTRICTED", log_restricted), (tcp, "UNPRIVILEGED", first_port)):
        (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setattr(module, name, tmp_path / name)
    part = setup(fabric="nvme-tcp").layer(FabricSetup)
    assert part
    with pytest.raises(TargetError, match=problem) if problem else nullcontext():
        nvme_tcp.check_possible(part)


def series(*counts: int, backlogs: dict[int, int] | None = None) -> list[Interval]:
    """Intervals of 100 ms."""
    found = backlogs or {}
    return [Interval(i * 100 * MS, (i + 1) * 100 * MS, count, found.get(i, 0)) for i, count in enumerate(counts)]


def test_unavailable_time_is_the_longest_without_a_completed_io() -> None:
    found = unavailability(series(10, 10, 0, 10, 0, 0, 0, 10, 10))
    assert (found["unavailable_from_ns"], found["unavailable_ns"]) == (350 * MS, 400 * MS)
    assert found["resolution_ns"] == 100 * MS
    assert found["caught_up_ns"] is None
    counts = (10, 0, 0, 0, 10, 10, 0, 0, 10, 0, 0, 0, 10)
    at_the_outage = unavailability(series(*counts), 650 * MS, 750 * MS)
    assert (at_the_outage["unavailable_from_ns"], at_the_outage["unavailable_ns"]) == (550 * MS, 300 * MS)
    assert unavailability(series(10, 0, 0, 10, 10, 10, 10), 450 * MS, 550 * MS) == {}, "a gap at another time"
    for without_end in ((10, 10, 10), (10, 0, 0), (0, 0, 10), ()):
        assert unavailability(series(*without_end)) == {}


def test_the_backlog_is_worked_off_when_it_is_as_before() -> None:
    backlogs = {0: 1, 2: 10, 3: 20, 4: 30, 5: 12, 6: 1}
    found = unavailability(series(10, 10, 0, 0, 25, 25, 20, 10, backlogs=backlogs))
    assert found["backlog_max"] == 30
    assert found["caught_up_ns"] == 700 * MS - 450 * MS
    stays = unavailability(series(10, 0, 0, 10, 10, backlogs={2: 20, 3: 30, 4: 25}))
    assert stays["backlog_max"] == 30 and stays["caught_up_ns"] is None


class Server:
    def __init__(self, *, refuses: bool = False) -> None:
        self.calls: list[str] = []
        self.refuses = refuses

    def stop_server(self) -> None:
        if self.refuses:
            raise OSError(16, "Device or resource busy")
        self.calls.append("stop")

    def start_server(self) -> None:
        self.calls.append("start")


def outage_of(server: Server, **parameters: str) -> Outage:
    outage = Outage(cast("Any", SimpleNamespace(parameters={"outage": "watch", **parameters})))
    outage._stoppable = cast("Any", server)
    return outage


def interval(phase: str) -> Any:
    done = {"operation": "write", "count": 4}
    return {"event": "interval", "phase": phase, "begin_ns": 0, "end_ns": 100_000_000,
            "streams": [{"backlog_max": 0, "operations": [done]}]}  # fmt: skip


def test_the_outage_begins_after_the_first_interval_of_the_measurement_and_ends() -> None:
    """The engine reports no start of the measurement, only its intervals."""
    assert Outage in instrument_kinds()
    server = Server()
    outage = outage_of(server, outage_after="100ms", outage_length="10ms")
    outage.event(interval("ramp"))
    assert outage._thread is None
    outage.event(interval("measure"))
    assert outage._thread
    outage._thread.join()
    assert server.calls == ["stop", "start"]
    assert outage._times[1] - outage._times[0] >= 10_000_000


def test_an_outage_that_is_not_reached_or_that_the_server_refuses_is_a_warning() -> None:
    server = Server()
    outage = outage_of(server, outage_after="1h")
    outage.event(interval("measure"))
    outage.close()
    assert ([each.code for each in outage._warnings()], server.calls) == (["outage_failed"], [])
    server = Server(refuses=True)
    outage = outage_of(server, outage_after="0", outage_length="10ms")
    outage.event(interval("measure"))
    assert outage._thread
    outage._thread.join()
    assert (outage._times, server.calls) == ([], []), "what another one has stopped stays as it is"
    [warning] = outage._warnings()
    assert "Device or resource busy" in warning.message


@pytest.mark.engine
def test_a_route_that_the_kernel_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ip").write_text('#!/bin/sh\ncase "$*" in *add*) echo refused >&2; exit 2;; esac\n')
    (tmp_path / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TargetError, match="refused"):
        Link("192.0.2.1", "iosonde-0123abcd").stop_server()
    assert journal.entries() == []


@pytest.mark.parametrize("end_s", [4, 3, 2])
def test_an_outage_that_ends_after_the_measurement_states_no_unavailable_time(end_s: int) -> None:
    """From 1 to 3 s: verification runs after the measurement; and without a completed I/O there is no end."""
    outage = outage_of(Server(), outage="server", outage_length="2s")
    outage._times = [1_000_000_000, 3_000_000_000]
    for place, count in enumerate((4, 4, 0, 0, 0, 0, 4, 4)[: 2 * end_s]):
        outage._intervals.append(Interval(place * 500 * MS, (place + 1) * 500 * MS, count, 0))
    reading = outage.stop(cast("Any", SimpleNamespace(hello={"realtime_ns": 0})))
    [part] = reading.parts
    assert isinstance(part, OutageReading)
    assert (part.unavailable_ns is None) is (end_s < 4)
    assert [each.code for each in reading.warnings] == ([] if end_s == 4 else ["outage_failed"])


@pytest.mark.parametrize(
    ("outage", "setup", "server", "error"),
    [
        ("server", {"fabric": "nvme-tcp"}, "", ""),
        ("server", {}, "", "has no server that iosonde could stop"),
        ("server", {}, "10.0.0.2", "is not one of iosonde"),
        ("link", {}, "10.0.0.2", ""),
        ("link", {}, "", "has no server on another machine"),
        ("watch", {}, "", ""),
    ],
)
def test_an_outage_requires_a_server_that_can_be_reached_or_stopped(
    monkeypatch: pytest.MonkeyPatch, outage: str, setup: dict[str, Any], server: str, error: str
) -> None:
    """The device of a server that the user has connected has the outage `link`."""
    if not error:
        expected = [server] if outage == "link" else []
        assert [each.path for each in cuts(monkeypatch, server, setup, outage=outage)] == expected
        return
    with pytest.raises(TargetError, match=error) as raised:
        cuts(monkeypatch, server, setup, outage=outage)
    assert raised.value.hint
    assert (outage == "server" and bool(server)) is ("outage=link" in raised.value.hint)


def cuts(
    monkeypatch: pytest.MonkeyPatch, server: str, setup: dict[str, Any], provider: Any = None, **parameters: str
) -> list[Any]:
    """Connections of a case with an outage, on a device of that server."""
    monkeypatch.setattr(transport, "of_device", lambda name: {"server": server} if server else {})
    monkeypatch.setattr(transport, "describe", lambda address: {"server_is_local": False})
    place: Any = SimpleNamespace(name="/dev/nvme1n1", describe=lambda: {"devices": [{"name": "nvme1n1"}]})
    place.provider = provider
    [check] = REQUIREMENTS
    return list(check(cast("Any", SimpleNamespace(parameters=parameters, setup=resolve(setup, devices=1))), place))


@pytest.mark.parametrize("client", ["", "10.0.0.20 50000 10.0.0.1 22", "10.0.0.2 50000 10.0.0.1 22"])
def test_the_plan_states_that_all_connections_to_the_server_stop(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    monkeypatch.setenv("SSH_CONNECTION", client)
    export = ServerExport(name="nfs:10.0.0.2:/", source=Path("10.0.0.2:/"), own="iosonde-0123abcd", room_bytes=0)
    sources = {"nas:/export/a:/b": "nas", "[fd00::2]:/": "fd00::2"}
    assert [replace(export, source=Path(each)).server for each in sources] == list(sources.values())
    for provider in (None, export):
        [cut] = cuts(monkeypatch, "10.0.0.2", {}, provider, outage="link", outage_length="10s")
        assert cut.path == "10.0.0.2"
        assert cut.what.startswith("unreachable from this machine for 10 s in each run with this outage")
        of_user = "your SSH session comes from it and will hang for 10 s" in cut.what
        assert of_user is client.startswith("10.0.0.2 ")


@pytest.mark.engine
def test_the_ssh_session_is_known_after_sudo_removed_its_variable() -> None:
    code = "from iosonde.features.network_storage.link import is_ssh_client as found\n"
    code += "print(found('192.0.2.7'), found('192.0.2.70'))"
    script = 'env -u SSH_CONNECTION "$0" -c "$1"; exit $?'  # Something follows, so the shell stays the parent.
    environment = {**os.environ, "SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22"}
    words = ["sh", "-c", script, sys.executable, code]
    shown = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == "True False\n"
