"""I/O of block devices over a whole run, until everything written has reached them.

Intervals end with the measurement, and a store's pages may stay in memory long after it. So the kernel's counters are
read before the engine starts, and again after it has exited and the file systems are synced.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.execution.context import RunContext, RunningServer
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.plan import target_of
from iosonde.workload import described

SECTOR_BYTES = 512

COUNTERS = {"reads": 0, "read_bytes": 2, "writes": 4, "write_bytes": 6, "discard_bytes": 13, "flushes": 15}
"""Position in `/sys/dev/block/*/stat` (kernel `Documentation/block/stat.rst`); the kernel counts bytes in sectors."""


class DeviceTotals(Instrument):
    """Reads the kernel's counters around runs of key-value workloads."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._devices: Sequence[str] = ()
        self._paths: Sequence[Path] = ()
        self._outermost: set[str | None] = set()
        self._before: dict[str, dict[str, int]] = {}

    def start(self) -> None:
        """Read them before the run."""
        spec = self.context.run.spec
        if described(spec["workload"]).io == "blocks":
            return
        self._devices = spec["observe"]["block_devices"]
        self._paths = _directories(spec["workload"], self.context.server)
        self._outermost = {device_of(path) for path in self._paths}
        self._before = {device: counters(device) for device in self._devices}

    def stop(self, done: EngineRun) -> Reading:
        """Sync, and read the difference; devices without counters are left out.

        `outermost` marks the devices that hold the run's directories, or are its target: others are below them.
        """
        for path in self._paths:
            sync(path)
        totals = []
        for device in self._devices:
            before, now = self._before[device], counters(device)
            if before and now:
                moved = {name: now[name] - before[name] for name in now if name in before}
                totals.append({"device": device, "outermost": device in self._outermost, **moved})
        return Reading(facts={"device_totals": totals})


def _directories(workload: Mapping[str, Any], server: RunningServer | None) -> list[Path]:
    """Directories of the run's database, of its log and of its read cache."""
    if server is not None:
        found = server.instance.directories if server.instance else None
        return [path for path in (found.run, found.log) if path] if found else []
    target = target_of(workload)
    cache = target.get("read_cache") or {}
    paths = (target.get("path"), target.get("log_path"), cache.get("path"))
    return [Path(path) for path in paths if path]


def device_of(path: Path) -> str | None:
    """`major:minor` of a device node, or of the device that holds a directory; None if there is none.

    A directory that does not exist yet is looked up by its nearest existing parent.
    """
    existing = next((each for each in (path, *path.parents) if each.exists()), None)
    if existing is None:
        return None
    status = existing.stat()
    number = status.st_rdev if existing.is_block_device() else status.st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def sync(path: Path) -> None:
    """Write back the file system that holds a directory (syncfs(2)), or a block device."""
    with suppress(OSError):
        opened = os.open(path, os.O_RDONLY)
        try:
            if path.is_block_device():
                os.fsync(opened)
            else:
                ctypes.CDLL(None, use_errno=True).syncfs(opened)
        finally:
            os.close(opened)


def counters(device: str) -> dict[str, int]:
    """The kernel's counters of a block device since it appeared; empty if there are none."""
    try:
        fields = [int(field) for field in Path(f"/sys/dev/block/{device}/stat").read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return {}
    return {
        name: fields[position] * (SECTOR_BYTES if name.endswith("bytes") else 1)
        for name, position in COUNTERS.items()
        if position < len(fields)
    }
