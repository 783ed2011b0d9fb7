"""A memory limit around an engine: a control group of its own, of version 1 or 2, page cache charged to it.

What the kernel counts in it is the proof that a database larger than the limit was read from the device and not from
memory (kernel `Documentation/admin-guide/cgroup-v1/memory.rst`, `cgroup-v2.rst`). The group is noted in the journal
before it is created, so that `iosonde cleanup` finds it after a crash.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal

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


@dataclass(frozen=True, kw_only=True)
class Hierarchy:
    """Hierarchy in which memory can be limited on this machine."""

    directory: Path
    version: int


def hierarchy() -> Hierarchy:
    """The hierarchy with the memory controller in which groups can be created; `TargetError` if there is none."""
    for mount in mounts():
        directory = Path(mount.point)
        if mount.kind == "cgroup" and "memory" in mount.options:
            return _writable(Hierarchy(directory=directory, version=1))
        if mount.kind == "cgroup2" and "memory" in read_words(directory / "cgroup.controllers"):
            return _writable(Hierarchy(directory=directory, version=2))
    raise TargetError(
        "memory cannot be limited here: no control group hierarchy with the memory controller is mounted",
        where="by the parameter `memory_limit`",
        hint="measure without a limit with `--set memory_limit=none`, and a database larger than the memory",
    )


def _writable(found: Hierarchy) -> Hierarchy:
    if not os.access(found.directory, os.W_OK):
        raise TargetError(
            f"memory cannot be limited: no permission to create control groups in `{found.directory}`",
            where="by the parameter `memory_limit`",
            hint="run as root, or measure without a limit with `--set memory_limit=none`",
        )
    return found


class MemoryGroup:
    """A control group with a limit, from `make` to `remove`."""

    def __init__(self, path: Path, version: int, limit_bytes: int, *, swap_bytes: int = 0) -> None:
        self._path = path
        self._version = version
        self._limit_bytes = limit_bytes
        self._swap_bytes = swap_bytes
        self._notified: int | None = None
        self._notifications = 0

    @classmethod
    def make(cls, limit_bytes: int, *, within: Hierarchy | None = None, swap_bytes: int = 0) -> MemoryGroup:
        """Make a group with that limit on memory, and with this limit on swap beyond it."""
        within = within or hierarchy()
        path = within.directory / f"iosonde-{secrets.token_hex(4)}"
        journal.created(path, journal.CONTROL_GROUP)
        group = cls(path, within.version, limit_bytes, swap_bytes=swap_bytes)
        try:
            if within.version == 2:
                _enable(within.directory)
            path.mkdir()
            journal.identify(path)
            group._limit()
            if within.version == 1:
                group._count_reclaims()
        except OSError as error:
            group.remove()
            raise TargetError(
                f"cannot limit memory to {limit_bytes} bytes in `{path}`: {error.strerror}",
                hint=_way_out(error),
            ) from error
        return group

    @property
    def path(self) -> Path:
        """Its directory."""
        return self._path

    def add(self, pid: int) -> None:
        """Put a process under the limit."""
        (self._path / "cgroup.procs").write_text(str(pid), encoding="utf-8")

    def facts(self) -> dict[str, Any]:
        """Counters of the kernel: limits in effect, the peak, how often the limit was met, kills, and `memory.stat`.

        `devices` has the bytes that the group read from and wrote to each block device (`io.stat`), if reported.
        """
        peak, kills = ("memory.max_usage_in_bytes", "memory.oom_control")
        if self._version == 2:
            peak, kills = ("memory.peak", "memory.events")
        events = read_table(self._path / kills)
        at_limit = self._reclaims() if self._version == 1 else events.get("max")
        statistics = read_table(self._path / "memory.stat")
        return {
            "version": self._version,
            "limit_bytes": self._limit_bytes,
            "peak_bytes": read_number(self._path / peak),
            "at_limit": at_limit,
            "oom_kills": events.get("oom_kill", 0),
            "swap_limit_bytes": self._swap_limit(),
            "swap_peak_bytes": self._swap_peak(),
            "statistics": {name: statistics[name] for name in STATISTICS[self._version] if name in statistics},
            "devices": io_of_devices(self._path / "io.stat"),
        }

    def _swap_peak(self) -> int | None:
        """Peak swap of the group; of version 1 a lower bound (peak of memory and swap, less the memory limit)."""
        if self._version == 2:
            return read_number(self._path / "memory.swap.peak")
        together = read_number(self._path / "memory.memsw.max_usage_in_bytes")
        return None if together is None else max(0, together - self._limit_bytes)

    def _reclaims(self) -> int | None:
        """Number of reclaims at the limit in version 1: failed charges, where the kernel counts them.

        Linux 6.18 no longer does; there it is the number of reclaim notifications, one for each 512 pages or so.
        """
        counters = [read_number(self._path / name) for name in ("memory.failcnt", "memory.memsw.failcnt")]
        if self._notified is not None:
            with suppress(BlockingIOError):
                self._notifications += os.eventfd_read(self._notified)
            counters.append(self._notifications)
        return max((each for each in counters if each is not None), default=None)

    def _count_reclaims(self) -> None:
        """Have the kernel count reclaims in an eventfd (cgroup-v1/memory.rst, "Memory Pressure")."""
        notified = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            with (self._path / "memory.pressure_level").open(encoding="utf-8") as level:
                (self._path / "cgroup.event_control").write_text(
                    f"{notified} {level.fileno()} low,local", encoding="utf-8"
                )
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
            if self._version == 1:
                (self._path / "memory.force_empty").write_text("0", encoding="utf-8")
            elif (self._path / "memory.reclaim").exists():
                (self._path / "memory.reclaim").write_text(str(self._limit_bytes), encoding="utf-8")
        with suppress(FileNotFoundError):
            remove_group(self._path)
        journal.removed(self._path)

    def _limit(self) -> None:
        limit = self._path / self._limit_file
        limit.write_text(str(self._limit_bytes), encoding="utf-8")
        self._limit_bytes = read_number(limit) or self._limit_bytes  # In whole pages.
        swap = self._path / self._swap_file
        if swap.exists():  # A kernel without accounting of swap has none: the record has no limit then.
            both = self._limit_bytes + self._swap_bytes
            swap.write_text(str(both if self._version == 1 else self._swap_bytes), encoding="utf-8")

    @property
    def _limit_file(self) -> str:
        return {1: "memory.limit_in_bytes", 2: "memory.max"}[self._version]

    @property
    def _swap_file(self) -> str:
        return {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}[self._version]

    def _swap_limit(self) -> int | None:
        """Limit on swap in effect; None without one."""
        limit = read_number(self._path / self._swap_file)
        return limit if limit is None or self._version == 2 else limit - self._limit_bytes


def kill_members(group: Path) -> int:
    """Kill every process in a group of iosonde's own; returns how many there were."""
    members = [int(word) for word in read_words(group / "cgroup.procs")]
    for number in members:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return len(members)


def remove_group(group: Path) -> None:
    """Remove a group with the processes that are still in it; `OSError` if they do not end."""
    deadline = time.monotonic() + KILL_S
    while kill_members(group) and time.monotonic() < deadline:
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


def _enable(parent: Path) -> None:
    """Give groups in `parent` the controller of memory and, if it can be had, that of I/O, which counts bytes."""
    control = parent / "cgroup.subtree_control"
    enabled, offered = read_words(control), read_words(parent / "cgroup.controllers")
    if "io" in offered and "io" not in enabled:
        with suppress(OSError):
            control.write_text("+io", encoding="utf-8")
    if "memory" not in enabled:
        control.write_text("+memory", encoding="utf-8")


def read_words(file: Path) -> list[str]:
    """All words of a file; none if it cannot be read."""
    return " ".join(read_lines(file)).split()


def read_lines(file: Path) -> list[str]:
    """Lines of a file; none if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def read_table(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    pairs = [line.split() for line in read_lines(file)]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def io_of_devices(file: Path) -> list[dict[str, Any]]:
    """Lines of `MAJOR:MINOR rbytes=N wbytes=N ...`; one without numbers is a device that nothing was done to."""
    found = []
    for line in read_lines(file):
        device, *pairs = line.split()
        counts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if "rbytes" in counts and "wbytes" in counts:
            found.append({"device": device, "read_bytes": int(counts["rbytes"]), "write_bytes": int(counts["wbytes"])})
    return found


def read_number(file: Path) -> int | None:
    """The number at the start of a file; None if there is none."""
    words = read_words(file)
    return int(words[0]) if words and words[0].isdigit() else None
