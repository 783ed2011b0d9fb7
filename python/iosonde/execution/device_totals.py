"""What block devices did in the course of a whole run, until everything that was written had reached them.

Intervals end with the measurement, and a store's pages may wait in memory long after it; so the kernel's counters are
read before the engine starts, and again when it has ended and the file systems are synced.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SECTOR_BYTES = 512

COUNTERS = {"reads": 0, "read_bytes": 2, "writes": 4, "write_bytes": 6, "discard_bytes": 13, "flushes": 15}
"""Position in `/sys/dev/block/*/stat` (kernel `Documentation/block/stat.rst`); bytes are told in sectors."""


class DeviceTotals:
    """The counters of a run's devices, from here to `end`."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._devices: Sequence[str] = spec["observe"]["block_devices"]
        target = spec["workload"]["target"]
        self._places = [Path(target[name]) for name in ("path", "log_path") if target.get(name)]
        self._outermost = {_device_of(place) for place in self._places}
        self._begin = {device: counters(device) for device in self._devices}

    def end(self) -> list[dict[str, Any]]:
        """What each device did since; devices that tell nothing are left out.

        `outermost` are those that the run's directories lie on, or that are its target: others are under them.
        """
        for place in self._places:
            sync(place)
        found = []
        for device in self._devices:
            begin, now = self._begin[device], counters(device)
            if begin and now:
                moved = {name: now[name] - begin[name] for name in now if name in begin}
                found.append({"device": device, "outermost": device in self._outermost, **moved})
        return found


def _device_of(place: Path) -> str | None:
    """`major:minor` of the block device that a directory lies on, or that a device node is; None where there is none.

    Directories that are yet to be made lie where the first of their parents does that is there.
    """
    there = next((each for each in (place, *place.parents) if each.exists()), None)
    if there is None:
        return None
    found = there.stat()
    number = found.st_rdev if there.is_block_device() else found.st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def sync(place: Path) -> None:
    """Write back everything of the file system that a directory lies on (syncfs(2)), or of a block device."""
    with suppress(OSError):
        opened = os.open(place, os.O_RDONLY)
        try:
            if place.is_block_device():
                os.fsync(opened)
            else:
                ctypes.CDLL(None, use_errno=True).syncfs(opened)
        finally:
            os.close(opened)


def counters(device: str) -> dict[str, int]:
    """What the kernel counted of a block device since it is there; nothing where it does not tell."""
    try:
        fields = [int(field) for field in Path(f"/sys/dev/block/{device}/stat").read_text().split()]
    except (OSError, ValueError):
        return {}
    return {
        name: fields[position] * (SECTOR_BYTES if name.endswith("bytes") else 1)
        for name, position in COUNTERS.items()
        if position < len(fields)
    }
