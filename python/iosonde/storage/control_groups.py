"""Control groups around engines and servers, of version 1 or 2: limits on memory, accounts of memory, CPU time and I/O.

The page cache is charged to a group with a memory limit. What the kernel counts in it is the proof that a database
larger than the limit was read from the device and not from memory (kernel
`Documentation/admin-guide/cgroup-v1/memory.rst`, `cgroup-v2.rst`). Every group is noted in the journal before it is
created, so that `iosonde cleanup` finds it after a crash.

I/O is counted per block device. Version 1 (`blkio.throttle.io_service_bytes`) attributes an I/O to the process that
submits it: reads, direct writes, and pages that a process writes back itself (fsync(2)), but not what the kernel writes
back in the background. Version 2 (`io.stat`) attributes that too, on ext4, XFS and btrfs. Neither attributes a file
system's journal (`cgroup-v1/blkio-controller.rst`).
"""

# ruff: noqa: PTH115, PTH116, PTH123, PTH208
# A look at other processes during a measurement must be short, and `pathlib` takes several times as long.

from __future__ import annotations

import errno
import os
import secrets
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import device_number, read
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import OWN_DIRECTORY

KILL_S = 5.0
"""Time that the processes of a group may take to end after SIGKILL."""

STATISTICS = {
    1: ("cache", "rss", "mapped_file", "swap", "pgpgin", "pgpgout", "pgfault", "pgmajfault"),
    2: (
        *("file", "anon", "file_mapped", "pgfault", "pgmajfault", "workingset_refault_file", "pgscan", "pgsteal"),
        *("pswpin", "pswpout", "zswpin", "zswpout"),
    ),
}
"""Lines of `memory.stat` that are kept, by version."""

Bytes = tuple[int, int]
"""Bytes read and bytes written."""


@dataclass(frozen=True, kw_only=True)
class Hierarchy:
    """A hierarchy with a controller on this machine."""

    directory: Path
    version: int


class UnavailableError(Exception):
    """I/O cannot be attributed to the engine; the message explains it."""


class Group:
    """A new control group of iosonde's own in a hierarchy; the journal has it before `create`."""

    def __init__(self, within: Hierarchy) -> None:
        self.path = within.directory / f"iosonde-{secrets.token_hex(4)}"
        self.version = within.version
        journal.created(self.path, journal.CONTROL_GROUP)

    def create(self, *, needed: str = "") -> None:
        """Create it, in version 2 with the controllers of memory and I/O; `OSError` without the one that is needed.

        Together they attribute background writeback.
        """
        if self.version == 2 and needed:
            control = self.path.parent / "cgroup.subtree_control"
            offered, enabled = _read_words(self.path.parent / "cgroup.controllers"), _read_words(control)
            for controller in ("io", "memory"):
                if controller in offered and controller not in enabled:
                    with suppress(*([] if controller == needed else [OSError])):
                        _write(control, f"+{controller}")
        self.path.mkdir()
        journal.identify(self.path)

    def add(self, pid: int) -> None:
        """Move a process into the group; its children will be in it too."""
        _write(self.path / "cgroup.procs", str(pid))

    def bytes(self) -> dict[str, Bytes]:
        """Return the bytes that the group has read and written, by disk."""
        return counted(self.path, self.version)

    def devices(self) -> list[dict[str, Any]]:
        """The same as facts for the record."""
        found = self.bytes().items()
        return [{"device": device, "read_bytes": reads, "write_bytes": writes} for device, (reads, writes) in found]

    def remove(self) -> None:
        """Remove the group with the processes that are still in it."""
        with suppress(FileNotFoundError):
            remove_group(self.path)
        journal.removed(self.path)


class MemoryGroup(Group):
    """A control group with a limit, from `make` to `remove`."""

    def __init__(self, within: Hierarchy, limit_bytes: int, swap_bytes: int) -> None:
        super().__init__(within)
        self._limit_bytes = limit_bytes
        self._swap_bytes = swap_bytes
        self._notified: int | None = None
        self._notifications = 0
        self._limit_file, self._swap_file = (self.path / name for name in _LIMIT_FILES[self.version])

    @classmethod
    def make(cls, limit_bytes: int, *, within: Hierarchy | None = None, swap_bytes: int = 0) -> MemoryGroup:
        """Make a group with that limit on memory, and with this limit on swap beyond it."""
        within = within or hierarchy()
        group = cls(within, limit_bytes, swap_bytes)
        try:
            group.create(needed="memory")
            group._limit()
            if within.version == 1:
                group._count_reclaims()
        except OSError as error:
            group.remove()
            raise TargetError(
                f"cannot limit memory to {limit_bytes} bytes in `{group.path}`: {error.strerror}",
                hint=_way_out(error),
            ) from error
        return group

    def facts(self) -> dict[str, Any]:
        """Counters of the kernel: limits in effect, the peak, how often the limit was met, kills, and `memory.stat`.

        `devices` has the bytes that the group read from and wrote to each block device (`io.stat`), if reported.
        """
        peak, kills, swap_peak = ("memory.max_usage_in_bytes", "memory.oom_control", "memory.memsw.max_usage_in_bytes")
        if self.version == 2:
            peak, kills, swap_peak = ("memory.peak", "memory.events", "memory.swap.peak")
        events = _read_table(self.path / kills)
        statistics = _read_table(self.path / "memory.stat")
        swap_limit, swapped = _read_number(self._swap_file), _read_number(self.path / swap_peak)
        if self.version == 1:  # Memory and swap together, so the peak of swap is a lower bound.
            swap_limit = None if swap_limit is None else swap_limit - self._limit_bytes
            swapped = None if swapped is None else max(0, swapped - self._limit_bytes)
        return {
            "version": self.version,
            "limit_bytes": self._limit_bytes,
            "peak_bytes": _read_number(self.path / peak),
            "at_limit": self._reclaims() if self.version == 1 else events.get("max"),
            "oom_kills": events.get("oom_kill", 0),
            "swap_limit_bytes": swap_limit,
            "swap_peak_bytes": swapped,
            "statistics": {name: statistics[name] for name in STATISTICS[self.version] if name in statistics},
            "devices": self.devices(),
        }

    def _reclaims(self) -> int | None:
        """Number of reclaims at the limit in version 1: failed charges, where the kernel counts them.

        Linux 6.18 no longer does; there it is the number of reclaim notifications, one for each 512 pages or so.
        """
        counters = [_read_number(self.path / name) for name in ("memory.failcnt", "memory.memsw.failcnt")]
        if self._notified is not None:
            with suppress(BlockingIOError):
                self._notifications += os.eventfd_read(self._notified)
            counters.append(self._notifications)
        return max((each for each in counters if each is not None), default=None)

    def _count_reclaims(self) -> None:
        """Have the kernel count reclaims in an eventfd (cgroup-v1/memory.rst, "Memory Pressure")."""
        notified = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            with (self.path / "memory.pressure_level").open(encoding="utf-8") as level:
                _write(self.path / "cgroup.event_control", f"{notified} {level.fileno()} low,local")
        except OSError:  # The kernel has no such notifications.
            os.close(notified)
            return
        self._notified = notified

    def remove(self) -> None:
        """Reclaim the memory charged to the group, so that no later run finds it cached, and remove the group."""
        if self._notified is not None:
            os.close(self._notified)
            self._notified = None
        with suppress(OSError):
            if self.version == 1:
                _write(self.path / "memory.force_empty", "0")
            elif (self.path / "memory.reclaim").exists():
                _write(self.path / "memory.reclaim", str(self._limit_bytes))
        super().remove()

    def _limit(self) -> None:
        _write(self._limit_file, str(self._limit_bytes))
        self._limit_bytes = _read_number(self._limit_file) or self._limit_bytes  # In whole pages.
        if self._swap_file.exists():  # A kernel without accounting of swap has none: the record has no limit then.
            together = self._limit_bytes if self.version == 1 else 0
            _write(self._swap_file, str(together + self._swap_bytes))


_LIMIT_FILES = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    2: ("memory.max", "memory.swap.max"),
}
"""Files of the limits on memory and on swap, by version; that of version 1 limits both together."""


def io_group(devices: Sequence[str]) -> Group:
    """Create a group that counts I/O on these devices (`major:minor`); `UnavailableError` where it cannot."""
    if any(block_stack.limits(device) for device in devices):
        # Limits of version 1 are not inherited: a group of its own would lift them.
        raise UnavailableError("a control group limits I/O on the device, and the engine stays in it")
    group = Group(io_hierarchy())
    try:
        group.create(needed="io")
        if group.version == 1:
            # Since Linux 6.10 the kernel counts only on disks for which a limit was ever written; 0 is none.
            for disk in dict.fromkeys(map(block_stack.disk_of, devices)):
                _write(group.path / "blkio.throttle.read_bps_device", f"{disk} 0")
    except OSError as error:
        group.remove()
        raise UnavailableError(f"control group `{group.path}`: {error.strerror}") from error
    return group


@dataclass(kw_only=True)
class ProcessGroup:
    """The control groups of one server, from `make` to `remove`: its CPU time, memory and I/O, apart from the client's.

    In version 2 it is one group; in version 1 one per controller (cpuacct, blkio and memory). The memory limit covers
    the server's own cache and the page cache together. Buffered writes are charged to the group in version 2 only;
    version 1 counts them for the kernel's flusher threads.
    """

    memory: MemoryGroup | None = None
    _accounts: list[Group] = field(default_factory=list)
    """The first accounts for CPU time, the last for I/O; in version 2 both may be the group of the memory limit."""

    @classmethod
    def make(cls, limit_bytes: int | None, *, swap_bytes: int = 0) -> ProcessGroup:
        """Create what this machine permits; a memory limit that is not possible is a `TargetError`.

        `swap_bytes` is how much swap the processes may use beyond the limit.
        """
        group = cls()
        try:
            if limit_bytes:
                group.memory = MemoryGroup.make(limit_bytes, swap_bytes=swap_bytes)
            if group.memory and group.memory.version == 2:
                group._accounts.append(group.memory)
            elif group._account("cpuacct", 1):
                group._account("blkio", 1)
            else:
                group._account("cpu", 2)
        except BaseException:
            group.remove()
            raise
        return group

    @classmethod
    def for_cpu_time(cls, pid: int) -> ProcessGroup:
        """Groups that account for the CPU time of a process and its children, besides those that it is in already.

        In version 2 a process has one group, which is used as it is if it is iosonde's own.
        """
        group = cls()
        own = group_of(pid)
        if not group._account("cpuacct", 1) and not (own and OWN_DIRECTORY.fullmatch(own.name)):
            group._account("cpu", 2)
        try:
            group.add(pid)
        except OSError:
            group.remove()
            raise
        return group

    def add(self, pid: int) -> None:
        """Move a process into the groups; its children will be in them too."""
        for group in self._groups:
            group.add(pid)

    def facts(self) -> dict[str, Any]:
        """CPU time in ns, bytes and operations of each block device, and memory; None for what is not accounted."""
        return {
            "cpu_ns": self.cpu_ns(),
            "system_cpu_ns": self._cpu_ns("cpuacct.usage_sys", "system_usec"),
            "devices": self._accounts[-1].devices() if self._accounts else [],
            "memory": self.memory.facts() if self.memory else None,
        }

    def cpu_ns(self) -> int | None:
        """CPU time that its processes have used, in user and kernel mode."""
        return self._cpu_ns("cpuacct.usage", "usage_usec")

    def remove(self) -> None:
        """Remove the groups; may be called again."""
        for group in self._groups:
            group.remove()
        self.memory, self._accounts = None, []

    @property
    def _groups(self) -> set[Group]:
        return {*self._accounts, *([self.memory] if self.memory else [])}

    def _cpu_ns(self, file: str, name: str) -> int | None:
        """CPU time from a file of version 1, or from a line of version 2; None where the kernel does not report it."""
        if not self._accounts:
            return None
        group = self._accounts[0]
        if group.version == 1:
            return _read_number(group.path / file)
        usage = _read_table(group.path / "cpu.stat").get(name)
        return None if usage is None else usage * 1000

    def _account(self, controller: str, version: int) -> bool:
        """Create a group of a controller; False where there is none that this user may use."""
        within = next((each for each in _hierarchies(controller, controller) if each.version == version), None)
        if within is None or not os.access(within.directory, os.W_OK):
            return False
        group = Group(within)
        try:
            group.create()
        except OSError:
            journal.removed(group.path)
            return False
        self._accounts.append(group)
        return True


def hierarchy() -> Hierarchy:
    """The hierarchy with the memory controller in which groups can be created; `TargetError` if there is none."""
    found = next(_hierarchies("memory", "memory"), None)
    if found is None:
        raise TargetError(
            "memory cannot be limited here: no control group hierarchy with the memory controller is mounted",
            where="by the parameter `memory_limit`",
            hint="measure without a limit with `--set memory_limit=none`, and a database larger than the memory",
        )
    if not os.access(found.directory, os.W_OK):
        raise TargetError(
            f"memory cannot be limited: no permission to create control groups in `{found.directory}`",
            where="by the parameter `memory_limit`",
            hint="run as root, or measure without a limit with `--set memory_limit=none`",
        )
    return found


def io_hierarchy() -> Hierarchy:
    """The hierarchy that counts I/O and accepts new groups; `UnavailableError` if there is none."""
    found = next(_hierarchies("blkio", "io"), None)
    if found is None:
        raise UnavailableError("no control group hierarchy with an I/O controller is mounted")
    if not os.access(found.directory, os.W_OK):
        raise UnavailableError(f"no permission to create control groups in `{found.directory}`")
    return found


def _hierarchies(of_version_1: str, of_version_2: str) -> Iterator[Hierarchy]:
    """Those that have a controller, which is called so in each version."""
    for mount in mounts():
        directory = Path(mount.point)
        if mount.kind == "cgroup" and of_version_1 in mount.options:
            yield Hierarchy(directory=directory, version=1)
        if mount.kind == "cgroup2" and of_version_2 in _read_words(directory / "cgroup.controllers"):
            yield Hierarchy(directory=directory, version=2)


def group_of(pid: int) -> Path | None:
    """The directory of a process's group of version 2."""
    return next(iter(block_stack.groups("", pid)), None)


def counted(group: Path, version: int) -> dict[str, Bytes]:
    """Bytes that a group has read and written, by disk; nothing of a disk without I/O, or where it is not reported."""
    found: dict[str, list[int]] = {}
    file = group / ("io.stat" if version == 2 else "blkio.throttle.io_service_bytes")
    for device, *words in filter(None, map(str.split, read(file).splitlines())):
        if version == 2:  # `MAJOR:MINOR rbytes=N wbytes=N ...`
            counts = dict(word.split("=", 1) for word in words if "=" in word)
            if {"rbytes", "wbytes"} <= counts.keys():
                found[device] = [int(counts["rbytes"]), int(counts["wbytes"])]
        elif words and words[0] in ("Read", "Write"):  # `MAJOR:MINOR Read N`
            found.setdefault(device, [0, 0])[words[0] == "Write"] = int(words[1])
    return {device: (read, written) for device, (read, written) in found.items()}


def remove_group(group: Path) -> None:
    """Remove a group with the processes that are still in it; `OSError` if they do not end."""
    deadline = time.monotonic() + KILL_S
    while (members := _read_words(group / "cgroup.procs")) and time.monotonic() < deadline:
        for number in members:
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        time.sleep(0.02)
    while True:
        try:
            return group.rmdir()
        except OSError as error:  # The last process is still being taken out of it.
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _way_out(error: OSError) -> str:
    without = "measure without a limit with `--set memory_limit=none`"
    if error.errno != errno.EBUSY:
        return without
    # Version 2: "no internal processes", of any group but the root of all.
    return f"a group with processes cannot have limited subgroups: run iosonde outside this container, or {without}"


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def _read_words(file: Path) -> list[str]:
    """All words of a file; none if it cannot be read."""
    return read(file).split()


def _read_table(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    pairs = [line.split() for line in read(file).splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _read_number(file: Path) -> int | None:
    """The number at the start of a file; None if there is none."""
    words = _read_words(file)
    return int(words[0]) if words and words[0].isdigit() else None


@dataclass(kw_only=True)
class OtherProcesses:
    """Bytes that other processes than this one and the engine wrote, from the first look to the last.

    Those of processes that had a file open for writing on a device. For writes that control groups do not attribute:
    the kernel counts what each process caused (`/proc/PID/io`), though not on which device. What a process did after
    the last look before its exit is not known.
    """

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
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in self.excluded:
                continue
            try:
                # Kernel threads have no executable: a loop device's thread does its users' I/O.
                os.readlink(f"/proc/{name}/exe")
                found[int(name)] = int(_field(f"/proc/{name}/io", "write_bytes:"))
            except PermissionError:
                self.unreadable += 1
            except (OSError, ValueError):  # It has exited.
                continue
        return found

    def _has_open(self, pid: int) -> bool:
        directory, devices = f"/proc/{pid}", set(self.devices)
        with suppress(OSError):
            for each in os.listdir(f"{directory}/fd"):
                with suppress(OSError, ValueError):
                    status = os.stat(f"{directory}/fd/{each}")
                    is_there = {device_number(status.st_dev), device_number(status.st_rdev)} & devices
                    flags = int(_field(f"{directory}/fdinfo/{each}", "flags:"), 8) if is_there else 0
                    if flags & (os.O_WRONLY | os.O_RDWR):
                        return True
        return False


def _field(file: str, name: str) -> str:
    """The value of a line of a file in `/proc`."""
    with open(file, encoding="utf-8") as lines:
        return next(line.split()[1] for line in lines if line.startswith(name))
