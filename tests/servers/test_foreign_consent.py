"""Servers of the user: a database is created only with consent, which a result set from somebody else cannot give.

Addresses name one host and no secret, and a server that requests a password in clear text does not get it over a network.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import in_this_process
from engines import FAKE
from servers.conftest import answering
from study_texts import study_text

from iosonde.errors import ServerError
from iosonde.execution.session import resume
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent
from iosonde.storage.safety.journal import DATABASE_ON_SERVER, DATABASES
from iosonde.study import servers
from iosonde.study.servers import foreign
from iosonde.study.servers.foreign import kinds
from iosonde.study.servers.foreign import parse as parse_url
from iosonde.study.servers.server import Address

URL = "postgresql://me@127.0.0.1:1"


def plan_of() -> Plan:
    study = parse(study_text("commit", 'duration = "1s"'))
    return expand(study, open_target("null:1GiB"), settings={"server_url": URL})


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
        {"user": "postgres"},
        {"kind": "mariadb"},
        {"database": "payroll"},
    ],
)
def test_a_spec_on_another_server_or_database_than_its_case_is_refused(changes: dict[str, Any]) -> None:
    plan = plan_of()
    foreign.require_consent(plan, [database_of(plan)])
    with pytest.raises(ServerError, match="would be created"):
        foreign.require_consent(plan, ["iosonde_00000000"])
    for run in plan.runs:
        run.spec["workload"]["server"].update(changes)
    with pytest.raises(ServerError, match="names a server or database that does not belong"):
        foreign.require_consent(plan, [database_of(plan), "payroll"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me@db-1.example.org:5433", "postgresql://me@db-1.example.org:5433"),
        ("postgres://me@%2Frun%2Fpostgresql", "postgresql://me@%2Frun%2Fpostgresql:5432"),
        ("mysql://me@10.0.0.1", "mariadb://me@10.0.0.1:3306"),
        ("scylla://db_1:19042", "cql://db_1:19042"),
        ("cassandra://me@[::1]", "cql://me@[::1]:9042"),
        ("mongodb://[::1]", "mongodb://[::1]:27017"),
        ("http://db1:9000", "s3://db1:9000"),
    ],
)
def test_an_address_has_one_scheme_and_a_port_and_its_recorded_text_can_be_read_again(text: str, expected: str) -> None:
    assert parse_url(text).text == expected
    assert parse_url(expected) == parse_url(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("postgresql://me:secret@db", "contains a password"),
        ("s3://me:secret@db1", "contains a password"),
        ("ftp://db", "invalid server address"),
        ("postgresql://me@db/production", "must name a server only"),
        ("postgresql://me@db:x", "no valid port"),
        ("https://db1:9000", "with encryption is not supported"),
        ("s3://me@db1:9000", "names a user"),
        ("cql://%2Frun%2Fcassandra", "is a Unix socket"),
        # The client of MongoDB takes a host with `://` for an address with options of its own, among them files.
        ("mongodb://me@mongodb%3A%2F%2Felsewhere%2F%3FtlsCAFile%3Dx", "invalid host or user name"),
        ("mongodb://me@a%2Cb", "invalid host or user name"),
        ("postgresql://me@a,b", "invalid host or user name"),
        ("postgresql://me@host%20dbname%3Dpayroll", "invalid host or user name"),
        ("postgresql://me@%2Frun%0A", "invalid host or user name"),
        ("postgresql://me%40other@host", "invalid host or user name"),
        ("cql://-x@-host", "invalid host or user name"),
    ],
)
def test_an_address_with_a_secret_or_more_than_one_host_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_url(text)
    assert "secret" not in str(error.value)


OWN = "iosonde-0badcafe"


def left_by_a_killed_process() -> Path:
    """A database in the journal."""
    path = DATABASES / "iosonde_0badcafe"
    child = os.fork()
    if child == 0:
        journal.created(path, DATABASE_ON_SERVER, facts={"url": URL, "database": path.name, "own": OWN})
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return path


@pytest.mark.engine
def test_a_database_on_a_server_that_no_longer_exists_is_forgotten_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on the port. Other entries cannot be forgotten, and without the request the entry stays."""
    monkeypatch.setattr(foreign, "RESTART_S", 0.0)
    path = left_by_a_killed_process()
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
    path = left_by_a_killed_process()
    host = RecordingHost(existing={path.name})
    monkeypatch.setattr(kinds()[parse_url(URL).kind], "host", lambda options: host)
    foreign.create(host, parse_url(URL), path.name, own=OWN)
    assert host.done == [f"drop {path.name}", f"create {path.name}"]
    entry = journal.find(path)
    assert entry is not None and entry.is_mine
    foreign.drop_all(OWN)
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


# Passwords in clear text ----------------------------------------------------------------------------------------------

PASSWORD = "correct horse"


def request_of_postgresql(client: socket.socket) -> None:
    """Refuse encryption, and request a password (AuthenticationCleartextPassword)."""
    while struct.unpack("!I", client.recv(8)[4:])[0] != 3 << 16:
        client.sendall(b"N")
    client.recv(4096)
    client.sendall(b"R" + struct.pack("!II", 8, 3))


def request_of_mariadb(client: socket.socket) -> None:
    """The handshake of protocol 10, and a switch to `mysql_clear_password`."""
    flags = 0xFFFFF7FF  # Without encryption.
    greeting = b"\x0a10.11.6\0" + struct.pack("<I", 1) + b"x" * 8 + b"\0" + struct.pack("<H", flags & 0xFFFF)
    greeting += b"\x2d" + struct.pack("<HH", 2, flags >> 16) + b"\x15" + bytes(10) + b"x" * 12 + b"\0"
    for number, body in ((0, greeting + b"mysql_native_password\0"), (2, b"\xfemysql_clear_password\0")):
        client.sendall(struct.pack("<I", len(body))[:3] + bytes([number]) + body)
        if number == 0:
            client.recv(4096)


@pytest.mark.parametrize(
    ("kind", "request_of"), [("postgresql", request_of_postgresql), ("mariadb", request_of_mariadb)]
)
def test_a_password_in_clear_text_is_not_sent_over_a_network(
    kind: str, request_of: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    received: list[bytes] = []

    def answer(client: socket.socket) -> None:
        request_of(client)
        received.append(client.recv(4096))

    with answering(answer) as port:
        address = Address(host="127.0.0.1", port=port, user="me", database="iosonde", password=PASSWORD)
        with pytest.raises(ServerError, match="in clear text, which is sent through a Unix socket only") as error:
            servers.named(kind).connect(address)  # type: ignore[arg-type, union-attr]
    assert error.value.code == "authentication"
    assert PASSWORD.encode() not in b"".join(received)
