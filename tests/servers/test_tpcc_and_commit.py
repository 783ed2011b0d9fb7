"""TPC-C and commits against real servers: loading, consistency, lost and kept commits, and errors.

Each server is provisioned and loaded with one warehouse once; the tests share it in their order of definition. Statements
and errors of its own are tested on each server, what follows from the answers on PostgreSQL.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from servers.conftest import KINDS, instance_in, reachable_directory

from iosonde.engine import protocol
from iosonde.study.servers.server import Instance, Settings

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv")]

SETTINGS: dict[str, Settings] = {
    "postgresql": {"shared_buffers": "64MB", "max_connections": 20, "max_wal_size": "256MB"},
    "mariadb": {"innodb_buffer_pool_size": "128M", "innodb_log_file_size": "64M", "max_connections": 20},
}
on_postgresql = pytest.mark.parametrize("loaded", KINDS[:1], indirect=True)
JsonObject = dict[str, Any]


KEPT = {"kind": "loaded", "reload": False, "jobs": 2}
"""A database that is loaded unless it is complete."""


class Loaded:
    """A server with one warehouse in the database `tpcc`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.kind = instance.server.name

    def server(self, **changes: Any) -> JsonObject:
        socket = self.instance.server.socket_path(self.instance.place.socket)
        return {
            "kind": self.kind,
            "address": {"kind": "unix", "path": str(socket)},
            "user": self.instance.server.user,
            "database": "tpcc",
            "missing_database": "create",
            "connect_timeout_ns": 60 * 10**9,
        } | changes

    def tpcc(self, *, server: JsonObject | None = None, before: bool = False, **changes: Any) -> JsonObject:
        return {
            "kind": "tpcc",
            "server": server or self.server(),
            "warehouses": 1,
            "seed": 7,
            "database": {"kind": "existing"},
            "check": {"before": before, "after": True},
        } | changes

    def rows(self, sql: str) -> list[Any]:
        connection = self.instance.connect("tpcc")
        try:
            return list(connection.rows(sql))
        finally:
            connection.close()


def measurement(**changes: Any) -> JsonObject:
    return {
        "terminals": 4,
        "home": "uniform",
        "think": "none",
        "arrival": {"kind": "closed"},
        "mix": "deck",
        "isolation": "read_committed",
        "retries": 20,
        "pipelining": False,
        "ramp_ns": 0,
        "duration_ns": 5 * 10**8,
        "interval_ns": 25 * 10**7,
        "server_loss": "fail",
    } | changes


def run(workload: JsonObject, *, stop_after: int | None = None) -> list[JsonObject]:
    """The engine's events; it is stopped after so many transactions: on a busy machine there may be none for seconds."""
    spec = {"protocol": protocol.VERSION, "run_id": "test", "seed": 1, "workload": workload}
    with subprocess.Popen([real_engine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdin and engine.stdout
        engine.stdin.write(json.dumps(spec) + "\n")
        engine.stdin.flush()
        completed, events = 0, []
        for event in map(json.loads, engine.stdout):
            events.append(event)
            if event["event"] == "interval" and stop_after is not None:
                completed += sum(found["count"] for stream in event["streams"] for found in stream["operations"])
                if completed >= stop_after:
                    stop_after = None
                    engine.stdin.write('"stop"\n')
                    engine.stdin.flush()
    return events


def result(workload: JsonObject, *, stop_after: int | None = None) -> JsonObject:
    last = run(workload, stop_after=stop_after)[-1]
    assert (last["event"], last["outcome"] == "stopped") == ("result", stop_after is not None), last
    return last


def failure(workload: JsonObject) -> JsonObject:
    last = run(workload)[-1]
    assert last["event"] == "error", last
    assert last["hint"]
    assert last["context"]
    return last


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    base = reachable_directory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        instance = instance_in(base, request.param, SETTINGS[request.param])
        try:
            instance.provision()
            instance.start()
            server = Loaded(instance)
            done = result(server.tpcc(before=True, database=KEPT))
            assert done["oltp"]["load"]["rows"] > 590_000
            assert [each["violations"] for each in done["oltp"]["consistency"][0]["conditions"]] == [0] * 12
            assert result(server.tpcc(database=KEPT))["oltp"]["load"]["kept"]
            yield server
        finally:
            instance.remove()
            shutil.rmtree(base, ignore_errors=True)


@pytest.mark.parametrize("pipelining", [False, True])
def test_consistency_conditions_are_met_after_a_run_and_its_orders_are_found(
    loaded: Loaded, pipelining: bool, tmp_path: Path
) -> None:
    before = int(loaded.rows("SELECT SUM(d_next_o_id) FROM district")[0][0])
    log = {"directory": str(tmp_path)}
    load = measurement(pipelining=pipelining, acknowledged=log, duration_ns=600 * 10**9)
    oltp = result(loaded.tpcc(measurement=load), stop_after=60)["oltp"]
    added = int(loaded.rows("SELECT SUM(d_next_o_id) FROM district")[0][0]) - before
    assert oltp["acknowledged"] == added > 0
    counters = oltp["counters"]
    assert (counters["round_trips"] < counters["statements"] / 2) == pipelining
    found = result(loaded.tpcc(before=True, verify_acknowledged=str(tmp_path)))["oltp"]
    assert [each["violations"] for each in found["consistency"][0]["conditions"]] == [0] * 12
    assert found["durability"] == {"acknowledged": added, "lost": 0, "first_lost": []}


@on_postgresql
def test_counts_of_intervals_jobs_and_transactions_agree_and_conflicts_are_repeated(loaded: Loaded) -> None:
    events = run(loaded.tpcc(measurement=measurement(arrival={"kind": "poisson", "rate": 40.0})))
    done = events[-1]
    operations = [
        operation
        for event in events
        if event["event"] == "interval"
        for stream in event["streams"]
        for operation in stream["operations"]
    ]
    for each in done["oltp"]["transactions"]:
        counted = sum(found["count"] for found in operations if found["operation"] == each["operation"])
        assert counted == each["completed"]
    assert sum(job["operations"] for job in done["jobs"]) == sum(found["count"] for found in operations)
    assert all(found["response_latency"]["count"] == found["count"] for found in operations)

    load = measurement(isolation="serializable", terminals=8, duration_ns=600 * 10**9)
    oltp = result(loaded.tpcc(measurement=load), stop_after=300)["oltp"]
    aborted = sum(
        each["serialization_failures"] + each["deadlocks"] + each["lock_timeouts"] for each in oltp["transactions"]
    )
    assert aborted > 0
    assert oltp["counters"]["aborted_attempts"] >= aborted


@on_postgresql
def test_acknowledged_orders_survive_the_death_of_the_server(loaded: Loaded, tmp_path: Path) -> None:
    def kill() -> None:
        while not any(path.stat().st_size > 160 for path in tmp_path.glob("*.acked")):
            time.sleep(0.02)
        loaded.instance.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    load = measurement(duration_ns=600 * 10**9, acknowledged={"directory": str(tmp_path)}, server_loss="end")
    events = run(loaded.tpcc(measurement=load))
    killer.join()
    done = events[-1]["oltp"]
    assert done["server_vanished_ns"] > 0
    assert "server_vanished" in [event["code"] for event in events if event["event"] == "warning"]
    loaded.instance.start()
    again = result(loaded.tpcc(before=True, verify_acknowledged=str(tmp_path)))["oltp"]
    assert again["durability"] == {"acknowledged": done["acknowledged"], "lost": 0, "first_lost": []}
    first = next(path for path in sorted(tmp_path.glob("*.acked")) if path.stat().st_size > 16).read_bytes()[16:32]
    warehouse, district, order = (int.from_bytes(part, "little") for part in (first[:4], first[4:8], first[8:]))
    loaded.rows(f"DELETE FROM order_line WHERE ol_w_id = {warehouse} AND ol_d_id = {district} AND ol_o_id = {order}")
    lost = result(loaded.tpcc(verify_acknowledged=str(tmp_path)))["oltp"]["durability"]
    assert lost["lost"] == 1
    assert lost["first_lost"] == [f"{warehouse}/{district}/{order}"]


@pytest.mark.parametrize("operation", ["insert", "update"])
def test_commits_are_acknowledged_and_found(loaded: Loaded, operation: str, tmp_path: Path) -> None:
    commits = loaded.server(database="commits")
    workload = {"kind": "commit", "server": commits, "operation": operation, "payload_bytes": 100}
    load = {
        "clients": 4, "arrival": {"kind": "closed"}, "ramp_ns": 0, "duration_ns": 600 * 10**9, "interval_ns": 10**8,
        "acknowledged": {"directory": str(tmp_path)}, "server_loss": "fail",
    }  # fmt: skip
    done = result(workload | {"measurement": load}, stop_after=100)["oltp"]
    assert done["counters"]["statements"] == done["counters"]["round_trips"] >= done["transactions"][0]["completed"]
    found = result(workload | {"verify_acknowledged": str(tmp_path)})["oltp"]["durability"]
    assert found == {"acknowledged": done["acknowledged"], "lost": 0, "first_lost": []}


@on_postgresql
def test_wrong_specs_and_servers_are_refused_with_a_reason(loaded: Loaded) -> None:
    def code(workload: JsonObject) -> str:
        return str(failure(workload)["code"])

    absent = {"kind": "unix", "path": "/nonexistent/socket"}
    assert code(loaded.tpcc(server=loaded.server(address=absent, connect_timeout_ns=0))) == "connection_refused"
    assert code(loaded.tpcc(server=loaded.server(version_min="99"))) == "wrong_version"
    assert code(loaded.tpcc(server=loaded.server(kind="mariadb", connect_timeout_ns=10**9))) == "unsupported"
    assert code(loaded.tpcc(warehouses=2)) == "foreign_data"
    assert code(loaded.tpcc(server=loaded.server(database="a;b"))) == "invalid_spec"
    assert code(loaded.tpcc(measurement=measurement(terminals=40))) == "connection_limit"
    think = measurement(think="standard", arrival={"kind": "constant", "rate": 1.0})
    assert code(loaded.tpcc(measurement=think)) == "invalid_spec"


def test_databases_of_others_are_refused(loaded: Loaded) -> None:
    other = {
        "postgresql": "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
        "mariadb": "CHARACTER SET latin1",
    }
    loaded.rows(f"CREATE DATABASE latin {other[loaded.kind]}")
    database = {"kind": "loaded", "reload": True, "jobs": 1}
    found = failure(loaded.tpcc(server=loaded.server(database="latin"), database=database))
    assert found["code"] == "wrong_encoding"
    result({"kind": "commit", "server": loaded.server(database="theirs"), "operation": "insert", "payload_bytes": 1})
    connection = loaded.instance.connect("theirs")
    connection.rows("CREATE TABLE precious (a INT)")
    connection.close()
    found = failure(loaded.tpcc(server=loaded.server(database="theirs"), database=database))
    assert found["code"] == "foreign_data"
    assert "`precious`" in found["message"]


@on_postgresql
def test_a_violated_condition_fails_the_run_and_is_named(loaded: Loaded) -> None:
    loaded.rows("UPDATE warehouse SET w_ytd = w_ytd + 1")
    events = run(loaded.tpcc(before=True))
    assert events[-1]["code"] == "inconsistent"
    assert "3.3.2.1 " in events[-1]["message"]
    assert "3.3.2.8 " in events[-1]["message"]
    checked = next(event for event in events if event["event"] == "consistency")
    violated = {each["number"] for each in checked["conditions"] if each["violations"]}
    assert {1, 8} <= violated
