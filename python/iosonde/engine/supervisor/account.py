"""Resources that a command used: CPU time, faults and switches of its processes, and the counters of block devices.

CPU time is that of the control group in which iosonde put the supervisor, without the supervisor's own. Without such a
group, and for everything else, it is that of descendants that have ended (`getrusage(2)`).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

_GROUP = "iosonde-"
"""Prefix of iosonde's own control groups."""

_SECTOR_BYTES, _MS = 512, 1_000_000
_DEVICE = {
    "reads": (0, 1), "read_merges": (1, 1), "writes": (4, 1), "write_merges": (5, 1), "in_flight": (8, 1),
    "discards": (11, 1), "flushes": (15, 1),
    "read_bytes": (2, _SECTOR_BYTES), "write_bytes": (6, _SECTOR_BYTES), "discard_bytes": (13, _SECTOR_BYTES),
    "read_wait_ns": (3, _MS), "write_wait_ns": (7, _MS), "busy_ns": (9, _MS),
}  # fmt: skip
"""Position of each counter in the file `stat` of a device, and its unit (kernel `Documentation/block/stat.rst`)."""

Usage = dict[str, int]


class Account:
    """Readings at one moment; the difference of two is what happened between them."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = {device: sysfs_directory(device) for device in devices}
        self._cpu = group_cpu()

    @property
    def source(self) -> str:
        """Source of CPU time."""
        return "control group" if self._cpu else "ended processes"

    def read(self) -> tuple[Usage, dict[str, Usage]]:
        """Usage of the command's processes, and counters by device."""
        ended, own = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
        user_ns, system_ns = round(ended.ru_utime * 1e9), round(ended.ru_stime * 1e9)
        if self._cpu:
            user_ns, system_ns = self._cpu()
            user_ns, system_ns = user_ns - round(own.ru_utime * 1e9), system_ns - round(own.ru_stime * 1e9)
        process = {
            "wall_ns": time.monotonic_ns(),
            "user_ns": user_ns,
            "system_ns": system_ns,
            "voluntary_switches": ended.ru_nvcsw,
            "involuntary_switches": ended.ru_nivcsw,
            "minor_faults": ended.ru_minflt,
            "major_faults": ended.ru_majflt,
            "fs_inputs": ended.ru_inblock,
            "fs_outputs": ended.ru_oublock,
        }
        found = {device: device_counters(directory) for device, directory in self._devices.items()}
        # The protocol has all counters; an older kernel does not count discards and flushes.
        return process, {device: dict.fromkeys(_DEVICE, 0) | each for device, each in found.items() if each}


def between(before: Usage, after: Usage) -> Usage:
    """The increase of each counter."""
    return {name: max(0, value - before[name]) for name, value in after.items()}


def devices_between(before: dict[str, Usage], after: dict[str, Usage]) -> list[dict[str, int | str]]:
    """The increase of each device's counters; `in_flight` is that of the later reading."""
    return [
        {"device": device, **between(before[device], now), "in_flight": now["in_flight"]}
        for device, now in after.items()
        if device in before
    ]


def sysfs_directory(number: str, sysfs: Path = Path("/sys")) -> Path:
    """The directory of a block device (`major:minor`) in sysfs; for an unknown device, a path that does not exist.

    By reading one link, as this is asked for many times before each run. In containers Podman masks `/sys/dev/block`;
    `/sys/class/block` has the same devices by name.
    """
    by_number = sysfs / "dev/block"
    with suppress(OSError):
        return Path(os.path.normpath(by_number / (by_number / number).readlink()))
    for each in () if any(by_number.glob("*")) else sysfs.glob("class/block/*"):
        with suppress(OSError):
            if (each / "dev").read_text(encoding="ascii").strip() == number:
                return Path(os.path.normpath(each.parent / each.readlink()))
    return by_number / number


def device_counters(directory: Path) -> Usage:
    """The kernel's counters of a block device with this directory in sysfs; empty where it is gone."""
    try:
        values = [int(value) for value in (directory / "stat").read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return {}
    return {name: values[at] * unit for name, (at, unit) in _DEVICE.items() if at < len(values)}


NFS_SERVER = Path("/proc/net/rpc/nfsd")


def nfs_server_counters(table: Path = NFS_SERVER) -> dict[str, int]:
    """Bytes, calls and threads of the NFS server of this machine (kernel `fs/nfsd/stats.c`); empty without one."""
    with suppress(OSError, ValueError, IndexError, KeyError):
        lines = dict(line.partition(" ")[::2] for line in table.read_text(encoding="utf-8").splitlines())
        read, written = lines["io"].split()[:2]
        return {
            "nfsd_read_bytes": int(read),
            "nfsd_write_bytes": int(written),
            "nfsd_calls": int(lines["rpc"].split()[0]),
            "nfsd_threads": int(lines["th"].split()[0]),
        }
    return {}


def group_cpu() -> Callable[[], tuple[int, int]] | None:
    """Return a reader of user and system time of this process's own control group; None if it has none of its own."""
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not Path(path).name.startswith(_GROUP):
            continue
        for kind, controller, read in (("cgroup", "cpuacct", _cpu_of_version_1), ("cgroup2", "", _cpu_of_version_2)):
            mounted = _mounted(kind, controller) if controller in controllers.split(",") else None
            with suppress(OSError, KeyError, ValueError):
                if mounted:
                    reader = partial(read, mounted / path.lstrip("/"))
                    reader()
                    return reader
    return None


def _cpu_of_version_1(group: Path) -> tuple[int, int]:
    user_ns, system_ns = ((group / f"cpuacct.usage_{name}").read_text(encoding="utf-8") for name in ("user", "sys"))
    return int(user_ns), int(system_ns)


def _cpu_of_version_2(group: Path) -> tuple[int, int]:
    table = dict(line.split() for line in (group / "cpu.stat").read_text(encoding="utf-8").splitlines())
    return int(table["user_usec"]) * 1000, int(table["system_usec"]) * 1000


def _mounted(kind: str, controller: str) -> Path | None:
    """Mount point of a hierarchy."""
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        found, _, options = after.split(" ", 2)
        if found == kind and (not controller or controller in options.split(",")):
            return Path(before.split()[4])
    return None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
