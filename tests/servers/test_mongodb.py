"""The store `mongodb` on FerretDB, which implements MongoDB's protocol and stores in SQLite. MongoDB itself was not tested."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from study_texts import study_text

from iosonde.base.tools import TOOLS
from iosonde.errors import ServerError, StudyError
from iosonde.execution.engine import drive
from iosonde.execution.session import execute
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores import mongodb
from iosonde.features.key_value_stores.mongodb import MongoDb
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent
from iosonde.study.servers.foreign import parse as parse_url

pytestmark = [pytest.mark.engine, pytest.mark.needs("ferretdb")]

MEASUREMENT = """
store = "mongodb"
records = 300
key_size = 16
value_size = 100
load_batch = 100
interval = "100ms"
duration = "2s"
"""


@dataclass
class Server:
    """A server of the user, on a port that it chose."""

    directory: Path
    port: int

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}"

    def own_databases(self) -> set[str]:
        with closing(MongoDb().connect(parse_url(self.url).address())) as connection:
            return {name for name in connection.database_names() if name.startswith("iosonde_")}

    def plan(self, measurement: str = "", factors: str = "", **settings: str) -> Plan:
        study = parse(study_text("kv", MEASUREMENT + measurement, factors))
        place = open_target(str(self.directory))
        return expand(study, place, settings={"server_url": self.url, **settings})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """FerretDB, once it listens."""
    program = str(Path(TOOLS["ferretdb"].find() or "").expanduser())
    with tempfile.TemporaryDirectory(prefix="iosonde-test-", dir="/dev/shm") as directory:
        messages = Path(directory, "messages")
        with messages.open("w") as file:
            command = [program, "127.0.0.1:0", directory]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
        try:
            while not (found := re.search(r"Listening on TCP 127\.0\.0\.1:([0-9]+)", messages.read_text())):
                assert process.poll() is None, f"FerretDB did not start: {messages.read_text()}"
                time.sleep(0.05)
            yield Server(Path(directory), int(found[1]))
        finally:
            process.kill()
            process.wait()


def name_of(plan: Plan) -> str:
    [name] = {str(run.spec["workload"]["target"]["database"]) for run in plan.runs}
    return name


def records_of(plan: Plan, output: Path) -> list[Record]:
    return list(execute(plan, output, consent=Consent(confirm=(name_of(plan),))).records())


def test_records_are_loaded_read_scanned_and_changed_and_the_database_is_dropped(
    server: Server, tmp_path: Path
) -> None:
    loads = ["read/1:update/1:scan/1", "insert/1:delete/1:read_modify_write/1"]
    factors = f"[parts.factors]\noperations = {loads}"
    plan = server.plan("sync = true\njobs = 2\nlimit_operations = 60", factors, duration="60s")
    name = name_of(plan)
    records = records_of(plan, tmp_path / "r")
    assert len(records) == 2
    for record in records:
        assert record.outcome == "complete", record.failure
        store = (record.result or {})["store"]
        assert sum(check["values"] for check in store["checks"]) > 0
        assert [check for check in store["checks"] if check["corrupted"]] == []
        assert store["kind"] == "mongodb" and store["version"].startswith("FerretDB ")
        assert store["options"]["w"] == "1" and store["options"]["read_concern"] == "local"
        # FerretDB reports no storage engine, so nothing is known of a journal.
        assert store["durability"] == "nothing"
    assert server.own_databases() == set(), f"{name} was not dropped"


def test_the_plan_names_the_database_and_nothing_starts_without_consent(server: Server, tmp_path: Path) -> None:
    plan = server.plan()
    name = name_of(plan)
    assert any(name in each.what for each in plan.destroys)
    with pytest.raises(ServerError, match="would be created"):
        execute(plan, tmp_path / "refused")
    done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "foreign_data", "the engine creates none"
    assert server.own_databases() == set()
    with pytest.raises(StudyError, match="none is named"):
        expand(parse(study_text("kv", MEASUREMENT)), open_target(str(server.directory)))


def test_a_database_of_that_name_is_not_touched(server: Server, tmp_path: Path) -> None:
    plan = server.plan()
    name = name_of(plan)
    connection = MongoDb().connect(parse_url(server.url).address())
    connection._opened[name]["accounts"].insert_one({"_id": "mine"})
    [record] = records_of(plan, tmp_path / "r")
    assert record.failure and record.failure.code == "foreign_data"
    assert connection.has(name, "accounts", "mine")
    with pytest.raises(ServerError, match="iosonde did not create it") as error:
        MongoDb().drop_database(connection, name)
    assert f"db.getSiblingDB('{name}').dropDatabase()" in error.value.hint
    assert connection.has(name, "accounts", "mine"), "cleanup drops only what iosonde created"
    connection.drop(name)
    connection.close()


def test_a_database_that_a_client_creates_again_is_dropped_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server inserts a batch of an engine that was stopped, which creates the dropped database again."""
    connection = MongoDb().connect(parse_url(server.url).address())
    drop = connection.drop
    late: list[int] = []

    def drop_and_insert(name: str) -> None:
        drop(name)
        if late:
            connection._opened[name]["records"].insert_one({"_id": f"late-{late.pop()}"})

    monkeypatch.setattr(connection, "drop", drop_and_insert)
    MongoDb().create_database(connection, "iosonde_12ab34cd")
    late.append(1)
    MongoDb().drop_database(connection, "iosonde_12ab34cd")
    assert server.own_databases() == set()
    monkeypatch.setattr(mongodb, "DROP_S", 0.1)
    MongoDb().create_database(connection, "iosonde_12ab34cd")
    late.extend(range(1000))
    with pytest.raises(ServerError, match="exists again each time that it is dropped"):
        MongoDb().drop_database(connection, "iosonde_12ab34cd")
    late.clear()
    monkeypatch.undo()
    MongoDb().drop_database(connection, "iosonde_12ab34cd")
    assert server.own_databases() == set(), "a later attempt still knows that iosonde created it"
    connection.close()
