"""Loop devices are identified by their backing file, on the real kernel: other processes attach and detach them too."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loop_stacks import MIB, Loops, backing_name

from iosonde.errors import TargetError
from iosonde.plan import Setup
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.loop_status import LoopStatus, attached_loops, identity_of
from iosonde.storage.safety import journal
from iosonde.storage.setups import loop_devices
from iosonde.storage.setups.loop_devices import LoopDevice
from iosonde.storage.targets.device_target import open_devices
from iosonde.storage.targets.loop_provider import LoopProvider

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    """A file that a session has created for a loop device and recorded, and that exists in the end or not."""
    path = tmp_path / "iosonde-01234567-setup" / "device-0"
    path.parent.mkdir()
    journal.created(path, "loop device", facts={"image": str(path)})
    path.write_bytes(bytes(MIB))
    journal.identify(path)
    yield path
    journal.removed(path)


@pytest.mark.parametrize("happens", ["nothing", "it is moved", "it is removed"])
def test_the_loop_device_of_a_killed_session_is_detached(loops: Loops, image: Path, happens: str) -> None:
    device = loops.attach(image)
    if happens != "nothing":
        image.rename(image.parent / "elsewhere") if "moved" in happens else image.unlink()
    journal.undo(image)
    assert backing_name(str(device)) == ""
    assert journal.find(image) is None
    loops.forget(device)


def test_one_on_a_file_that_got_the_inode_number_of_the_removed_one_stays_attached(loops: Loops, image: Path) -> None:
    entry = journal.find(image)
    assert entry is not None and entry.handle, "needs a file system with handles"
    image.unlink()
    other = loops.image("other")
    reused = replace(entry, identity=identity_of(other.stat()))
    device = loops.attach(other)
    loop_devices.undo(reused)
    assert backing_name(str(device)) == f"{other}\n"


def test_one_that_was_attached_to_another_file_while_it_is_detached_stays_attached(
    loops: Loops, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at all loop devices and the detachment."""
    entry = journal.find(image)
    other = loops.image("other")
    device = loops.attach(other)
    [status] = [each for each in attached_loops() if each.node == device]
    stale = replace(status, inode=image.stat().st_ino)
    looks: Iterator[list[LoopStatus]] = iter([[stale], [], []])
    monkeypatch.setattr(loop_devices, "loops_on", lambda _: next(looks))
    assert entry is not None and stale.backing_file == entry.identity
    loop_devices.undo(entry)
    assert backing_name(str(device)) == f"{other}\n"


def test_the_one_of_another_process_under_the_same_name_is_not_waited_for(tmp_path: Path) -> None:
    images = [tmp_path / "own", tmp_path / "other"]
    for each in images:
        each.touch()
        os.truncate(each, MIB)
    device = LoopDevice(images[0])
    device.close_descriptor()
    # If a test beside this one was faster, its loop device is the other one.
    subprocess.run(["losetup", device.path, images[1]], check=False)
    try:
        assert device.close()
    finally:
        if backing_name(str(device.path)) == f"{images[1]}\n":
            subprocess.run(["losetup", "--detach", device.path], check=True)


def test_a_file_that_is_replaced_by_a_link_before_it_is_attached_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the user to whom the directory above it belongs."""
    victim = tmp_path / "victim"
    victim.write_bytes(bytes(8 * MIB))
    own = "iosonde-01234567"
    provider = LoopProvider(directory=tmp_path, own=own, device_bytes=8 * MIB, sector_bytes=512)
    identify = journal.identify

    def swapped(path: Path) -> None:
        identify(path)
        if path.name == "device-0":
            path.rename(path.with_name("hidden"))
            path.symlink_to(victim)

    monkeypatch.setattr(journal, "identify", swapped)
    with pytest.raises(TargetError, match="cannot create"):
        provider.provide(Setup(file_system="ext4"))
    assert [each for each in attached_loops() if each.path == str(victim)] == []
    for entry in journal.entries():
        journal.removed(Path(entry.path))


def test_a_device_that_returns_as_another_under_its_name_is_not_claimed(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a namespace of a controller that had a user-level driver: the kernel may give it another name."""
    device = loops.attach(loops.image(size=8 * MIB))
    number = number_of(device)
    target = open_devices([str(device)])
    target.returned(number)
    assert target.claims.numbers == {number}
    target.claims.release(number)
    monkeypatch.setattr(block_stack, "wwid", lambda number: "nvme.1b36-53-51-00000002")
    with pytest.raises(TargetError, match="another disk has its name and number"):
        target.returned(number)
    assert target.claims.numbers == set()
