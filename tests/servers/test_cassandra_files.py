"""Cassandra without a running node: its configuration, versions of Java, the log of pauses, and its protocol."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from servers.conftest import answering

from iosonde.errors import ServerError, StudyError
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.cassandra import cql, files
from iosonde.features.key_value_stores.cassandra import server as cassandra
from iosonde.features.key_value_stores.cassandra.gc_log import GcLog, time_until
from iosonde.features.key_value_stores.cassandra.server import HEAP, Cassandra, RunningCassandra, loopback_of
from iosonde.study.servers.foreign import parse as parse_url
from iosonde.study.servers.programs import account_for
from iosonde.study.servers.server import Address, Installation, Place

CASSANDRA = pytest.mark.needs("cassandra")
LOG = """[81530000000000ns][gc] Using G1
[81530123456789ns][gc] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 24M->5M(512M) 3.456ms
[81530123460000ns][safepoint   ] Safepoint "G1CollectForAllocation", Time since last: 52 ns, Reaching safepoint: 9 ns, Cleanup: 1 ns, At safepoint: 3500000 ns, Total: 3500011 ns
[81530200000000ns][gc] GC(1) Concurrent Mark Cycle 12.000ms
[81530300000000ns][gc] GC(1) Pause Remark 30M->28M(512M) 1.250ms
[81530400000000ns][gc] GC(2) Pause Full (G1 Compaction Pause) 511M->500M(512M) 812.003ms
"""


# The log of pauses ---------------------------------------------------------------------------------------------------


def test_time_in_pauses_is_divided_at_the_instant_between() -> None:
    """A pause of 40 from 80 to 120, one of 10 from 200 to 210, and one that has not ended at the last instant."""
    spans = [(80, 120), (200, 210), (290, 400)]
    assert time_until(spans, [0, 100, 120, 205, 300]) == [0, 20, 40, 45, 60]
    assert time_until([], [5]) == [0]


def test_a_growing_log_is_read_once_and_only_in_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "gc.log"
    log = GcLog(path)
    assert log.totals() == {"gc_pauses": 0, "gc_pause_ns": 0, "gc_pause_longest_ns": 0}
    cut = LOG.index("GC(2)") + 20
    path.write_text(LOG[:cut])
    first = log.totals()
    assert (first["gc_pauses"], first["gc_pause_ns"]) == (2, 4_706_000)
    assert first["gc_pause_longest_ns"] == 3_456_000
    path.write_text(LOG)
    second = log.totals()
    assert (second["gc_pauses"], second["gc_pause_ns"]) == (3, 816_709_000)
    assert second["gc_pause_longest_ns"] == 812_003_000
    assert second["heap_after_gc_bytes"] == 500 << 20
    assert log.totals()["gc_pause_longest_ns"] == 0
    longest = log.facts()["longest_gc_pauses"]
    assert [each["length_ns"] for each in longest] == [3_456_000, 1_250_000, 812_003_000]
    assert log.times_until([81530500000000]) == [{"gc_paused_ns": 816_709_000, "safepoint_ns": 3_500_011}]
    path.write_text(LOG[: LOG.index("[81530200000000ns]")])
    assert log.totals()["gc_pauses"] == 4, "the server started again"


# Configuration -------------------------------------------------------------------------------------------------------


def place_in(directory: Path, log: Path | None = None) -> Place:
    data = directory / "cassandra-00000001" / "data"
    data.parent.mkdir(parents=True)
    return Place(data=data, log=log, socket=directory, account=account_for(()))


def written(place: Place, settings: dict[str, object]) -> dict[str, object]:
    nothing = Installation(version="5.0.6", build="", programs={})
    Cassandra().configure(nothing, place, settings)  # type: ignore[arg-type]
    lines = (place.data.parent / "data.conf" / "cassandra.yaml").read_text().splitlines()
    return {name: json.loads(value) for name, _, value in (line.partition(": ") for line in lines)}


def test_the_configuration_has_a_loopback_address_of_its_own_and_the_commit_log(tmp_path: Path) -> None:
    place = place_in(tmp_path / "a")
    found = written(place, {HEAP: 1 << 29})
    host = found["listen_address"]
    assert host == found["rpc_address"] == loopback_of(place.data)
    assert str(host).startswith("127.") and not str(host).startswith("127.0.")
    assert loopback_of(place.data) != loopback_of(tmp_path / "b")
    assert HEAP not in found
    assert found["commitlog_directory"] == str(place.data / "commitlog")
    assert found["commitlog_sync_period"] == "10000ms"
    apart = written(place_in(tmp_path / "c", tmp_path / "log"), {"commitlog_sync": "group", "concurrent_writes": 8})
    assert apart["commitlog_directory"] == str(tmp_path / "log")
    assert (apart["commitlog_sync"], apart["commitlog_sync_group_window"]) == ("group", "10ms")
    assert "commitlog_sync_period" not in apart
    assert apart["concurrent_writes"] == 8


# Its settings: the fields of the class that its configuration is read into ------------------------------------------


@pytest.fixture(scope="module")
def installed() -> Installation:
    jars, _ = files.locate()
    return Installation(version="5.0.6", build="", programs={"jars": str(jars), "java": "java"})


@CASSANDRA
def test_a_wrong_name_of_a_setting_is_refused_with_the_nearest(installed: Installation) -> None:
    with pytest.raises(StudyError, match="has no setting `concurent_writes`") as raised:
        Cassandra().check_settings(installed, {"concurent_writes": 8})
    assert "`concurrent_writes`" in raised.value.hint
    with pytest.raises(StudyError, match="has no setting `logger`"):  # A field of the class itself.
        Cassandra().check_settings(installed, {"logger": 8})


@CASSANDRA
@pytest.mark.parametrize(
    ("name", "right", "wrong", "hint"),
    [
        ("concurrent_writes", [8, "8", -1], ["many", "8MiB", 10**9, 1.5, True], "whole number"),
        ("trickle_fsync", [True, "false"], [1, "yes"], "true or false"),
        ("dynamic_snitch_badness_threshold", [1, 0.5], ["half", "nan", True], "a number"),
        ("auto_snapshot_ttl", ["10d", ""], ["a b", "$(x)", "a: b", "é"], "a word"),
        ("memtable_heap_space", ["512MiB"], [512, "512MB", "512 MiB", "-1MiB"], "a size"),
        ("compaction_throughput", ["64MiB/s"], ["64MiB", "MiB", 64], "a rate"),
        ("read_request_timeout", ["60s", "10ms"], ["60", "1 s", 60], "a duration"),
        ("commitlog_sync", ["batch", "group"], ["never"], "`periodic`, `batch`, `group`"),
        ("disk_access_mode", ["mmap", "auto"], ["mapped", "MMAP", ""], "`auto`, `mmap`, "),
        ("commitlog_compression", [], ["LZ4Compressor"], "not a single value"),
    ],
)
def test_values_are_those_that_the_fields_take(
    name: str, right: list[object], wrong: list[object], hint: str, installed: Installation
) -> None:
    for value in right:
        Cassandra().check_settings(installed, {name: value})  # type: ignore[dict-item]
    for value in wrong:
        with pytest.raises(StudyError, match="cannot be") as raised:
            Cassandra().check_settings(installed, {name: value})  # type: ignore[dict-item]
        assert hint in raised.value.hint


@CASSANDRA
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *[
            (name, "x", "is chosen by iosonde")
            for name in ("listen_address", "data_file_directories", "authenticator", "heap_dump_path",
                         "row_cache_class_name", "native_transport_port_ssl")
        ],
        ("compaction_throughput", "64MiB/s\nlisten_address: x", "names a path"),
        ("concurrent_writes", "/etc/passwd", "names a path"),
    ],
)  # fmt: skip
def test_settings_that_name_places_or_code_are_refused(
    name: str, value: str, message: str, installed: Installation
) -> None:
    with pytest.raises(StudyError, match=message):
        Cassandra().check_settings(installed, {name: value})


# Installations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("apache-cassandra-5.0.6.jar", ""),
        ("lucene-core-9.7.0.jar", "missing_server"),
        ("apache-cassandra-3.11.17.jar", "wrong_version"),
    ],
)
def test_cassandra_is_found_where_its_home_is_named_unless_it_is_too_old(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).touch()
    monkeypatch.setenv("CASSANDRA_HOME", str(tmp_path))
    if not code:
        assert files.locate() == (tmp_path, "5.0.6")
        return
    with pytest.raises(ServerError) as raised:
        files.locate()
    assert raised.value.code == code
    assert "CASSANDRA_HOME" in raised.value.hint


@pytest.mark.system
@pytest.mark.parametrize(
    ("printed", "number", "error"),
    [
        ("17.0.15", 17, ""),
        ("1.8.0_452", 0, "Java 8 cannot run this server: it needs Java 11 or 17"),
        ("21.0.7", 0, "Java 21 cannot run this server: it needs Java 11 or 17"),
        ("", 0, "Java is not installed"),
    ],
)
def test_a_supported_java_is_used_and_another_is_an_error(
    printed: str, number: int, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    if printed:
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{printed}\" 2025-04-15' >&2\n")
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if number:
        found = files.find_java(files.JAVA_VERSIONS)
        assert (found.path, found.version) == (str(program), number)
        return
    with pytest.raises(ServerError, match=error) as raised:
        files.find_java(files.JAVA_VERSIONS)
    assert raised.value.code == ("wrong_version" if printed else "missing_server")


def test_an_exhausted_heap_is_named_as_the_cause() -> None:
    message = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
    found = Cassandra().cause(f"INFO up\n{message}\n", {HEAP: 64 << 20})
    assert found is not None
    assert (found.code, "64 MiB" in found.what, "heap_size" in found.hint) == ("out_of_memory", True, True)
    assert Cassandra().cause("INFO all is well", {}) is None


# Compactions after a load ---------------------------------------------------------------------------------------------


class Compacting:
    """A connection whose server reports these compactions, one list for each request."""

    def __init__(self, *answers: list[tuple[object, ...]]) -> None:
        self._answers = list(answers)

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def close(self) -> None:
        pass


def test_a_load_waits_for_compactions_unless_they_do_not_progress_or_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [[("iosonde", "records", "compaction", done, 900)] for done in (100, 500)]
    Cassandra().finish_load(Compacting(*steps, []))
    compacting = Compacting(steps[0])
    stop = Stop()
    stop.set()
    with pytest.raises(ServerError) as raised:
        Cassandra().finish_load(compacting, stop.check)
    stop.close()
    assert raised.value.code == "stopped"
    monkeypatch.setattr(cassandra, "STALLED_S", 0.01)
    with pytest.raises(ServerError, match="1 compactions of Cassandra made no progress") as raised:
        Cassandra().finish_load(compacting)
    assert raised.value.code == "timeout"
    assert "`iosonde.records`: 100 of 900 bytes" in raised.value.where


# A server of the user -------------------------------------------------------------------------------------------------


class Keyspaces:
    """A connection to a server with one keyspace of these tables; collects what is executed."""

    def __init__(self, *tables: str, modes: str = "batch") -> None:
        self.executed: list[str] = []
        self._tables, self._mode = tables, modes

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        self.executed.append(statement)
        if "system_schema.tables" in statement:
            return [(name,) for name in self._tables]
        return [(self._mode,)]

    def close(self) -> None:
        pass


class ScyllaDb(Keyspaces):
    """Has `system.config` with values as JSON, and no virtual tables of Cassandra."""

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        if "system_views" in statement:
            raise cql.CqlError("unconfigured table settings")
        return super().rows(statement, values)


@pytest.mark.parametrize("server", [Keyspaces(modes="batch"), ScyllaDb(modes='"batch"')])
def test_the_mode_of_the_commit_log_of_either_server_decides_whether_a_case_is_measured(
    server: Keyspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cql, "connect", lambda _: server)
    address = parse_url("cql://db1").address()
    for possible in ("batch", None):
        RunningCassandra().require_mode(address, possible)
    with pytest.raises(ServerError, match="the server has `batch`") as raised:
        RunningCassandra().require_mode(address, "periodic")
    assert raised.value.code == "unsupported"


@pytest.mark.parametrize(
    ("tables", "is_dropped"),
    [((), True), (("created_by_iosonde", "records"), True), (("records",), False), (("accounts",), False)],
)
def test_only_a_keyspace_that_iosonde_created_is_dropped(tables: tuple[str, ...], is_dropped: bool) -> None:
    connection = Keyspaces()
    RunningCassandra(replicas=3).create_database(connection, "iosonde_12ab34cd")
    assert "'replication_factor': 3" in connection.executed[0]
    assert connection.executed[1].startswith("CREATE TABLE iosonde_12ab34cd.created_by_iosonde")
    connection = Keyspaces(*tables)
    with nullcontext() if is_dropped else pytest.raises(ServerError, match="iosonde did not create it"):
        RunningCassandra().drop_database(connection, "iosonde_12ab34cd")
    assert ("DROP KEYSPACE IF EXISTS iosonde_12ab34cd" in connection.executed) == is_dropped


# The protocol --------------------------------------------------------------------------------------------------------


def frame(kind: int, body: bytes, version: int = 0x84) -> bytes:
    return struct.pack(">BBhBi", version, 0, 0, kind, len(body)) + body


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


@contextmanager
def serving(*frames: bytes, received: list[bytes] | None = None) -> Iterator[Address]:
    """A server that answers each request of a client with the next frame."""

    def answer(client: socket.socket) -> None:
        for frame in frames:
            head = client.recv(9, socket.MSG_WAITALL)
            body = client.recv(int.from_bytes(head[5:], "big"), socket.MSG_WAITALL)
            if received is not None:
                received.append(body)
            client.sendall(frame)

    with answering(answer) as port:
        yield Address(host="127.0.0.1", port=port, user="me", database="")


def test_a_password_is_sent_only_to_a_server_that_asks_and_is_a_process_of_the_named_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This process serves."""
    monkeypatch.setenv("CASSANDRA_PASSWORD", "secret")
    password, accepted = frame(0x03, text("PasswordAuthenticator")), frame(0x10, struct.pack(">i", -1))
    own: list[bytes] = []
    with serving(password, accepted, received=own) as address:
        cql.connect(address, server_uid=os.geteuid()).close()
    assert own[1] == struct.pack(">i", 10) + b"\0me\0secret"
    refused = pytest.raises(ServerError, match="another user's program answers")
    with serving(password, received=(other := [])) as address, refused:
        cql.connect(address, server_uid=os.geteuid() + 1)
    assert len(other) == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (frame(0x00, struct.pack(">i", 0x0100) + text("bad credentials")), "authentication"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "server"),
        (frame(0x02, b"", version=0x85), "server"),
        (b"\x84\0", "server_vanished"),
    ],
)
def test_an_error_or_another_protocol_has_its_code(answer: bytes, code: str) -> None:
    with serving(answer) as address, pytest.raises(ServerError) as raised:
        cql.connect(address)
    assert raised.value.code == code
