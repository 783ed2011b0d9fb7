"""A control group around a server: its CPU time, memory and I/O, accounted apart from the client's.

In version 2 it is one group; in version 1 one per controller (cpuacct, blkio and memory). The memory limit covers the
server's own cache and the page cache together. Groups are noted in the journal before they are created
(`control_group.py`). Buffered writes are charged to the group in version 2 only; version 1 counts them for the kernel's
flusher threads.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.control_groups import control_group
from iosonde.storage.control_groups.control_group import MemoryGroup
from iosonde.storage.control_groups.io_group import group_of
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import OWN_DIRECTORY


@dataclass(kw_only=True)
class ProcessGroup:
    """The control groups of one server, from `make` to `remove`."""

    memory: MemoryGroup | None = None
    cpu: Path | None = None
    """Version 1: group of the controller cpuacct."""
    io: Path | None = None
    """Version 1: group of the controller blkio."""
    unified: Path | None = None
    """Version 2: the group."""

    @classmethod
    def make(cls, limit_bytes: int | None, *, swap_bytes: int = 0) -> ProcessGroup:
        """Create what this machine permits; a memory limit that is not possible is a `TargetError`.

        `swap_bytes` is how much swap the processes may use beyond the limit.
        """
        group = cls()
        try:
            if limit_bytes:
                group.memory = MemoryGroup.make(limit_bytes, swap_bytes=swap_bytes)
            if limit_bytes and control_group.hierarchy().version == 2:
                group.unified = group.memory.path if group.memory else None
            else:
                group.cpu, group.io = _create("cpuacct"), _create("blkio")
                group.unified = None if group.cpu else _create_unified()
        except BaseException:
            group.remove()
            raise
        return group

    @classmethod
    def for_cpu_time(cls, pid: int) -> ProcessGroup:
        """Groups that account for the CPU time of a process and its children, besides those that it is in already.

        In version 2 a process has one group, which is used as it is if it is iosonde's own.
        """
        group = cls(cpu=_create("cpuacct"))
        own = group_of(pid)
        if group.cpu is None and not (own and OWN_DIRECTORY.fullmatch(own.name)):
            group.unified = _create_unified()
        try:
            group.add(pid)
        except OSError:
            group.remove()
            raise
        return group

    def add(self, pid: int) -> None:
        """Move a process into the groups; its children will be in them too."""
        if self.memory:
            self.memory.add(pid)
        for path in {self.cpu, self.io, self.unified} - {None}:
            assert path is not None
            (path / "cgroup.procs").write_text(str(pid), encoding="utf-8")

    def facts(self) -> dict[str, Any]:
        """CPU time in ns, bytes and operations of each block device, and memory; None for what is not accounted."""
        return {
            "cpu_ns": self.cpu_ns(),
            "system_cpu_ns": self.system_cpu_ns(),
            "devices": self._devices(),
            "memory": self.memory.facts() if self.memory else None,
        }

    def cpu_ns(self) -> int | None:
        """CPU time that its processes have used, in user and kernel mode."""
        if self.cpu:
            return control_group.read_number(self.cpu / "cpuacct.usage")
        if self.unified:
            usage = control_group.read_table(self.unified / "cpu.stat").get("usage_usec")
            return None if usage is None else usage * 1000
        return None

    def system_cpu_ns(self) -> int | None:
        """The part of it in kernel mode; None where the kernel does not report it."""
        if self.cpu:
            return control_group.read_number(self.cpu / "cpuacct.usage_sys")
        if self.unified:
            usage = control_group.read_table(self.unified / "cpu.stat").get("system_usec")
            return None if usage is None else usage * 1000
        return None

    def kill(self) -> None:
        """Kill every process in the groups."""
        for path in {self.cpu, self.io, self.unified} - {None}:
            assert path is not None
            control_group.kill_members(path)

    def remove(self) -> None:
        """Remove the groups; may be called again."""
        for path in {self.cpu, self.io, self.unified} - {None}:
            assert path is not None
            if self.memory is None or path != self.memory.path:
                with suppress(FileNotFoundError):
                    control_group.remove_group(path)
                journal.removed(path)
        if self.memory:
            self.memory.remove()
        self.memory = self.cpu = self.io = self.unified = None

    def _devices(self) -> list[dict[str, Any]]:
        if self.unified:
            return control_group.io_of_devices(self.unified / "io.stat")
        return _throttled(self.io) if self.io else []


def _throttled(group: Path) -> list[dict[str, Any]]:
    """Lines of `MAJOR:MINOR Read N` in version 1."""
    found: dict[str, dict[str, Any]] = {}
    for line in control_group.read_lines(group / "blkio.throttle.io_service_bytes"):
        words = line.split()
        if len(words) == 3 and words[1] in ("Read", "Write"):
            counts = found.setdefault(words[0], {"device": words[0], "read_bytes": 0, "write_bytes": 0})
            counts["read_bytes" if words[1] == "Read" else "write_bytes"] = int(words[2])
    return list(found.values())


def _create(controller: str) -> Path | None:
    """A new group of a version 1 controller; None where there is none that this user may use."""
    for mount in mounts():
        if mount.kind == "cgroup" and controller in mount.options:
            return _create_in(Path(mount.point))
    return None


def _create_unified() -> Path | None:
    """A new group of version 2, where that accounts for CPU time."""
    for mount in mounts():
        if mount.kind == "cgroup2" and "cpu" in control_group.read_words(Path(mount.point, "cgroup.controllers")):
            return _create_in(Path(mount.point))
    return None


def _create_in(parent: Path) -> Path | None:
    if not os.access(parent, os.W_OK):
        return None
    path = parent / f"iosonde-{secrets.token_hex(4)}"
    journal.created(path, journal.CONTROL_GROUP)
    try:
        path.mkdir()
    except OSError as error:
        journal.removed(path)
        if isinstance(error, FileExistsError):
            raise TargetError(f"cannot create the control group `{path}`: {error.strerror}") from error
        return None
    journal.identify(path)
    return path
