"""Refusals of drives in use, each with the real user on it, without a write."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from guest_md import LAB, NAME, array, run, send

DRIVE, OTHER = LAB / "0", LAB / "1"
LVM = (
    "--config",
    "activation { udev_sync = 0 udev_rules = 0 verify_udev_operations = 1 } devices { use_devicesfile = 0 }",
)
GROUP = "iosonde-group"
SECTORS = 64 << 11
"""Size of volumes."""
CIPHER = ("aes-xts-plain64", "0" * 64, 0)
ALIAS = Path("/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_IOSONDE-LAB-0")


def try_guard() -> None:
    """Set up each use of a drive, ask the guard about the drive, and take it apart."""
    for name, use in USES.items():
        name = f"guard: {name}"
        send(name=name, begins=True)
        try:
            with use():
                refusals, writes = ask_and_count()
                send(name=name, drive=DRIVE.resolve().name, refusals=refusals, by_alias=ask(ALIAS), writes=writes)
        except (RuntimeError, OSError) as error:
            send(name=name, error=str(error))
        wipe()
    for name, volume in VOLUMES.items():
        name = f"guard: {name}"
        send(name=name, begins=True)
        try:
            with volume() as path, node_of(path) as alias:
                send(name=name, refusals=ask(path), by_alias=ask(alias))
        except (RuntimeError, OSError) as error:
            send(name=name, error=str(error))
        wipe()


def ask(path: Path = DRIVE) -> list[str]:
    """Reasons never to write it."""
    from iosonde.storage.block_layer.block_nodes import number_of
    from iosonde.storage.safety.guard import examine

    return examine(number_of(path)).refusals


def ask_and_count() -> tuple[list[str], int]:
    """Reasons of the guard, and the writes that the drive sees while it looks.

    A file system or array on the drive may write by itself now and then: not each of three times.
    """
    for _ in range(3):
        before = written()
        refusals = ask()
        if not (writes := written() - before):
            break
    return refusals, writes


def written() -> int:
    """Writes and discards that the drive has seen (`Documentation/admin-guide/iostats.rst`)."""
    counts = Path("/sys/block", DRIVE.resolve().name, "stat").read_text().split()
    return int(counts[4]) + int(counts[11])


def wipe() -> None:
    run("wipefs", "--all", "--force", DRIVE, OTHER)


@contextmanager
def unused() -> Iterator[None]:
    yield


@contextmanager
def md_member() -> Iterator[None]:
    with array("raid1", [DRIVE, OTHER]):
        yield


@contextmanager
def md_under_a_mount() -> Iterator[None]:
    with array("raid1", [DRIVE, OTHER]), mounted("ext4", NAME):
        yield


@contextmanager
def md_member_not_assembled() -> Iterator[None]:
    run("mdadm", "--create", NAME, "--run", "--level=raid1", "--raid-devices=2", "--assume-clean", DRIVE, OTHER)
    run("mdadm", "--stop", NAME)
    yield


@contextmanager
def lvm_volume() -> Iterator[None]:
    with lvm_group():
        run(
            "lvm",
            "lvcreate",
            *LVM,
            "--yes",
            "--wipesignatures",
            "n",
            "--zero",
            "n",
            "--size",
            "16m",
            "--name",
            "volume",
            GROUP,
        )
        try:
            yield
        finally:
            run("lvm", "vgchange", *LVM, "--activate", "n", GROUP)


@contextmanager
def lvm_group() -> Iterator[None]:
    run("lvm", "vgcreate", *LVM, "--yes", GROUP, DRIVE.resolve())
    yield


@contextmanager
def mapped(*targets: str, name: str = "held") -> Iterator[Path]:
    """A volume of the device mapper, by its table."""
    run("dmsetup", "create", name, "--table", "\n".join(targets))
    run("dmsetup", "mknodes", name)
    try:
        yield Path("/dev/mapper", name)
    finally:
        run("dmsetup", "remove", "--retry", name)


def table(kind: str, *parameters: object, first: int = 0, size: int = SECTORS) -> str:
    """A target whose parameters name drives."""
    words = (each.resolve() if isinstance(each, Path) else each for each in parameters)
    return " ".join(map(str, (first, size, kind, *words)))


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
def dm_holder() -> Iterator[None]:
    with mapped(table("linear", DRIVE, 0)):
        yield


@contextmanager
def dm_under_a_mount() -> Iterator[None]:
    with mapped(table("linear", DRIVE, 4096)) as volume, mounted("ext4", volume):
        yield


@contextmanager
def dm_through_another_node() -> Iterator[None]:
    with node_of(DRIVE) as node, mapped(table("linear", node, 0)) as volume, mounted("ext4", volume):
        yield


@contextmanager
def dm_crypt_under_a_mount() -> Iterator[None]:
    with mapped(table("crypt", *CIPHER, DRIVE, 0)) as volume, mounted("ext4", volume):
        yield


@contextmanager
def snapshot_origin() -> Iterator[None]:
    with (
        mapped(table("snapshot-origin", DRIVE), name="origin"),
        mapped(table("snapshot", DRIVE, OTHER, "N", 8), name="snapshot"),
    ):
        yield


@contextmanager
def snapshot_store() -> Iterator[None]:
    with mapped(table("snapshot", OTHER, DRIVE, "N", 8)) as volume, mounted("ext4", volume):
        yield


@contextmanager
def volume_beside_a_mounted_one() -> Iterator[Path]:
    with (
        mapped(table("linear", DRIVE, SECTORS, size=SECTORS), name="other") as other,
        mounted("ext4", other),
        mapped(table("linear", DRIVE, 0)) as volume,
    ):
        yield volume


@contextmanager
def volume_on_sectors_of_a_mounted_one() -> Iterator[Path]:
    with (
        mapped(table("linear", DRIVE, 0), name="other") as other,
        mounted("ext4", other),
        mapped(table("linear", DRIVE, SECTORS - 8, size=64)) as volume,
    ):
        yield volume


@contextmanager
def crypt_on_sectors_of_a_mounted_volume() -> Iterator[Path]:
    with (
        mapped(table("linear", DRIVE, 0), name="other") as other,
        mounted("ext4", other),
        mapped(table("crypt", *CIPHER, DRIVE, 0)) as volume,
    ):
        yield volume


@contextmanager
def volume_with_a_mounted_snapshot() -> Iterator[Path]:
    with (
        mapped(table("linear", DRIVE, 0)) as volume,
        mapped(table("snapshot", DRIVE, OTHER, "N", 8), name="snapshot") as snapshot,
        mounted("ext4", snapshot),
    ):
        yield volume


@contextmanager
def volume_under_a_loop_device() -> Iterator[Path]:
    with mapped(table("linear", DRIVE, 0)) as volume:
        device = run("losetup", "--find", "--show", volume).strip()
        try:
            with mounted("ext4", Path(device)):
                yield volume
        finally:
            run("losetup", "--detach", device)


@contextmanager
def bcache_backing() -> Iterator[None]:
    run("make-bcache", "--bdev", DRIVE.resolve())
    register = Path("/sys/fs/bcache/register")
    bcache = Path("/sys/block", DRIVE.resolve().name, "bcache")
    if not bcache.exists():
        register.write_text(str(DRIVE.resolve()))
    wait_for(bcache.exists)
    try:
        yield
    finally:
        (bcache / "stop").write_text("1")
        wait_for(lambda: not bcache.exists())


@contextmanager
def bcache_not_registered() -> Iterator[None]:
    with bcache_backing():
        pass
    yield


@contextmanager
def partition_mounted() -> Iterator[None]:
    script = "label: gpt\nsize=32MiB\n"
    run("sh", "-c", f"printf '{script}' | sfdisk --quiet --no-tell-kernel {DRIVE} && partx --update {DRIVE.resolve()}")
    partition = Path(f"{DRIVE.resolve()}p1")
    wait_for(partition.exists)
    try:
        with mounted("ext4", partition):
            yield
    finally:
        run("partx", "--delete", DRIVE.resolve())


@contextmanager
def swap() -> Iterator[None]:
    run("mkswap", DRIVE)
    run("swapon", DRIVE)
    try:
        yield
    finally:
        run("swapoff", DRIVE)


@contextmanager
def btrfs_member() -> Iterator[None]:
    run("mkfs.btrfs", "--quiet", "--force", "--nodiscard", DRIVE, OTHER)
    yield


@contextmanager
def btrfs_second_of_two_mounted() -> Iterator[None]:
    run("mkfs.btrfs", "--quiet", "--force", "--nodiscard", OTHER, DRIVE)
    with mounted("", OTHER):
        yield


@contextmanager
def loop_on_it() -> Iterator[None]:
    device = run("losetup", "--find", "--show", DRIVE.resolve()).strip()
    try:
        with mounted("ext4", Path(device)):
            yield
    finally:
        run("losetup", "--detach", device)


@contextmanager
def held_by_another() -> Iterator[None]:
    descriptor = os.open(DRIVE, os.O_RDWR | os.O_EXCL)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def mounted(kind: str, device: Path) -> Iterator[None]:
    """A file system on a device, made unless it is there."""
    if kind:
        run(f"mkfs.{kind}", "-q", "-F", "-E", "nodiscard", device)
    run("mount", "-o", "ro", device, "/mnt")
    try:
        yield
    finally:
        run("umount", "/mnt")


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        if time.monotonic() > deadline:
            raise RuntimeError("waited in vain")
        time.sleep(0.05)


USES = {
    "nothing": unused,
    "member of an md array": md_member,
    "md array that is mounted": md_under_a_mount,
    "member of an md array that is not assembled": md_member_not_assembled,
    "LVM volume": lvm_volume,
    "LVM group without a volume": lvm_group,
    "device mapper": dm_holder,
    "volume that is mounted": dm_under_a_mount,
    "volume through a node of another name": dm_through_another_node,
    "encrypted volume that is mounted": dm_crypt_under_a_mount,
    "origin of a snapshot": snapshot_origin,
    "store of a snapshot": snapshot_store,
    "bcache": bcache_backing,
    "bcache that is not registered": bcache_not_registered,
    "mounted partition": partition_mounted,
    "swap": swap,
    "btrfs of two devices": btrfs_member,
    "second device of a mounted btrfs": btrfs_second_of_two_mounted,
    "loop device on it that is mounted": loop_on_it,
    "held by another program": held_by_another,
}

VOLUMES = {
    "volume beside a mounted one": volume_beside_a_mounted_one,
    "volume on sectors of a mounted one": volume_on_sectors_of_a_mounted_one,
    "encrypted volume on sectors of a mounted one": crypt_on_sectors_of_a_mounted_volume,
    "volume with a mounted snapshot": volume_with_a_mounted_snapshot,
    "volume under a mounted loop device": volume_under_a_loop_device,
}
"""Volumes that are themselves the target."""
