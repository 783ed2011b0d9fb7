"""Runs on real servers as a user carries them out: what is recorded, what fails and why, and that nothing remains.

Every fault is provoked, not simulated: the server is killed, the file system is full, the memory limit is too low, connections
are refused.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import CHECKOUT
from leftovers import SharedMemory
from servers.conftest import KINDS, restored

from iosonde.errors import ServerError
from iosonde.execution import execute, resume
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.report import as_text
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.servers.instance import Instance
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.safety.journal_entry import DATABASE_ON_SERVER
from iosonde.supervisor.watch import free_port
from iosonde.workload import named

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv", "engine")]

STUDY = """
name = "servers"
title = "Servers"
question = "?"
workload = "{workload}"
repeats = 1
shuffle = false

[measurement]
interval = "100ms"
ramp = "0"
duration = "1s"
{measurement}

[[parts]]
{factors}

[profiles.standard]
"""

SMALL_POSTGRESQL = 'postgresql = { shared_buffers = "16MB", max_connections = 10, max_wal_size = "64MB" }'
SMALL_MARIADB = 'mariadb = { innodb_buffer_pool_size = "32M", innodb_log_file_size = "8M", max_connections = 10 }'


def run(
    place: Path, output: Path, *, workload: str = "commit", measurement: str = "", factors: str = "",
    settings: dict[str, str] | None = None, consent: tuple[str, ...] = (), target: str = "",
) -> list[Record]:  # fmt: skip
    text = STUDY.format(
        workload=workload, measurement="\n".join([measurement, SMALL_POSTGRESQL, SMALL_MARIADB]), factors=factors
    )
    plan = expand(parse(text, name="servers.toml"), open_target(target or str(place)), settings=settings)
    execute(plan, output, consent=Consent(confirm=consent))
    return list(ResultSet.open(output).records())


def alone(records: list[Record]) -> Record:
    [record] = records
    return record


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def metrics_of(output: Path) -> dict[str, float]:
    frame = run_metrics(ResultSet.open(output))
    whole = frame.filter(frame["operation"] == "all")
    return dict(whole.select("metric", "value").iter_rows())


def test_commits_are_measured_with_server_client_and_statistics(kind: str, place: Path, tmp_path: Path) -> None:
    load = f'server = "{kind}"\nclients = 3'
    record = alone(run(place, tmp_path / "r", measurement=load, settings={"duration": "2s"}))
    assert record.outcome == "complete", record.failure
    assert record.server and record.verdict
    assert record.server["restored"]["files"] > 50
    assert record.server["shutdown"]["orderly"]
    assert record.server["managed"]
    assert record.server["statistics_at_end"]["wal_bytes"] > record.server["statistics_at_start"]["wal_bytes"]
    found = metrics_of(tmp_path / "r")
    assert found["transactions_per_sec"] > 0
    assert found["wal_bytes_per_transaction"] > 50
    over_time = interval_metrics(ResultSet.open(tmp_path / "r"), metrics=("wal_bandwidth", "waiting_for_log_share"))
    statistics = ResultSet.open(tmp_path / "r").sql(
        "SELECT statistic, max(value) AS most, count(*) FILTER (phase = 'measure') AS polls FROM store_statistics GROUP BY ALL"
    )
    found = {statistic: (most, polls) for statistic, most, polls in statistics.iter_rows()}
    assert {"wal_bytes", "sessions_active"} <= set(found)
    # On a busy machine no two polls may be in the measurement, and none may meet a session at work.
    (_, polls), (sessions, _) = found["wal_bytes"], found["sessions_active"]
    expected = {"wal_bandwidth": polls > 1, "waiting_for_log_share": polls and sessions}
    assert {name for name, is_known in expected.items() if is_known} == set(over_time["metric"])
    assert list(place.iterdir()) == []


def test_tpcc_is_loaded_once_restored_for_each_run_and_checked(kind: str, place: Path, tmp_path: Path) -> None:
    records = run(
        place, tmp_path / "r", workload="tpcc",
        measurement=f'server = "{kind}"\nwarehouses = 1\nload_jobs = 2', factors="factors.terminals = [1, 2]",
        settings={"duration": "5s"},
    )  # fmt: skip
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


def test_acknowledged_commits_survive_a_kill_of_the_server(kind: str, place: Path, tmp_path: Path) -> None:
    record = alone(
        run(
            place,
            tmp_path / "r",
            measurement=f'server = "{kind}"\nclients = 4\nkill_server_after = "3s"',
            settings={"duration": "20s"},
        )
    )
    assert (record.outcome, record.end_reason) == ("complete", "server_killed"), record.failure
    assert record.server
    durability = record.server["durability"]
    assert durability["acknowledged"] > 0, durability
    assert durability["lost"] == 0
    assert durability["recovery_seconds"] > 0
    assert list(place.iterdir()) == []


@pytest.mark.needs("postgres")
def test_commits_that_are_not_synchronous_are_lost_and_counted(place: Path, tmp_path: Path) -> None:
    """The check can fail: with a WAL writer that sleeps, a kill loses what it has not written."""
    text = 'clients = 4\nkill_server_after = "3s"\n'
    changed = (
        "shared_buffers=16MB;max_connections=10;synchronous_commit=off;wal_writer_delay=10s;wal_writer_flush_after=1GB"
    )
    record = alone(run(place, tmp_path / "r", measurement=text, settings={"duration": "20s", "postgresql": changed}))
    assert record.server
    assert record.server["durability"]["lost"] > 0
    assert len(record.server["durability"]["first_lost"]) > 0
    text = as_text(ResultSet.open(tmp_path / "r"))
    assert "0 B/s" not in text, "the bytes of transactions are not known"
    assert "too few complete runs" not in text, "all are complete"


def test_a_server_killed_by_somebody_else_fails_the_run(kind: str, place: Path, tmp_path: Path) -> None:
    killer = threading.Thread(target=kill_soon, args=(place,))
    killer.start()
    load = {"duration": "30s", "arrival": "constant", "rate": "200"}
    record = alone(run(place, tmp_path / "r", measurement=f'server = "{kind}"', settings=load))
    killer.join()
    assert record.outcome == "failed"
    assert record.failure and record.failure.code == "server_vanished"
    assert list(place.iterdir()) == []
    assert journal.entries() == []


def kill_soon(place: Path) -> None:
    """Kill the first process of the server, once transactions have run for a moment."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        leaders = [entry for entry in journal.entries() if entry.what == "server" and not entry.path.count("template")]
        connected = [entry for entry in leaders if list(Path(entry.path).parent.glob("socket/*"))]
        if connected and engine_runs():
            time.sleep(0.5)
            os.kill(int(str(connected[0].facts["process"]).split()[1]), signal.SIGKILL)
            return
        time.sleep(0.05)


def engine_runs() -> bool:
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text().split()
    for each in children:
        with suppress(OSError):  # It has exited.
            if "iosonde-engine" in Path(f"/proc/{each}/cmdline").read_text():
                return True
    return False


def test_more_clients_than_connections_fail_the_run(kind: str, place: Path, tmp_path: Path) -> None:
    record = alone(run(place, tmp_path / "r", measurement=f'server = "{kind}"\nclients = 20'))
    assert record.failure and record.failure.code == "connection_limit"
    assert "max_connections" in record.failure.hint + record.failure.message
    assert list(place.iterdir()) == []


ROOM = {"postgresql": "230M", "mariadb": "330M"}


@pytest.mark.needs("root")
def test_a_full_file_system_fails_the_run(kind: str, place: Path, tmp_path: Path) -> None:
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM[kind]},mode=711", "iosonde-test", small], check=True)
    try:
        measured = f'server = "{kind}"\nclients = 4\npayload = 8000'
        settings = "\n".join([measured, SMALL_POSTGRESQL, SMALL_MARIADB])
        text = STUDY.format(workload="commit", measurement=settings, factors="")
        target = open_target(str(small))
        object.__setattr__(target, "_check_room", lambda _: None)  # The plan would refuse it.
        plan = expand(parse(text, name="servers.toml"), target, settings={"duration": "60s"})
        execute(plan, tmp_path / "r")
        record = alone(list(ResultSet.open(tmp_path / "r").records()))
        assert record.failure and record.failure.code == "no_space", record.failure
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)
        small.rmdir()


@pytest.mark.needs("root", "memory limits", "mariadbd")
def test_a_memory_limit_below_the_buffer_pool_fails_the_run(place: Path, tmp_path: Path) -> None:
    record = alone(run(place, tmp_path / "r", measurement='server = "mariadb"\nmemory_limit = "40MiB"'))
    assert record.failure and record.failure.code == "out_of_memory", record.failure
    assert "memory_limit" in record.failure.hint
    assert list(place.iterdir()) == []


def test_an_old_server_is_refused(kind: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from iosonde.servers import mariadb, postgresql

    monkeypatch.setattr(postgresql, "OLDEST", 99)
    monkeypatch.setattr(mariadb, "OLDEST", {"MariaDB": (99, 0), "MySQL": (99, 0)})
    for module in (postgresql, mariadb):
        module._installation.cache_clear()
    try:
        with pytest.raises(ServerError, match="too old") as error:
            expand(
                parse(STUDY.format(workload="commit", measurement=f'server = "{kind}"', factors=""), name="s.toml"),
                open_target(str(place)),
            )
        assert "newer package" in error.value.hint
    finally:
        for module in (postgresql, mariadb):
            module._installation.cache_clear()


OWN = {"postgresql": "pg_database", "mariadb": "information_schema.schemata"}
NAME = {"postgresql": "datname", "mariadb": "schema_name"}
PASSWORD = {"postgresql": "PGPASSWORD", "mariadb": "MYSQL_PWD"}


class Foreign:
    """A server that the user runs, listening on a TCP port; its user `guarded` has the password `right`."""

    def __init__(self, instance: Instance, port: int) -> None:
        self.instance, self.kind, self.port = instance, instance.server.name, port
        guarded = {
            "postgresql": ["CREATE USER guarded SUPERUSER PASSWORD 'right'"],
            "mariadb": ["CREATE USER guarded IDENTIFIED BY 'right'", "GRANT ALL ON *.* TO guarded"],
        }
        for statement in guarded[self.kind]:
            self.rows(statement)
        if self.kind == "postgresql":
            rules = "local all all trust\nhost all guarded 127.0.0.1/32 scram-sha-256\n"
            (instance.place.data / "pg_hba.conf").write_text(rules)
            self.rows("SELECT pg_reload_conf()")

    @property
    def url(self) -> str:
        return f"{self.kind}://guarded@127.0.0.1:{self.port}"

    def rows(self, statement: str) -> list[Any]:
        connection = self.instance.connect()
        try:
            return list(connection.rows(statement))
        finally:
            connection.close()

    def sessions(self) -> int:
        """Sessions of iosonde on this server."""
        where = {
            "postgresql": "pg_stat_activity WHERE usename = 'guarded'",
            "mariadb": "information_schema.processlist WHERE user = 'guarded'",
        }
        return int(self.rows(f"SELECT count(*) FROM {where[self.kind]}")[0][0])

    def databases(self) -> set[str]:
        return {row[0] for row in self.rows(f"SELECT {NAME[self.kind]} FROM {OWN[self.kind]}")}

    def plan(self, *, target: str = "null:1GiB", **settings: str) -> Plan:
        return expand(
            parse(FOREIGN_STUDY, name="s.toml"), open_target(target), settings={"server_url": self.url, **settings}
        )


@pytest.fixture
def foreign(kind: str, place: Path, templates: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Foreign]:
    """A running server of the user's, and the password of its user in the environment."""
    instance = restored(place, kind, templates)
    port = free_port()
    tcp = {
        "postgresql": ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}"],
        "mariadb": ["--skip-networking=0", "--bind-address=127.0.0.1", f"--port={port}"],
    }
    command = type(instance.server).command
    monkeypatch.setattr(type(instance.server), "command", lambda *given: [*command(*given), *tcp[kind]])
    if kind == "postgresql":
        monkeypatch.setattr("iosonde.servers.postgresql.PORT", port)
    monkeypatch.setenv(PASSWORD[kind], "right")
    instance.start()
    try:
        yield Foreign(instance, port)
    finally:
        instance.remove()


FOREIGN_STUDY = STUDY.format(workload="commit", measurement='clients = 2\narrival = "constant"\nrate = 200', factors="")


def database_of(plan: Plan) -> str:
    return str(plan.runs[0].spec["workload"]["server"]["database"])


def test_a_running_server_is_measured_in_a_database_that_is_confirmed_and_dropped(
    foreign: Foreign, tmp_path: Path
) -> None:
    plan = foreign.plan()
    name = database_of(plan)
    assert any(name in each.what for each in plan.destroys)
    with pytest.raises(ServerError, match="would be created") as error:
        execute(plan, tmp_path / "refused")
    assert f"--confirm {name}" in error.value.hint
    assert not (tmp_path / "refused").exists()
    before = foreign.databases()
    execute(plan, tmp_path / "r", consent=Consent(confirm=(name,)))
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.outcome == "complete", record.failure
    assert record.server and record.server["managed"] is False
    assert "right" not in record.model_dump_json()
    assert foreign.instance.is_running, foreign.instance.messages()
    assert foreign.databases() == before


def test_a_database_of_that_name_is_not_touched(foreign: Foreign, tmp_path: Path) -> None:
    plan = foreign.plan()
    name = database_of(plan)
    connection = foreign.instance.connect()
    foreign.instance.database_server.create_database(connection, name)
    connection.close()
    execute(plan, tmp_path / "r", consent=Consent(confirm=(name,)))
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.failure and record.failure.code == "foreign_data"
    assert name in foreign.databases()


def test_a_wrong_password_fails_the_run(foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD[foreign.kind], "wrong")
    plan = foreign.plan()
    execute(plan, tmp_path / "r", consent=Consent(confirm=(database_of(plan),)))
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.failure and record.failure.code == "authentication", record.failure
    assert PASSWORD[foreign.kind] in record.failure.hint
    assert "wrong" not in record.model_dump_json()


def test_a_database_with_another_encoding_is_refused(foreign: Foreign) -> None:
    latin = {"postgresql": "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0", "mariadb": "CHARACTER SET latin1"}
    foreign.rows(f"CREATE DATABASE latin {latin[foreign.kind]}")
    streams = {
        "main": named("tpcc").build({"server_url": foreign.url, "warehouses": 1, "duration": "1s", "interval": "100ms"})
    }
    spec: dict[str, Any] = named("tpcc").resolve(streams, open_target("null:1GiB"), seed=1, run_id="encoding")
    spec["workload"]["server"]["database"] = "latin"
    done = drive(spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "wrong_encoding", done.failure


def test_a_running_server_that_its_user_restarts_fails_the_run_and_keeps_nothing(
    foreign: Foreign, tmp_path: Path
) -> None:
    """The kernel kills a server with the thread that started it, so that thread lives as long as the test."""
    before, tested = foreign.databases(), threading.Event()

    def restart() -> None:
        while foreign.sessions() < 3:  # The instrument and two clients.
            time.sleep(0.02)
        foreign.instance.stop()
        foreign.instance.start()
        tested.wait()

    plan = foreign.plan(duration="60s")
    restarter = threading.Thread(target=restart)
    restarter.start()
    try:
        execute(plan, tmp_path / "r", consent=Consent(confirm=(database_of(plan),)))
        record = alone(list(ResultSet.open(tmp_path / "r").records()))
        assert record.failure and record.failure.code == "server_vanished", record.failure
        assert foreign.databases() == before
        assert [entry for entry in journal.entries() if entry.what == DATABASE_ON_SERVER] == []
    finally:
        tested.set()
        restarter.join()


CREATING, LOADING, MEASURING = "*/data/*", "*/socket/*", "template-*/manifest.json"


@pytest.mark.parametrize(
    ("moment", "workload", "load", "cleaned"),
    [
        (CREATING, "commit", "clients = 2\nrate = 200", False),
        (LOADING, "tpcc", "warehouses = 1\nterminals = 2\nrate = 20", True),
        (MEASURING, "commit", "clients = 2\nrate = 200", True),
    ],
    ids=["creating", "loading", "measuring"],
)
def test_a_killed_session_leaves_nothing_after_cleanup_and_is_resumed(
    kind: str, moment: str, workload: str, load: str, cleaned: bool, place: Path, tmp_path: Path
) -> None:
    """Killed while the template is created or loaded, or up to two seconds after that, when it is copied or measured.

    `resume` alone removes what the killed session left, too.
    """
    study, output = tmp_path / "s.toml", tmp_path / "r"
    measurement = "\n".join([f'server = "{kind}"', 'arrival = "constant"', load, SMALL_POSTGRESQL, SMALL_MARIADB])
    text = STUDY.format(workload=workload, measurement=measurement, factors="")
    study.write_text(text.replace('duration = "1s"', 'duration = "2s"'))  # It is not complete when it is killed.
    command = [sys.executable, "-m", "iosonde", "run", str(study), "--target", str(place), "--output", str(output)]
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 300
    memory = SharedMemory(place)
    while time.monotonic() < deadline and not any(place.glob(f"iosonde-*/{moment}")):
        memory.look()
        time.sleep(0.02)
    until = time.monotonic() + random.uniform(0, 2)
    while time.monotonic() < until:
        memory.look()
        time.sleep(0.02)
    process.kill()
    process.wait()
    if cleaned:
        assert [each for each in cleanup() if each.failed] == []
        assert list(place.iterdir()) == []
        assert journal.entries() == []
        assert [each for each in psutil.process_iter(["cwd"]) if str(place) in (each.info["cwd"] or "")] == []
        assert memory.remaining() == []
    resume(output)
    assert memory.remaining() == []
    assert cleanup() == []
    record = alone(list(ResultSet.open(output).records()))
    assert record.outcome == "complete", record.failure
    assert list(place.iterdir()) == []
