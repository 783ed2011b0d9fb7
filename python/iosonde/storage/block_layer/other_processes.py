"""Bytes that other processes wrote while they had a file open for writing on a device.

For writes that control groups do not attribute: the kernel counts what each process caused (`/proc/PID/io`), though not
on which device. What a process did after the last look before its exit is not known.
"""
# ruff: noqa: PTH115, PTH116, PTH123, PTH208
# A look during a measurement must be short, and `pathlib` takes several times as long.

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

_PROC = "/proc"


@dataclass(kw_only=True)
class OtherProcesses:
    """Processes other than this one and the engine, from the first look to the last."""

    devices: Collection[str]
    """By `major:minor`, of device nodes and of file systems."""
    excluded: set[int] = field(default_factory=lambda: {os.getpid()})
    unreadable: int = 0
    """Processes that could not be read at the last look."""
    _before: dict[int, int] | None = None
    """Bytes that each process had written at the first look."""
    _seen: dict[int, int] = field(default_factory=dict)
    """The same at the last look."""
    _writers: dict[int, int] = field(default_factory=dict)
    """Of those that had a file open for writing: bytes at the last look."""

    def look(self) -> None:
        """Read all processes; the files of one only if it is new or has written since the last look."""
        written = self._written()
        if self._before is None:
            self._before = written
        for pid, count in written.items():
            if pid in self._writers or (count != self._seen.get(pid) and self._has_open(pid)):
                self._writers[pid] = count
        self._seen = written

    @property
    def are_present(self) -> bool:
        """Return True if any process had a file open for writing on the devices."""
        return bool(self._writers)

    @property
    def written_bytes(self) -> int:
        """Bytes that these wrote between the first look and the last, on any device."""
        before = self._before or {}
        return sum(count - before.get(pid, 0) for pid, count in self._writers.items())

    def _written(self) -> dict[int, int]:
        found: dict[int, int] = {}
        self.unreadable = 0
        for name in os.listdir(_PROC):
            if not name.isdigit() or int(name) in self.excluded:
                continue
            try:
                # Kernel threads have no executable: a loop device's thread does its users' I/O.
                os.readlink(f"{_PROC}/{name}/exe")
                found[int(name)] = int(_field(f"{_PROC}/{name}/io", "write_bytes:"))
            except PermissionError:
                self.unreadable += 1
            except (OSError, ValueError):  # It has exited.
                continue
        return found

    def _has_open(self, pid: int) -> bool:
        directory, devices = f"{_PROC}/{pid}", set(self.devices)
        with suppress(OSError):
            for each in os.listdir(f"{directory}/fd"):
                with suppress(OSError, ValueError):
                    status = os.stat(f"{directory}/fd/{each}")
                    is_there = {_number(status.st_dev), _number(status.st_rdev)} & devices
                    if is_there and _is_writable(f"{directory}/fdinfo/{each}"):
                        return True
        return False


def _field(file: str, name: str) -> str:
    """The value of a line of a file in `/proc`."""
    with open(file, encoding="utf-8") as lines:
        return next(line.split()[1] for line in lines if line.startswith(name))


def _is_writable(fdinfo: str) -> bool:
    return int(_field(fdinfo, "flags:"), 8) & (os.O_WRONLY | os.O_RDWR) != 0


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"
