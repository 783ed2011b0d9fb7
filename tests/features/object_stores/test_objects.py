"""Objects: parameters, the configuration and counters of a private Ceph cluster, and the CPU time of its daemons."""

from __future__ import annotations

import configparser
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hand_made import results

from iosonde.engine.protocol import Event
from iosonde.errors import ServerError, StudyError, TargetError
from iosonde.execution.stop import Stop
from iosonde.features.object_stores import ceph, run
from iosonde.features.object_stores.ceph import ClusterLayout, cluster
from iosonde.features.object_stores.ceph.cluster import CephCluster
from iosonde.features.object_stores.questions import OsdCpu, find
from iosonde.features.object_stores.run import OsdOutage, layout_of, not_recovered
from iosonde.findings.question import Question
from iosonde.planning import load
from iosonde.storage import open_target
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.programs import account_for
from iosonde.study.servers.server import Installation
from iosonde.study.workload import named

GIB = 1 << 30
OBJECTS = named("objects")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosonde.features.object_stores.ceph.locate", lambda: Installation(version="16", build=""))


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": OBJECTS.build(parameters)}
    return OBJECTS.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


def test_parameters_become_a_load_on_the_directory_of_their_cluster(reachable: Path) -> None:
    found = spec(reachable, operation="random_read", object_size="64KiB", arrival="poisson", rate=100)
    assert found["store"]["kind"] == "rados"
    assert Path(found["store"]["config_path"]).is_relative_to(reachable)
    assert found["object_bytes"] == 65536
    [stream] = found["streams"]
    assert (stream["operation"], stream["arrival"]) == ("random_read", {"kind": "poisson", "rate": 100.0})
    one, same, other = (
        Path(spec(reachable, **each)["store"]["config_path"]).parents[1].name
        for each in ({}, {"object_size": "64KiB"}, {"osds": 2})
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"replication": 2}, "`replication` is at most `osds`"),
        ({"object_size": "63"}, "64 B to 64 MiB"),
        ({"arrival": "poisson"}, "needs a `rate`"),
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


REFUSED_NAMES = """
mon_host osd_data bluestore_block_path keyring osd_pool_default_size erasure_code_dir osd_class_load_list
mgr_initial_modules mon_cluster_log_file log_to_syslog log_graylog_host crush_location_hook heartbeat_file
bdev_nvme_something ms_cluster_type osd_erasure_code_plugins admin-socket public_addrv keyfile auth_supported
auth_client_required cephx_require_version
"""
"""They name files, programs, hosts or what iosonde chooses."""
REFUSED_VALUES = ["a\\", "a # b", "a; b", "$pid", "a\rb", "a\nmon_host = x", "[client]", '"a"', "é", "x" * 501]
"""Ceph continues a line that ends with a backslash, so that the next section was part of a value."""


def test_a_study_may_change_defaults_and_not_what_iosonde_chooses() -> None:
    ceph.check_settings({"osd_memory_target": 1 << 31})
    for name in REFUSED_NAMES.split():
        with pytest.raises(StudyError, match="chosen by iosonde"):
            ceph.check_settings({name: "x"})
    for value in REFUSED_VALUES:
        with pytest.raises(StudyError, match="cannot be"):
            ceph.check_settings({"osd_op_queue": value})
    with pytest.raises(StudyError, match="is not a setting of Ceph"):
        ceph.check_settings({"OSD_memory_target": 1})
    with pytest.raises(StudyError, match="names a path"):
        ceph.check_settings({"osd_op_queue": "/tmp"})
    ceph.check_settings({"bluestore_rocksdb_options": "compression=kNoCompression,max_write_buffer_number=4"})
    for options in ("wal_dir=x", "compression=kNoCompression, db_log_dir=x", "env=x"):
        with pytest.raises(StudyError, match="names a place"):
            ceph.check_settings({"bluestore_rocksdb_options": options})


def test_a_port_that_is_in_use_or_of_another_cluster_is_not_chosen(tmp_path: Path) -> None:
    """Each monitor binds its port after all were chosen."""
    first = ceph.free_port(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        assert ceph.free_port(tmp_path) != first
    assert len({ceph.free_port(Path(f"/mnt/{name}/data")) for name in ("disk", "array", "cache")}) == 3


def test_counters_of_all_daemons_are_added() -> None:
    one = {
        "osd": {"op_w": 3, "op_w_in_bytes": 300, "op_r": 1},
        "bluefs": {"bytes_written_wal": 10, "bytes_written_sst": 5, "log_bytes": 2},
        "bluestore": {"deferred_write_bytes": 7},
    }
    two = {"osd": {"op_w": 4, "op_w_in_bytes": 400}, "bluefs": {"bytes_written_wal": 20}, "bluestore": {}}
    found = cluster.totals([one, two])
    assert (found["osd_client_writes"], found["osd_client_write_bytes"], found["osd_client_reads"]) == (7, 700, 1)
    assert (found["bluestore_wal_bytes"], found["bluestore_db_bytes"]) == (30, 7)
    assert found["bluestore_deferred_bytes"] == 7
    assert cluster.totals([]) == {}


CLUSTER = {"osds": 2, "replication": 2, "placement_groups": 8, "osd_size": 1 << 30, "ceph": {"osd_memory_target": 1}}


@pytest.mark.parametrize(
    "changes",
    [
        {"osds": 100_000}, {"osds": 0}, {"replication": 3}, {"placement_groups": 1 << 20}, {"osd_size": 1},
        {"ceph": {"a\nb": 1}}, {"ceph": {"a": [1]}}, {"osds": None},
    ],
)  # fmt: skip
def test_a_received_case_with_values_out_of_range_starts_no_cluster(changes: dict[str, object]) -> None:
    """Result sets are checked by type only, because other versions may have had other bounds."""
    found = layout_of({**CLUSTER, "jobs": 3})
    assert (found.osds, found.replication, found.osd_bytes) == (2, 2, 1 << 30)
    assert found.settings == {"osd_memory_target": 1}
    with pytest.raises(ServerError, match="describe no cluster"):
        layout_of({**CLUSTER, **changes})


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
    analysis = next(each for each in study.analysis if each.kind == "osd_cpu")
    return Question(study=study, analysis=analysis, cases=cases, runs=runs)


def test_each_operation_has_its_highest_rate_and_its_cpu_time() -> None:
    write, read = find(question())
    assert isinstance(write, OsdCpu) and isinstance(read, OsdCpu)
    assert (write.value.value, write.cpu.value, write.cores) == (2000, 5e5, 1.0)
    assert (read.value.value, read.cpu.value, read.cores) == (6000, 2e5, 1.2)
    assert write.cpu.low is not None and write.cpu.low < 5e5
    assert write.unloaded_share == pytest.approx(0.2)
    assert read.unloaded_share == pytest.approx(0.4)
    assert write.sentence.startswith("4 KiB object writes on Ceph: 2,000 operations/s at queue depth 16 (95 % CI ")
    single, _ = find(question(depths=(16,)))
    assert isinstance(single, OsdCpu)
    assert (single.value.value, single.unloaded_share) == (2000, None)
    assert list(find(question(cpu=False))) == [], "a store without object daemons"


# The outage of an object daemon, without a cluster ---------------------------------------------------------------------


MS = 1_000_000
OUTAGE = {"stop_osd_after": 100 * MS, "restart_osd_after": 200 * MS}


class FakeCluster(CephCluster):
    """Clean some time after the restart of its daemon; the program `ceph` and daemons do not exist."""

    clean_after_s = 0.1
    restarted: float | None = None
    start_error: TargetError | None = None

    def stop_osd(self, name: str) -> None:
        pass

    def start_osd(self, name: str) -> None:
        if self.start_error:
            raise self.start_error
        self.restarted = time.monotonic()

    def _answers(self, name: str, command: str) -> dict[str, Any]:
        return {"state": "active"}

    def placement_group_states(self) -> dict[str, int]:
        is_clean = self.restarted is not None and time.monotonic() - self.restarted >= self.clean_after_s
        return {"active+clean": 4} if is_clean else {"active+undersized+degraded": 4}

    def failure(self, what: str) -> ServerError:
        return ServerError(what)


@pytest.fixture
def stop() -> Iterator[Stop]:
    found = Stop()
    yield found
    found.close()


Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Creates a cluster of two object daemons that do not run."""
    monkeypatch.setattr(run, "POLL_S", 0.01)

    def made() -> FakeCluster:
        return FakeCluster(
            installation=Installation(version="16", build=""),
            directories=Directories(own=tmp_path / "iosonde-c0ffee00", name="ceph-c0ffee00"),
            layout=ClusterLayout(osds=2, replication=2, placement_groups=4, osd_bytes=1 << 30, settings={}),
            account=account_for([]),
            check=stop.check,
        )

    return made


def measured(outage: OsdOutage, intervals: int) -> None:
    """Intervals of 100 ms end."""
    for number in range(intervals):
        begin, end = number * 100 * MS, (number + 1) * 100 * MS
        event = {"event": "interval", "phase": "measure", "index": number, "begin_ns": begin, "end_ns": end}
        outage.event(cast("Event", event))


@pytest.mark.engine
def test_a_recovery_during_the_measurement_ends_before_it(make: Make) -> None:
    outage = OsdOutage(make(), OUTAGE)
    measured(outage, 2)
    assert outage._waiting
    outage._waiting.join()
    recovered = time.monotonic()
    time.sleep(0.3)  # The rest of the measurement.
    facts = outage.waited(engine_failed=False)
    assert facts["daemon"] == "osd.1"
    assert 0.1 <= facts["recovery_seconds"] <= recovered - outage._start - facts["restarted_seconds"] + 0.001
    assert not_recovered(facts) == []


@pytest.mark.engine
def test_an_incomplete_recovery_is_a_warning(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RECOVERY_S", 0.05)
    cluster = make()
    cluster.clean_after_s = 60.0
    outage = OsdOutage(cluster, OUTAGE)
    measured(outage, 2)
    facts = outage.waited(engine_failed=False)
    assert "recovery_seconds" not in facts and "restarted_seconds" in facts
    [warning] = not_recovered(facts)
    assert warning.code == "osd_not_recovered"
    assert "did not become healthy" in warning.message and "4 active+undersized+degraded" in warning.message


@pytest.mark.engine
def test_an_error_of_the_outage_is_kept_and_not_repeated(make: Make) -> None:
    cluster = make()
    cluster.start_error = TargetError("the device is in use", where="`/dev/sdb`")
    outage = OsdOutage(cluster, OUTAGE)
    measured(outage, 5)
    facts = outage.waited(engine_failed=False)
    assert (facts["error"], facts["where"]) == ("the device is in use", "`/dev/sdb`")
    assert "the device is in use: `/dev/sdb`" in not_recovered(facts)[0].message


@pytest.mark.engine
def test_a_failure_or_a_stop_ends_the_wait_for_recovery_and_restarts_no_daemon(make: Make, stop: Stop) -> None:
    failed, stopped, waiting = make(), make(), make()
    outage = OsdOutage(failed, OUTAGE)
    measured(outage, 1)
    assert "restarted_seconds" not in outage.waited(engine_failed=True)
    waiting.clean_after_s = 60.0
    recovery = OsdOutage(waiting, OUTAGE)
    measured(recovery, 2)
    outage = OsdOutage(stopped, OUTAGE)
    measured(outage, 1)
    stop.set()
    assert "restarted_seconds" not in outage.waited(engine_failed=False)
    assert failed.restarted is None and stopped.restarted is None
    assert "stopped" in recovery.waited(engine_failed=False)["error"]
    with pytest.raises(ServerError) as raised:
        waiting.wait_until_clean()
    assert raised.value.code == "stopped"
