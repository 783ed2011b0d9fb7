"""The store `mongodb` on FerretDB, which implements MongoDB's protocol and stores in SQLite. MongoDB itself was not tested."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pymongo import MongoClient

from iosonde.errors import ServerError, StudyError
from iosonde.execution import execute
from iosonde.execution.engine import drive
from iosonde.execution.observer import Silent
from iosonde.execution.session import Interrupted
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores import mongodb
from iosonde.features.key_value_stores.mongodb import MongoDb
from iosonde.plan import Plan, Run
from iosonde.planning import expand, parse
from iosonde.protocol.event import Event
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.servers.url import parse as parse_url
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.safety.journal_entry import DATABASE_ON_SERVER
from iosonde.tools import TOOLS

pytestmark = [pytest.mark.engine, pytest.mark.needs("ferretdb")]

STUDY = """
name = "documents"
title = "Documents"
repeats = 1
question = "?"
workload = "kv"
[measurement]
store = "mongodb"
records = 300
key_size = 16
value_size = 100
load_batch = 100
interval = "100ms"
duration = "2s"
{measurement}
[[parts]]
{factors}
[profiles.standard]
"""


@dataclass
class Server:
    """A server of the user, on a port that it chose."""

    process: subprocess.Popen[str]
    port: int
    messages: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}"

    def databases(self) -> set[str]:
        connection = MongoDb().connect(parse_url(self.url).address())
        try:
            return set(connection.database_names())
        finally:
            connection.close()

    def plan(self, measurement: str = "", factors: str = "", **settings: str) -> Plan:
        study = parse(STUDY.format(measurement=measurement, factors=factors), name="s.toml")
        place = open_target(str(self.directory))
        return expand(study, place, settings={"server_url": self.url, **settings})

    @property
    def directory(self) -> Path:
        return Path(self.process.args[2])  # type: ignore[index]


def started(directory: Path) -> Server:
    """FerretDB, once it listens."""
    program = str(Path(TOOLS["ferretdb"].find() or "").expanduser())
    process = subprocess.Popen(
        [program, "127.0.0.1:0", str(directory)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    messages = []
    for line in process.stderr:
        messages.append(line)
        if found := re.search(r"Listening on TCP 127\.0\.0\.1:([0-9]+)", line):
            server = Server(process, int(found[1]), messages)
            reader = threading.Thread(target=lambda: messages.extend(process.stderr or []), daemon=True)
            reader.start()
            return server
    process.wait()
    raise AssertionError(f"FerretDB did not start: {''.join(messages)}")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="iosonde-test-", dir=memory if memory.is_dir() else None) as directory:
        found = started(Path(directory))
        yield found
        found.process.kill()
        found.process.wait()


def names_of(plan: Plan) -> list[str]:
    return sorted({str(run.spec["workload"]["target"]["database"]) for run in plan.runs})


def records_of(plan: Plan, output: Path) -> list[Record]:
    execute(plan, output, consent=Consent(confirm=tuple(names_of(plan))))
    return list(ResultSet.open(output).records())


def own_databases(server: Server) -> set[str]:
    return {name for name in server.databases() if name.startswith("iosonde_")}


def test_records_are_loaded_read_scanned_and_changed_and_the_database_is_dropped(
    server: Server, tmp_path: Path
) -> None:
    loads = ["read/1:update/1", "insert/1:delete/1:read/2", "scan/1:read_modify_write/1"]
    factors = f"[parts.factors]\noperations = {loads}"
    plan = server.plan("sync = true\njobs = 2\nlimit_operations = 200", factors, duration="60s")
    [name] = names_of(plan)
    records = records_of(plan, tmp_path / "r")
    assert len(records) == 3
    for record in records:
        assert record.outcome == "complete", record.failure
        store = (record.result or {})["store"]
        assert sum(check["values"] for check in store["checks"]) > 0
        assert [check for check in store["checks"] if check["corrupted"]] == []
        assert store["kind"] == "mongodb" and store["version"].startswith("FerretDB ")
        assert store["options"]["w"] == "1" and store["options"]["read_concern"] == "local"
        # FerretDB reports no storage engine, so nothing is known of a journal.
        assert store["durability"] == "nothing"
    assert own_databases(server) == set(), f"{name} was not dropped"


def test_the_plan_names_the_database_and_nothing_starts_without_consent(server: Server, tmp_path: Path) -> None:
    plan = server.plan()
    [name] = names_of(plan)
    assert any(name in each.what for each in plan.destroys)
    with pytest.raises(ServerError, match="would be created") as error:
        execute(plan, tmp_path / "refused")
    assert f"--confirm {name}" in error.value.hint
    done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "foreign_data", "the engine creates none"
    assert own_databases(server) == set()
    study = parse(STUDY.format(measurement="", factors=""), name="s.toml")
    with pytest.raises(StudyError, match="none is named") as refused:
        expand(study, open_target(str(server.directory)))
    assert "--server mongodb://" in refused.value.hint


def test_a_database_of_that_name_is_not_touched(server: Server, tmp_path: Path) -> None:
    plan = server.plan()
    [name] = names_of(plan)
    connection = MongoDb().connect(parse_url(server.url).address())
    connection.insert(name, "accounts", {"_id": "mine"})
    [record] = records_of(plan, tmp_path / "r")
    assert record.failure and record.failure.code == "foreign_data"
    assert connection.has(name, "accounts", "mine")
    with pytest.raises(ServerError, match="iosonde did not create it") as error:
        MongoDb().drop_database(connection, name)
    assert f"db.getSiblingDB('{name}').dropDatabase()" in error.value.hint
    assert connection.has(name, "accounts", "mine"), "cleanup drops only what iosonde created"
    connection.drop(name)
    connection.close()


class _StopUnderLoad(Silent):
    """Sends a signal to this process once the engine loads records."""

    def __init__(self, server: Server, database: str) -> None:
        self._server, self._database = server, database

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "phase" and event["phase"] == "layout" and event["edge"] == "begin":
            threading.Thread(target=self._stop).start()

    def _stop(self) -> None:
        client: MongoClient[dict[str, object]] = MongoClient(self._server.url.removeprefix("mongodb://"))
        while not client[self._database]["records"].find_one():
            time.sleep(0.005)
        client.close()
        os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_load_leaves_no_database(server: Server, tmp_path: Path) -> None:
    """The server still inserts a batch of the engine that was stopped, and creates the dropped database again."""
    plan = server.plan(load_batch="20000", records="200k", value_size="1000")
    [name] = names_of(plan)
    with pytest.raises(Interrupted):
        execute(plan, tmp_path / "r", consent=Consent(confirm=(name,)), observer=_StopUnderLoad(server, name))
    time.sleep(2)
    assert own_databases(server) == set()
    assert [entry for entry in journal.entries() if entry.what == DATABASE_ON_SERVER] == []


def test_a_database_that_a_client_creates_again_stays_in_the_journal(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mongodb, "DROP_S", 0.5)
    connection = MongoDb().connect(parse_url(server.url).address())
    MongoDb().create_database(connection, "iosonde_12ab34cd")
    drop = connection.drop

    def drop_and_insert(name: str) -> None:
        drop(name)
        connection.insert(name, "records", {"_id": "late"})

    monkeypatch.setattr(connection, "drop", drop_and_insert)
    with pytest.raises(ServerError, match="exists again each time that it is dropped"):
        MongoDb().drop_database(connection, "iosonde_12ab34cd")
    monkeypatch.undo()
    MongoDb().drop_database(connection, "iosonde_12ab34cd")
    assert own_databases(server) == set(), "a later attempt still knows that iosonde created it"
    connection.close()


def test_a_killed_server_fails_the_run(tmp_path: Path) -> None:
    server = started(tmp_path)
    plan = server.plan(duration="600s")
    connection = MongoDb().connect(parse_url(server.url).address())
    MongoDb().create_database(connection, names_of(plan)[0])
    connection.close()

    def kill(event: Event) -> None:
        if event["event"] == "interval":
            server.process.kill()

    try:
        vanished = drive(plan.runs[0].spec, on_event=kill, stop=Stop())
    finally:
        server.process.kill()
        server.process.wait()
    assert vanished.failure and vanished.failure.code in ("server_vanished", "connection_refused"), vanished.failure
    absent = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert absent.failure and absent.failure.code == "connection_refused", absent.failure
    assert f"127.0.0.1:{server.port}" in f"{absent.failure.message} {absent.failure.context}"
