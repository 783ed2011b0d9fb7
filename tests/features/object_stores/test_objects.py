"""Objects: parameters, the configuration and counters of a private Ceph cluster, and the CPU time of its daemons."""

from __future__ import annotations

import configparser
import json
import socket
import struct
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import results

from iosonde.errors import ServerError, StudyError, TargetError
from iosonde.features.object_stores import ceph
from iosonde.features.object_stores.ceph import perf
from iosonde.features.object_stores.questions import OsdCpu, find
from iosonde.features.object_stores.servers import layout_of
from iosonde.findings.findings import answer
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load
from iosonde.servers.server import Installation
from iosonde.storage import open_target
from iosonde.study.model import Study
from iosonde.verdict.verdict import Kind
from iosonde.workload import named

GIB = 1 << 30
OBJECTS = named("objects")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosonde.features.object_stores.ceph.locate", lambda: Installation(version="16", build=""))


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": OBJECTS.build(parameters)}
    return OBJECTS.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


def test_parameters_become_a_load_through_librados(reachable: Path) -> None:
    found = spec(reachable, operation="random_read", object_size="64KiB", arrival="poisson", rate=100)
    assert found["store"]["kind"] == "rados"
    assert Path(found["store"]["config_path"]).is_relative_to(reachable)
    assert found["object_bytes"] == 65536
    [stream] = found["streams"]
    assert (stream["operation"], stream["arrival"]) == ("random_read", {"kind": "poisson", "rate": 100.0})


def test_clusters_that_differ_have_directories_of_their_own(reachable: Path) -> None:
    one, same, other = (
        Path(spec(reachable, **each)["store"]["config_path"]).parents[1].name
        for each in ({}, {"object_size": "64KiB"}, {"osds": 2})
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"replication": 2}, "`replication` is at most `osds`"),
        ({"osd_size": "512MiB"}, "at least 1 GiB"),
        ({"object_size": "63"}, "64 B to 64 MiB"),
        ({"arrival": "poisson"}, "needs a `rate`"),
        ({"rate": 10}, "set `arrival`"),
        ({"timeout": "10ms"}, "at least 1 s"),
        ({"stop_osd_after": "1s"}, "needs `replication` of 2 or more"),
        ({"stop_osd_after": "1h", "osds": 2, "replication": 2}, "beyond the end"),
        ({"stop_osd_after": "2s", "restart_osd_after": "1s", "osds": 2, "replication": 2}, "between `stop_osd_after`"),
        ({"objects": 10**7}, "raise `osd_size`"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        OBJECTS.build(parameters)


@pytest.mark.needs("root")
def test_a_target_that_the_servers_user_cannot_reach_is_refused_before_anything_runs(reachable: Path) -> None:
    private = reachable / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(ServerError, match=f"cannot enter `{private}`"):
        spec(private)


def test_a_run_needs_room_for_all_daemons_and_memory_for_what_is_in_flight(tmp_path: Path) -> None:
    streams = {
        "main": OBJECTS.build({"osds": 3, "osd_size": "2GiB", "object_size": "4MiB", "jobs": 2, "queue_depth": 4})
    }
    [size] = OBJECTS.files(streams).values()
    assert 6 * GIB < size < 7 * GIB
    assert OBJECTS.buffer_bytes(streams) == 8 * (4 << 20)
    with pytest.raises(TargetError, match="needs a file system"):
        OBJECTS.fit({"main": OBJECTS.build({})}, open_target("null:1GiB"), room_bytes=0)


# A private Ceph cluster -----------------------------------------------------------------------------------------------


LAYOUT = ceph.ClusterLayout(
    osds=2, replication=2, placement_groups=8, osd_bytes=1 << 30, settings={"bluestore_cache_size": 1}
)


def test_the_configuration_is_private_to_one_directory_and_to_loopback(tmp_path: Path) -> None:
    text = ceph.configuration(tmp_path / "data", tmp_path / "s", LAYOUT, fsid="f", port=23300)
    found = configparser.ConfigParser()
    found.read_string(text)
    options = dict(found["global"])
    assert options["mon_host"] == "v2:127.0.0.1:23300"
    assert {options["public_addr"], options["cluster_addr"]} == {"127.0.0.1"}
    assert {options[f"auth_{each}_required"] for each in ("cluster", "service", "client")} == {"cephx"}
    paths = [value for value in options.values() if value.startswith("/")]
    assert len(paths) > 5
    assert all(Path(path).is_relative_to(tmp_path) for path in paths)
    assert (options["osd_pool_default_size"], options["bluestore_block_size"]) == ("2", str(1 << 30))
    assert options["bluestore_cache_size"] == "1", "a setting of the study"
    assert dict(found["client"])["admin_socket"] == "", "the engine opens no socket of its own"
    layout = replace(LAYOUT, devices=[tmp_path / "osd-0", tmp_path / "osd-1"])
    found.read_string(ceph.configuration(tmp_path / "data", tmp_path / "s", layout, fsid="f", port=23300))
    assert [found[f"osd.{number}"]["bluestore_block_path"] for number in (0, 1)] == list(map(str, layout.devices))
    assert (found["global"]["bluestore_block_create"], found["global"]["bluestore_block_size"]) == ("false", "0")


REFUSED_NAMES = [
    "mon_host",
    "osd_data",
    "bluestore_block_path",
    "keyring",
    "osd_pool_default_size",
    "erasure_code_dir",
    "osd_class_load_list",
    "mgr_initial_modules",
    "mon_cluster_log_file",
    "log_to_syslog",
    "log_graylog_host",
    "crush_location_hook",
    "heartbeat_file",
    "bdev_nvme_something",
    "ms_cluster_type",
    "osd_erasure_code_plugins",
    "admin-socket",
    "public_addrv",
    "keyfile",
    "auth_supported",
    "auth_client_required",
    "cephx_require_version",
]
"""They name files, programs, hosts or what iosonde chooses."""
REFUSED_VALUES = ["a\\", "a # b", "a; b", "$pid", "a\rb", "a\nmon_host = x", "[client]", '"a"', "é", "x" * 501]
"""Ceph continues a line that ends with a backslash, so that the next section was part of a value."""


def test_a_study_may_change_defaults_and_not_what_iosonde_chooses() -> None:
    ceph.check_settings({"osd_memory_target": 1 << 31})
    for name in REFUSED_NAMES:
        with pytest.raises(StudyError, match="chosen by iosonde"):
            ceph.check_settings({name: "x"})
    for value in REFUSED_VALUES:
        with pytest.raises(StudyError, match="cannot be"):
            ceph.check_settings({"osd_op_queue": value})
    with pytest.raises(StudyError, match="is not a setting of Ceph"):
        ceph.check_settings({"OSD_memory_target": 1})
    with pytest.raises(StudyError, match="names a path"):
        ceph.check_settings({"osd_op_queue": "/tmp"})


@pytest.mark.parametrize("options", ["wal_dir=x", "compression=kNoCompression, db_log_dir=x", "env=x"])
def test_options_of_its_rocksdb_name_no_places(options: str) -> None:
    ceph.check_settings({"bluestore_rocksdb_options": "compression=kNoCompression,max_write_buffer_number=4"})
    with pytest.raises(StudyError, match="names a place"):
        ceph.check_settings({"bluestore_rocksdb_options": options})


def test_a_port_that_is_in_use_is_not_chosen(tmp_path: Path) -> None:
    first = ceph.free_port(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        assert ceph.free_port(tmp_path) != first
    # Of clusters in different directories all are free: each monitor binds its port after all were chosen.
    ports = {ceph.free_port(Path(f"/mnt/{name}/data")) for name in ("disk", "array", "cache")}
    assert len(ports) == 3
    assert all(ceph.FIRST_PORT <= port < ceph.LAST_PORT for port in ports)


def test_counters_of_all_daemons_are_added() -> None:
    one = {
        "osd": {"op_w": 3, "op_w_in_bytes": 300, "op_r": 1},
        "bluefs": {"bytes_written_wal": 10, "bytes_written_sst": 5, "log_bytes": 2},
        "bluestore": {"deferred_write_bytes": 7},
    }
    two = {"osd": {"op_w": 4, "op_w_in_bytes": 400}, "bluefs": {"bytes_written_wal": 20}, "bluestore": {}}
    found = perf.totals([one, two])
    assert (found["osd_client_writes"], found["osd_client_write_bytes"], found["osd_client_reads"]) == (7, 700, 1)
    assert (found["bluestore_wal_bytes"], found["bluestore_db_bytes"]) == (30, 7)
    assert found["bluestore_deferred_bytes"] == 7
    assert perf.totals([]) == {}


def test_a_daemon_is_asked_over_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "osd.0.asok"
    asked = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            opened, _ = listening.accept()
            with opened:
                while not (asked and asked[-1].endswith(b"\0")):
                    asked.append(opened.recv(1000))
                text = json.dumps({"osd": {"op_w": 1}}).encode()
                opened.sendall(struct.pack(">I", len(text)) + text)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            assert perf.ask(path, "perf dump") == {"osd": {"op_w": 1}}
        finally:
            thread.join()
    assert b"".join(asked) == b'{"prefix": "perf dump"}\0'
    with pytest.raises(ServerError, match="does not answer"):
        perf.ask(tmp_path / "none.asok", "perf dump")


CLUSTER = {"osds": 2, "replication": 2, "placement_groups": 8, "osd_size": 1 << 30, "ceph": {"osd_memory_target": 1}}


def test_the_cluster_of_a_case_is_that_of_its_parameters() -> None:
    found = layout_of({**CLUSTER, "jobs": 3})
    assert (found.osds, found.replication, found.osd_bytes) == (2, 2, 1 << 30)
    assert found.settings == {"osd_memory_target": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"osds": 100_000}, {"osds": 0}, {"replication": 3}, {"placement_groups": 1 << 20}, {"osd_size": 1},
        {"ceph": {"a\nb": 1}}, {"ceph": {"a": [1]}}, {"osds": None},
    ],
)  # fmt: skip
def test_a_received_case_with_values_out_of_range_starts_no_cluster(changes: dict[str, object]) -> None:
    """Result sets are checked by type only, because other versions may have had other bounds."""
    with pytest.raises(ServerError, match="describe no cluster"):
        layout_of({**CLUSTER, **changes})
    with pytest.raises(ServerError, match="describe no cluster"):
        layout_of({"osds": 1})


# CPU time of object daemons, from rates and CPU times that were made up -----------------------------------------------


FACTORS = ["operation", "queue_depth"]
PARAMETERS = {"object_store": "ceph", "object_size": 4096, "jobs": 1}


def around(value: float) -> list[float]:
    return [0.99 * value, value, 1.01 * value]


def values(*, cpu: bool = True, depths: tuple[int, ...] = (1, 16)) -> dict[str, Any]:
    """A cluster of which each write costs 500 µs and each read 200 µs of CPU time, on two cores."""
    rates = {("write", 1): 400, ("write", 16): 2000, ("random_read", 1): 2000, ("random_read", 16): 6000}
    metrics: dict[str, Any] = {name: {} for name in ("ops_per_sec", "osd_cpu_ns_per_op", "server_cores")}
    metrics["completion_latency_ns_mean"] = {}
    for (operation, depth), rate in rates.items():
        if depth not in depths:
            continue
        cell, cost = (operation, depth), 5e5 if operation == "write" else 2e5
        metrics["ops_per_sec"][cell] = around(rate)
        metrics["completion_latency_ns_mean"][cell] = around(1e9 * depth / rate)
        if cpu:
            metrics["osd_cpu_ns_per_op"][cell] = around(cost)
            metrics["server_cores"][cell] = around(rate * cost / 1e9)
    return metrics


def question(**changes: Any) -> Question:
    study = load("jo2024-ceph")
    cases, runs = results(FACTORS, values(**changes), part="small", **PARAMETERS)
    return Question(study=study, analysis=_analysis(study), cases=cases, runs=runs)


def _analysis(study: Study) -> Any:
    return next(each for each in study.analysis if each.kind == "osd_cpu")


def test_each_operation_has_its_highest_rate_and_its_cpu_time() -> None:
    write, read = find(question())
    assert isinstance(write, OsdCpu) and isinstance(read, OsdCpu)
    assert (write.value.value, write.cpu.value, write.cores) == (2000, 5e5, 1.0)
    assert (read.value.value, read.cpu.value, read.cores) == (6000, 2e5, 1.2)
    assert write.cpu.low is not None and write.cpu.low < 5e5
    assert write.unloaded_share == pytest.approx(0.2)
    assert read.unloaded_share == pytest.approx(0.4)
    assert write.sentence.startswith("4 KiB object writes on Ceph: 2,000 operations/s at queue depth 16 (95 % CI ")
    assert "OSDs use 500 µs (95 % CI " in write.sentence
    assert write.sentence.endswith("of CPU time per operation, 1.00 cores")
    assert write.evidence.startswith(
        "with one operation in flight: mean latency 2.5 ms, OSD CPU time 500 µs (20 % of it)"
    )


@pytest.mark.parametrize(
    ("verdicts", "limit", "end"),
    [
        ({"server-CPU-limited": 2, "undetermined": 1}, "server-CPU-limited", "; limited by CPU time"),
        ({"device-limited": 1, "undetermined": 1, "server-CPU-limited": 1}, "undetermined", " cores"),
    ],
)
def test_the_limit_is_that_of_most_runs(verdicts: dict[Kind, int], limit: Kind, end: str) -> None:
    support = Support(verdicts={"main/operation=write/queue_depth=16": Counter(verdicts)})
    write, _ = find(replace(question(), support=support))
    assert isinstance(write, OsdCpu)
    assert write.limit == limit
    assert write.sentence.endswith(end)


def test_a_single_queue_depth_has_an_answer_and_a_store_without_object_daemons_none() -> None:
    write, _ = find(question(depths=(16,)))
    assert isinstance(write, OsdCpu)
    assert (write.value.value, write.unloaded_share) == (2000, None)
    assert list(find(question(cpu=False))) == []


def test_the_answer_of_the_study_has_it_first() -> None:
    cases, runs = results(FACTORS, values(), part="small", **PARAMETERS)
    found = answer(load("jo2024-ceph"), cases, runs)
    assert [each.kind for each in found.summary[:2]] == ["OSD CPU time", "OSD CPU time"]
    assert len(found.summary) == 3
