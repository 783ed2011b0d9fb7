"""One command from its start to its exit: its output, its time limit, requests to stop, and what a failure reports."""

from __future__ import annotations

import bisect
import errno
import os
import random
import selectors
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STDIN = 0
POLL_S = 0.01
"""Time between two checks of whether a background command is ready."""
LEAST_PORT, PORTS_TRIED = 10_000, 100


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command that has exited."""

    exit_status: int
    """Negative for a signal."""
    begin_ns: int
    end_ns: int
    stdout: Output
    stderr: Output
    peak_bytes: int
    """Peak resident memory of the process, or of a descendant that it waited for."""


def watch(
    process: subprocess.Popen[bytes],
    *,
    name: str,
    begin_ns: int,
    timeout_ns: int,
    limit_bytes: int,
    now_ns: Callable[[], int],
    every_ns: int = 0,
    on_interval: Callable[[], object] = lambda: None,
    discarded: Sequence[Output] = (),
) -> Finished:
    """Wait until a command that was started at `begin_ns` has exited. Its descendants are not waited for.

    `discarded` is the output of background commands, which would block on a full pipe.
    """
    assert process.stdout and process.stderr
    out, err = (Output(pipe.fileno(), limit=limit_bytes) for pipe in (process.stdout, process.stderr))
    exited = os.pidfd_open(process.pid)
    deadline_ns, next_ns = begin_ns + timeout_ns, begin_ns + every_ns
    try:
        with selectors.DefaultSelector() as selector:
            for source in (STDIN, exited, *(each.descriptor for each in (out, err, *discarded))):
                selector.register(source, selectors.EVENT_READ)
            while True:
                until_ns = min(deadline_ns, next_ns) if every_ns else deadline_ns
                ready = {key.fd for key, _ in selector.select(max(0, until_ns - now_ns()) / 1e9)}
                if STDIN in ready:
                    raise StoppedError
                _read_ready(selector, ready, (out, err, *discarded), now_ns())
                for each in (out, err):
                    _check_limit(each, name, limit_bytes)
                if exited in ready:
                    break
                if now_ns() >= deadline_ns:
                    raise _timed_out(name, timeout_ns, out, err)
                if every_ns and now_ns() >= next_ns:
                    on_interval()
                    next_ns += every_ns
        end_ns = now_ns()
        for each in (out, err):
            each.drain(end_ns)
            _check_limit(each, name, limit_bytes)
        exit_status, peak_bytes = _reaped(process)
        return Finished(
            exit_status=exit_status, begin_ns=begin_ns, end_ns=end_ns, stdout=out, stderr=err, peak_bytes=peak_bytes
        )
    finally:
        os.close(exited)


def _reaped(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Exit status (negative for a signal) and peak memory of a process that has exited."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024


def _read_ready(
    selector: selectors.BaseSelector, ready: Collection[int], outputs: Sequence[Output], at_ns: int
) -> None:
    """Read once from each pipe that is ready, so that a fast writer delays nothing else."""
    for each in outputs:
        if each.descriptor in ready and not each.read(at_ns):
            selector.unregister(each.descriptor)


def close(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a command."""
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def check_exit(done: Finished, name: str, allowed: list[int]) -> None:
    """Raise `FailedError` for a command that a signal ended, or that reports a failure."""
    lines = first_lines(bytes(done.stderr.data)) or first_lines(bytes(done.stdout.data))
    if done.exit_status < 0:
        number = -done.exit_status
        known = number in {each.value for each in signal.Signals}
        named = signal.Signals(number).name if known else f"signal {number}"
        raise FailedError(
            "killed" if number == signal.SIGKILL else "crashed",
            f"`{name}` was killed by {named}",
            context=lines,
            hint="if memory ran out, the kernel log shows it: `dmesg`" if number == signal.SIGKILL else "",
        )
    if done.exit_status not in allowed:
        raise FailedError(
            "command_failed",
            f"`{name}` failed with exit status {done.exit_status}",
            context=lines,
            hint="start the command that `iosonde plan` prints by hand; list other statuses of success in `exit_codes`",
        )


def _check_limit(output: Output, name: str, limit_bytes: int) -> None:
    if output.is_beyond_limit:
        raise FailedError(
            "output_limit",
            f"`{name}` wrote more than {limit_bytes} bytes of output and was killed",
            context=first_lines(bytes(output.data)),
            hint="make it print less, or raise `output_limit`",
        )


def _timed_out(name: str, timeout_ns: int, out: Output, err: Output) -> FailedError:
    return FailedError(
        "timeout",
        f"`{name}` did not end within {timeout_ns / 1e9:g} s and was killed with all its processes",
        context=first_lines(bytes(err.data)) or first_lines(bytes(out.data)),
        hint="raise `timeout`, or make the command do less",
    )


def wait_for(
    ready: str, process: subprocess.Popen[bytes], name: str, timeout_s: float, discarded: Sequence[Output]
) -> None:
    """Wait until a background command is ready: a file exists, or a socket or `HOST:PORT` accepts connections.

    The output of all background commands is read meanwhile; the last of `discarded` is this command's stderr.
    """
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for source in (STDIN, *(each.descriptor for each in discarded)):
            selector.register(source, selectors.EVENT_READ)
        while not _is_ready(ready):
            if process.poll() is not None:
                discarded[-1].drain(time.monotonic_ns())
                lines = first_lines(bytes(discarded[-1].data))
                raise FailedError("background_failed", f"the background command `{name}` ended", context=lines)
            if time.monotonic() > deadline:
                raise FailedError("background_failed", f"`{name}` was not ready within {timeout_s:g} s (`{ready}`)")
            _discard(selector, discarded, POLL_S)


def _discard(selector: selectors.BaseSelector, outputs: Sequence[Output], seconds: float) -> None:
    """Discard output for that time; `StoppedError` when iosonde asks to stop."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ready = {key.fd for key, _ in selector.select(left)}
        if STDIN in ready:
            raise StoppedError
        _read_ready(selector, ready, outputs, time.monotonic_ns())


def _is_ready(ready: str) -> bool:
    host, _, port = ready.rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host, int(port)), timeout=1).close()
        elif stat.S_ISSOCK(Path(ready).stat().st_mode):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(ready)
    except OSError:
        return False
    return True


def free_port() -> int:
    """A TCP port of the loopback interface that is free, and that the kernel gives to no connection (ip(7))."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split())
    others = [*range(LEAST_PORT, first), *range(last + 1, 1 << 16)]
    for port in [*random.sample(others, min(PORTS_TRIED, len(others))), 0]:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise OSError(errno.EADDRINUSE, "no TCP port of the loopback interface is free")


_READ_BYTES = 1 << 16


class Output:
    """Output of a command on a pipe, up to a limit; `total` counts all of it."""

    def __init__(self, descriptor: int, *, limit: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.data = bytearray()
        self.total = 0
        self._limit = limit
        self._arrived: list[tuple[int, int]] = []

    @property
    def is_beyond_limit(self) -> bool:
        """True if the command wrote more than is kept."""
        return self.total > self._limit

    def read(self, now_ns: int) -> bool:
        """Take what has arrived; False at the end of the pipe."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return True
        self.total += len(data)
        kept = data[: max(0, self._limit - len(self.data))]
        if kept:
            self.data += kept
            self._arrived.append((len(self.data), now_ns))
        return bool(data)

    def drain(self, now_ns: int) -> None:
        """Take what has arrived so far, although another process may hold the pipe open."""
        before = -1
        while self.total != before and not self.is_beyond_limit:
            before = self.total
            self.read(now_ns)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Each line with the time at which its end arrived."""
        ends = [end for end, _ in self._arrived]
        begin = 0
        for line in bytes(self.data).split(b"\n"):
            end = min(begin + len(line) + 1, len(self.data))
            if line:
                yield self._arrived[bisect.bisect_left(ends, end)][1], line.decode(errors="replace").rstrip("\r")
            begin = end


SHOWN_BYTES = 1000
SHOWN_LINES = 10


class FailedError(Exception):
    """A run that failed; it becomes the event `error`."""

    def __init__(self, code: str, message: str, *, context: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.context = context
        self.hint = hint


class StoppedError(Exception):
    """iosonde asked to stop, or has ended."""


def first_lines(output: bytes) -> str:
    """The first lines of some output, for a reader: printable, and not many."""
    lines = output[:SHOWN_BYTES].decode(errors="backslashreplace").splitlines()[:SHOWN_LINES]
    return "\n".join("".join(each if each.isprintable() else "?" for each in line) for line in lines).strip()
