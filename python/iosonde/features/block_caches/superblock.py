"""Superblocks of bcache, read from a device (kernel `include/uapi/linux/bcache.h`, `struct cache_sb_disk`)."""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

OFFSET = 4096
MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_HEAD = struct.Struct("<QQQ16s16s16s32s")
"""Checksum, place, version, magic, UUID of the device, UUID of the cache set, label."""
_BACKING_VERSIONS = (1, 4, 6)


@dataclass(frozen=True, kw_only=True)
class Superblock:
    """Identity of a device of bcache."""

    device_uuid: str
    set_uuid: str
    """Of zeros on a backing device that was detached."""
    is_backing: bool


def read(device: Path) -> Superblock | None:
    """The superblock of a device; None without one, or if it cannot be read."""
    try:
        with device.open("rb") as file:
            file.seek(OFFSET)
            data = file.read(_HEAD.size)
    except OSError:
        return None
    return parse(data)


def read_open(descriptor: int) -> Superblock | None:
    """The superblock of an open device; None without one."""
    return parse(os.pread(descriptor, _HEAD.size, OFFSET))


def parse(data: bytes) -> Superblock | None:
    """The superblock in the bytes at `OFFSET`."""
    if len(data) < _HEAD.size:
        return None
    _, _, version, magic, device, cache_set, _ = _HEAD.unpack(data[: _HEAD.size])
    if magic != MAGIC:
        return None
    return Superblock(
        device_uuid=str(uuid.UUID(bytes=device)),
        set_uuid=str(uuid.UUID(bytes=cache_set)),
        is_backing=version in _BACKING_VERSIONS,
    )
