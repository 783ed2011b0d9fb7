"""Runs on real servers as a user carries them out: what is recorded, what fails and why, and that nothing remains.

Every fault is provoked, not simulated: the server is killed, the file system is full, the memory limit is too low, connections
are refused.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from servers.conftest import KINDS, restored

from iosonde.errors import ServerError
from iosonde.execution import execute
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.servers.instance import Instance
from iosonde.storage import cleanup, journal, open_target
from iosonde.storage.consent import Consent
from iosonde.workload import tpcc

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
SMALL_MARIADB = 'mariadb = { innodb_buffer_pool_size = "32M", innodb_log_file_size = "8M" }'


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
    record = alone(run(place, tmp_path / "r", measurement=f'server = "{kind}"\nclients = 3'))
    assert record.outcome == "complete", record.failure
    assert record.server and record.verdict
    assert record.server["restored"]["files"] > 50
    assert record.server["shutdown"]["orderly"]
    assert record.server["managed"]
    assert record.server["statistics_at_end"]["wal_bytes"] > record.server["statistics_at_begin"]["wal_bytes"]
    found = metrics_of(tmp_path / "r")
    assert found["transactions_per_sec"] > 0
    assert found["wal_bytes_per_transaction"] > 50
    statistics = ResultSet.open(tmp_path / "r").sql("SELECT DISTINCT statistic FROM store_statistics")
    assert {"wal_bytes", "sessions_active"} <= set(statistics["statistic"])
    assert list(place.iterdir()) == []


def test_tpcc_is_loaded_once_restored_for_each_run_and_checked(kind: str, place: Path, tmp_path: Path) -> None:
    records = run(
        place, tmp_path / "r", workload="tpcc",
        measurement=f'server = "{kind}"\nwarehouses = 1\nload_jobs = 2', factors="factors.terminals = [1, 2]",
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
            measurement=f'server = "{kind}"\nclients = 4\nkill_server_after = "500ms"',
            settings={"duration": "20s"},
        )
    )
    assert (record.outcome, record.end_reason) == ("complete", "server_killed"), record.failure
    assert record.server
    durability = record.server["durability"]
    assert durability["acknowledged"] > 10, durability
    assert durability["lost"] == 0
    assert durability["recovery_seconds"] > 0
    assert list(place.iterdir()) == []


@pytest.mark.needs("postgres")
def test_commits_that_are_not_synchronous_are_lost_and_counted(place: Path, tmp_path: Path) -> None:
    """The check can fail: with a WAL writer that sleeps, a kill loses what it has not written."""
    text = 'clients = 4\nkill_server_after = "700ms"\n'
    changed = (
        "shared_buffers=16MB;max_connections=10;synchronous_commit=off;wal_writer_delay=10s;wal_writer_flush_after=1GB"
    )
    record = alone(run(place, tmp_path / "r", measurement=text, settings={"duration": "20s", "postgresql": changed}))
    assert record.server
    assert record.server["durability"]["lost"] > 0
    assert len(record.server["durability"]["first_lost"]) > 0


def test_a_server_killed_by_somebody_else_fails_the_run(kind: str, place: Path, tmp_path: Path) -> None:
    killer = threading.Thread(target=kill_soon, args=(place,))
    killer.start()
    record = alone(run(place, tmp_path / "r", measurement=f'server = "{kind}"', settings={"duration": "30s"}))
    killer.join()
    assert record.outcome == "failed"
    assert record.failure and record.failure.code == "server_vanished"
    assert list(place.iterdir()) == []
    assert journal.entries() == []


def kill_soon(place: Path) -> None:
    """Kill the first process of the server, once transactions have run for a moment."""
    deadline = time.monotonic() + 120
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
    return any("iosonde-engine" in Path(f"/proc/{each}/cmdline").read_text() for each in children)


@pytest.mark.needs("postgres")
def test_more_clients_than_connections_fail_the_run(place: Path, tmp_path: Path) -> None:
    record = alone(run(place, tmp_path / "r", measurement="clients = 20"))
    assert record.failure and record.failure.code == "connection_limit"
    assert "max_connections" in record.failure.hint + record.failure.message
    assert list(place.iterdir()) == []


@pytest.mark.needs("root", "postgres")
def test_a_full_file_system_fails_the_run(place: Path, tmp_path: Path) -> None:
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=230M,mode=711", "iosonde-test", small], check=True)
    try:
        measured = "clients = 4\npayload = 8000"
        text = STUDY.format(workload="commit", measurement=f"{measured}\n{SMALL_POSTGRESQL}", factors="")
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


@pytest.mark.needs("postgres")
def test_an_old_server_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from iosonde.servers import postgresql

    monkeypatch.setattr(postgresql, "OLDEST", 99)
    postgresql._installation.cache_clear()
    try:
        with pytest.raises(ServerError, match="too old") as error:
            expand(
                parse(STUDY.format(workload="commit", measurement="", factors=""), name="s.toml"),
                open_target(str(place)),
            )
        assert "newer package `postgresql`" in error.value.hint
    finally:
        postgresql._installation.cache_clear()


@pytest.fixture
def foreign(place: Path, templates: dict[str, Path]) -> Iterator[Instance]:
    """A server that the user runs: PostgreSQL on a socket."""
    instance = restored(place, "postgresql", templates)
    instance.start()
    yield instance
    instance.remove()


def url_of(instance: Instance) -> str:
    return f"postgresql://iosonde@{str(instance.place.socket).replace('/', '%2F')}"


FOREIGN_STUDY = STUDY.format(workload="commit", measurement="clients = 2", factors="")


def databases(instance: Instance) -> set[str]:
    connection = instance.connect()
    try:
        return {row[0] for row in connection.rows("SELECT datname FROM pg_database")}
    finally:
        connection.close()


@pytest.mark.needs("postgres")
def test_a_running_server_is_measured_in_a_database_that_is_confirmed_and_dropped(
    foreign: Instance, tmp_path: Path
) -> None:
    plan = expand(
        parse(FOREIGN_STUDY, name="s.toml"), open_target("null:1GiB"), settings={"server_url": url_of(foreign)}
    )
    name = plan.runs[0].spec["workload"]["server"]["database"]
    assert any(name in each.what for each in plan.destroys)
    with pytest.raises(ServerError, match="would be created") as error:
        execute(plan, tmp_path / "refused")
    assert f"--confirm {name}" in error.value.hint
    assert not (tmp_path / "refused").exists()
    before = databases(foreign)
    execute(plan, tmp_path / "r", consent=Consent(confirm=(name,)))
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.outcome == "complete", record.failure
    assert record.server and record.server["managed"] is False
    assert foreign.is_running, foreign.messages()
    assert databases(foreign) == before
    assert foreign.is_running


@pytest.mark.needs("postgres")
def test_a_database_of_that_name_is_not_touched(foreign: Instance, tmp_path: Path) -> None:
    plan = expand(
        parse(FOREIGN_STUDY, name="s.toml"), open_target("null:1GiB"), settings={"server_url": url_of(foreign)}
    )
    name = plan.runs[0].spec["workload"]["server"]["database"]
    connection = foreign.connect()
    foreign.server.create_database(connection, name)
    connection.close()
    execute(plan, tmp_path / "r", consent=Consent(confirm=(name,)))
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.failure and record.failure.code == "foreign_data"
    assert name in databases(foreign)


@pytest.mark.needs("postgres")
def test_a_wrong_password_fails_the_run(foreign: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = foreign.connect()
    connection.rows("CREATE USER guarded SUPERUSER PASSWORD 'right'")
    (foreign.place.data / "pg_hba.conf").write_text("local all guarded scram-sha-256\nlocal all all trust\n")
    connection.rows("SELECT pg_reload_conf()")
    connection.close()
    monkeypatch.setenv("PGPASSWORD", "wrong")
    plan = expand(
        parse(FOREIGN_STUDY, name="s.toml"), open_target("null:1GiB"),
        settings={"server_url": url_of(foreign).replace("iosonde@", "guarded@")},
    )  # fmt: skip
    name = plan.runs[0].spec["workload"]["server"]["database"]
    execute(plan, tmp_path / "r", consent=Consent(confirm=(name,)))
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.failure and record.failure.code == "authentication", record.failure
    assert "wrong" not in record.model_dump_json()


@pytest.mark.needs("postgres")
def test_a_database_with_another_encoding_is_refused(foreign: Instance) -> None:
    connection = foreign.connect()
    connection.rows("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    connection.close()
    streams = {
        "main": tpcc.build({"server_url": url_of(foreign), "warehouses": 1, "duration": "1s", "interval": "100ms"})
    }
    spec: dict[str, Any] = tpcc.resolve(streams, open_target("null:1GiB"), seed=1, run_id="encoding")
    spec["workload"]["server"]["database"] = "latin"
    done = drive(spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "wrong_encoding", done.failure


def test_a_killed_session_leaves_nothing_after_cleanup(kind: str, place: Path, tmp_path: Path) -> None:
    study = tmp_path / "s.toml"
    measurement = "\n".join([f'server = "{kind}"', SMALL_POSTGRESQL, SMALL_MARIADB])
    study.write_text(STUDY.format(workload="commit", measurement=measurement, factors="").replace('"1s"', '"60s"'))
    command = [
        sys.executable,
        "-m",
        "iosonde",
        "run",
        str(study),
        "--target",
        str(place),
        "--output",
        str(tmp_path / "r"),
    ]
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not any(place.glob("iosonde-*/*/socket/*")):
        time.sleep(0.05)
    time.sleep(0.5)
    process.kill()
    process.wait()
    assert [each for each in cleanup() if each.failed] == []
    assert list(place.iterdir()) == []
    assert journal.entries() == []
