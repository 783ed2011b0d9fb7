"""A trace instance of our own in tracefs, with its own ring buffer, so that other users of tracing are not disturbed.

It exists from `create` to `remove` and is in the journal. Its ring buffer overwrites the oldest events, so its memory
is bounded, and `events` reads what remained when recording stopped (kernel `Documentation/trace/ftrace.rst`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iosonde.features.kernel_trace import ring_buffer
from iosonde.features.kernel_trace.ring_buffer import Event, Format, parse
from iosonde.storage.block_layer.block_nodes import closing
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import Entry

PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""Numbers of the system calls, which are the same on all architectures (kernel `include/uapi/asm-generic/unistd.h`)."""
_FSCONFIG_CMD_CREATE = 6
_CLOEXEC = 1


class NoTracingError(Exception):
    """Kernel tracing is unavailable; the message is a clause with the reason."""


def directory() -> Path:
    """The directory of tracefs; `NoTracingError` if it cannot be read."""
    for place in PLACES:
        try:
            if (place / "trace_clock").exists():
                return place
        except PermissionError:
            raise NoTracingError(f"no permission to read `{place}`: tracepoints need root") from None
    if os.geteuid() != 0:
        raise NoTracingError("tracefs is not mounted, and only root may mount it")
    return _detached()


@cache
def _detached() -> Path:
    """Mount tracefs without a place in the file tree (fsopen(2), fsmount(2)): nothing remains of it to be removed."""
    with closing(_call(_FSOPEN, ctypes.c_char_p(b"tracefs"), _CLOEXEC)) as opened:
        _call(_FSCONFIG, opened, _FSCONFIG_CMD_CREATE, None, None, 0)
        mounted = _call(_FSMOUNT, opened, _CLOEXEC, 0)
    return Path(f"/proc/{os.getpid()}/fd/{mounted}")


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    returned = int(libc.syscall(ctypes.c_long(number), *arguments))
    if returned < 0:
        raise NoTracingError(f"tracefs cannot be mounted: {os.strerror(ctypes.get_errno())}")
    return returned


CLOCK = "mono_raw"
"""`CLOCK_MONOTONIC_RAW`, whose rate the engine's clock follows."""

BUFFER_KIB = 1024
"""Of each CPU."""

_PAGE_BYTES = 1 << 16

JOURNALED = "trace instance"
"""Kind of its journal entry: a directory of tracefs with a ring buffer of its own."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A tracepoint to record."""

    event: str
    """`SYSTEM/NAME`."""
    fields: tuple[str, ...] = ()
    """Those that are read."""
    condition: str = ""
    """Filter that the kernel applies; empty: every event."""
    thread: str = ""
    """Field with a thread to which it is restricted once the threads are known; until then no event passes."""


class TraceInstance:
    """One instance, from `create` to `remove`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path = directory() / "instances" / name
        self._formats: dict[int, Format] = {}

    @classmethod
    def create(cls) -> TraceInstance:
        """Create an instance that records nothing yet; `NoTracingError` with the reason where it cannot."""
        instance = cls(f"iosonde-{secrets.token_hex(4)}")
        journal.created(instance._journaled, JOURNALED)
        try:
            instance._path.mkdir()
            instance._write("tracing_on", "0")
            instance._write("buffer_size_kb", str(BUFFER_KIB))
            instance._write("trace_clock", CLOCK)
        except OSError as error:
            instance.remove()
            raise NoTracingError(f"no trace instance can be created: {error.strerror}") from error
        return instance

    def has(self, event: str) -> bool:
        """Return True if this kernel has a tracepoint."""
        return (self._path / "events" / event / "format").exists()

    def enable(self, points: Sequence[Point]) -> None:
        """Record these tracepoints, which the kernel has, from `record` on."""
        for point in points:
            known = parse(
                (self._path / "events" / point.event / "format").read_text(encoding="utf-8"), point.event, point.fields
            )
            self._formats[known.id] = known
            if condition := "common_pid == -1" if point.thread else point.condition:
                self._write(f"events/{point.event}/filter", condition)
            self._write(f"events/{point.event}/enable", "1")

    def restrict(self, points: Sequence[Point], threads: Sequence[int]) -> None:
        """Let events of these threads pass at enabled tracepoints."""
        for point in points:
            condition = " || ".join(f"{point.thread} == {thread}" for thread in threads)
            self._write(f"events/{point.event}/filter", condition)

    def record(self) -> None:
        """Start recording."""
        self._write("tracing_on", "1")

    def stop(self) -> None:
        """Stop recording; what was recorded can be read."""
        self._write("tracing_on", "0")

    def events(self) -> list[Event]:
        """The events that the ring buffer still has of all CPUs, in order of time, from when all CPUs have theirs.

        The buffers of CPUs overwrite their oldest events independently: before the latest of their starts some events
        would be missing.
        """
        found: list[Event] = []
        complete_from = 0
        for directory in sorted((self._path / "per_cpu").glob("cpu[0-9]*")):
            own = list(self._of_cpu(directory))
            counts = dict(re.findall(r"^(.+): (.+)$", (directory / "stats").read_text(encoding="utf-8"), re.MULTILINE))
            if own and int(counts.get("overrun", "0")) > 0:  # Events were overwritten.
                complete_from = max(complete_from, own[0].time_ns)
            found += own
        return sorted((each for each in found if each.time_ns >= complete_from), key=lambda each: each.time_ns)

    def remove(self) -> None:
        """Remove the instance."""
        _remove(self._path)
        journal.removed(self._journaled)

    @property
    def _journaled(self) -> Path:
        return PLACES[0] / "instances" / self._name

    def _of_cpu(self, directory: Path) -> Iterator[Event]:
        cpu = int(directory.name.removeprefix("cpu"))
        with closing(os.open(directory / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as opened:
            while page := _read(opened):
                yield from ring_buffer.events(page, self._formats, cpu=cpu)

    def _write(self, name: str, text: str) -> None:
        (self._path / name).write_text(text, encoding="utf-8")


def _read(opened: int) -> bytes:
    """The next page; empty at the end, and of a CPU that is offline, which has no buffer."""
    try:
        return os.read(opened, _PAGE_BYTES)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.ENODEV):
            raise
        return b""


def undo(entry: Entry) -> None:
    """Remove the instance of a journal entry; nothing if it is gone, as after a restart of the system."""
    try:
        _remove(directory() / "instances" / Path(entry.path).name)
    except NoTracingError as error:
        raise OSError(str(error)) from error


def _remove(path: Path) -> None:
    """Remove an instance; a reader that was just closed may keep it busy for a moment."""
    for _ in range(50):
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return
    path.rmdir()
