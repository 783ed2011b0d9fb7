"""Servers that iosonde starts privately: unprivileged, on a Unix socket only, accounted, and gone afterwards.

PostgreSQL and MariaDB each start once for what a running server shows; faults are provoked on PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mounted import LoopFileSystem
from servers.conftest import KINDS, SMALL, instance_in, reachable_directory, restored
from stores import small_file_system
from strangers import listening, refuses_strangers

from iosonde.errors import ServerError, StudyError
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.memcached import Memcached
from iosonde.features.object_stores import ceph
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import owner_of
from iosonde.study import servers
from iosonde.study.servers import directories as templates
from iosonde.study.servers import mariadb, programs
from iosonde.study.servers import programs as accounts
from iosonde.study.servers.directories import DATA, Template, create_directory
from iosonde.study.servers.programs import account_for
from iosonde.study.servers.server import Installation, Instance

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv")]

POSTGRESQL, MARIADB = pytest.mark.needs("postgres"), pytest.mark.needs("mariadbd")


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


def test_a_server_runs_unprivileged_on_a_socket_with_its_log_apart_and_describes_itself(running: Instance) -> None:
    status = Path(f"/proc/{running.pid}/status").read_text()
    uid = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))
    assert uid == running.account.uid
    assert uid != 0
    assert {each.kind for each in listening([running.pid])} == {"unix"}
    with closing(running.connect("iosonde")) as client:  # PostgreSQL opens files when a client needs them, and for it.
        client.rows("CREATE TABLE opened (a integer)")
        client.rows("SELECT count(*) FROM opened")
        found = running.describe()
    assert running.installation.version in found["version"]
    assert len(found["settings"]) > 300
    assert {each.lower() for each in SMALL[running.server.name]} & set(found["changed"])
    assert found["user"] == running.account.name
    assert {each["kind"] for each in found["open_files"]} >= {"data"}
    if running.server.name == "mariadb":  # It opens its files with O_DIRECT.
        assert found["io_modes"]["data"] == "direct"
    assert running.directories.log is not None  # On another file system, where moving copies.
    logs = [each.name for each in (running.directories.log / "wal").iterdir()]
    assert any(name.startswith(("0000", "ib_logfile", "#innodb_redo")) for name in logs)
    assert not list(running.place.data.glob("ib_logfile*"))


@pytest.mark.needs("root")
def test_other_users_cannot_connect_and_the_servers_user_cannot_replace_files_of_iosonde(running: Instance) -> None:
    """A link in the place of its messages made root append to any file when the server was started again."""
    assert refuses_strangers(each.address for each in listening([running.pid]))
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
def test_a_damaged_template_is_refused_and_discarded(place: Path, templates: dict[str, Path]) -> None:
    instance = restored(place, "postgresql", templates)
    (instance.template.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(ServerError, match="the template of the database is damaged") as error:
        instance.restore()
    assert error.value.code == "template_damaged"
    assert not instance.template.is_complete
    instance.remove()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        pytest.param("postgresql", {"wal_level": "much"}, "invalid value for parameter", marks=POSTGRESQL),
        pytest.param("postgresql", {"stats_temp_directory": "/etc"}, "names a path", marks=POSTGRESQL),
        pytest.param("mariadb", {"innodb_buffer_poolsize": "1G"}, "unknown variable", marks=MARIADB),
        pytest.param("mariadb", {"innodb_page_size": 1000}, "adjusted to 4096", marks=MARIADB),
    ],
)
def test_settings_are_checked_before_anything_is_written(
    kind: str, settings: dict[str, object], message: str, place: Path
) -> None:
    with pytest.raises(StudyError, match=message):
        instance_in(place, kind, settings)  # type: ignore[arg-type]
    assert list(place.iterdir()) == []


RESERVED = {
    "postgresql": ["archive-command", "Archive_Command", "archive_command=touch x;:", "Session-Preload-Libraries",
                   "wal_level=replica\narchive_command"],
    "mariadb": ["loose-plugin-load-add", "LOOSE_maximum_init_connect", "innodb_log_file_size=1G --datadir", "log_tc=x",
                "datadi", "Loose-Plugin-Loa", "disable-skip-networking", "skip-networkin"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in RESERVED.items() for name in names])
def test_no_spelling_of_a_name_sets_what_iosonde_chooses(kind: str, name: str) -> None:
    """Servers take dashes for underscores, ignore case, accept prefixes and, as MariaDB and MySQL, the beginning of a
    name, and split what they get at `=` and commas. With
    `archive-command` a study, or a result set, ran a command without consent."""
    installation = Installation(version="1", build="", programs={})
    with pytest.raises(StudyError, match=r"chosen by iosonde|not a name of a setting"):
        servers.named(kind).check_settings(installation, {name: True})  # type: ignore[arg-type]
    for complete in ("slow_query_log", "innodb_log_file_size", "sync_binlog", "max_connections"):
        programs.refuse_reserved({complete: 1}, mariadb.RESERVED, "MariaDB", complete=mariadb.COMPLETE)


def test_a_missing_server_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    packages = {
        "postgresql": servers.named("postgresql").locate,
        "memcached": Memcached().locate,
        "ceph-osd": ceph.locate,
    }
    for package, locate in packages.items():
        with pytest.raises(ServerError) as error:
            locate()
        assert error.value.code == "missing_server"
        assert package in error.value.hint


def test_messages_about_a_full_disk_are_recognised() -> None:
    for message in (
        'PANIC:  could not write to file "pg_wal/xlogtemp.1": No space left on device',
        "[ERROR] mariadbd: Disk full (./x.MAI); waiting for someone to free some space... (errno: 28)",
        "Can't create/write to file './y' (Errcode: 28)",
    ):
        assert programs.report_full_disk(message)
    assert not programs.report_full_disk("[Note] Error number 280, 28 tables")


@POSTGRESQL
def test_a_server_in_a_directory_with_a_long_path_has_its_socket_in_tmp_and_leaves_nothing(
    place: Path, templates: dict[str, Path]
) -> None:

    deep = place / "iosonde-00000000"
    long = deep / ("x" * 70)
    long.mkdir(parents=True)
    long.chmod(0o711)
    instance = restored(long, "postgresql", templates)
    assert instance.directories.socket == Path("/tmp/iosonde-01234567/socket-01234567")
    try:
        instance.start()
    finally:
        instance.remove()
        journal.remove(instance.directories.own)
        shutil.rmtree(deep)
    assert not Path("/tmp/iosonde-01234567").exists()


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


# Templates whose files were replaced by the user of the server ---------------------------------------------------------


@pytest.fixture
def template(tmp_path: Path) -> Template:
    made = Template(directory=tmp_path / "template")
    (made.directory / DATA / "base").mkdir(parents=True)
    (made.data / "base/1").write_bytes(b"a" * 100)
    (made.data / "base/2").write_bytes(b"b" * 50)
    made.seal({"warehouses": 1})
    return made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["a fifo", "a link", "one byte"])
def test_a_copy_opens_no_fifo_and_a_replaced_or_changed_file_is_damage_and_is_not_followed(
    kind: str, template: Template, tmp_path: Path
) -> None:
    os.mkfifo(template.data / "base/3")
    restored = template.restore(tmp_path / "first")
    assert (restored["files"], restored["bytes"]) == (2, 150)
    assert (tmp_path / "first/base/1").read_bytes() == b"a" * 100
    file = template.data / "base/1"
    file.unlink()
    if kind == "a fifo":
        os.mkfifo(file)
    elif kind == "a link":
        (tmp_path / "same").write_bytes(b"a" * 100)
        file.symlink_to(tmp_path / "same")
    else:
        file.write_bytes(b"a" * 99 + b"c")
    with pytest.raises(ServerError, match="`base/1` is not what was loaded"):
        template.restore(tmp_path / "copy")


@pytest.fixture
def other_file_system() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        yield Path(place)


@pytest.mark.needs("root")
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_log_is_moved_as_the_user_of_the_server(tmp_path: Path, other_file_system: Path, elsewhere: bool) -> None:
    """Links in the data directory lead root nowhere: what they name keeps its owner and is not copied."""
    account = account_for([])
    data, parent = tmp_path / "data", other_file_system if elsewhere else tmp_path
    victim = tmp_path / "victim"
    victim.write_text("years of work")
    victim.chmod(0o600)
    (data / "wal/inner").mkdir(parents=True)
    (data / "wal/1").write_bytes(b"a" * 5000)
    (data / "wal/inner/link").symlink_to(victim)
    for path in [data, *data.rglob("*")]:
        account.own(path)
    for path in [*tmp_path.parents, tmp_path, other_file_system]:
        if path.stat().st_mode & 0o711 != 0o711:
            path.chmod(0o711)
    (parent / "place").mkdir()
    account.own(parent / "place")
    templates.move(data / "wal", parent / "place/log", account)
    moved = parent / "place/log"
    assert (moved / "1").read_bytes() == b"a" * 5000
    assert (moved / "inner/link").is_symlink()
    assert {each.lstat().st_uid for each in [moved, *moved.rglob("*")]} == {account.uid}
    assert (victim.stat().st_uid, victim.read_text()) == (0, "years of work")
    assert list(data.iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 64) as directory:
        yield directory


@pytest.mark.needs("root")
def test_files_that_cannot_be_written_back_are_no_template(
    small: Path, loop_file_system: Callable[..., LoopFileSystem]
) -> None:
    """The device of the file system is full, which only syncfs(2) reports: the files are in the page cache."""
    unwritten = Template(directory=loop_file_system(size="256M", image_on=small).directory / "template")
    unwritten.data.mkdir(parents=True)
    (unwritten.data / "1").write_bytes(os.urandom(96 << 20))
    with pytest.raises(ServerError, match="cannot write the database back to its device: "):
        unwritten.seal({"warehouses": 1})
    assert not unwritten.is_complete
