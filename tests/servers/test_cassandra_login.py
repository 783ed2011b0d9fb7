"""User name and password of a Cassandra that the user runs: read from the environment by both clients, and not recorded.

The server is a real node with `PasswordAuthenticator`, started as iosonde starts its own nodes, and used with `--server`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.conftest import reachable_directory

from iosonde.execution import execute
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.cassandra import files
from iosonde.features.key_value_stores.cassandra.server import HEAP, PORT, Cassandra, loopback_of
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.servers.directories import Directories
from iosonde.servers.instance import Instance
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv", "java", "cassandra", "engine")]

STUDY = """
name = "login"
title = "Login"
question = "?"
workload = "kv"
repeats = 1

[measurement]
store = "cassandra"
records = 200
key_size = 24
value_size = 100
load_batch = 100
interval = "100ms"
ramp = "0"
duration = "60s"
limit_operations = 100
operations = "read/1:update/1"

[[parts]]

[profiles.standard]
"""
INITIAL, SECRET = "cassandra", "a-secret-of-the-user"
"""Cassandra's own first password, and the one that it is changed to."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a node that requires a password, with the name of its user."""
    base = reachable_directory()
    instance = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("CASSANDRA_PASSWORD", INITIAL)
        patch.setattr(Cassandra, "user", "cassandra")
        authenticator = {
            "authenticator": {"class_name": "PasswordAuthenticator"},
            "role_manager": "CassandraRoleManager",
            # Cached for two seconds by default: the old password would be accepted and the new one refused.
            "credentials_validity": "0ms",
        }
        patch.setattr(files, "DEFAULTS", {**files.DEFAULTS, **authenticator})
        options = (*files.JVM_OPTIONS, "-Dcassandra.superuser_setup_delay_ms=0")
        patch.setattr(files, "JVM_OPTIONS", options)
        directories = Directories(own=base / "iosonde-01234567", name="cassandra-00000001")
        try:
            instance = Instance.locate(Cassandra(), directories, {HEAP: 256 << 20}, None)
            instance.provision()
            instance.start()
            connection = instance.connect()
            connection.rows(f"ALTER ROLE cassandra WITH PASSWORD = '{SECRET}'")
            connection.close()
            yield f"cql://cassandra@{loopback_of(instance.place.data)}:{PORT}"
        finally:
            if instance:
                instance.remove()
            if journal.find(directories.own):
                journal.remove(directories.own)
            shutil.rmtree(base)


def planned(url: str, place: Path) -> Plan:
    place.mkdir()
    return expand(parse(STUDY), open_target(str(place)), settings={"server_url": url})


def carried_out(plan: Plan, output: Path) -> ResultSet:
    return execute(
        plan, output, consent=Consent(confirm=tuple(run.spec["workload"]["target"]["database"] for run in plan.runs))
    )


def test_the_password_reaches_both_clients_and_no_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASSANDRA_PASSWORD", SECRET)
    results = carried_out(planned(url, tmp_path / "data"), tmp_path / "r")
    [record] = results.records()
    assert record.outcome == "complete", record.failure
    assert record.result and sum(check["corrupted"] for check in record.result["store"]["checks"]) == 0
    contents = b"".join(path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file())
    assert SECRET.encode() not in contents
    assert b"cql://cassandra@" in contents


@pytest.mark.parametrize("password", ["wrong", ""])
def test_a_wrong_password_fails_the_run_and_the_hint_names_the_variable(
    url: str, password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASSANDRA_PASSWORD", password)
    plan = planned(url, tmp_path / "data")
    [record] = carried_out(plan, tmp_path / "r").records()
    assert record.outcome == "failed"
    assert record.failure and record.failure.code == "authentication", record.failure
    assert "CASSANDRA_PASSWORD" in record.failure.hint
    stop = Stop()
    try:
        done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=stop)
    finally:
        stop.close()
    assert done.failure and done.failure.code == "authentication", "the engine by itself"
    assert "CASSANDRA_PASSWORD" in done.failure.hint
