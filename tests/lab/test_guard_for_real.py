"""The guard against the real thing: disks that md, LVM, device mapper, bcache and others use, inside User Mode Linux."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from simulated_disks import disks, mounted, run, wait_for, wipe

from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety.guard import examine

pytestmark = pytest.mark.usefixtures("inside_user_mode_linux")

LVM = (
    "--config",
    "activation { udev_sync = 0 udev_rules = 0 verify_udev_operations = 1 } devices { use_devicesfile = 0 }",
)
GROUP = "iosonde-group"
SECTORS = 32 << 11
"""Size of volumes."""


@pytest.fixture(autouse=True)
def wiped() -> Iterator[None]:
    yield
    wipe(*disks()[:2])


def refusals(path: Path) -> list[str]:
    return examine(number_of(path)).refusals


def written(disk: Path) -> int:
    """Writes and discards that the disk has seen (`Documentation/admin-guide/iostats.rst`)."""
    counts = Path("/sys/block", disk.name, "stat").read_text().split()
    return int(counts[4]) + int(counts[11])


@contextmanager
def node_of(path: Path) -> Iterator[Path]:
    """A node of another name for the same device."""
    node = Path("/dev/another-name")
    os.mknod(node, stat.S_IFBLK | 0o600, path.stat().st_rdev)
    try:
        yield node
    finally:
        node.unlink()


@contextmanager
def md(disk: Path, other: Path, *, is_mounted: bool = False) -> Iterator[None]:
    array = Path("/dev/md/lab")
    run("mdadm", "--create", array, "--run", "--level=raid1", "--raid-devices=2", "--assume-clean", disk, other)
    try:
        if is_mounted:
            with mounted(array):
                yield
        else:
            yield
    finally:
        run("mdadm", "--stop", array)


@contextmanager
def md_not_assembled(disk: Path, other: Path) -> Iterator[None]:
    with md(disk, other):
        pass
    yield


@contextmanager
def lvm_group(disk: Path, _: Path) -> Iterator[None]:
    run("lvm", "vgcreate", *LVM, "--yes", GROUP, disk)
    yield


@contextmanager
def lvm_volume(disk: Path, other: Path) -> Iterator[None]:
    with lvm_group(disk, other):
        created = ("--yes", "--wipesignatures", "n", "--zero", "n", "--size", "16m", "--name", "volume")
        run("lvm", "lvcreate", *LVM, *created, GROUP)
        try:
            yield
        finally:
            run("lvm", "vgchange", *LVM, "--activate", "n", GROUP)


@contextmanager
def mapped(*table: object, first: int = 0, size: int = SECTORS, name: str = "held") -> Iterator[Path]:
    """A volume of the device mapper with one target."""
    run("dmsetup", "create", name, "--noudevsync", "--table", " ".join(map(str, (first, size, *table))))
    run("dmsetup", "mknodes", name)
    try:
        yield Path("/dev/mapper", name)
    finally:
        run("dmsetup", "remove", "--noudevsync", "--retry", name)


@contextmanager
def mapper(disk: Path, _: Path) -> Iterator[None]:
    with mapped("linear", disk, 0):
        yield


@contextmanager
def mounted_volume(disk: Path, _: Path) -> Iterator[None]:
    with mapped("linear", disk, 4096) as volume, mounted(volume):
        yield


@contextmanager
def mounted_volume_of_another_node(disk: Path, _: Path) -> Iterator[None]:
    with node_of(disk) as node, mapped("linear", node, 0) as volume, mounted(volume):
        yield


@contextmanager
def snapshot_origin(disk: Path, other: Path) -> Iterator[None]:
    with mapped("snapshot-origin", disk, name="origin"), mapped("snapshot", disk, other, "N", 8, name="snapshot"):
        yield


@contextmanager
def snapshot_store(disk: Path, other: Path) -> Iterator[None]:
    with mapped("snapshot", other, disk, "N", 8) as volume, mounted(volume):
        yield


@contextmanager
def bcache(disk: Path, _: Path) -> Iterator[None]:
    run("make-bcache", "--bdev", disk)
    folder = Path("/sys/block", disk.name, "bcache")
    if not folder.exists():
        Path("/sys/fs/bcache/register").write_text(str(disk))
    wait_for(folder.exists)
    try:
        yield
    finally:
        (folder / "stop").write_text("1")
        wait_for(lambda: not folder.exists())


@contextmanager
def bcache_not_registered(disk: Path, other: Path) -> Iterator[None]:
    with bcache(disk, other):
        pass
    yield


@contextmanager
def mounted_partition(disk: Path, _: Path) -> Iterator[None]:
    run("addpart", disk, 1, 2048, SECTORS)
    try:
        with mounted(Path(f"{disk}1")):
            yield
    finally:
        run("delpart", disk, 1)


@contextmanager
def swap(disk: Path, _: Path) -> Iterator[None]:
    run("mkswap", disk)
    run("swapon", disk)
    try:
        yield
    finally:
        run("swapoff", disk)


@contextmanager
def btrfs(disk: Path, other: Path) -> Iterator[None]:
    run("mkfs.btrfs", "--quiet", "--force", "--nodiscard", disk, other)
    yield


@contextmanager
def second_of_mounted_btrfs(disk: Path, other: Path) -> Iterator[None]:
    with btrfs(other, disk), mounted(other, kind=""):
        yield


@contextmanager
def mounted_loop_device(disk: Path, _: Path) -> Iterator[None]:
    loop = run("losetup", "--find", "--show", disk)
    try:
        with mounted(Path(loop)):
            yield
    finally:
        run("losetup", "--detach", loop)


@contextmanager
def held_by_a_program(disk: Path, _: Path) -> Iterator[None]:
    descriptor = os.open(disk, os.O_RDWR | os.O_EXCL)
    try:
        yield
    finally:
        os.close(descriptor)


Use = Callable[[Path, Path], AbstractContextManager[None]]
USES: list[tuple[Use, str]] = [
    (md, "is part of `md"),
    (lambda *two: md(*two, is_mounted=True), "is mounted at `/mnt`"),
    (md_not_assembled, "linux_raid_member"),
    (lvm_volume, "is part of `dm-"),
    (lvm_group, "LVM2_member"),
    (mapper, "is part of `dm-"),
    (mounted_volume, "is mounted at `/mnt`"),
    (mounted_volume_of_another_node, "is mounted at `/mnt`"),
    (snapshot_origin, "is part of `dm-"),
    (snapshot_store, "is mounted at `/mnt`"),
    (bcache, "is part of `bcache"),
    (bcache_not_registered, "is a member of an array or pool (bcache)"),
    (mounted_partition, "1` is mounted at `/mnt`"),
    (swap, "is active swap"),
    (btrfs, "btrfs over several devices"),
    (second_of_mounted_btrfs, "is a member of the mounted btrfs"),
    (mounted_loop_device, "is mounted at `/mnt`"),
    (held_by_a_program, "is claimed exclusively by another program"),
]


def test_a_disk_that_nothing_uses_may_be_written() -> None:
    assert refusals(disks()[0]) == []


@pytest.mark.parametrize(("use", "reason"), USES)
def test_a_disk_in_use_is_refused_by_any_name_and_nothing_is_written(use: Use, reason: str) -> None:
    disk, other = disks()[:2]
    with use(disk, other), node_of_any_name(disk) as node:
        for _ in range(3):  # A file system or array on the disk may write by itself now and then.
            before = written(disk)
            found = refusals(disk)
            if writes_nothing := written(disk) == before:
                break
        assert reason in " and ".join(found)
        assert refusals(node) == found
        assert writes_nothing


@contextmanager
def node_of_any_name(disk: Path) -> Iterator[Path]:
    node = Path("/dev/disk-by-another-name")
    node.symlink_to(disk)
    try:
        yield node
    finally:
        node.unlink()


@contextmanager
def volume_beside_a_mounted_one(disk: Path, _: Path) -> Iterator[Path]:
    with (
        mapped("linear", disk, SECTORS, name="other") as other,
        mounted(other),
        mapped("linear", disk, 0) as volume,
    ):
        yield volume


@contextmanager
def volume_on_sectors_of_a_mounted_one(disk: Path, _: Path) -> Iterator[Path]:
    with (
        mapped("linear", disk, 0, name="other") as other,
        mounted(other),
        mapped("linear", disk, SECTORS - 8, size=64) as volume,
    ):
        yield volume


@contextmanager
def volume_with_a_mounted_snapshot(disk: Path, other: Path) -> Iterator[Path]:
    with (
        mapped("linear", disk, 0) as volume,
        mapped("snapshot", disk, other, "N", 8, name="snapshot") as snapshot,
        mounted(snapshot),
    ):
        yield volume


@contextmanager
def volume_under_a_mounted_loop_device(disk: Path, other: Path) -> Iterator[Path]:
    with mapped("linear", disk, 0) as volume, mounted_loop_device(volume, other):
        yield volume


Volume = Callable[[Path, Path], AbstractContextManager[Path]]


def test_a_volume_that_maps_sectors_of_its_own_may_be_written() -> None:
    with volume_beside_a_mounted_one(*disks()[:2]) as volume:
        assert refusals(volume) == []


@pytest.mark.parametrize(
    ("stack", "reason"),
    [
        (volume_on_sectors_of_a_mounted_one, "shares data with `dm-"),
        (volume_with_a_mounted_snapshot, "shares data with `dm-"),
        (volume_under_a_mounted_loop_device, "is attached to `dm-"),
    ],
)
def test_a_volume_that_maps_sectors_in_use_is_refused_by_any_name(stack: Volume, reason: str) -> None:
    with stack(*disks()[:2]) as volume, node_of(volume) as node:
        found = refusals(volume)
        assert reason in " and ".join(found)
        assert "is mounted at `/mnt`" in " and ".join(found)
        assert refusals(node) == found
