"""Swap areas: on a file, a device and zram; above other swap; turned off whatever happens."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from loop_stacks import loop_devices

from iosonde.errors import TargetError
from iosonde.features.swap_areas import area as swap
from iosonde.features.swap_areas import settings
from iosonde.storage.block_layer.block_nodes import number_of, opened
from iosonde.storage.safety import journal

OWN = "iosonde-12345678"
BYTES = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A loop device of 4 MiB."""
    with loop_devices(tmp_path, BYTES) as [device]:
        yield device


def paths() -> list[str]:
    return [each.path for each in swap.active()]


def on_device(disk: Path, own: str) -> swap.SwapArea:
    return swap.on_device(number_of(disk), own, None)


def left_by_a_killed_process(directory: Path) -> None:
    child = os.fork()
    if child == 0:
        swap.on_file(directory, OWN, BYTES)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.unit
def test_the_priority_is_above_that_of_all_other_areas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n/a\\040b file 2048 4 7\n"
    (tmp_path / "swaps").write_text(lines)
    areas = swap.active(tmp_path)
    assert [(each.path, each.size_bytes, each.priority) for each in areas] == [
        ("/dev/sda2", 1 << 20, -2),
        ("/a b", 2 << 20, 7),
    ]
    assert swap._priority_above([each.priority for each in areas]) == 8
    assert swap._priority_above([]) == 0
    with pytest.raises(OSError, match="highest priority"):
        swap._priority_above([swap.HIGHEST_PRIORITY])


@pytest.mark.system
@pytest.mark.alone
def test_a_file_becomes_swap_and_nothing_remains_of_it(tmp_path: Path) -> None:
    area = swap.on_file(tmp_path, OWN, BYTES)
    assert str(area.path) in paths()
    assert [entry.what for entry in journal.entries()] == ["directory", swap.JOURNALED]
    assert area.reading().used_bytes == 0
    area.remove()
    assert str(area.path) not in paths()
    assert list(tmp_path.iterdir()) == []
    assert journal.entries() == []


@pytest.mark.system
@pytest.mark.alone
def test_a_device_becomes_swap_and_loses_its_header(disk: Path) -> None:
    area = on_device(disk, OWN)
    assert (str(disk) in paths(), area.size_bytes) == (True, BYTES)
    area.remove()
    assert str(disk) not in paths()
    assert disk.read_bytes() == bytes(BYTES)


@pytest.mark.system
@pytest.mark.alone
@pytest.mark.needs("mkswap", "swapon")
def test_swap_of_somebody_else_on_the_device_with_that_number_stays(disk: Path) -> None:
    """After a reboot the device number of an entry may be that of another area."""
    facts = {"kind": "device", "area": str(disk), "identity": number_of(disk), "own": OWN}
    journal.created(swap.key_of(OWN), swap.JOURNALED, facts=facts)
    subprocess.run(["mkswap", disk], check=True, capture_output=True)
    before = disk.read_bytes()
    subprocess.run(["swapon", disk], check=True)
    try:
        journal.undo(swap.key_of(OWN))
        assert str(disk) in paths()
    finally:
        subprocess.run(["swapoff", disk], check=True)
    journal.created(swap.key_of(OWN), swap.JOURNALED, facts=facts)
    journal.undo(swap.key_of(OWN))
    assert disk.read_bytes() == before, "the header of an area that is not in use"


@pytest.mark.system
@pytest.mark.alone
def test_a_device_that_another_program_claims_is_refused(disk: Path) -> None:
    before = disk.read_bytes()
    with opened(number_of(disk), os.O_RDONLY | os.O_EXCL), pytest.raises(TargetError, match="busy") as raised:
        on_device(disk, OWN)
    assert "swapon --show" in raised.value.hint
    assert str(disk) not in paths()
    assert disk.read_bytes() == before
    assert journal.entries() == []


@pytest.mark.system
@pytest.mark.alone
def test_a_new_area_comes_before_the_one_in_use(tmp_path: Path, disk: Path) -> None:
    first = on_device(disk, "iosonde-00000001")
    try:
        second = swap.on_file(tmp_path, OWN, BYTES)
        assert second.priority > first.priority
        second.remove()
    finally:
        first.remove()


@pytest.mark.system
@pytest.mark.alone
@pytest.mark.needs("setpriv")
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('exec setpriv --bounding-set=-sys_admin SWAPOFF "$@"', "Not superuser"),
        ("kill -KILL $$", "killed by SIGKILL.*; the swapped-out pages need more memory"),
    ],
)
def test_swap_that_cannot_be_turned_off_is_reported_and_stays_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    area = swap.on_file(tmp_path, OWN, BYTES)
    powerless = tmp_path / "swapoff"
    powerless.write_text(f"#!/bin/sh\n{script.replace('SWAPOFF', str(shutil.which('swapoff')))}\n")
    powerless.chmod(0o700)
    try:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        with pytest.raises(TargetError, match=f"cannot turn off the swap area .*{message}") as raised:
            area.remove()
        assert "iosonde cleanup" in raised.value.hint
        assert str(area.path) in paths(), "it stays in use, and the machine with it"
        assert journal.find(swap.key_of(OWN)) is not None
        assert area.path.exists()
    finally:
        powerless.unlink()
        area.remove()
    assert str(area.path) not in paths()
    assert journal.entries() == []


@pytest.mark.system
@pytest.mark.alone
def test_cleanup_turns_off_the_swap_of_a_killed_process(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path)
    file = str(tmp_path / f"{OWN}-setup" / "swap")
    assert file in paths()
    reasons = [each.reason for each in journal.cleanup()]
    assert reasons == ["the swap area was removed", "removed"]
    assert file not in paths()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.alone
def test_cleanup_finds_the_swap_file_whose_directory_was_renamed_and_keeps_another_in_its_place(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path)
    place, moved = tmp_path / f"{OWN}-setup", tmp_path / "moved"
    place.rename(moved)
    place.mkdir()
    (place / "swap").write_text("another")
    assert str(moved / "swap") in paths()
    journal.cleanup()
    assert str(moved / "swap") not in paths()
    assert (place / "swap").read_text() == "another"


@pytest.mark.system
@pytest.mark.alone
def test_a_file_system_without_swap_files_is_refused_and_nothing_remains(tmp_path: Path) -> None:
    memory = Path("/dev/shm", OWN)
    memory.mkdir()
    try:
        with pytest.raises(TargetError, match="cannot create a swap file") as raised:
            swap.on_file(memory, OWN, BYTES)
        assert "ext4" in raised.value.hint
        assert list(memory.iterdir()) == []
        assert journal.entries() == []
    finally:
        memory.rmdir()


@pytest.mark.system
@pytest.mark.alone
def test_a_swap_file_larger_than_the_free_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no room") as raised:
        swap.on_file(tmp_path, OWN, 1 << 50)
    assert "swap_size" in raised.value.where + raised.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.alone
def test_page_cluster_is_set_and_restored_after_a_crash() -> None:
    file = settings.FILES["page_cluster"]
    before = file.read_text()
    wanted = 0 if before.strip() != "0" else 1
    child = os.fork()
    if child == 0:
        settings.apply({"page_cluster": wanted}, own=OWN)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert file.read_text() == f"{wanted}\n"
    journal.cleanup()
    assert file.read_text() == before


@pytest.mark.system
@pytest.mark.alone
def test_zram_becomes_swap_and_its_device_disappears() -> None:
    if not swap.ZRAM_CONTROL.exists():
        with pytest.raises(TargetError, match="no zram"):
            swap.check_zram()
        return
    area = swap.on_zram(OWN, BYTES)
    assert str(area.path) in paths()
    area.remove()
    assert str(area.path) not in paths()
    assert not Path("/sys/block", area.path.name).exists()


@pytest.mark.unit
def test_a_zram_device_that_the_kernel_does_not_add_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(swap, "ZRAM_CONTROL", tmp_path)
    with pytest.raises(TargetError, match="could not add a zram device"):
        swap.on_zram(OWN, BYTES)


@pytest.mark.unit
def test_a_busy_zram_device_is_removed_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [OSError(errno.EBUSY, "busy"), OSError(errno.EBUSY, "busy"), None]
    written: list[str] = []

    def write(file: Path, text: str, encoding: str) -> int:
        written.append(text)
        if error := answers.pop(0):
            raise error
        return 1

    monkeypatch.setattr(Path, "write_text", write)
    swap._remove_zram(Path("/dev/zram7"))
    assert written == ["7"] * 3


@pytest.mark.unit
def test_a_zram_device_that_stays_busy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: Path, text: str, encoding: str) -> int:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Path, "write_text", refuse)
    monkeypatch.setattr(swap, "RETRIES_S", 0.1)
    with pytest.raises(OSError, match="busy"):
        swap._remove_zram(Path("/dev/zram7"))
