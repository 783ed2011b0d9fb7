"""Devices that object daemons of Ceph take raw (BlueStore), and the directory for everything else of the cluster.

The setup mounts a small file system in memory, where the monitor, the manager and the daemons keep what is not on their
devices, so that the devices take the I/O of BlueStore alone. The nodes of the devices are there too: a daemon runs
under an unprivileged user, and nodes of iosonde's own belong to that user without a change to those in `/dev`, which
udev would undo. All of it vanishes with the mount.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.tools import call, require_root

CONTROL_BYTES = 512 << 20
"""Room for the monitor's database and for messages."""

_LABEL = b"bluestore block device\n"
"""First bytes of a device of BlueStore; the identifier of its object daemon follows."""


def check_possible() -> None:
    """`TargetError` if this user cannot give devices to object daemons."""
    require_root("give block devices to object daemons of Ceph")


def mount(point: Path, devices: Sequence[Path]) -> list[dict[str, Any]]:
    """Mount the file system in memory and create a node for each device -> the commands, for the record."""
    options = f"size={CONTROL_BYTES},mode=700,nosuid,noexec"
    step = call("mount", "-t", "tmpfs", "-o", options, "iosonde", point)
    for node, device in zip(nodes(point, len(devices)), devices, strict=True):
        os.mknod(node, stat.S_IFBLK | 0o600, device.stat().st_rdev)
    return [step]


def nodes(point: Path, count: int) -> list[Path]:
    """The nodes of the devices, in the order of the object daemons."""
    return [point / f"osd-{number}" for number in range(count)]


def numbers(point: Path, count: int) -> list[str]:
    """The devices that the nodes lead to, once they exist."""
    return [number for node in nodes(point, count) if (number := number_of(node))]


def identity_of(own: str, number: int) -> str:
    """The identifier of an object daemon of a study, by which cleanup recognizes its device."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"iosonde:{own}/osd.{number}"))


def has_label_of(descriptor: int, own: str) -> bool:
    """Return True if an open device has the label of an object daemon of this study."""
    start = os.pread(descriptor, len(_LABEL) + 36, 0)
    known = {identity_of(own, number).encode() for number in range(256)}
    return start.startswith(_LABEL) and start[len(_LABEL) :] in known
