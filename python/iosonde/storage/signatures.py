"""What a block device holds, by its signatures: file systems, partition tables, members of arrays.

wipefs(8) finds all of them, where blkid(8) finds none if there are several. It only reads as it is called here. A
device whose beginning or end holds other data than zeros has something on it too, whatever that is.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.storage.tools import require

EDGE_BYTES = 1 << 20
"""How much of the beginning and of the end is looked at, and given back as zeros after a device was measured raw."""

_BTRFS_DEVICES_AT = (64 << 10) + 0x88
"""Place of `num_devices` in the first superblock of btrfs (kernel `include/uapi/linux/btrfs_tree.h`)."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One thing that a device holds."""

    device: str
    """`vdb1`."""
    kind: str
    """As wipefs calls it: `ext4`, `gpt`, `LVM2_member`; `data` for what it does not know."""
    label: str = ""
    uuid: str = ""
    is_one_of_several: bool = False
    """Whether it is one of the devices of a btrfs that has more."""

    @property
    def text(self) -> str:
        """For a reader: `ext4 "home"`."""
        kinds = {"data": "data of no known kind", "gpt": "a partition table (gpt)", "dos": "a partition table (dos)"}
        several = " over several devices" if self.is_one_of_several else ""
        return kinds.get(self.kind, self.kind) + several + (f' "{self.label}"' if self.label else "")


def signatures(node: Path, name: str) -> list[Signature]:
    """Everything that a device holds; `TargetError` where it cannot be found out."""
    tool = require("wipefs", "see what a device holds before it is written")
    asked = [tool, "--json", "--output", "TYPE,LABEL,UUID", str(node)]
    done = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    if done.returncode != 0:
        raise TargetError(
            f"cannot see what `{node}` holds: {' '.join(done.stderr.split()) or f'exit status {done.returncode}'}",
            hint="run iosonde as root",
        )
    listed = json.loads(done.stdout or "{}").get("signatures", [])
    found = [
        Signature(
            device=name,
            kind=each["type"],
            label=each.get("label") or "",
            uuid=each.get("uuid") or "",
            is_one_of_several=each["type"] == "btrfs" and _btrfs_devices(node) > 1,
        )
        for each in listed
    ]
    # Several copies of one superblock are one thing.
    found = list(dict.fromkeys(found))
    if not found and not _is_blank(node):
        found = [Signature(device=name, kind="data")]
    return found


def wipe_edges(descriptor: int) -> None:
    """Write zeros to the beginning and the end of an open device."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    edge = min(EDGE_BYTES, size)
    for begin in dict.fromkeys((0, size - edge)):
        os.pwrite(descriptor, bytes(edge), begin)
    os.fsync(descriptor)


def _is_blank(node: Path) -> bool:
    try:
        with node.open("rb", buffering=0) as device:
            size = device.seek(0, os.SEEK_END)
            edge = min(EDGE_BYTES, size)
            return not any(any(os.pread(device.fileno(), edge, begin)) for begin in (0, size - edge))
    except OSError as error:
        raise TargetError(f"cannot read `{node}`: {error.strerror}", hint="run iosonde as root") from error


def _btrfs_devices(node: Path) -> int:
    with node.open("rb", buffering=0) as device:
        return int.from_bytes(os.pread(device.fileno(), 8, _BTRFS_DEVICES_AT), "little")
