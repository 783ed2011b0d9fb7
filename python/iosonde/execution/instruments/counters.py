"""Counters of the kernel, of drives and of servers: over a whole run, and at the end of each interval of it.

The engine's own bytes on block devices are counted separately, so that I/O of other processes is recognized. The
engine runs in a control group of its own (`storage/control_groups.py`). Device and group are read together
before the engine starts, before and after the measurement, and after the run. What the kernel does not attribute to the
group is bounded by what other processes with files on the device wrote (`control_groups.OtherProcesses`), and
by what remains of the device's bytes after those that the engine dirtied.

A group counts an I/O when it is submitted, a device when it completes. What block I/O has in flight before the
measurement is therefore counted by the device in the measurement, and by the group before it. As much as can be in
flight counts as the engine's own, so bytes of other processes are a lower bound.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from iosonde.engine.protocol import Event
from iosonde.engine.supervisor.account import device_counters, sysfs_directory
from iosonde.execution.admission import places_of
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.results.schema import STORE_STATISTICS
from iosonde.storage import control_groups, nvme
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.mounts import mount_of
from iosonde.storage.control_groups import Bytes, Group, OtherProcesses, UnavailableError
from iosonde.study.workload import described

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
    found = device_counters(sysfs_directory(device))
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

    def start(self) -> None:
        """Read them before the run."""
        self._paths = list(directories_of(self.context).values())
        self._outermost = {device_of(path) for path in self._paths}
        devices: Sequence[str] = self.context.run.spec["observe"]["block_devices"]
        self._before = {device: counters(device) for device in devices}

    def stop(self, done: EngineRun) -> Reading:
        """Sync, and read the difference; devices without counters are left out.

        `outermost` marks the devices that hold the run's directories, or are its target: others are below them.
        """
        for path in self._paths:
            sync(path)
        totals = []
        for device, before in self._before.items():
            now = counters(device)
            if before and now:
                outermost = device in self._outermost
                totals.append({"device": device, "outermost": outermost, **increase(before, now)})
        return Reading(facts={"device_totals": totals})


def directories_of(context: RunContext) -> Mapping[str, Path]:
    """Directories of the run's database, of its log and of its read cache, in this process or of a server."""
    if context.server is None:
        return places_of(context.workload)
    if context.server.instance is None:
        return {}
    found = context.server.instance.directories
    return {"data": found.run, **({"log": found.log} if found.log else {})}


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


class DriveCounters(Instrument):
    """Reads media writes, wear and temperature of the drives at the bottom of the run's block devices.

    They are read before the engine starts and after it has exited, together with the kernel's counters: the difference
    gives the media write amplification, and shows whether drive and kernel count the same host writes.
    """

    def start(self) -> None:
        """Read them before the run."""
        devices = block_stack.drives(self.context.run.spec["observe"]["block_devices"])
        self._before = {device: (nvme.now(block_stack.name_of(device)), counters(device)) for device in devices}

    def stop(self, done: EngineRun) -> Reading:
        """Of each drive its counters at `begin` and `end`, and the kernel's bytes in between, where it counts them."""
        drives = []
        for device, (own, host) in self._before.items():
            name = block_stack.name_of(device)
            end, moved = nvme.now(name), increase(host, counters(device))
            moved = {counter: moved[counter] for counter in ("read_bytes", "write_bytes") if counter in moved}
            drives.append({"device": device, "name": name, **moved, "start": own, "end": end})
        return Reading(facts={"drives": drives})


def temperatures(target: Mapping[str, Any]) -> dict[str, Any]:
    """Current temperatures of the devices in a target's description; empty where none has a sensor."""
    found = [
        {"name": device["name"], **temperature}
        for device in target.get("devices", [])
        # A simulated drive is unknown to the kernel.
        if device.get("kind") != "simulated" and (temperature := block_stack.temperature(device["device"]))
    ]
    return {"devices": found} if found else {}


LOOK_SECONDS = 1.0
"""Least time between two looks at other processes."""
LOOK_SHARE = 0.002
"""Largest share of a CPU for looks: with thousands of processes each takes long, and there are fewer."""
FS_OUTPUT_BYTES = 512

Sample = Mapping[str, tuple[Bytes, Bytes, Bytes]]
"""By device: its bytes, the engine's own, and the most that the engine may have in flight."""


class OwnIo(Instrument):
    """Counts the engine's own I/O on the devices that hold its target."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return bool(_outermost(context.run.spec))

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._devices = _outermost(context.run.spec)
        self._group: Group | None = None
        self._memory_group: Path | None = None
        """The group of the memory limit, which the engine has joined by its first event."""
        self._reason = ""
        self._pid = 0
        self._samples: dict[str, Sample] = {}
        self._others = OtherProcesses(devices=self._devices)
        self._next_look = 0.0
        self._of_load = _in_flight(context.workload)
        self._in_flight: Bytes = 0, 0
        self._is_measured = False

    def start(self) -> None:
        """Create the group."""
        try:
            # Under version 2 a process has one group, and a memory limit brings its own.
            if not (control_groups.io_hierarchy().version == 2 and self.context.parameters.get("memory_limit")):
                self._group = control_groups.io_group(self._devices)
        except UnavailableError as error:
            self._reason = str(error)
        self._look()

    def engine_started(self, pid: int) -> None:
        """Move the engine into the group while it waits for its spec."""
        self._pid = pid
        self._others.excluded.add(pid)
        if self._group:
            self._group.add(pid)

    def event(self, event: Event) -> None:
        """Read at the start and at the end of the measurement, as far as events show them."""
        if event["event"] not in ("hello", "phase", "interval", "result"):
            return
        if event["event"] != "hello":
            self._in_flight = self._of_load
        if event.get("phase") == "measure":
            self._is_measured = True
        elif not self._is_measured and event["event"] != "result":
            self._samples["started"] = self._sample()  # The last one before the measurement counts.
        else:
            self._samples.setdefault("measured", self._sample())
        if time.monotonic() >= self._next_look:
            self._look()

    def stop(self, done: EngineRun) -> Reading:
        """The differences; facts without numbers where the kernel has none."""
        if "measured" not in self._samples:
            return Reading()
        self._look()
        others = {
            "are_present": self._others.are_present,
            "write_bytes": self._others.written_bytes,
            "unreadable": self._others.unreadable,
        }
        facts: dict[str, Any] = {
            "version": self._version,
            "reason": self._reason,
            "run": _differences(self._samples["started"], self._sample()),
            "measure": _differences(self._samples["started"], self._samples["measured"]),
            "others": others,
            "dirtied_bytes": done.child["fs_outputs"] * FS_OUTPUT_BYTES,
        }
        return Reading(facts={"own_io": facts})

    def _look(self) -> None:
        begin = time.monotonic()
        self._others.look()
        now = time.monotonic()
        self._next_look = now + max(LOOK_SECONDS, (now - begin) / LOOK_SHARE)

    def close(self) -> None:
        """Remove the group."""
        if self._group:
            self._group.remove()

    @property
    def _version(self) -> int | None:
        if self._group:
            return self._group.version
        return None if self._reason else 2

    def _sample(self) -> Sample:
        # The group first: an I/O that is submitted or completes in between is not taken for one of another process.
        own = self._own()
        return {
            device: (
                (now["read_bytes"], now["write_bytes"]),
                own.get(block_stack.disk_of(device), (0, 0)),
                self._in_flight,
            )
            for device in self._devices
            if (now := counters(device))
        }

    def _own(self) -> dict[str, Bytes]:
        if self._group:
            return self._group.bytes()
        if self._reason:
            return {}
        self._memory_group = self._memory_group or control_groups.group_of(self._pid)
        return control_groups.counted(self._memory_group, 2) if self._memory_group else {}


def _outermost(spec: Mapping[str, Any]) -> list[str]:
    """The watched devices that hold the target's files, or are the target; none whose I/O is that of a FUSE daemon."""
    if described(spec["workload"]).server(spec["workload"]):
        return []  # Servers do their I/O in processes of their own.
    watched = spec["observe"]["block_devices"]
    own = [path for path in places_of(spec["workload"]).values() if not _is_on_fuse(path)]
    return [device for device in dict.fromkeys(map(device_of, own)) if device is not None and device in watched]


def _is_on_fuse(path: Path) -> bool:
    """Return True if it is on a FUSE file system; one that does not exist yet by its nearest existing parent."""
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    mount = mount_of(existing)
    return mount is not None and mount.is_fuse


def _in_flight(workload: Mapping[str, Any]) -> Bytes:
    """Most bytes that block I/O has in flight, reads and writes; none of loads of which that is not known."""
    if described(workload).io != "blocks":
        return 0, 0
    reads = writes = 0
    for stream in workload["streams"]:
        most = stream["jobs"] * stream["queue_depth"] * max(size["bytes"] for size in stream["block_sizes"])
        reads += most if stream["mix"]["read_fraction"] > 0 else 0
        writes += most if stream["mix"]["read_fraction"] < 1 else 0
    return reads, writes


def _differences(before: Sample, after: Sample) -> list[dict[str, Any]]:
    rows = []
    for device in [each for each in before if each in after]:
        (whole, own, in_flight), (whole_after, own_after, _) = before[device], after[device]
        reads, writes = (end - start for start, end in zip(whole, whole_after, strict=True))
        own_reads, own_writes = (end - start + more for start, end, more in zip(own, own_after, in_flight, strict=True))
        rows.append(
            {
                "device": device,
                "read_bytes": reads,
                "write_bytes": writes,
                "own_read_bytes": min(own_reads, reads),
                "own_write_bytes": min(own_writes, writes),
            }
        )
    return rows
