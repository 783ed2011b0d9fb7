"""Servers that iosonde starts privately: unprivileged, on a Unix socket only, accounted, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from leftovers import SharedMemory
from servers.conftest import KINDS, SMALL, instance_in, restored
from strangers import listening, refuses_strangers

from iosonde import servers
from iosonde.errors import ServerError, StudyError
from iosonde.servers import account as accounts
from iosonde.servers import mariadb, programs
from iosonde.servers.directories import Directories, create_directory
from iosonde.servers.instance import Instance
from iosonde.servers.server import Installation
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import owner_of

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv")]


@pytest.fixture(params=KINDS)
def running(request: pytest.FixtureRequest, place: Path, templates: dict[str, Path]) -> Iterator[Instance]:
    instance = restored(place, request.param, templates)
    try:
        instance.start()
        yield instance
    finally:
        instance.remove()


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


@pytest.mark.needs("root")
def test_other_users_cannot_connect(running: Instance) -> None:
    assert refuses_strangers(each.address for each in listening([running.pid]))


@pytest.mark.needs("mariadbd")
def test_direct_io_is_read_from_the_open_files(disk_place: Path, templates: dict[str, Path]) -> None:
    """Temporary file systems support direct I/O only in new kernels."""
    instance = restored(disk_place, "mariadb", templates)
    try:
        instance.start()
        assert instance.describe()["io_modes"] == {"data": "direct", "log": "direct"}
    finally:
        instance.remove()


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
    assert (running.place.socket.stat().st_uid, running.place.socket.stat().st_mode & 0o777) == (
        running.account.uid, 0o700,
    )  # fmt: skip


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


def test_its_statistics_count_what_clients_do(running: Instance) -> None:
    connection = running.connect("iosonde")
    before = running.server.statistics(connection)
    connection.rows("CREATE TABLE t (a integer)")
    connection.rows("INSERT INTO t VALUES (1), (2), (3)")
    connection.rows("SELECT count(*) FROM t")
    deadline = time.monotonic() + 120  # PostgreSQL publishes a session's counters when it ends.
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


@pytest.mark.needs("root", "memory limits")
def test_its_control_group_counts_cpu_time_of_all_its_processes(running: Instance) -> None:
    before = running.group.cpu_ns()
    connection = running.connect("iosonde")
    connection.rows("SELECT count(*) FROM " + many_rows(running.server.name))
    connection.close()
    used = (running.group.cpu_ns() or 0) - (before or 0)
    assert used > 5_000_000


def many_rows(kind: str) -> str:
    return "generate_series(1, 300000)" if kind == "postgresql" else "(SELECT benchmark(500000, sha2('x', 256))) AS b"


def test_stopping_is_orderly_and_removing_leaves_only_the_template(running: Instance, place: Path) -> None:
    leader = running.pid
    assert running.stop()
    assert owner_of(leader) == ""
    assert [each.what for each in journal.entries() if each.what == "server"] == []
    running.remove()
    assert list(running.directories.run.iterdir()) == []
    assert running.template.is_complete


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_iosonde_leaves_nothing_after_cleanup(kind: str, place: Path, templates: dict[str, Path]) -> None:
    """The kernel kills the server's first process with iosonde; cleanup kills the others and removes everything."""
    templates[kind]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            instance = restored(place, kind, templates)
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
    assert memory.segments > 0 or kind != "postgresql"
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_is_on_its_own_target(kind: str, place: Path, disk_place: Path, templates: dict[str, Path]) -> None:
    """On another file system, where moving copies."""
    instance = restored(place, kind, templates, log=disk_place / "iosonde-89abcdef")
    try:
        instance.start()
        assert instance.directories.log is not None
        logs = [each.name for each in (instance.directories.log / "wal").iterdir()]
        assert any(name.startswith(("0000", "ib_logfile", "#innodb_redo")) for name in logs)
        assert not list(instance.place.data.glob("ib_logfile*"))
    finally:
        instance.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_template_is_refused_and_discarded(kind: str, place: Path, templates: dict[str, Path]) -> None:
    instance = restored(place, kind, templates)
    victim = max(
        (each for each in instance.template.data.rglob("*") if each.is_file()), key=lambda each: each.stat().st_size
    )
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
        pytest.param("postgresql", {"sharedbuffers": "1GB"}, "unrecognized configuration", marks=pytest.mark.needs("postgres")),
        pytest.param("postgresql", {"wal_level": "much"}, "invalid value for parameter", marks=pytest.mark.needs("postgres")),
        pytest.param("postgresql", {"archive_command": "rm x"}, "chosen by iosonde", marks=pytest.mark.needs("postgres")),
        pytest.param("postgresql", {"stats_temp_directory": "/etc"}, "names a path", marks=pytest.mark.needs("postgres")),
        pytest.param("mariadb", {"innodb_buffer_poolsize": "1G"}, "unknown variable", marks=pytest.mark.needs("mariadbd")),
        pytest.param("mariadb", {"innodb_flush_method": "much"}, "Error while setting value", marks=pytest.mark.needs("mariadbd")),
        pytest.param("mariadb", {"innodb_page_size": 1000}, "adjusted to 4096", marks=pytest.mark.needs("mariadbd")),
        pytest.param("mariadb", {"plugin-load-add": "x.so"}, "chosen by iosonde", marks=pytest.mark.needs("mariadbd")),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize("name", ["slow_query_log", "innodb_log_file_size", "sync_binlog", "max_connections"])
def test_a_complete_name_may_be_the_beginning_of_a_reserved_one(name: str) -> None:
    programs.refuse_reserved({name: 1}, mariadb.RESERVED, "MariaDB", complete=mariadb.COMPLETE)


@pytest.mark.parametrize(("kind", "package"), [("postgresql", "postgresql"), ("mariadb", "mariadb-server")])
def test_a_missing_server_names_its_package(kind: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosonde.servers.programs.find", lambda *_: None)
    with pytest.raises(ServerError, match="is not installed") as error:
        servers.named(kind).locate()  # type: ignore[arg-type]
    assert f"`{package}`" in error.value.hint


@pytest.mark.needs("root")
def test_a_directory_that_the_server_cannot_enter_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    account = accounts.account_for(["nobody"])
    with pytest.raises(ServerError, match="cannot enter") as error:
        accounts.check_traversable(tmp_path / "iosonde-01234567", account)
    assert "chmod o+x" in error.value.hint


def test_the_socket_moves_to_tmp_where_its_path_would_be_too_long() -> None:
    short = Directories(own=Path("/data/iosonde-01234567"), name="mariadb-00000000", template_name="t")
    assert short.socket == Path("/data/iosonde-01234567/mariadb-00000000/socket")
    long = Directories(own=Path("/data", "x" * 60, "iosonde-01234567"), name="mariadb-00000000", template_name="t")
    assert long.socket == Path("/tmp/iosonde-01234567/socket-01234567")


@pytest.mark.needs("postgres")
def test_a_server_in_a_directory_with_a_long_path_starts_and_leaves_nothing(
    place: Path, templates: dict[str, Path]
) -> None:
    deep = place / "iosonde-00000000"
    try:
        deep.mkdir()
        long = deep / ("x" * 70)
        long.mkdir()
        long.chmod(0o711)
        instance = restored(long, "postgresql", templates)
        try:
            instance.start()
        finally:
            instance.remove()
        assert not Path("/tmp/iosonde-01234567").exists()
        journal.remove(instance.directories.own)
    finally:
        shutil.rmtree(deep)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_shutdown_ends_in_a_kill(kind: str, place: Path, templates: dict[str, Path]) -> None:
    instance = restored(place, kind, templates)
    try:
        instance.start()
        os.kill(instance.pid, signal.SIGSTOP)
        leader = instance.pid
        assert not instance.stop(timeout_s=0.2)
        assert owner_of(leader) == ""
    finally:
        instance.remove()


@pytest.mark.needs("root", "memory limits", "postgres")
def test_a_server_that_exceeds_its_memory_limit_fails_with_that_cause(place: Path, templates: dict[str, Path]) -> None:
    instance = restored(
        place, "postgresql", templates, limit_bytes=24 << 20,
        settings={"shared_buffers": "512MB", "huge_pages": "off", "work_mem": "256MB", "max_connections": 10},
    )  # fmt: skip
    try:
        with pytest.raises(ServerError) as error:
            instance.start()
            connection = instance.connect("iosonde")
            try:
                connection.rows(
                    "SELECT count(*) FROM (SELECT md5(n::text) FROM generate_series(1, 2000000) n ORDER BY 1) s"
                )
            except ServerError:
                raise instance.failure("was killed") from None
        assert error.value.code == "out_of_memory"
    finally:
        instance.remove()


@pytest.mark.needs("root", "mariadbd")
def test_a_data_directory_without_room_fails_with_that_cause(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60M,mode=711", "iosonde-test", small], check=True)
    try:
        instance = instance_in(small, "mariadb", SMALL["mariadb"])
        with pytest.raises(ServerError) as error:
            instance.provision()
        assert error.value.code == "no_space"
        instance.remove()
        journal.remove(small / "iosonde-01234567")
    finally:
        subprocess.run(["umount", small], check=True)
        small.rmdir()


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
