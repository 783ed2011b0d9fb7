"""Counters of the kernel, of drives and of servers: over a whole run, and at the end of each interval of it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from iosonde.execution.context import RunContext, RunningServer
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.plan import target_of
from iosonde.protocol import Event
from iosonde.results.schema import STORE_STATISTICS
from iosonde.storage import nvme
from iosonde.storage.block_layer import block_stack
from iosonde.supervisor.account import device_counters
from iosonde.workload import described

COUNTERS = ("reads", "read_bytes", "writes", "write_bytes", "discard_bytes", "flushes")
"""Counters of a block device that a record has."""


class CounterSampler:
    """Counters that an instrument reads at the end of each interval, by name.

    They become rows of the table of statistics. Of the measurement also the first and the last reading are kept: it
    starts with the last reading before its first interval, because the engine does not report its start.
    """

    def __init__(
        self, run_id: str, read: Callable[[], dict[str, int]], *, prefix: str = "", hidden: Collection[str] = ()
    ) -> None:
        """Rows have names with `prefix`, without those of `hidden`. A reading without counters is left out."""
        self._run_id = run_id
        self._read = read
        self._prefix = prefix
        self._hidden = hidden
        self._latest: dict[str, int] = {}
        self.at_start: dict[str, int] = {}
        self.at_end: dict[str, int] = {}
        self.rows: list[dict[str, Any]] = []

    def read(self) -> dict[str, int]:
        """Read them before the load, or after a phase that is not measured."""
        self._latest = self._read() or self._latest
        return self._latest

    def interval(self, event: Event) -> dict[str, int]:
        """Read them at the end of an interval."""
        found = self._read()
        if event["phase"] == "measure":
            self.at_start = self.at_start or self._latest
            self.at_end = found or self.at_end
        self._latest = found or self._latest
        place = {"run_id": self._run_id, "phase": event["phase"], "interval": event["index"]}
        self.rows += [
            {**place, "end_ns": event["end_ns"], "statistic": f"{self._prefix}{name}", "value": value}
            for name, value in found.items()
            if name not in self._hidden
        ]
        return found

    def measured(self) -> dict[str, list[int]]:
        """Values of each statistic at the ends of the intervals of the measurement."""
        found: dict[str, list[int]] = {}
        for row in self.rows:
            if row["phase"] == "measure":
                found.setdefault(row["statistic"], []).append(row["value"])
        return found

    def table(self) -> pl.DataFrame:
        """The rows as a table."""
        return pl.DataFrame(self.rows, schema=STORE_STATISTICS)


def counters(device: str) -> dict[str, int]:
    """The kernel's counters of a block device since it appeared; empty if there are none."""
    found = device_counters(Path("/sys/dev/block", device))
    return {name: found[name] for name in COUNTERS if name in found}


def increase(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The increase of each counter that both readings have."""
    return {name: after[name] - before[name] for name in after if name in before}


class DeviceTotals(Instrument):
    """Counts the I/O of block devices over a whole run, until everything written has reached them.

    Intervals end with the measurement, and a store's pages may stay in memory long after it. So the kernel's counters
    are read before the engine starts, and again after it has exited and the file systems are synced.
    """

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return described(context.workload).io != "blocks"

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._devices: Sequence[str] = ()
        self._paths: Sequence[Path] = ()
        self._outermost: set[str | None] = set()
        self._before: dict[str, dict[str, int]] = {}

    def start(self) -> None:
        """Read them before the run."""
        spec = self.context.run.spec
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
                outermost = device in self._outermost
                totals.append({"device": device, "outermost": outermost, **increase(before, now)})
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


Counters = tuple[dict[str, Any], dict[str, int]]
"""Of a drive: its own (`storage/nvme.py`), and the kernel's."""


class DriveCounters(Instrument):
    """Reads media writes, wear and temperature of the drives at the bottom of the run's block devices.

    They are read before the engine starts and after it has exited, together with the kernel's counters: the difference
    gives the media write amplification, and shows whether drive and kernel count the same host writes.
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._before: dict[str, Counters] = {}

    def start(self) -> None:
        """Read them before the run."""
        devices = block_stack.drives(self.context.run.spec["observe"]["block_devices"])
        self._before = {device: _now(device) for device in devices}

    def stop(self, done: EngineRun) -> Reading:
        """Of each drive its counters at `begin` and `end`, and the kernel's bytes in between, where it counts them."""
        return Reading(facts={"drives": [_between(device, first) for device, first in self._before.items()]})


def _now(device: str) -> Counters:
    return nvme.now(block_stack.name_of(device)), counters(device)


def _between(device: str, before: Counters) -> dict[str, Any]:
    (own_before, host_before), (own_after, host_after) = before, _now(device)
    moved = increase(host_before, host_after)
    host: dict[str, Any] = {name: moved[name] for name in ("read_bytes", "write_bytes") if name in moved}
    return {"device": device, "name": block_stack.name_of(device), **host, "start": own_before, "end": own_after}


class Temperatures(Instrument):
    """Reads the kernel's sensors; the description of the target has the temperatures before the run."""

    def stop(self, done: EngineRun) -> Reading:
        """Read them."""
        return Reading(facts={"target_after": temperatures(self.context.target_facts)})


def temperatures(target: Mapping[str, Any]) -> dict[str, Any]:
    """Current temperatures of the devices in a target's description; empty where none has a sensor."""
    found = [
        {"name": device["name"], **temperature}
        for device in target.get("devices", [])
        # A simulated drive is unknown to the kernel.
        if device.get("kind") != "simulated" and (temperature := block_stack.temperature(device["device"]))
    ]
    return {"devices": found} if found else {}
