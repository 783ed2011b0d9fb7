"""Objects in a real Ceph cluster: a run with the outage of a daemon as part of a study, and failures on one cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine
from servers.conftest import metrics_of, reachable_directory
from strangers import STRANGER, as_stranger, listening, refuses_strangers
from study_texts import study_text

from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.session import execute
from iosonde.execution.stop import Stop
from iosonde.features.object_stores.ceph import ClusterLayout, keyring_in
from iosonde.features.object_stores.ceph.cluster import POOL, CephCluster
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import commands
from iosonde.planning import expand, load, parse
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent
from iosonde.study.servers.directories import Directories
from iosonde.study.workload.workload import engine_spec

pytestmark = [
    pytest.mark.engine,
    pytest.mark.needs("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ceph-authtool", "monmaptool", "librados"),
]

STUDY = study_text(
    "objects",
    """
osds = 2
replication = 2
placement_groups = 4
osd_size = "1GiB"
operation = "random_read"
objects = 20
queue_depth = 2
arrival = "constant"
rate = 200
ramp = "0s"
duration = "4s"
interval = "200ms"
stop_osd_after = "400ms"
restart_osd_after = "2s"
delete_after = true
""",
)


@contextmanager
def on_disk() -> Iterator[Path]:
    """A directory that the user `ceph` can enter, on a file system with direct I/O."""
    path = reachable_directory(on_disk=True)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def test_a_run_measures_verifies_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPH_KEYRING", "/nonexistent")  # For a cluster of the user.
    with on_disk() as target:
        [record] = execute(expand(parse(STUDY), open_target(str(target))), tmp_path / "r").records()
        assert list(target.iterdir()) == []
        assert journal.entries() == []
    assert record.outcome == "complete", record.failure
    assert record.result is not None and record.server is not None
    facts = record.result["objects"]
    assert (facts["loaded"], facts["deleted"], facts["wrong"]) == (20, 20, 0)
    assert facts["checked"] > 0
    assert record.server["version"].startswith("Ceph ")
    assert record.server["settings"]["osd_memory_target"] == str(1 << 30)
    assert {each["file"] for each in record.server["open_files"]} == {"osd.0/block", "osd.1/block"}
    outage = record.server["osd_outage"]
    assert outage["daemon"] == "osd.1"
    assert outage["stopped_seconds"] <= outage["restarted_seconds"]
    assert outage["recovery_seconds"] > 0
    assert record.verdict is not None
    found = metrics_of(tmp_path / "r")
    assert found["ops_per_sec"] > 0
    assert found["osd_recovery_seconds"] > 0
    assert found["objects_wrong"] == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephCluster]:
    with pytest.MonkeyPatch.context() as patch, on_disk() as target:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        directories = Directories(own=target / "iosonde-c0ffee00", name="ceph-c0ffee00")
        layout = ClusterLayout(osds=1, replication=1, placement_groups=4, osd_bytes=1 << 30, settings={})
        found = CephCluster.locate(directories, layout)
        try:
            found.provision()
            found.start()
            yield found
        finally:
            found.remove()
            if journal.find(directories.own):
                journal.remove(directories.own)


def driven(cluster: CephCluster, operation: str, **changes: Any) -> EngineRun:
    workload = {
        "kind": "objects",
        "store": {"kind": "rados", "config_path": str(cluster.configuration), "user": "admin", "pool": POOL},
        "object_bytes": 4096,
        "objects": 10,
        "content_seed": 1,
        "streams": [
            {"name": "main", "jobs": 2, "queue_depth": 2, "operation": operation, "arrival": {"kind": "closed"}}
        ],
        "ramp_ns": 0,
        "duration_ns": 300_000_000,
        "interval_ns": 100_000_000,
        "timeout_ns": 60_000_000_000,
        "delete_after": False,
    }
    stop = Stop()
    try:
        spec = engine_spec(workload | changes, seed=1, run_id="r", devices=[])
        return drive(spec, on_event=lambda _: None, stop=stop, engine=real_engine())
    finally:
        stop.close()


@pytest.mark.needs("rados")
def test_what_the_engine_writes_is_what_the_object_daemon_counts(cluster: CephCluster, tmp_path: Path) -> None:
    before = cluster.statistics()
    done = driven(cluster, "random_read")
    assert done.result is not None, done.failure
    after = cluster.statistics()
    counted = {name: after[name] - before[name] for name in after}
    assert counted["osd_client_reads"] >= sum(job["operations"] for job in done.result["jobs"])
    assert counted["osd_client_writes"] >= 10 and counted["osd_client_write_bytes"] >= 10 * 4096
    assert counted["bluestore_wal_bytes"] > 0
    listed = subprocess.run(
        ["rados", "-c", str(cluster.configuration), "-p", POOL, "ls"], capture_output=True, text=True, check=True
    )
    assert set(re.findall(r"iosonde-(\d+)", listed.stdout)) == {f"{number:012}" for number in range(10)}
    own = client_configuration(cluster, tmp_path, keyring_in(cluster.data))
    for client in CLIENTS:  # With the keys of the session.
        subprocess.run([*client, "-c", str(own)], capture_output=True, check=True)
    store = {"kind": "rados", "config_path": str(cluster.configuration), "user": "admin", "pool": "none"}
    done = driven(cluster, "write", store=store)
    assert done.failure is not None
    assert (done.failure.code, done.failure.context) == ("vanished", "`store.pool`")


CLIENTS = (["ceph", "--connect-timeout", "20", "status"], ["rados", "--no-mon-config", "--pool", POOL, "ls"])


def client_configuration(cluster: CephCluster, place: Path, keyring: Path, *, method: str = "cephx") -> Path:
    """The configuration of a client that has a keyring of its own."""
    [monitor] = re.findall(r"mon_host = .*\n", cluster.configuration.read_text())
    path = place / "ceph.conf"
    path.write_text(f"[global]\n{monitor}keyring = {keyring}\nauth_client_required = {method}\n")
    path.chmod(0o644)
    return path


@pytest.mark.needs("root", "rados")
@pytest.mark.parametrize("kind", ["the session's configuration", "no authentication", "another key"])
def test_clients_of_other_users_are_refused(cluster: CephCluster, kind: str) -> None:
    client = CLIENTS[1] if kind == "another key" else CLIENTS[0]
    with on_disk() as place:
        keyring = place / "keyring"
        keyring.touch()
        if kind == "another key":
            allowed = [text for each in ("mon", "mgr", "osd") for text in ("--cap", each, "allow *")]
            subprocess.run(["ceph-authtool", keyring, "--name", "client.admin", "--gen-key", *allowed], check=True)
        keyring.chmod(0o644)
        method = "none" if kind == "no authentication" else "cephx"
        own = client_configuration(cluster, place, keyring, method=method)
        used = cluster.configuration if kind == "the session's configuration" else own
        done = subprocess.run(
            [*client, "-c", str(used)], capture_output=True, text=True, check=False, cwd="/",
            user=STRANGER, group=STRANGER, extra_groups=[],
        )  # fmt: skip
    assert done.returncode != 0 and done.stdout == ""
    assert re.search("error connecting|couldn't connect", done.stderr)
    assert "permission denied" in done.stderr.lower()


@pytest.mark.needs("root")
def test_daemons_listen_on_loopback_their_keys_are_in_no_other_file_and_the_manager_loads_no_modules(
    cluster: CephCluster,
) -> None:
    for name in ("mon.a", "mgr.x", "osd.0"):
        found = listening([cluster.pid_of(name)])
        assert {each.address for each in found if each.kind != "unix"} == {"127.0.0.1"}
        assert refuses_strangers(each.address for each in found if each.kind == "unix")
    keyring = keyring_in(cluster.data)
    keys = re.findall(r"key = (\S+)", keyring.read_text())
    assert len(set(keys)) == len(["mon.", "mgr.x", "client.admin", "osd.0"])
    command_lines = [Path(f"/proc/{cluster.pid_of(name)}/cmdline").read_text() for name in ("mon.a", "mgr.x", "osd.0")]
    shown = "\n".join([*command_lines, cluster.configuration.read_text(), json.dumps(cluster.describe())])
    assert not any(key in shown for key in keys)
    assert keyring.stat().st_mode & 0o777 == 0o600
    assert "PermissionError" in as_stranger("", "open(sys.argv[1])", str(keyring))
    messages = (cluster.data / "logs" / "mgr.x.log").read_text()
    assert "mgr" in messages and "Loading python module" not in messages, "the manager reports each that it loads"


@pytest.mark.extended
@pytest.mark.needs("rados")
def test_rados_bench_is_measured_on_a_real_cluster(
    cluster: CephCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped study of another benchmark, every metric of it."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    study, target = load("command-rados-bench"), tmp_path / "target"
    target.mkdir()
    settings = {
        "ceph_conf": str(cluster.configuration), "pool": POOL, "duration": "2s", "block_size": "4KiB",
        "operations_in_flight": "4",
    }  # fmt: skip
    plan = expand(study, open_target(str(target)), profile="quick", repeats=1, settings=settings)
    found = execute(plan, tmp_path / "set", consent=Consent(commands=commands.commands_hash(plan)))
    assert [record.failure for record in found.records() if record.failure] == []
    named = list(study.measurement["metrics"])
    values = run_metrics(found).filter(pl.col("metric").is_in(named), ~pl.col("control"))
    assert set(values["metric"]) == set(named) and values["value"].min() > 0  # type: ignore[operator]


def test_z_a_killed_daemon_without_a_copy_fails_the_run_and_is_named(cluster: CephCluster) -> None:
    os.kill(cluster.pid_of("osd.0"), signal.SIGKILL)
    while not cluster.ended_daemons():
        time.sleep(0.01)
    done = driven(cluster, "write", timeout_ns=1_000_000_000)
    assert done.failure is not None
    assert done.failure.code == "timeout"
    cause = cluster.failure("failed under load")
    assert cause.code == "server_vanished"
    assert "osd.0" in cause.where
