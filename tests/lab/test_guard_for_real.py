"""The guard against the real thing: disks that md, LVM, device mapper, bcache and others use, inside User Mode Linux."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from guest_sessions import run
from simulated_disks import disks, wipe

from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety.guard import examine

pytestmark = pytest.mark.usefixtures("inside_user_mode_linux")

Step = tuple[str, str]
"""A shell script on two disks, `$1` and `$2`, and one that undoes it."""
SECTORS = 32 << 11
"""Size of volumes."""
LVM = (
    "--config 'activation { udev_sync = 0 udev_rules = 0 verify_udev_operations = 1 } devices { use_devicesfile = 0 }'"
)


def mounted(device: str) -> Step:
    return f"mkfs.ext4 -q -F -E nodiscard {device}; mount -o ro {device} /mnt", "umount /mnt"


def volume(target: str, *, name: str = "held", size: int = SECTORS) -> Step:
    """A volume of the device mapper with one target."""
    created = f'dmsetup create {name} --noudevsync --table "0 {size} {target}"; dmsetup mknodes {name}'
    return created, f"dmsetup remove --noudevsync --retry {name}"


def and_undone(step: Step) -> Step:
    """Leave what stopping does not remove: signatures."""
    return "; ".join(step), ""


HELD, OTHER = "/dev/mapper/held", "/dev/mapper/other"
ANOTHER_NODE = "cp --archive $1 /dev/another-node", "rm /dev/another-node"
MD = (
    "mdadm --create /dev/md/lab --run --level=raid1 --raid-devices=2 --assume-clean $1 $2",
    "mdadm --stop /dev/md/lab",
)
GROUP = f"lvm vgcreate {LVM} --yes iosonde-group $1", ""
LOGICAL_VOLUME = (
    f"lvm lvcreate {LVM} --yes --wipesignatures n --zero n --size 16m --name volume iosonde-group",
    f"lvm vgchange {LVM} --activate n iosonde-group",
)
BCACHE = (
    "folder=/sys/block/${1##*/}/bcache; make-bcache --bdev $1; [ -d $folder ] || echo $1 >/sys/fs/bcache/register; "
    "until [ -d $folder ]; do sleep 0.1; done",
    "folder=/sys/block/${1##*/}/bcache; echo 1 >$folder/stop; while [ -d $folder ]; do sleep 0.1; done",
)
BTRFS = "mkfs.btrfs --quiet --force --nodiscard $2 $1", ""
SNAPSHOT_ORIGIN = volume("snapshot-origin $1", name="origin")
USES: dict[str, tuple[list[Step], str]] = {
    "array": ([MD], "is part of `md"),
    "mounted array": ([MD, mounted("/dev/md/lab")], "is mounted at `/mnt`"),
    "stopped array": ([and_undone(MD)], "linux_raid_member"),
    "logical volume": ([GROUP, LOGICAL_VOLUME], "is part of `dm-"),
    "volume group": ([GROUP], "LVM2_member"),
    "mounted volume": ([volume("linear $1 4096"), mounted(HELD)], "is mounted at `/mnt`"),
    "mounted volume of another node": (
        [ANOTHER_NODE, volume("linear /dev/another-node 0"), mounted(HELD)],
        "is mounted at `/mnt`",
    ),
    "snapshot origin": ([SNAPSHOT_ORIGIN, volume("snapshot $1 $2 N 8")], "is part of `dm-"),
    "store of a mounted snapshot": ([volume("snapshot $2 $1 N 8"), mounted(HELD)], "is mounted at `/mnt`"),
    "bcache": ([BCACHE], "is part of `bcache"),
    "stopped bcache": ([and_undone(BCACHE)], "is a member of an array or pool (bcache)"),
    "mounted partition": (
        [(f"addpart $1 1 2048 {SECTORS}", "delpart $1 1"), mounted("${1}1")],
        "1` is mounted at `/mnt`",
    ),
    "swap": ([("mkswap $1; swapon $1", "swapoff $1")], "is active swap"),
    "btrfs": ([BTRFS], "btrfs over several devices"),
    "mounted btrfs": ([BTRFS, ("mount -o ro $2 /mnt", "umount /mnt")], "is a member of the mounted btrfs"),
}
LOOP = (
    f"ln --symbolic $(losetup --find --show {HELD}) /dev/loop-of-volume",
    "losetup --detach $(readlink /dev/loop-of-volume); rm /dev/loop-of-volume",
)
OTHER_VOLUME = volume("linear $1 0", name="other")
STACKS: dict[str, tuple[list[Step], str]] = {
    "sectors of a mounted volume": (
        [OTHER_VOLUME, mounted(OTHER), volume(f"linear $1 {SECTORS - 8}", size=64)],
        "shares data with `dm-",
    ),
    "mounted snapshot": (
        [volume("linear $1 0"), volume("snapshot $1 $2 N 8", name="other"), mounted(OTHER)],
        "shares data with `dm-",
    ),
    "mounted loop device": ([volume("linear $1 0"), LOOP, mounted("/dev/loop-of-volume")], "is attached to `dm-"),
}


@contextmanager
def done(*steps: Step) -> Iterator[tuple[Path, Path]]:
    """Two disks while the steps are in effect."""
    two = disks()[:2]
    with ExitStack() as undo:
        undo.callback(wipe, *two)
        for script, undone in steps:
            run("sh", "-ec", script, "sh", *two)
            undo.callback(run, "sh", "-ec", undone, "sh", *two)
        yield two[0], two[1]


def refusals(path: Path) -> list[str]:
    return examine(number_of(path)).refusals


def written(disk: Path) -> int:
    """Writes and discards that the disk has seen (`Documentation/admin-guide/iostats.rst`)."""
    counts = Path("/sys/block", disk.name, "stat").read_text().split()
    return int(counts[4]) + int(counts[11])


def test_disks_and_volumes_that_nothing_uses_may_be_written() -> None:
    with done() as (disk, _):
        assert refusals(disk) == []
    with done(volume(f"linear $1 {SECTORS}", name="other"), mounted(OTHER), volume("linear $1 0")):
        assert refusals(Path(HELD)) == [], "its sectors are its own"


@pytest.mark.parametrize("use", USES)
def test_a_disk_in_use_is_refused_by_any_name_and_nothing_is_written(use: str) -> None:
    steps, reason = USES[use]
    node = Path("/dev/by-another-name")
    with done(*steps, (f"cp --archive $1 {node}", f"rm {node}")) as (disk, _):
        for _ in range(3):  # A file system or array on the disk may write by itself now and then.
            before = written(disk)
            found = refusals(disk)
            if writes_nothing := written(disk) == before:
                break
        assert reason in " and ".join(found)
        assert refusals(node) == found
        assert writes_nothing


@pytest.mark.parametrize("stack", STACKS)
def test_a_volume_that_maps_sectors_in_use_is_refused_by_any_name(stack: str) -> None:
    steps, reason = STACKS[stack]
    node = Path("/dev/volume-by-another-name")
    with done(*steps, (f"cp --archive --dereference {HELD} {node}", f"rm {node}")):
        found = refusals(Path(HELD))
        assert reason in " and ".join(found)
        assert "is mounted at `/mnt`" in " and ".join(found)
        assert refusals(node) == found
