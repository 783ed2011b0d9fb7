"""Loop devices on the real kernel: those of iosonde are known by their file, and none that shares data in use may be written."""

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
from iosonde.storage import open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import LoopStatus, attached_loops, identity_of, number_of
from iosonde.storage.safety import guard, journal
from iosonde.storage.targets import loop_devices
from iosonde.storage.targets.device_target import open_devices
from iosonde.storage.targets.loop_devices import LoopDevice, LoopProvider

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
    if happens == "it is moved":
        image.rename(image.parent / "elsewhere")
    elif happens == "it is removed":
        image.unlink()
    journal.undo(image)
    assert backing_name(str(device)) == ""
    assert journal.find(image) is None
    loops.forget(device)


def test_one_on_a_file_that_got_the_inode_number_of_the_removed_one_stays_attached(loops: Loops, image: Path) -> None:
    entry = journal.find(image)
    assert entry is not None and entry.marks[""], "needs a file system with handles"
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
    assert target.claims.descriptors.keys() == {number}
    target.claims.release(number)
    monkeypatch.setattr(block_stack, "wwid", lambda number: "nvme.1b36-53-51-00000002")
    with pytest.raises(TargetError, match="another disk has its name and number"):
        target.returned(number)
    assert target.claims.descriptors == {}


def refusal(target: Path) -> str:
    with pytest.raises(TargetError) as caught:
        open_target(str(target))
    return f"{caught.value.what}; {caught.value.where}"


def is_accepted(target: Path) -> bool:
    return open_target(str(target)).name == str(target)


def test_a_loop_device_through_a_node_of_another_name_does_not_hide_a_mount(loops: Loops) -> None:
    """D2, upward and downward, also after the node was deleted."""
    lower = loops.attach(loops.image())
    node = loops.node(lower)
    upper = loops.attach(node)
    node.unlink()
    assert is_accepted(upper)
    loops.file_system(upper)
    directory = loops.mount(upper)
    assert f"`{upper.name}`, stacked on `{lower.name}`, is mounted at `{directory}`" in refusal(lower)
    lower = loops.attach(loops.image("other"))
    upper = loops.attach(loops.node(lower, "other-node"))
    loops.file_system(lower)
    directory = loops.mount(lower, "mounted below")
    assert f"`{lower.name}`, which is below `{upper.name}`, is mounted at `{directory}`" in refusal(upper)


def test_a_file_is_the_same_by_any_name(loops: Loops, tmp_path: Path) -> None:
    """D3: a hard link, and a file that was renamed or deleted since."""
    image = loops.image(size=64 * MIB)
    (tmp_path / "link").hardlink_to(image)
    one, other = loops.attach(image), loops.attach(tmp_path / "link")
    image.rename(tmp_path / "renamed")
    (tmp_path / "link").unlink()
    assert f"`{other.name}` is attached to the same file as `{one.name}`" in refusal(one)
    loops.file_system(one)
    directory = loops.mount(one)
    assert f"`{one.name}`, which shares data with `{other.name}`, is mounted at `{directory}`" in refusal(other)
    first, second = loops.attach(loops.image("parts"), size=8 * MIB), loops.attach(tmp_path / "parts", offset=8 * MIB)
    assert is_accepted(first) and is_accepted(second), "by offset: their ranges do not overlap"


def test_active_swap_below_a_loop_device_and_on_a_shared_range_is_found(loops: Loops) -> None:
    image = loops.image("swap file")
    image.write_bytes(bytes(32 * MIB))  # A swap file has no holes.
    loops.swap(image)
    assert "is active swap" in refusal(loops.attach(image))
    image = loops.image()
    one, other = loops.attach(image), loops.attach(image, offset=16 * MIB)
    loops.swap(one)
    assert f"`{one.name}`, which shares data with `{other.name}`, is active swap" in refusal(other)


def test_a_file_system_that_contains_the_backing_file_of_a_loop_device_is_refused(loops: Loops) -> None:
    """Also one that was unmounted lazily, which no mount table lists."""
    outer = loops.attach(loops.image(size=64 * MIB))
    alias = loops.attach(outer)
    loops.file_system(outer)
    directory = loops.mount(outer)
    image = directory / "image"
    image.touch()
    os.truncate(image, 16 * MIB)
    inner = loops.attach(image)
    assert is_accepted(inner)
    assert f"`{inner.name}` is backed by a file in the file system on `{outer.name}`" in refusal(alias)


def test_a_device_that_a_process_has_opened_exclusively_is_claimed(loops: Loops) -> None:
    device = loops.attach(loops.image())
    number = number_of(device)
    assert not guard.is_claimed(number)
    holder = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        assert guard.is_claimed(number)
    finally:
        os.close(holder)


def test_a_device_that_cannot_be_read_is_an_error_with_a_reason(loops: Loops) -> None:
    """D8: EIO while a device is examined."""
    image = loops.image(size=16 * MIB)
    device = loops.attach(image, direct=True)
    os.truncate(image, 0)
    assert "cannot read" in refusal(device)


def test_the_name_of_a_device_without_its_directory_is_not_taken_for_a_new_file(
    loops: Loops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    device = loops.attach(loops.image())
    assert "and a block device of that name" in refusal(Path(device.name))
    assert is_accepted(Path(tmp_path, device.name)), "with a directory in front it is one"


def kept(path: Path) -> Path:
    """A file that iosonde created and kept."""
    journal.created(path, "file", keep=True)
    path.write_bytes(bytes(16 * MIB))
    journal.identify(path)
    return path


def test_a_file_of_ours_in_use_is_refused_by_any_name(loops: Loops, tmp_path: Path) -> None:
    file = kept(tmp_path / "kept")
    assert is_accepted(file)
    (tmp_path / "link").hardlink_to(file)
    assert "hard links" in refusal(file)
    device = loops.attach(tmp_path / "link")
    (tmp_path / "link").unlink()
    assert f"is the backing file of the loop device `{device}`" in refusal(file)
    other = kept(tmp_path / "other")
    loops.swap(other)
    assert "is active swap" in refusal(other)
