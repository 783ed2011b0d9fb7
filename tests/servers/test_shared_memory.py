"""Shared memory of PostgreSQL is removed with the server that was killed, and never that of another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from leftovers import SharedMemory
from servers.conftest import instance_in, restored

from iosonde.errors import StudyError
from iosonde.servers import postgresql, shared_memory
from iosonde.servers.server import Installation
from iosonde.storage.safety import journal

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv", "postgres")]


def test_a_killed_server_that_never_starts_again_leaves_no_shared_memory(
    place: Path, templates: dict[str, Path]
) -> None:
    instance = restored(place, "postgresql", templates)
    memory = SharedMemory(place)
    try:
        instance.start()
        memory.look()
        assert min(memory.seen) > 0
        instance.kill()
        assert memory.remaining() == []
    finally:
        instance.remove()


def test_shared_memory_is_removed_when_the_user_has_removed_the_data_directory(
    place: Path, templates: dict[str, Path]
) -> None:
    instance = restored(place, "postgresql", templates)
    instance.start()
    leader, memory = instance.pid, SharedMemory(place)
    memory.look()
    entry = journal.find(instance.place.data)
    assert entry is not None
    try:
        for each in processes_in(instance.place.data):
            os.kill(each, 9)
        assert instance._process is not None
        instance._process._process.wait()
        shutil.rmtree(instance.place.data)
        assert memory.remaining() != []
        shared_memory.remove(instance.place.data, recorded="", creator=leader)
        assert memory.remaining() != []
        journal.undo(instance.place.data)
        assert memory.remaining() == []
    finally:
        instance._process = None
        instance.remove()


def processes_in(directory: Path) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and (each / "cwd").readlink() == directory:
                found.append(int(each.name))
        except OSError:
            continue
    return found


def test_memory_of_a_running_server_is_not_removed(place: Path, templates: dict[str, Path]) -> None:
    """Neither under the directory of another server with its process number, nor under its own."""
    instance = restored(place, "postgresql", templates)
    other = place / "other"
    other.mkdir()
    try:
        instance.start()
        memory = SharedMemory(place)
        memory.look()
        before = memory.remaining()
        shared_memory.remove(other, recorded="1:2", creator=instance.pid)
        shared_memory.remove(place / "gone", recorded="1:2", creator=instance.pid)
        shared_memory.remove(place / "gone", recorded=shared_memory.identity_of(other), creator=instance.pid)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(shared_memory, "DETACH_S", 0.0)
            with pytest.raises(OSError, match="still in use"):
                shared_memory.remove(instance.place.data, recorded="", creator=instance.pid)
        assert memory.remaining() == before
        assert len(before) >= 2
        instance.connect().close()
    finally:
        instance.remove()
        other.rmdir()


def test_a_control_file_removes_only_files_of_the_same_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in `/dev/shm` under the name of a segment may be a link, or another user's."""
    monkeypatch.setattr(shared_memory, "FILES", tmp_path)
    control = shared_memory._CONTROL.pack(shared_memory._CONTROL_MAGIC, 3, 4) + bytes(4)
    items = b"".join(number.to_bytes(4, "little") + bytes(36) for number in (7, 8, 9, 10))
    for number, content in {1: control + items, 7: b"a", 9: b"c", 10: b"unused"}.items():
        (tmp_path / f"PostgreSQL.{number}").write_bytes(content)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "PostgreSQL.8").symlink_to(victim)
    header = (shared_memory._HEADER_MAGIC, 1, 56, 56, 1, 0, 1, 2)
    shared_memory._remove_files(header, os.getuid() + 1)
    assert len(list(tmp_path.iterdir())) == 6
    shared_memory._remove_files(header, os.getuid())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["PostgreSQL.10", "PostgreSQL.8", "victim"]
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("content", [b"", b"PostgreSQL", bytes(40), b"\xff" * 4096])
def test_a_damaged_control_file_lists_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "PostgreSQL.1").write_bytes(content)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert shared_memory._listed(directory, 1, os.getuid()) == []
    finally:
        os.close(directory)


def test_creating_a_data_directory_leaves_no_entry_and_no_memory(place: Path) -> None:
    instance = instance_in(place, "postgresql", {})
    try:
        instance.provision()
        assert [entry.what for entry in journal.entries() if entry.what == "server"] == []
    finally:
        instance.remove()


def test_the_type_of_dynamic_shared_memory_is_not_a_setting_of_a_study() -> None:
    with pytest.raises(StudyError, match="chosen by iosonde"):
        postgresql.PostgreSql().check_settings(
            Installation(version="1", build="", programs={}), {"dynamic_shared_memory_type": "sysv"}
        )
