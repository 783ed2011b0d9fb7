"""The engine's own bytes on each device, so that I/O of other processes is recognized.

The engine runs in a control group of its own (`storage/control_groups.py`). Device and group are read together
before the engine starts, before and after the measurement, and after the run. What the kernel does not attribute to the
group is bounded by what other processes with files on the device wrote (`control_groups.OtherProcesses`), and
by what remains of the device's bytes after those that the engine dirtied.

A group counts an I/O when it is submitted, a device when it completes. What block I/O has in flight before the
measurement is therefore counted by the device in the measurement, and by the group before it. As much as can be in
flight counts as the engine's own, so bytes of other processes are a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.counters import counters, device_of
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.protocol import Event
from iosonde.storage import control_groups
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.mounts import mount_of
from iosonde.storage.control_groups import Bytes, Group, OtherProcesses, UnavailableError
from iosonde.workload import described

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
        group = None if self._reason else self._memory_group
        return control_groups.counted(group, 2) if group else {}

    @property
    def _memory_group(self) -> Path | None:
        """The group of the memory limit, which the engine has joined by its first event."""
        self._joined: Path | None = getattr(self, "_joined", None) or control_groups.group_of(self._pid)
        return self._joined


def _outermost(spec: Mapping[str, Any]) -> list[str]:
    """The watched devices that hold the target's files, or are the target; none whose I/O is that of a FUSE daemon."""
    if described(spec["workload"]).server(spec["workload"]):
        return []
    target = spec["workload"].get("target") or {}  # Servers do their I/O in processes of their own.
    paths = [Path(target[name]) for name in ("path", "directory", "log_path") if target.get(name)]
    paths += [Path(target["read_cache"]["path"])] if target.get("read_cache") else []
    watched = spec["observe"]["block_devices"]
    own = [path for path in paths if not _is_on_fuse(path)]
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
