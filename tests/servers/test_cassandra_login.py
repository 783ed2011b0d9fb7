"""User name and password of a Cassandra that the user runs: read from the environment by both clients, and not recorded.

The server is a real node as iosonde starts it, with a further role for the user, and is used with `--server`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from servers.conftest import reachable_directory

from iosonde.errors import ServerError
from iosonde.execution import execute
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.cassandra import cql
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
SECRET = "a-secret-of-the-user"
CREATE_ROLE = f"CREATE ROLE bench WITH PASSWORD = '{SECRET}' AND LOGIN = true"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A node with a role for the user; the user's variable has no meaning for it."""
    base = reachable_directory()
    instance = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("CASSANDRA_PASSWORD", "of-another-server")
        directories = Directories(own=base / "iosonde-01234567", name="cassandra-00000001")
        try:
            instance = Instance.locate(Cassandra(), directories, {HEAP: 256 << 20}, None)
            instance.provision()
            instance.start()
            with closing(instance.connect()) as connection:
                connection.rows(CREATE_ROLE)
            yield instance
        finally:
            if instance:
                instance.remove()
            if journal.find(directories.own):
                journal.remove(directories.own)
            shutil.rmtree(base)


@pytest.fixture
def url(node: Instance) -> str:
    """Address of the node with the name of the user."""
    return f"cql://bench@{loopback_of(node.place.data)}:{PORT}"


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
    assert b"cql://bench@" in contents


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


def test_a_node_is_refused_while_others_are_logged_in_or_have_left_a_role(node: Instance) -> None:
    """As after its first start, at which every user of the machine can log in as `cassandra`."""
    superuser = replace(node.address(), user="cassandra")
    with closing(cql.connect(superuser)) as stranger:
        stranger.rows(f"DROP ROLE {node.address().user}")
        stranger.rows("DROP ROLE bench")
        with pytest.raises(ServerError, match="another client has logged in"):
            node.connect()
        stranger.rows(CREATE_ROLE)
    with pytest.raises(ServerError, match="another client has logged in"):
        node.connect()
    with closing(cql.connect(superuser)) as stranger:
        stranger.rows("DROP ROLE bench")
    node.wait_until_ready()
    with closing(node.connect()) as connection:
        assert sorted(connection.rows("SELECT role FROM system_auth.roles")) == [("cassandra",), ("iosonde",)]
        connection.rows(CREATE_ROLE)
