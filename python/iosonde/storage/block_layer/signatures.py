"""Contents of a block device by their signatures: file systems, partition tables, members of arrays.

wipefs(8) finds all of them, where blkid(8) finds none if there are several. It only reads as it is called here. Nonzero
data of a device without a signature counts as contents too: at its start and end, and at samples between them, such as
a file system behind a lost partition table. Data that iosonde measured with is no contents: it leaves a mark in the
first sector, which every partition table, file system and boot sector overwrites.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

from iosonde.base.tools import run
from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import opened
from iosonde.storage.tools import require

EDGE_BYTES = 1 << 20
"""Size of the first and last part of a device that is examined, and zeroed after it was measured raw."""

SAMPLE_BYTES = 64 << 10
SAMPLES = 32
"""Evenly spaced ones, besides those at powers of two and at superblocks of ext4."""

_GROUP_BYTES = 128 << 20
"""Block group of ext4 with blocks of 4 KiB: groups 1, 3, 5, 7 and 9 have a copy of the superblock at their start."""

MARK = b"iosonde measured with this device; it contains test data\n".ljust(512, b"\0")

DEFECTIVE = "the device may be defective: see the kernel log (`dmesg`)"

MEMBER_TYPES = ("bcache", "drbd", "swsuspend", "ceph_bluestore", "VMFS_volume_member")
"""Signatures of members besides those that end in `_member`, and that of a hibernation image."""

_BTRFS_DEVICES_AT = (64 << 10) + 0x88
"""Place of `num_devices` in the first superblock of btrfs (kernel `include/uapi/linux/btrfs_tree.h`)."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One signature on a device."""

    device: str
    """`vdb1`."""
    kind: str
    """As wipefs calls it: `ext4`, `gpt`, `LVM2_member`; `data` for what it does not know."""
    label: str = ""
    uuid: str = ""
    is_one_of_several: bool = False
    """True if it is one of the devices of a btrfs that has more."""

    @property
    def is_member(self) -> bool:
        """Return True for a member of an array or pool, which may only not be assembled."""
        return self.kind.endswith("_member") or self.kind in MEMBER_TYPES or self.is_one_of_several

    @property
    def text(self) -> str:
        """For a reader: `ext4 "home"`."""
        kinds = {"data": "unrecognized data", "gpt": "a partition table (gpt)", "dos": "a partition table (dos)"}
        several = " over several devices" if self.is_one_of_several else ""
        return kinds.get(self.kind, self.kind) + several + (f' "{self.label}"' if self.label else "")


def signatures(number: str, name: str) -> list[Signature]:
    """All contents of a device that can be recognized; `TargetError` if it cannot be read."""
    tool = require("wipefs", "examine a device before it is written")
    try:
        with opened(number) as descriptor:
            found = [_signature(each, name, descriptor) for each in _listed(tool, name, descriptor)]
            if not found and not _is_blank(descriptor):
                found = [Signature(device=name, kind="data")]
    except OSError as error:
        raise TargetError(
            f"cannot read `{name}`: {error.strerror or error}",
            hint=DEFECTIVE if error.errno == errno.EIO else "run iosonde as root",
        ) from error
    return list(dict.fromkeys(found))  # Several copies of one superblock are one signature.


def wipe_edges(descriptor: int) -> None:
    """Zero the first and last MiB of an open device."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    edge = min(EDGE_BYTES, size)
    for begin in dict.fromkeys((0, size - edge)):
        os.pwrite(descriptor, bytes(edge), begin)
    os.fsync(descriptor)


def wipe_measured(descriptor: int) -> None:
    """Zero the edges of an open device, and mark everything between them as test data."""
    wipe_edges(descriptor)
    if os.lseek(descriptor, 0, os.SEEK_END) >= len(MARK):
        os.pwrite(descriptor, MARK, 0)
        os.fsync(descriptor)


def _listed(tool: str, name: str, descriptor: int) -> list[dict[str, Any]]:
    """Return the output of wipefs for an open device: by its descriptor it cannot open another of that name."""
    command = [tool, "--json", "--output", "TYPE,LABEL,UUID", f"/proc/self/fd/{descriptor}"]
    try:
        done = run(command, timeout_s=60, pass_fds=[descriptor])
    except subprocess.TimeoutExpired:
        raise TargetError(f"`wipefs` did not finish reading `{name}` within 60 s", hint=DEFECTIVE) from None
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise TargetError(f"cannot read the signatures of `{name}`: {reason}", hint=DEFECTIVE)
    listed: list[dict[str, Any]] = json.loads(done.stdout or "{}").get("signatures", [])
    return listed


def _signature(listed: dict[str, Any], name: str, descriptor: int) -> Signature:
    return Signature(
        device=name,
        kind=listed["type"],
        label=listed.get("label") or "",
        uuid=listed.get("uuid") or "",
        is_one_of_several=listed["type"] == "btrfs"
        and int.from_bytes(os.pread(descriptor, 8, _BTRFS_DEVICES_AT), "little") > 1,
    )


def _is_blank(descriptor: int) -> bool:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    edge = min(EDGE_BYTES, size)
    start = os.pread(descriptor, edge, 0)
    if any(start.removeprefix(MARK)) or any(os.pread(descriptor, edge, size - edge)):
        return False
    return start.startswith(MARK) or not any(any(os.pread(descriptor, SAMPLE_BYTES, at)) for at in _samples(size))


def _samples(size_bytes: int) -> list[int]:
    """Offsets between the edges of a device, in order: partitions start at 1 MiB, and file systems have copies."""
    found = {EDGE_BYTES << power for power in range(size_bytes.bit_length())}
    found |= {start + group * _GROUP_BYTES for start in (0, EDGE_BYTES) for group in (1, 3, 5, 7, 9)}
    found |= {size_bytes * number // SAMPLES // SAMPLE_BYTES * SAMPLE_BYTES for number in range(SAMPLES)}
    return sorted(each for each in found if EDGE_BYTES <= each < size_bytes - EDGE_BYTES)
