"""Servers that iosonde starts privately: unprivileged, on a Unix socket only, accounted, and gone afterwards.

PostgreSQL and MariaDB each start once for what a running server shows; faults are provoked on PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leftovers import SharedMemory
from servers.conftest import KINDS, SMALL, instance_in, reachable_directory, restored
from strangers import listening, refuses_strangers

from iosonde import servers
from iosonde.errors import ServerError, StudyError
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.memcached.server import Memcached
from iosonde.features.object_stores import ceph
from iosonde.servers import account as accounts
from iosonde.servers import mariadb, programs
from iosonde.servers.directories import Directories, create_directory
from iosonde.servers.instance import Instance
from iosonde.servers.process import ServerProcess
from iosonde.servers.server import Installation
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import owner_of

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv")]

POSTGRESQL = pytest.mark.needs("postgres")


@pytest.fixture(scope="module", params=KINDS)
def started(request: pytest.FixtureRequest, templates: dict[str, Path]) -> Iterator[tuple[Instance, str]]:
    """A running server and the directory of its journal: data on a disk, the log on another file system."""
    place, log = reachable_directory(on_disk=True), reachable_directory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        instance = restored(place, request.param, templates, log=log / "iosonde-89abcdef")
        try:
            instance.start()
            yield instance, str(place / "state")
        finally:
            patch.setenv("XDG_STATE_HOME", str(place / "state"))
            instance.remove()
            shutil.rmtree(place)
            shutil.rmtree(log)


@pytest.fixture
def running(started: tuple[Instance, str], monkeypatch: pytest.MonkeyPatch) -> Instance:
    instance, state = started
    monkeypatch.setenv("XDG_STATE_HOME", state)
    return instance


def test_a_server_runs_unprivileged_on_a_socket_and_describes_itself(running: Instance) -> None:
    status = Path(f"/proc/{running.pid}/status").read_text()
    uid = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))
    assert uid == running.account.uid
    assert uid != 0
    assert {each.kind for each in listening([running.pid])} == {"unix"}
    found = running.describe()
    assert running.installation.version in found["version"]
    assert len(found["settings"]) > 300
    assert {each.lower() for each in SMALL[running.server.name]} & set(found["changed"])
    assert found["user"] == running.account.name
    assert {each["kind"] for each in found["open_files"]} >= {"data"}
    if running.server.name == "mariadb":  # It opens its files with O_DIRECT.
        assert found["io_modes"]["data"] == "direct"


def test_the_log_is_on_its_own_target(running: Instance) -> None:
    """On another file system, where moving copies."""
    assert running.directories.log is not None
    logs = [each.name for each in (running.directories.log / "wal").iterdir()]
    assert any(name.startswith(("0000", "ib_logfile", "#innodb_redo")) for name in logs)
    assert not list(running.place.data.glob("ib_logfile*"))


@pytest.mark.needs("root")
def test_other_users_cannot_connect(running: Instance) -> None:
    assert refuses_strangers(each.address for each in listening([running.pid]))


@pytest.mark.needs("root")
def test_the_user_of_a_server_cannot_replace_files_of_iosonde_in_its_directory(running: Instance) -> None:
    """A link in the place of its messages made root append to any file when the server was started again."""
    directories = running.directories
    for each in (directories.run, directories.template):
        assert (each.stat().st_uid, each.stat().st_mode & 0o777) == (0, 0o711)
    messages = running.place.server_log
    dropping = ["setpriv", *running.account.dropping()]
    for command in (["mv", messages, f"{messages}.old"], ["mv", running.place.data, directories.run / "old"],
                    ["ln", "-sfn", "/etc/passwd", messages], ["touch", directories.run / "new"]):  # fmt: skip
        done = subprocess.run([*dropping, *map(str, command)], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode != 0
        assert "ermission denied" in done.stderr
    assert messages.lstat().st_uid == 0
    socket = running.place.socket.stat()
    assert (socket.st_uid, socket.st_mode & 0o777) == (running.account.uid, 0o700)


def test_statistics_count_what_clients_do_and_the_control_group_their_cpu_time(running: Instance) -> None:
    connection, used = running.connect("iosonde"), running.group.cpu_ns()
    before = running.server.statistics(connection)
    connection.rows("CREATE TABLE t (a integer)")
    connection.rows("INSERT INTO t VALUES (1), (2), (3)")
    connection.rows("SELECT count(*) FROM t")
    deadline = time.monotonic() + 300  # PostgreSQL publishes a session's counters when it ends.
    while True:
        connection.close()
        connection = running.connect("iosonde")
        after = running.server.statistics(connection)
        if after["rows_inserted"] - before["rows_inserted"] >= 3 or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    connection.close()
    assert after["rows_inserted"] - before["rows_inserted"] >= 3
    assert after["wal_bytes"] > before["wal_bytes"]
    assert {"sessions_active", "buffer_hits", "buffer_reads", "deadlocks"} <= set(after)
    if used is not None:
        assert (running.group.cpu_ns() or 0) > used


def test_stopping_is_orderly_and_removing_leaves_only_the_template(running: Instance) -> None:
    leader = running.pid
    assert running.stop()
    assert owner_of(leader) == ""
    assert [each.what for each in journal.entries() if each.what == "server"] == []
    running.remove()
    assert list(running.directories.run.iterdir()) == []
    assert running.template.is_complete


def test_a_directory_of_another_program_in_tmp_is_an_error(place: Path) -> None:
    own = place / "iosonde-01234567"
    own.mkdir()
    with pytest.raises(ServerError, match="already exists and was not created by iosonde"):
        create_directory(own, "mariadb-00000000")
    assert journal.entries() == []
    own.rmdir()


@pytest.mark.needs("root")
def test_a_link_in_place_of_our_directory_is_not_followed(place: Path) -> None:
    """Put there between two runs, by the user to whom the directory above it belongs."""
    own, theirs = place / "iosonde-01234567", place / "theirs"
    theirs.mkdir(mode=0o700)
    account = accounts.Account(name="nobody", uid=65534, gid=65534)
    create_directory(own, "mariadb-00000000", account)
    own.rename(place / "moved")
    own.symlink_to(theirs)
    with pytest.raises(OSError, match="iosonde-01234567"):
        create_directory(own, "mariadb-00000000", account)
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o700 and not any(theirs.iterdir())
    own.unlink()
    (place / "moved").rename(own)
    journal.remove(own)
    theirs.rmdir()


@POSTGRESQL
def test_a_killed_iosonde_leaves_nothing_after_cleanup(place: Path, templates: dict[str, Path]) -> None:
    """The kernel kills the server's first process with iosonde; cleanup kills the others and removes everything."""
    templates["postgresql"]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            instance = restored(place, "postgresql", templates)
            instance.start()
            os.write(writing, str(instance.pid).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    leader = int(os.read(reading, 20))
    os.close(reading)
    identity = owner_of(leader)
    assert identity
    memory = SharedMemory(place)
    memory.look()
    assert memory.segments > 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    cleaned = journal.cleanup()
    assert [each.reason for each in cleaned if each.failed] == []
    assert owner_of(leader) != identity or Path(f"/proc/{leader}/stat").read_text().split()[2] == "Z"
    assert [each for each in Path("/proc").iterdir() if each.name.isdigit() and works_in(each, place)] == []
    assert memory.remaining() == []
    assert list(place.iterdir()) == []
    assert journal.entries() == []


def works_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").readlink().is_relative_to(directory)
    except OSError:
        return False


@POSTGRESQL
def test_a_damaged_template_is_refused_and_discarded(place: Path, templates: dict[str, Path]) -> None:
    instance = restored(place, "postgresql", templates)
    files = (each for each in instance.template.data.rglob("*") if each.is_file())
    victim = max(files, key=lambda each: each.stat().st_size)
    with victim.open("r+b") as file:
        file.seek(4096)
        file.write(b"damaged")
    with pytest.raises(ServerError, match="the template of the database is damaged") as error:
        instance.restore()
    assert error.value.code == "template_damaged"
    assert not instance.template.is_complete
    instance.remove()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        *[
            pytest.param("postgresql", settings, message, marks=POSTGRESQL)
            for settings, message in (
                ({"sharedbuffers": "1GB"}, "unrecognized configuration"),
                ({"wal_level": "much"}, "invalid value for parameter"),
                ({"archive_command": "rm x"}, "chosen by iosonde"),
                ({"stats_temp_directory": "/etc"}, "names a path"),
            )
        ],
        *[
            pytest.param("mariadb", settings, message, marks=pytest.mark.needs("mariadbd"))
            for settings, message in (
                ({"innodb_buffer_poolsize": "1G"}, "unknown variable"),
                ({"innodb_flush_method": "much"}, "Error while setting value"),
                ({"innodb_page_size": 1000}, "adjusted to 4096"),
                ({"plugin-load-add": "x.so"}, "chosen by iosonde"),
            )
        ],
    ],
)
def test_settings_are_checked_before_anything_is_written(
    kind: str, settings: dict[str, object], message: str, place: Path
) -> None:
    with pytest.raises(StudyError, match=message):
        instance_in(place, kind, settings)  # type: ignore[arg-type]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("postgresql", "archive-command"),
        ("postgresql", "Archive_Command"),
        ("postgresql", "archive_command=touch x;:"),
        ("postgresql", "wal_level=replica\narchive_command"),
        ("postgresql", "Session-Preload-Libraries"),
        ("mariadb", "loose-plugin-load-add"),
        ("mariadb", "LOOSE_maximum_init_connect"),
        ("mariadb", "innodb_log_file_size=1G --datadir"),
        ("mariadb", "log_tc=x"),
        ("mariadb", "datadi"),
        ("mariadb", "Loose-Plugin-Loa"),
        ("mariadb", "disable-skip-networking"),
        ("mariadb", "skip-networkin"),
    ],
)
def test_no_spelling_of_a_name_sets_what_iosonde_chooses(kind: str, name: str) -> None:
    """Servers take dashes for underscores, ignore case, accept prefixes and, as MariaDB and MySQL, the beginning of a
    name, and split what they get at `=` and commas. With
    `archive-command` a study, or a result set, ran a command without consent."""
    installation = Installation(version="1", build="", programs={})
    with pytest.raises(StudyError, match=r"chosen by iosonde|not a name of a setting"):
        servers.named(kind).check_settings(installation, {name: True})  # type: ignore[arg-type]


def test_a_complete_name_may_be_the_beginning_of_a_reserved_one() -> None:
    for name in ("slow_query_log", "innodb_log_file_size", "sync_binlog", "max_connections"):
        programs.refuse_reserved({name: 1}, mariadb.RESERVED, "MariaDB", complete=mariadb.COMPLETE)


@pytest.mark.parametrize(
    ("locate", "package"),
    [
        (servers.named("postgresql").locate, "`postgresql`"),
        (servers.named("mariadb").locate, "`mariadb-server`"),
        (Memcached().locate, "`memcached`"),
        (ceph.locate, "ceph-osd"),
    ],
    ids=["postgresql", "mariadb", "memcached", "ceph"],
)
def test_a_missing_server_names_its_package(
    locate: Callable[[], object], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(ServerError) as error:
        locate()
    assert error.value.code == "missing_server"
    assert package in error.value.hint


def test_an_old_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "postgres"
    program.write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.24'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ServerError, match=r"PostgreSQL 9\.6 is too old") as error:
        servers.named("postgresql").locate()
    assert (error.value.code, "newer package" in error.value.hint) == ("wrong_version", True)


@pytest.mark.parametrize(
    "message",
    [
        'PANIC:  could not write to file "pg_wal/xlogtemp.1": No space left on device',
        "[ERROR] InnoDB: Error number 28 means 'No space left on device'",
        "[ERROR] mariadbd: Disk full (./x.MAI); waiting for someone to free some space... (errno: 28)",
        "Can't create/write to file './y' (Errcode: 28)",
    ],
)
def test_messages_about_a_full_disk_are_recognised(message: str) -> None:
    assert programs.report_full_disk(message)
    assert not programs.report_full_disk("[Note] Error number 280, 28 tables")


@pytest.mark.needs("root")
def test_a_directory_that_the_server_cannot_enter_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    account = accounts.account_for(["nobody"])
    with pytest.raises(ServerError, match="cannot enter") as error:
        accounts.check_traversable(tmp_path / "iosonde-01234567", account)
    assert "chmod o+x" in error.value.hint


@POSTGRESQL
def test_a_server_in_a_directory_with_a_long_path_has_its_socket_in_tmp_and_leaves_nothing(
    place: Path, templates: dict[str, Path]
) -> None:
    short = Directories(own=Path("/data/iosonde-01234567"), name="mariadb-00000000", template_name="t")
    assert short.socket == Path("/data/iosonde-01234567/mariadb-00000000/socket")
    deep = place / "iosonde-00000000"
    long = deep / ("x" * 70)
    long.mkdir(parents=True)
    long.chmod(0o711)
    try:
        instance = restored(long, "postgresql", templates)
        assert instance.directories.socket == Path("/tmp/iosonde-01234567/socket-01234567")
        try:
            instance.start()
        finally:
            instance.remove()
        assert not Path("/tmp/iosonde-01234567").exists()
        journal.remove(instance.directories.own)
    finally:
        shutil.rmtree(deep)


@pytest.mark.needs("root", "postgres")
def test_a_server_without_room_fails_with_that_cause(place: Path, templates: dict[str, Path]) -> None:
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60M,mode=711", "iosonde-test", small], check=True)
    try:
        with pytest.raises(ServerError) as error:
            restored(small, "postgresql", templates)
        assert error.value.code == "no_space"
        journal.remove(small / "iosonde-01234567")
    finally:
        subprocess.run(["umount", small], check=True)
        small.rmdir()


# Stops ----------------------------------------------------------------------------------------------------------------


@POSTGRESQL
def test_a_stop_ends_the_wait_for_a_shutdown_after_a_load_and_a_slow_shutdown_ends_in_a_kill(
    place: Path, templates: dict[str, Path]
) -> None:
    instance, stop = restored(place, "postgresql", templates), Stop()
    instance.check = stop.check
    try:
        instance.start()
        process, leader = instance._process, instance.pid
        os.kill(leader, signal.SIGSTOP)  # As a server that writes for a long time before it ends.
        stop.set()
        with pytest.raises(ServerError) as raised:
            instance.stop_after_load()
        assert raised.value.code == "stopped"
        assert process is not None and not process.stop(signal.SIGINT, timeout_s=0.2), "after a run it is awaited"
        assert owner_of(leader) == ""
    finally:
        instance.remove()
        stop.close()


class Interrupting:
    """Control groups that a process is killed in, as by Ctrl-C before it has a session of its own."""

    def add(self, pid: int) -> None:
        os.kill(pid, signal.SIGINT)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_process_that_is_killed_before_it_is_the_server_is_an_error(tmp_path: Path) -> None:
    group: Any = Interrupting()
    with pytest.raises(ServerError, match="`true` was ended by another process before it started"):
        ServerProcess.start(
            ["/bin/true"], account=accounts.account_for([]), entry=tmp_path, messages=tmp_path / "messages", group=group
        )
    assert journal.find(tmp_path) is None
