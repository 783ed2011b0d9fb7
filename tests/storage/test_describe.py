"""Descriptions of targets from the file system down to the disks, on real stacks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from mounted import overlay
from needs import BTRFS

from iosonde.execution.engine_programs import probe_backends
from iosonde.storage import open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_stack import stack_of
from iosonde.storage.block_layer.mounts import mount_of
from iosonde.storage.targets import direct_io


def number_of(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


@pytest.mark.engine
def test_a_directory_is_described_with_its_file_system_and_disks(tmp_path: Path) -> None:
    described = open_target(str(tmp_path)).describe()
    file_system = described["file_system"]
    found = subprocess.run(
        ["stat", "--file-system", "--format=%b %S", tmp_path], capture_output=True, text=True, check=True
    )
    blocks, block_bytes = map(int, found.stdout.split())
    assert file_system["size_bytes"] == blocks * block_bytes
    assert tmp_path.is_relative_to(file_system["mount_point"])
    assert [each["device"] for each in described["devices"]] == stack_of(tmp_path)


def test_a_loop_device_leads_to_the_disk_of_its_file(tmp_path: Path, loop_file_system: Callable[..., Any]) -> None:
    mounted = loop_file_system()
    target = open_target(str(mounted.directory))
    assert target.block_devices() == [number_of(Path(mounted.device).stat().st_rdev), *stack_of(tmp_path)]
    top = target.describe()["devices"][0]
    assert (top["kind"], top["size_bytes"]) == ("loop", 32 << 20)
    assert top["loop_backing_file"] == str(tmp_path / "image-0")


def test_a_btrfs_has_no_device_number_of_its_own_but_its_device_is_found(
    loop_file_system: Callable[..., Any],
) -> None:
    mounted = loop_file_system("btrfs", size="128M")
    assert not Path("/sys/dev/block", number_of(mounted.directory.stat().st_dev)).exists()
    assert open_target(str(mounted.directory)).block_devices()[0] == number_of(Path(mounted.device).stat().st_rdev)
    assert open_target(str(mounted.directory)).describe()["file_system"]["kind"] == "btrfs"


@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_the_alignment_of_direct_io_is_that_of_the_device(
    loop_file_system: Callable[..., Any], sector_bytes: int
) -> None:
    """The value from statx and the one found by reading agree."""
    directory = loop_file_system(sector_bytes=sector_bytes).directory
    assert direct_io.offset_alignment(directory) == sector_bytes
    with direct_io._unnamed_file(directory) as file:
        assert direct_io._found_by_reading(file) == sector_bytes
    assert [path.name for path in directory.iterdir()] == ["lost+found"]


@BTRFS
def test_a_probe_finds_direct_writes_that_go_through_the_page_cache(
    loop_file_system: Callable[..., Any], tmp_path: Path
) -> None:
    """On ext4 they never do, nor on btrfs without checksums; with checksums the kernel's version decides."""
    plain = loop_file_system().directory
    assert direct_io.writes_to_page_cache(plain) is False
    assert [path.name for path in plain.iterdir()] == ["lost+found"]
    unchecked = loop_file_system("btrfs", size="128M", options="nodatacow").directory
    assert direct_io.writes_to_page_cache(unchecked) is False
    checked = loop_file_system("btrfs", size="128M").directory
    found = direct_io.writes_to_page_cache(checked)
    described = open_target(str(checked)).describe()["file_system"]
    assert described.get("direct_writes") == ("page cache" if found else None)
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (6, 15):
        assert found is True
    assert direct_io.writes_to_page_cache(Path("/proc/self")) is None


@pytest.mark.system
@pytest.mark.needs("FUSE", "bindfs")
def test_direct_io_is_found_where_files_without_a_name_do_not_work(tmp_path: Path) -> None:
    """A FUSE daemon that addresses files by path, like rclone, knows nothing of a file that was removed."""
    (tmp_path / "data").mkdir()
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    subprocess.run(["bindfs", "-o", "hard_remove", tmp_path / "data", mounted], check=True)
    try:
        assert direct_io.offset_alignment(mounted) in (512, 4096)
        assert direct_io.writes_to_page_cache(mounted) is not None
        assert {each.name: each.is_available for each in probe_backends(real_engine(), mounted)}["sync"]
        assert list((tmp_path / "data").iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


@pytest.mark.system
@pytest.mark.needs("overlay")
def test_an_overlay_is_described_with_what_it_writes_to(tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    with overlay(tmp_path / "mounted", on=lower) as merged:
        described = open_target(str(merged)).describe()
        assert [each["device"] for each in described["devices"]] == stack_of(tmp_path)
        assert described["file_system"]["kind"] == "overlay"
        below = mount_of(tmp_path)
        assert below and described["file_system"]["below"]["kind"] == below.kind


def test_every_device_is_described_without_its_serial_number() -> None:
    for number in block_stack.all_devices():
        facts = block_stack.describe(number)
        if number not in block_stack.all_devices():
            continue  # A test beside this one has detached it meanwhile.
        assert facts["size_bytes"] > 0
        serial = block_stack.serial(number)
        assert not serial or serial not in map(str, facts.values())
