"""Swap areas: on a file, a device and zram; above other swap; turned off whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from loop_stacks import MIB, loop_devices

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.features.swap_areas import area as swap
from iosonde.features.swap_areas import settings
from iosonde.features.swap_areas.area import AreaReading
from iosonde.features.swap_areas.run import SwapAreas
from iosonde.storage.block_layer.block_nodes import number_of, opened
from iosonde.storage.safety import journal

OWN = "iosonde-12345678"
BYTES = 4 << 20


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that turns on swap: the areas of a machine are shared."""
    return pytest.mark.system(pytest.mark.alone(test))


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


def test_the_priority_is_above_that_of_all_other_areas(tmp_path: Path) -> None:
    lines = "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n/a\\040b file 2048 4 7\n"
    (tmp_path / "swaps").write_text(lines)
    areas = swap.active(tmp_path)
    found = [(each.path, each.size_bytes, each.priority) for each in areas]
    assert found == [("/dev/sda2", 1 << 20, -2), ("/a b", 2 << 20, 7)]
    assert swap._priority_above([each.priority for each in areas]) == 8
    with pytest.raises(OSError, match="highest priority"):
        swap._priority_above([swap.HIGHEST_PRIORITY])


@alone
def test_files_and_devices_become_swap_above_the_other_and_nothing_remains_of_them(tmp_path: Path, disk: Path) -> None:
    first = on_device(disk, "iosonde-00000001")
    try:
        assert (str(disk) in paths(), first.size_bytes) == (True, BYTES)
        area = swap.on_file(tmp_path, OWN, BYTES)
        assert str(area.path) in paths() and area.priority > first.priority
        assert [entry.what for entry in journal.entries()] == [swap.JOURNALED, "directory", swap.JOURNALED]
        assert area.reading().used_bytes == 0
        area.remove()
        assert str(area.path) not in paths()
    finally:
        first.remove()
    assert str(disk) not in paths()
    assert disk.read_bytes() == bytes(BYTES), "it has lost its header"
    assert not (tmp_path / f"{OWN}-setup").exists()
    assert journal.entries() == []


@alone
def test_what_cannot_be_swap_is_refused_and_nothing_remains(tmp_path: Path, disk: Path) -> None:
    before = disk.read_bytes()
    with opened(number_of(disk), os.O_RDONLY | os.O_EXCL), pytest.raises(TargetError, match="busy") as raised:
        on_device(disk, OWN)
    assert "swapon --show" in raised.value.hint
    assert str(disk) not in paths() and disk.read_bytes() == before
    with pytest.raises(TargetError, match="no room") as raised:
        swap.on_file(tmp_path, OWN, 1 << 50)
    assert "swap_size" in raised.value.where + raised.value.hint
    memory = Path("/dev/shm", OWN)
    memory.mkdir()
    try:
        with pytest.raises(TargetError, match="cannot create a swap file") as raised:
            swap.on_file(memory, OWN, BYTES)
        assert "ext4" in raised.value.hint
        assert list(memory.iterdir()) == []
    finally:
        memory.rmdir()
    assert not (tmp_path / f"{OWN}-setup").exists()
    assert journal.entries() == []


@alone
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


@alone
def test_swap_that_cannot_be_turned_off_is_reported_and_stays_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    area = swap.on_file(tmp_path, OWN, BYTES)
    powerless = tmp_path / "swapoff"
    powerless.write_text("#!/bin/sh\nkill -KILL $$\n")
    powerless.chmod(0o700)
    try:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        with pytest.raises(TargetError, match=r"killed by SIGKILL.*; the swapped-out pages need") as raised:
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


@alone
def test_cleanup_turns_off_the_swap_of_a_killed_process_also_if_its_directory_was_renamed(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path)
    file = str(tmp_path / f"{OWN}-setup" / "swap")
    assert file in paths()
    reasons = [each.reason for each in journal.cleanup()]
    assert reasons == ["the swap area was removed", "removed"]
    assert file not in paths()
    assert list(tmp_path.iterdir()) == []
    left_by_a_killed_process(tmp_path)
    place, moved = tmp_path / f"{OWN}-setup", tmp_path / "moved"
    place.rename(moved)
    place.mkdir()
    (place / "swap").write_text("another")
    assert str(moved / "swap") in paths()
    journal.cleanup()
    assert str(moved / "swap") not in paths()
    assert (place / "swap").read_text() == "another"


@alone
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


@alone
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


@pytest.mark.parametrize(
    ("parameters", "used_bytes", "codes"),
    [({}, 100 * MIB, ["foreign_swap"]), ({}, MIB, []), ({"in_memory": True}, 100 * MIB, [])],
    ids=["of other processes", "little", "files of a database in memory, which are the run's own"],
)
def test_swap_that_remains_in_use_after_the_run_is_a_warning(
    parameters: dict[str, Any], used_bytes: int, codes: list[str]
) -> None:
    instrument = SwapAreas(cast("RunContext", SimpleNamespace(parameters=parameters)))
    found = AreaReading(kind="file", path="/a", size_bytes=512 * MIB, priority=1, used_bytes=used_bytes, others=[])
    instrument._area = cast("Any", SimpleNamespace(reading=lambda: found))
    assert [each.code for each in instrument.stop(cast("EngineRun", None)).warnings] == codes
