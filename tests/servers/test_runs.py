"""Runs on real database servers as a user carries them out: what is recorded, what fails and why, and that nothing remains.

One run of each server goes through everything. Faults are provoked on PostgreSQL: the server is killed, the file system
is full, connections are refused.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import CHECKOUT
from leftovers import SharedMemory
from observers import AtFirstInterval
from servers.conftest import KINDS, alone, metrics_of, reachable_directory, restored
from study_texts import study_text

from iosonde.engine.supervisor.watch import free_port
from iosonde.errors import ServerError
from iosonde.execution.engine import drive
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.execution.stop import Stop
from iosonde.metrics.metrics import interval_metrics
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.report import as_text
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent
from iosonde.storage.safety.journal import DATABASE_ON_SERVER
from iosonde.study.servers.mariadb import MariaDb
from iosonde.study.servers.postgresql import PostgreSql
from iosonde.study.servers.server import Address, Installation, Instance, Place, Settings

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv", "engine")]

POSTGRESQL = pytest.mark.needs("postgres")
SLOW = 'arrival = "constant"\nrate = 200'
"""Not more than a busy machine can do, and little CPU time."""
MEASUREMENT = """
interval = "100ms"
ramp = "0"
duration = "1s"
"""
SMALL_SERVERS = """
postgresql = { shared_buffers = "16MB", max_connections = 10, max_wal_size = "64MB" }
mariadb = { innodb_buffer_pool_size = "32M", innodb_log_file_size = "8M", max_connections = 10 }
"""


def managed(measurement: str, workload: str = "commit", factors: str = "") -> str:
    return study_text(workload, MEASUREMENT + SMALL_SERVERS + measurement, factors)


def run(
    place: Path, output: Path, measurement: str, *, settings: dict[str, str] | None = None, observer: Observer | None = None,
) -> list[Record]:  # fmt: skip
    plan = expand(parse(managed(measurement)), open_target(str(place)), settings=settings)
    execute(plan, output, observer=observer or Observer())
    return list(ResultSet.open(output).records())


@pytest.mark.parametrize("kind", KINDS)
def test_commits_are_measured_with_server_client_and_statistics(kind: str, place: Path, tmp_path: Path) -> None:
    load = f'server = "{kind}"\nclients = 3\n{SLOW}'
    record = alone(run(place, tmp_path / "r", load, settings={"duration": "2s"}))
    assert record.outcome == "complete", record.failure
    assert record.server and record.verdict
    assert record.server["restored"]["files"] > 50
    assert record.server["shutdown"]["orderly"]

    assert record.server["statistics_at_end"]["wal_bytes"] > record.server["statistics_at_start"]["wal_bytes"]
    found = metrics_of(tmp_path / "r")
    assert found["transactions_per_sec"] > 0
    assert found["wal_bytes_per_transaction"] > 50
    over_time = interval_metrics(ResultSet.open(tmp_path / "r"), metrics=("wal_bandwidth", "waiting_for_log_share"))
    statistics = ResultSet.open(tmp_path / "r").sql(
        "SELECT statistic, max(value) AS most, count(*) FILTER (phase = 'measure') AS polls FROM store_statistics "
        "GROUP BY ALL"
    )
    # On a busy machine no two polls may be in the measurement, and none may meet a session at work.
    polled = {statistic: (most, polls) for statistic, most, polls in statistics.iter_rows()}
    (_, polls), (sessions, _) = polled["wal_bytes"], polled["sessions_active"]
    expected = {"wal_bandwidth": polls > 1, "waiting_for_log_share": polls and sessions}
    assert {name for name, is_known in expected.items() if is_known} == set(over_time["metric"])
    assert list(place.iterdir()) == []


ASYNCHRONOUS = (
    "shared_buffers=16MB;max_connections=10;synchronous_commit=off;wal_writer_delay=10s;wal_writer_flush_after=1GB"
)
"""A WAL writer that sleeps: a kill loses what it has not written."""


@POSTGRESQL
@pytest.mark.parametrize("settings", [{}, {"postgresql": ASYNCHRONOUS}], ids=["synchronous", "asynchronous"])
def test_acknowledged_commits_survive_a_kill_of_the_server_if_they_are_synchronous(
    settings: dict[str, str], place: Path, tmp_path: Path
) -> None:
    load = f'clients = 4\nkill_server_after = "3s"\n{SLOW}'
    record = alone(run(place, tmp_path / "r", load, settings={"duration": "20s"} | settings))
    assert (record.outcome, record.end_reason) == ("complete", "server_killed"), record.failure
    assert record.server
    durability = record.server["durability"]
    assert durability["acknowledged"] > 0, durability
    assert durability["recovery_seconds"] > 0
    assert (durability["lost"] > 0) == (len(durability["first_lost"]) > 0) == bool(settings)
    assert "0 B/s" not in as_text(ResultSet.open(tmp_path / "r")), "the bytes of transactions are not known"
    assert list(place.iterdir()) == []


@POSTGRESQL
def test_a_server_killed_by_somebody_else_fails_the_run(place: Path, tmp_path: Path) -> None:
    def kill() -> None:
        [entry] = [each for each in journal.entries() if each.what == "server"]
        os.kill(int(str(entry.facts["process"]).split()[1]), signal.SIGKILL)

    record = alone(run(place, tmp_path / "r", SLOW, settings={"duration": "600s"}, observer=AtFirstInterval(kill)))
    assert record.outcome == "failed"
    assert record.failure and record.failure.code == "server_vanished"
    assert list(place.iterdir()) == []
    assert journal.entries() == []


@pytest.mark.needs("root", "postgres")
def test_a_full_file_system_fails_the_run(place: Path, tmp_path: Path) -> None:
    """It shrinks after the plan, which would be refused otherwise."""
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16G,mode=711", "iosonde-test", small], check=True)
    try:
        study = parse(managed("clients = 4\npayload = 8000"))
        plan = expand(study, open_target(str(small)), settings={"duration": "600s"})
        subprocess.run(["mount", "-o", "remount,size=230M", small], check=True)
        execute(plan, tmp_path / "r")
        record = alone(list(ResultSet.open(tmp_path / "r").records()))
        assert record.failure and record.failure.code == "no_space", record.failure
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
        small.rmdir()


@pytest.mark.needs("root", "memory limits", "mariadbd")
def test_a_memory_limit_below_the_buffer_pool_fails_the_run(place: Path, tmp_path: Path) -> None:
    """MariaDB takes its buffer pool when it starts, PostgreSQL when it is used."""
    record = alone(run(place, tmp_path / "r", 'server = "mariadb"\nmemory_limit = "40MiB"'))
    assert record.failure and record.failure.code == "out_of_memory", record.failure
    assert "memory_limit" in record.failure.hint
    assert list(place.iterdir()) == []


# Servers of the user --------------------------------------------------------------------------------------------------

DATABASES = {
    "postgresql": "SELECT datname FROM pg_database",
    "mariadb": "SELECT schema_name FROM information_schema.schemata",
}
PASSWORD = {"postgresql": "PGPASSWORD", "mariadb": "MYSQL_PWD"}


PORT = free_port()


class PostgreSqlOverTcp(PostgreSql):
    """It listens on a port of the loopback address, too."""

    def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
        given = super().command(installation, place, settings)
        return [*given, "-c", "listen_addresses=127.0.0.1", "-c", f"port={PORT}"]

    def address(self, place: Place, database: str = "") -> Address:
        return replace(super().address(place, database), port=PORT)


class MariaDbOverTcp(MariaDb):
    def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
        given = super().command(installation, place, settings)
        return [*given, "--skip-networking=0", "--bind-address=127.0.0.1", f"--port={PORT}"]


class Foreign:
    """A server that the user runs, listening on a TCP port; its user `guarded` has the password `right`."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.kind = instance, instance.server.name
        self.url = f"{self.kind}://guarded@127.0.0.1:{PORT}"
        if self.kind == "mariadb":
            self.rows("CREATE USER guarded IDENTIFIED BY 'right'")
            self.rows("GRANT ALL ON *.* TO guarded")
        else:
            self.rows("CREATE USER guarded SUPERUSER PASSWORD 'right'")
            rules = "local all all trust\nhost all guarded 127.0.0.1/32 scram-sha-256\n"
            (instance.place.data / "pg_hba.conf").write_text(rules)
            self.rows("SELECT pg_reload_conf()")

    def rows(self, statement: str) -> list[Any]:
        with closing(self.instance.connect()) as connection:
            return list(connection.rows(statement))

    def databases(self) -> set[str]:
        return {row[0] for row in self.rows(DATABASES[self.kind])}

    def plan(self, **settings: str) -> Plan:
        study = parse(study_text("commit", f"{MEASUREMENT}clients = 2\n{SLOW}"))
        return expand(study, open_target("null:1GiB"), settings={"server_url": self.url, **settings})


@pytest.fixture(scope="module", params=KINDS)
def started(request: pytest.FixtureRequest, templates: dict[str, Path]) -> Iterator[Foreign]:
    """The kernel kills a server with the thread that started it: all tests use this thread."""
    place = reachable_directory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        instance = restored(place, request.param, templates)
        instance.server = {"postgresql": PostgreSqlOverTcp, "mariadb": MariaDbOverTcp}[request.param]()
        try:
            instance.start()
            yield Foreign(instance)
        finally:
            instance.remove()
            shutil.rmtree(place)


@pytest.fixture
def foreign(started: Foreign, monkeypatch: pytest.MonkeyPatch) -> Foreign:
    monkeypatch.setenv(PASSWORD[started.kind], "right")
    return started


on_postgresql = pytest.mark.parametrize("started", KINDS[:1], indirect=True)


def database_of(plan: Plan) -> str:
    return str(plan.runs[0].spec["workload"]["server"]["database"])


def carried_out(plan: Plan, output: Path, observer: Observer | None = None) -> Record:
    execute(plan, output, consent=Consent(confirm=(database_of(plan),)), observer=observer or Observer())
    return alone(list(ResultSet.open(output).records()))


def test_a_running_server_is_measured_in_a_database_that_is_confirmed_and_dropped(
    foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, before = foreign.plan(), foreign.databases()
    name = database_of(plan)
    assert any(name in each.what for each in plan.destroys)
    with pytest.raises(ServerError, match="would be created") as error:
        execute(plan, tmp_path / "refused")
    assert f"--confirm {name}" in error.value.hint
    assert not (tmp_path / "refused").exists()
    record = carried_out(plan, tmp_path / "r")
    assert record.outcome == "complete", record.failure
    assert record.server and record.server["managed"] is False
    assert "right" not in record.model_dump_json()
    assert foreign.instance.is_running, foreign.instance.messages()
    monkeypatch.setenv(PASSWORD[foreign.kind], "wrong")
    record = carried_out(plan, tmp_path / "wrong")
    by_engine = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    for failure in (record.failure, by_engine.failure):
        assert failure and failure.code == "authentication", failure
        assert PASSWORD[foreign.kind] in failure.hint
    assert "wrong" not in record.model_dump_json()
    assert foreign.databases() == before


@on_postgresql
def test_a_database_of_that_name_is_not_touched(foreign: Foreign, tmp_path: Path) -> None:
    plan = foreign.plan()
    name = database_of(plan)
    connection = foreign.instance.connect()
    foreign.instance.database_server.create_database(connection, name)
    connection.close()
    try:
        record = carried_out(plan, tmp_path / "r")
        assert record.failure and record.failure.code == "foreign_data"
        assert name in foreign.databases()
    finally:
        foreign.rows(f"DROP DATABASE {name}")


@on_postgresql
def test_a_running_server_that_its_user_restarts_fails_the_run_and_keeps_nothing(
    foreign: Foreign, tmp_path: Path
) -> None:
    before = foreign.databases()

    def restart() -> None:
        foreign.instance.stop()
        foreign.instance.start()

    record = carried_out(foreign.plan(duration="600s"), tmp_path / "r", AtFirstInterval(restart))
    assert record.failure and record.failure.code == "server_vanished", record.failure
    assert foreign.databases() == before
    assert [entry for entry in journal.entries() if entry.what == DATABASE_ON_SERVER] == []


# Killed sessions ------------------------------------------------------------------------------------------------------

CREATING, LOADING, MEASURING = "*/data/*", "*/socket/*", "template-*/manifest.json"


def kill_session(text: str, place: Path, output: Path, moment: str) -> SharedMemory:
    """Start a study and kill its process once this path exists -> the shared memory of its servers."""
    study = output.with_suffix(".toml")
    study.write_text(text)
    command = [sys.executable, "-m", "iosonde", "run", str(study), "--target", str(place), "--output", str(output)]
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    memory = SharedMemory(place)
    while process.poll() is None and not any(place.glob(f"iosonde-*/{moment}")):
        memory.look()
        time.sleep(0.02)
    process.kill()
    process.wait()
    return memory


def clean_up(place: Path, memory: SharedMemory) -> None:
    assert [each for each in cleanup() if each.failed] == []
    assert list(place.iterdir()) == []
    assert journal.entries() == []
    assert [each for each in psutil.process_iter(["cwd"]) if str(place) in (each.info["cwd"] or "")] == []
    assert memory.remaining() == []


@POSTGRESQL
@pytest.mark.parametrize(
    ("moment", "is_cleaned"), [(CREATING, False), (MEASURING, True)], ids=["creating", "measuring"]
)
def test_a_killed_session_leaves_nothing_after_cleanup_and_is_resumed(
    moment: str, is_cleaned: bool, place: Path, tmp_path: Path
) -> None:
    """Killed while the template is created, or after that, when it is copied or measured.

    `resume` alone removes what the killed session left, too.
    """
    memory = kill_session(managed(f"clients = 2\n{SLOW}"), place, tmp_path / "r", moment)
    if is_cleaned:
        clean_up(place, memory)
    resume(tmp_path / "r")
    assert memory.remaining() == []
    assert cleanup() == []
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.outcome == "complete", record.failure
    assert list(place.iterdir()) == []


@POSTGRESQL
def test_tpcc_is_loaded_once_restored_for_each_run_and_checked(place: Path, tmp_path: Path) -> None:
    """By a session that resumes one that was killed while it loaded."""
    load = "warehouses = 1\nload_jobs = 2\narrival = 'constant'\nrate = 30"
    text = managed(load, "tpcc", "factors.terminals = [1, 2]")
    clean_up(place, kill_session(text.replace('duration = "1s"', 'duration = "5s"'), place, tmp_path / "r", LOADING))
    resume(tmp_path / "r")
    records = sorted(ResultSet.open(tmp_path / "r").records(), key=lambda record: record.order)
    assert [record.outcome for record in records] == ["complete", "complete"], [record.failure for record in records]
    assert [record.server["loaded_for_this_run"] for record in records if record.server] == [True, False]
    for record in records:
        assert record.server and record.result
        [checked] = record.server["template"]["result"]["consistency"]
        assert [condition["violations"] for condition in checked["conditions"]] == [0] * 12
        [after] = record.result["oltp"]["consistency"]
        assert (after["moment"], [each["violations"] for each in after["conditions"]]) == ("after", [0] * 12)
    found = metrics_of(tmp_path / "r")
    assert found["tpmc"] > 0
    assert found["server_data_bytes_per_transaction"] >= 0
    assert list(place.iterdir()) == []
