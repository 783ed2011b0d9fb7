"""Real servers, provisioned once for all tests of this folder: each test restores the same template."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage.safety import journal
from iosonde.study import servers
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.server import Instance, Settings

SMALL: dict[str, Settings] = {
    "postgresql": {"shared_buffers": "16MB", "max_connections": 10, "fsync": False, "max_wal_size": "64MB"},
    "mariadb": {"innodb_buffer_pool_size": "16M", "innodb_flush_method": "O_DIRECT", "innodb_log_file_size": "8M"},
}
KINDS = [
    pytest.param("postgresql", marks=pytest.mark.needs("postgres")),
    pytest.param("mariadb", marks=pytest.mark.needs("mariadbd")),
]


MEMORY = Path("/dev/shm")
"""File system in memory: what servers sync costs nothing there."""


def reachable_directory(*, on_disk: bool = False) -> Path:
    """Pytest's own directories cannot be entered by the users that servers run under."""
    path = Path(tempfile.mkdtemp(prefix="iosonde-test-", dir=None if on_disk or not MEMORY.is_dir() else MEMORY))
    path.chmod(0o711)
    return path


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Data directories of stopped servers with an empty database, created when first used."""
    base = reachable_directory()
    yield _Templates(base)
    shutil.rmtree(base)


class _Templates(dict[str, Path]):
    def __init__(self, base: Path) -> None:
        super().__init__()
        self._base = base

    def __missing__(self, kind: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(self._base / "state"))
            instance = instance_in(self._base, kind, SMALL[kind])
            instance.provision()
            instance.start()
            connection = instance.connect()
            instance.database_server.create_database(connection, "iosonde")
            connection.close()
            assert instance.stop()
            instance.keep_as_template({})
            instance.remove()
        self[kind] = instance.template.directory
        return self[kind]


def instance_in(
    base: Path, kind: str, settings: Settings, *, limit_bytes: int | None = None, log: Path | None = None
) -> Instance:
    number = {"postgresql": "1", "mariadb": "2"}[kind]
    directories = Directories(
        own=base / "iosonde-01234567",
        name=f"{kind}-0000000{number}",
        template_name=f"template-0000000{number}",
        log_own=log,
    )
    return Instance(servers.named(kind), directories, settings, limit_bytes)  # type: ignore[arg-type]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in which servers may run; nothing is left of them in it, and nothing in the journal."""
    yield from _checked(reachable_directory())


@pytest.fixture
def disk_place() -> Iterator[Path]:
    """The same on a disk."""
    yield from _checked(reachable_directory(on_disk=True))


def _checked(base: Path) -> Iterator[Path]:
    yield base
    for each in base.iterdir():
        if journal.find(each):
            journal.remove(each)
    left = list(base.iterdir())
    shutil.rmtree(base)
    assert left == []
    prefix = "iosonde-test-"  # Another place of the same test is checked at its own end.
    assert [each for each in journal.entries() if prefix not in each.path or str(base) in each.path] == []


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of one client; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as client:
                answer(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def alone(records: list[Record]) -> Record:
    [record] = records
    return record


def metrics_of(output: Path) -> dict[str, float]:
    """Values of a result set with one run, over all operations."""
    frame = run_metrics(ResultSet.open(output))
    return dict(frame.filter(frame["operation"] == "all").select("metric", "value").iter_rows())


def restored(base: Path, kind: str, templates: dict[str, Path], **changes: object) -> Instance:
    """An instance whose template is a copy of the session's, ready to be started."""
    settings = dict(SMALL[kind]) | dict(changes.pop("settings", {}))  # type: ignore[call-overload]
    instance = instance_in(base, kind, settings, **changes)  # type: ignore[arg-type]
    instance.create_directories()
    shutil.rmtree(instance.template.directory)
    shutil.copytree(templates[kind], instance.template.directory)
    for path in [templates[kind], *templates[kind].rglob("*")]:
        owner = path.lstat()
        shutil.chown(instance.template.directory / path.relative_to(templates[kind]), owner.st_uid, owner.st_gid)
    inode = instance.template.directory.stat().st_ino
    journal.add_files(instance.directories.own, {instance.template.directory.name: inode})
    instance.restore()
    return instance
