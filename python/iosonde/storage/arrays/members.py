"""The devices that an array is built from: enough, each once, and what it means that their sizes differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Setup
from iosonde.storage import block_stack
from iosonde.units import format_bytes

FEWEST = {"single": 1, "raid0": 1, "raid1": 2, "raid10": 2, "raid5": 2, "raid6": 4}
"""What the kernel takes at least."""
NEARLY = 0.99
"""Members within this share of the largest count as equal: disks of one model differ by that."""


def check(devices: Sequence[Path], setup: Setup) -> list[int]:
    """Sizes of the members in bytes; `TargetError` where they make no such array."""
    numbers = [_number(device) for device in devices]
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


def _number(device: Path) -> str:
    import os

    number = device.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"
