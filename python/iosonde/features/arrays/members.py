"""The devices that an array is built from: their sizes, and the removal of their superblocks."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.features.arrays.setup import ArraySetup
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of, opened_exclusively
from iosonde.storage.tools import patiently
from iosonde.units import format_bytes

SUPERBLOCK_BYTES = 4096
"""No superblock of md or btrfs is larger."""
NEARLY = 0.99
"""Members within this share of the largest count as equal: disks of one model differ by that."""


def check(devices: Sequence[Path], array: ArraySetup) -> list[int]:
    """Return the sizes of the members in bytes; `TargetError` if they are too small for a chunk."""
    sizes = [block_stack.size_bytes(number_of(device)) for device in devices]
    if array.kind == "md" and array.level != "raid1" and array.chunk > min(sizes) // 2:
        raise TargetError(
            f"a chunk of {format_bytes(array.chunk)} is too large for members of {format_bytes(min(sizes))}",
            where="by the parameter `chunk`",
            hint="set a smaller `chunk`, or name larger devices",
        )
    return sizes


def unequal(sizes: Sequence[int]) -> dict[str, Any]:
    """Facts about members of different size: how much of the larger ones is left unused."""
    smallest = min(sizes)
    if smallest >= NEARLY * max(sizes):
        return {}
    return {"unequal": {"smallest_bytes": smallest, "unused_bytes": sum(size - smallest for size in sizes)}}


def failing(devices: Sequence[Path], array: ArraySetup) -> list[Path]:
    """The members that are to fail: the last ones; of RAID 10 one of each of the last mirrors."""
    step = 2 if array.level == "raid10" else 1
    return [devices[-1 - step * number] for number in range(array.failed_members)]


def erase(device: Path, places: Callable[[int], Sequence[int]]) -> dict[str, Any]:
    """Zero the superblocks of ours on a device -> the step, for the record; `OSError` if it stays in use.

    `places` returns where an open device has them. It reads from the descriptor that is written, which has an exclusive
    claim, so no other device and no other user can get in between. A device without any is left alone.
    """
    began = time.monotonic()
    try:
        patiently(lambda: _zero(device, places))
    except TargetError as error:
        raise OSError(errno.EBUSY, error.what) from None
    return {
        "command": ["erase", "superblock", str(device)],
        "seconds": round(time.monotonic() - began, 3),
        "output": "",
    }


def _zero(device: Path, places: Callable[[int], Sequence[int]]) -> None:
    if not number_of(device):
        return  # It is gone.
    with opened_exclusively(device) as descriptor:
        for place in places(descriptor):
            os.pwrite(descriptor, bytes(SUPERBLOCK_BYTES), place)
        os.fsync(descriptor)
