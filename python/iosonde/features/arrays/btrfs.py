"""Arrays inside a btrfs file system: its profiles over several devices.

Data has the requested profile, and so has metadata, except with RAID 5 or 6: there it is RAID 1 with two
or three copies, as its makers advise. Its chunk is 64 KiB whatever is asked. The file system carries the name of what
iosonde uses for the study as its label. Only superblocks with that label are erased, through the descriptor that they
were read from.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.features.arrays import setup
from iosonde.features.arrays.setup import Array, ArraySetup, announce
from iosonde.plan import Setup
from iosonde.storage.block_layer.block_nodes import number_of, opened, read
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.setups import file_systems
from iosonde.storage.tools import call, require, wait_until

METADATA = {"raid5": "raid1", "raid6": "raid1c3"}
"""Profile of metadata where it is not that of data."""
SYS = Path("/sys/fs/btrfs")
BEGIN_S = 60.0
SUPERBLOCKS_AT = (64 << 10, 64 << 20, 256 << 30)
"""Places of the superblock and its copies, on a device that is large enough."""
_SUPERBLOCK = struct.Struct("<48xQ8x8s227x256s")
"""Its own place, magic number, label (kernel `include/uapi/linux/btrfs_tree.h`, `struct btrfs_super_block`)."""
_MAGIC = b"_BHRfS_M"


class BtrfsArray(Array):
    """An active array inside btrfs."""

    def mounted(self, point: Path) -> None:
        """Start to rebuild removed members, if the state requires it."""
        if self.facts.get("rebuild"):
            for member in self.facts["failed"]:
                number = self.facts["members"].index(member) + 1  # mkfs numbers them in the order of its arguments.
                self.facts["steps"].append(call("btrfs", "replace", "start", "-f", str(number), member, point))
                # The command starts a process in the background.
                wait_until(lambda: "Never started" not in _replacing(point), BEGIN_S, "the replacement did not start")

    def state(self) -> dict[str, Any]:
        """Return members that are missing, errors, and a replacement under way."""
        facts = {"at": time.time(), "level": self.facts["profile"], "raid_disks": len(self.members), **self.health()}
        numbers = {number_of(member) for member in self.members}
        points = [each.point for each in mounts() if each.kind == "btrfs" and number_of(each.source) in numbers]
        if points and self.facts.get("rebuild"):
            facts |= replacement(_replacing(Path(points[0])))
        return facts

    def health(self) -> dict[str, int]:
        """Return how many members are missing, and how many I/Os failed since the file system was created."""
        folder = SYS / self.facts["uuid"]
        missing = [file for file in folder.glob("devinfo/*/missing") if read(file) == "1"]
        counted = [line.split() for file in folder.glob("devinfo/*/error_stats") for line in read(file).splitlines()]
        errors = sum(int(words[1]) for words in counted if len(words) == 2 and words[1].isdigit())
        return {"degraded": len(missing), "errors": errors}


def build(devices: Sequence[Path], array: ArraySetup, name: str) -> BtrfsArray:
    """Create the file system over the devices, and remove members if the state requires it."""
    check_possible()
    used = list(devices)
    sizes = setup.check_members(used, array)
    key, identity = MOUNTS / name / "array", str(uuid.uuid4())
    announce(key, "btrfs", used, name=name, uuid=identity)
    steps = [call(*create_command(used, array, name, identity)), call("btrfs", "device", "scan", *used)]
    failed = setup.failing_members(used, array)
    for member in failed:
        steps += _take_away(member, name)
    left = [member for member in used if member not in failed]
    facts = {
        "kind": "btrfs",
        "name": name,
        "uuid": identity,
        "profile": array.level,
        "metadata_profile": METADATA.get(array.level, array.level),
        "members": [str(each) for each in used],
        "failed": [str(each) for each in failed],
        "member_bytes": sizes,
        **setup.unequal(sizes),
        "rebuild": array.state == "rebuilding",
        "steps": steps,
    }
    return BtrfsArray(
        device=left[0], members=used, key=key, facts=facts, mount_options="degraded" if failed else ""
    )  # fmt: skip


def check_possible() -> None:
    """`TargetError` if this machine cannot create btrfs arrays."""
    file_systems.check_possible(Setup(file_system="btrfs"))
    require("btrfs", "make an array (btrfs)")


def _replacing(point: Path) -> str:
    return str(call("btrfs", "replace", "status", "-1", point)["output"])


def replacement(status: str) -> dict[str, Any]:
    """Parse the output of `btrfs replace status`: `sync_action` and `sync_done` (share from 0 to 1)."""
    text = status.strip()
    if "% done" in text:
        return {"sync_action": "recover", "sync_done": float(text.partition("%")[0]) / 100}
    return {"sync_action": "idle"} if "finished" in text else {"sync_action": text.split(",")[0]}


def create_command(devices: Sequence[Path], array: ArraySetup, name: str, identity: str) -> list[str]:
    """The command that creates it."""
    metadata = METADATA.get(array.level, array.level)
    return [
        "mkfs.btrfs", "-q", "-f", "-L", name, "-U", identity, "-d", array.level, "-m", metadata, *map(str, devices)
    ]  # fmt: skip


def undo(entry: journal.Entry) -> None:
    """Unmount it, and erase the superblocks of every member that carries our label."""
    name = str(entry.facts["name"])
    for member in map(Path, entry.facts["members"]):
        if label_on(member) == name:
            _release(member)
            with contextlib.suppress(TargetError):  # The kernel may have forgotten it.
                _take_away(member, name)


def _release(member: Path) -> None:
    """Unmount it; what is mounted above or below it at the same place stays."""
    while found := [each for each in mounts() if each.kind == "btrfs" and number_of(each.source) == number_of(member)]:
        top = [each for each in mounts() if each.point == found[-1].point][-1]
        if top != found[-1]:
            raise OSError(errno.EBUSY, f"`{top.source}` is mounted over it at `{top.point}`")
        try:
            call("umount", top.point)
        except TargetError as error:
            raise OSError(str(error.what)) from None


def _take_away(member: Path, name: str) -> list[dict[str, Any]]:
    """Erase the superblocks of a member, and make the kernel forget that it was one."""
    erased = setup.erase_superblocks(
        member, lambda opened: [each for each in SUPERBLOCKS_AT if _label_at(opened, each) == name]
    )
    return [erased, call("btrfs", "device", "scan", "--forget", member)]


def label_on(device: Path) -> str:
    """The label in a device's superblock; nothing where it has none."""
    with contextlib.suppress(OSError), opened(number_of(device)) as descriptor:
        return _label_at(descriptor, SUPERBLOCKS_AT[0])
    return ""


def _label_at(descriptor: int, place: int) -> str:
    data = os.pread(descriptor, _SUPERBLOCK.size, place)
    if len(data) < _SUPERBLOCK.size:
        return ""
    own, magic, label = _SUPERBLOCK.unpack(data)
    return str(label.split(b"\0", 1)[0].decode(errors="replace")) if (own, magic) == (place, _MAGIC) else ""
