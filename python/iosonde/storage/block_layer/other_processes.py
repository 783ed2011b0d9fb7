"""Bytes that other processes wrote while they had a file open for writing on a device.

For writes that control groups do not attribute: the kernel counts what each process caused (`/proc/PID/io`), though not
on which device. What a process did after the last look before its exit is not known.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_PROC = Path("/proc")


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
    _writers: dict[int, int] = field(default_factory=dict)
    """Of those that had a file open for writing: bytes at the last look."""

    def look(self) -> None:
        """Read all processes."""
        written = self._written()
        if self._before is None:
            self._before = written
        for pid, count in written.items():
            if pid in self._writers or self._has_open(pid):
                self._writers[pid] = count

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
        for entry in _PROC.iterdir():
            if not entry.name.isdigit() or int(entry.name) in self.excluded:
                continue
            try:
                # Kernel threads have no executable: a loop device's thread does its users' I/O.
                (entry / "exe").readlink()
                found[int(entry.name)] = _write_bytes(entry / "io")
            except PermissionError:
                self.unreadable += 1
            except (OSError, ValueError):  # It has exited.
                continue
        return found

    def _has_open(self, pid: int) -> bool:
        directory = _PROC / str(pid) / "fd"
        with suppress(OSError):
            for each in directory.iterdir():
                with suppress(OSError, ValueError):
                    status = each.stat()
                    is_there = {_number(status.st_dev), _number(status.st_rdev)} & set(self.devices)
                    if is_there and _is_writable(directory.with_name("fdinfo") / each.name):
                        return True
        return False


def _write_bytes(file: Path) -> int:
    return next(
        int(line.split()[1])
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("write_bytes:")
    )


def _is_writable(fdinfo: Path) -> bool:
    flags = next(
        line.split()[1] for line in fdinfo.read_text(encoding="utf-8").splitlines() if line.startswith("flags:")
    )
    return int(flags, 8) & (os.O_WRONLY | os.O_RDWR) != 0


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"
