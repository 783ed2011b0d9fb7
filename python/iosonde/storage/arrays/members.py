"""The devices that an array is built from: enough, each once, their sizes, and the removal of their superblocks."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Setup
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of, opened_exclusively
from iosonde.units import format_bytes

FEWEST = {"single": 1, "raid0": 1, "raid1": 2, "raid10": 2, "raid5": 2, "raid6": 4}
"""What the kernel takes at least."""
SUPERBLOCK_BYTES = 4096
"""No superblock of md or btrfs is larger."""
BUSY_S = 10.0
NEARLY = 0.99
"""Members within this share of the largest count as equal: disks of one model differ by that."""


def check(devices: Sequence[Path], setup: Setup) -> list[int]:
    """Sizes of the members in bytes; `TargetError` where they make no such array."""
    numbers = [number_of(device) for device in devices]
    for index, number in enumerate(numbers):
        if number in numbers[:index]:
            other = devices[numbers.index(number)]
            raise TargetError(
                f"`{devices[index]}` and `{other}` are the same device, and an array needs different ones",
                hint="name each device once, whatever its names (`ls -l /dev/disk/by-id`)",
            )
    if len(devices) < max(setup.devices, FEWEST[setup.array]):
        raise TargetError(
            f"{setup.text} needs {max(setup.devices, FEWEST[setup.array])} devices, and there are {len(devices)}",
            hint="name more devices as the target, or lower `devices`",
        )
    sizes = [block_stack.size_bytes(number) for number in numbers]
    if setup.array_kind == "md" and setup.array != "raid1" and setup.chunk > min(sizes) // 2:
        raise TargetError(
            f"a chunk of {format_bytes(setup.chunk)} is too large for members of {format_bytes(min(sizes))}",
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


def failing(devices: Sequence[Path], setup: Setup) -> list[Path]:
    """The members that are to fail: the last ones; of RAID 10 one of each of the last mirrors."""
    count = setup.failed_members if setup.array_state in ("degraded", "rebuilding") else 0
    step = 2 if setup.array == "raid10" else 1
    return [devices[-1 - step * number] for number in range(count)]


def erase(device: Path, places: Callable[[int], Sequence[int]]) -> dict[str, Any]:
    """Zero the superblocks of ours on a device -> the step, for the record; `OSError` if it stays in use.

    `places` returns where an open device has them. It reads from the descriptor that is written, which has an exclusive
    claim, so no other device and no other user can get in between. A device without any is left alone.
    """
    began = time.monotonic()
    while number_of(device):  # Otherwise it is gone.
        try:
            with opened_exclusively(device) as descriptor:
                for place in places(descriptor):
                    os.pwrite(descriptor, bytes(SUPERBLOCK_BYTES), place)
                os.fsync(descriptor)
            break
        except TargetError as error:  # A process that has just exited keeps the device busy for a moment.
            if time.monotonic() > began + BUSY_S:
                raise OSError(errno.EBUSY, error.what) from None
            time.sleep(0.1)
    return {
        "command": ["erase", "superblock", str(device)],
        "seconds": round(time.monotonic() - began, 3),
        "output": "",
    }
