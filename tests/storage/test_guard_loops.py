"""Block devices that share data through loop devices, on the real kernel: none that is in use may be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from loop_stacks import MIB, Loops

from iosonde.errors import TargetError
from iosonde.storage import open_target
from iosonde.storage.safety import journal

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]


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


def test_a_partition_below_a_loop_device_is_found(loops: Loops) -> None:
    disk = loops.attach(loops.image())
    part = loops.partition(disk, 1, 8 * MIB, 16 * MIB)
    inside, outside = loops.attach(disk, offset=8 * MIB, size=8 * MIB), loops.attach(disk, size=8 * MIB)
    loops.file_system(part)
    directory = loops.mount(part)
    assert f"`{part.name}`, which shares data with `{inside.name}`, is mounted at `{directory}`" in refusal(inside)
    assert "is claimed exclusively" in refusal(outside), "its disk cannot be claimed while a partition is mounted"


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_mounted_file_system_on_another_loop_device_over_the_file_is_found(loops: Loops, kind: str) -> None:
    """D3."""
    image = loops.image(size=256 * MIB)
    one, other = loops.attach(image), loops.attach(image)
    loops.file_system(one, kind)
    directory = loops.mount(one)
    assert f"`{one.name}`, which shares data with `{other.name}`, is mounted at `{directory}`" in refusal(other)


def test_a_file_is_the_same_by_any_name(loops: Loops, tmp_path: Path) -> None:
    """D3: a hard link, and a file that was renamed or deleted since."""
    image = loops.image()
    (tmp_path / "link").hardlink_to(image)
    one, other = loops.attach(image), loops.attach(tmp_path / "link")
    image.rename(tmp_path / "renamed")
    (tmp_path / "link").unlink()
    assert f"`{other.name}` is attached to the same file as `{one.name}`" in refusal(one)
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
    with pytest.raises(TargetError, match="and a block device of that name") as refused:
        open_target(device.name)
    assert f"`{device}`" in refused.value.hint
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
