"""A database on a server of the user's is created only with consent, which a result set from somebody else cannot give."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from command_line import in_this_process
from engines import FAKE

from iosonde.errors import ServerError
from iosonde.execution import resume
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.servers import foreign_database
from iosonde.servers.url import kinds
from iosonde.servers.url import parse as parse_url
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.safety.journal_entry import DATABASE_ON_SERVER, DATABASES

STUDY = """
name = "commits"
title = "Commits"
question = "?"
workload = "commit"
[measurement]
duration = "1s"
[[parts]]
[profiles.standard]
"""
URL = "postgresql://me@127.0.0.1:1"


def plan_of(url: str = URL) -> Plan:
    return expand(parse(STUDY, name="s.toml"), open_target("null:1GiB"), settings={"server_url": url})


def database_of(plan: Plan) -> str:
    return str(plan.runs[0].spec["workload"]["server"]["database"])


@pytest.mark.engine
def test_resume_requires_consent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plan = plan_of()
    ResultSet.create(tmp_path / "r", plan)
    with pytest.raises(ServerError, match="must name the server of the result set, `postgresql://me@127"):
        resume(tmp_path / "r", consent=Consent(confirm=(database_of(plan),)))
    with pytest.raises(ServerError, match="must name the server of the result set"):  # Its port was edited.
        resume(tmp_path / "r", consent=Consent(servers=("postgresql://me@127.0.0.1:2",)))
    with pytest.raises(ServerError, match=f"the database `{database_of(plan)}` would be created"):
        resume(tmp_path / "r", consent=Consent(servers=(URL,)))
    assert not ResultSet.open(tmp_path / "r").records()


@pytest.mark.parametrize(
    "changes",
    [
        {"address": {"kind": "tcp", "host": "elsewhere", "port": 1}},
        {"address": {"kind": "unix", "path": "/run/postgresql/.s.PGSQL.5432"}},
        {"user": "postgres"},
        {"kind": "mariadb"},
        {"database": "payroll"},
        {"database": None},
    ],
)
def test_a_spec_on_another_server_or_database_than_its_case_is_refused(changes: dict[str, Any]) -> None:
    plan = plan_of()
    for run in plan.runs:
        run.spec["workload"]["server"].update(changes)
    with pytest.raises(ServerError, match="names a server or database that does not belong"):
        foreign_database.require_consent(plan, [database_of(plan), "payroll"])


def test_consent_names_every_database() -> None:
    plan = plan_of()
    foreign_database.require_consent(plan, [database_of(plan)])
    with pytest.raises(ServerError, match="would be created"):
        foreign_database.require_consent(plan, ["iosonde_00000000"])


@pytest.mark.parametrize("text", ["postgresql://me@[::1]:5432", "mariadb://me@%2Frun%2Fmysqld.sock:3306"])
def test_the_recorded_text_of_an_address_can_be_read_again(text: str) -> None:
    assert parse_url(parse_url(text).text) == parse_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "mongodb://me@mongodb%3A%2F%2Felsewhere%2F%3FtlsCAFile%3Dx",
        "mongodb://me@a%2Cb",
        "postgresql://me@a,b",
        "postgresql://me@host%20dbname%3Dpayroll",
        "postgresql://me@%00",
        "postgresql://me@%2Frun%0A",
        "mariadb://m%0Ae@host",
        "postgresql://me%40other@host",
        "cql://-x@-host",
    ],
)
def test_a_host_is_one_name_and_nothing_else(text: str) -> None:
    """The client of MongoDB takes a host with `://` for an address with options of its own, among them files."""
    with pytest.raises(ValueError, match="invalid host or user name"):
        parse_url(text)


@pytest.mark.parametrize(
    "text", ["postgresql://me@db-1.example.org", "mariadb://me@10.0.0.1", "cql://db_1", "mongodb://[::1]"]
)
def test_names_and_addresses_are_hosts(text: str) -> None:
    assert parse_url(text).host in text


@pytest.mark.engine
def test_a_database_on_a_server_that_no_longer_exists_is_forgotten_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on the port. Other entries cannot be forgotten, and without the request the entry stays."""
    monkeypatch.setattr(foreign_database, "RESTART_S", 0.0)
    path = DATABASES / "iosonde_0badcafe"
    facts = {"url": URL, "database": path.name, "own": "iosonde-0badcafe"}
    child = os.fork()
    if child == 0:
        journal.created(path, DATABASE_ON_SERVER, facts=facts)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    failed = in_this_process("cleanup")
    assert (failed.returncode, failed.stdout.partition(": ")[0]) == (1, str(path)), failed.stderr
    assert "could not be removed" in failed.stdout and URL in failed.stdout
    assert "iosonde cleanup --forget PATH" in failed.stderr
    refused = in_this_process("cleanup", "--forget", "/tmp")
    assert refused.returncode == 1 and "the journal has no database on a server as `/tmp`" in refused.stderr
    assert journal.find(path) is not None
    forgotten = in_this_process("cleanup", "--forget", path)
    assert forgotten.returncode == 0, forgotten.stderr
    assert forgotten.stdout.startswith(f"{path}: was forgotten and not dropped")
    assert journal.find(path) is None


@pytest.mark.engine
def test_the_database_of_a_killed_session_is_dropped_before_it_is_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would be taken for one of the user, and the journal would lose it."""
    path = DATABASES / "iosonde_0badcafe"
    own = "iosonde-0badcafe"
    host = RecordingHost(existing={path.name})
    monkeypatch.setattr(kinds()[parse_url(URL).kind], "host", lambda options: host)
    child = os.fork()
    if child == 0:
        journal.created(path, DATABASE_ON_SERVER, facts={"url": URL, "database": path.name, "own": own})
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    foreign_database.create(host, parse_url(URL), path.name, own=own)
    assert host.done == [f"drop {path.name}", f"create {path.name}"]
    entry = journal.find(path)
    assert entry is not None and entry.is_mine
    foreign_database.drop_all(own)
    assert (host.existing, journal.find(path)) == (set(), None)


class RecordingHost:
    """A server with databases by name."""

    def __init__(self, existing: set[str]) -> None:
        self.existing = existing
        self.done: list[str] = []

    def connect(self, address: Any) -> Any:
        return io.BytesIO()  # Nothing but its `close` is used.

    def create_database(self, connection: Any, database: str) -> None:
        if database in self.existing:
            raise ServerError(f"the database `{database}` exists", code="foreign_data")
        self.existing.add(database)
        self.done.append(f"create {database}")

    def drop_database(self, connection: Any, database: str) -> None:
        self.existing.discard(database)
        self.done.append(f"drop {database}")
