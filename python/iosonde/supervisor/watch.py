"""One command from its start to its exit: its output, its time limit, and requests to stop."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iosonde.supervisor.failure import FailedError, StoppedError, first_lines
from iosonde.supervisor.output import Output

STDIN = 0


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command that has exited."""

    exit_status: int
    """Negative for a signal."""
    begin_ns: int
    end_ns: int
    stdout: Output
    stderr: Output


def watch(
    process: subprocess.Popen[bytes],
    *,
    name: str,
    begin_ns: int,
    timeout_ns: int,
    limit_bytes: int,
    now_ns: Callable[[], int],
    every_ns: int = 0,
    on_interval: Callable[[], None] = lambda: None,
) -> Finished:
    """Wait until a command that was started at `begin_ns` has exited. Its descendants are not waited for."""
    assert process.stdout and process.stderr
    out, err = (Output(pipe.fileno(), limit=limit_bytes) for pipe in (process.stdout, process.stderr))
    exited = os.pidfd_open(process.pid)
    deadline_ns, next_ns = begin_ns + timeout_ns, begin_ns + every_ns
    try:
        with selectors.DefaultSelector() as selector:
            for source in (STDIN, exited, out.descriptor, err.descriptor):
                selector.register(source, selectors.EVENT_READ)
            while True:
                until_ns = min(deadline_ns, next_ns) if every_ns else deadline_ns
                ready = {key.fd for key, _ in selector.select(max(0, until_ns - now_ns()) / 1e9)}
                if STDIN in ready:
                    raise StoppedError
                for each in (out, err):
                    if each.descriptor in ready and not each.read(now_ns()):
                        selector.unregister(each.descriptor)
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
        return Finished(exit_status=process.wait(), begin_ns=begin_ns, end_ns=end_ns, stdout=out, stderr=err)
    finally:
        os.close(exited)


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


def wait_for(ready: str, process: subprocess.Popen[bytes], name: str, timeout_s: float) -> None:
    """Wait until a background command is ready: a file exists, or a socket or `HOST:PORT` accepts connections."""
    deadline = time.monotonic() + timeout_s
    while not _is_ready(ready):
        if process.poll() is not None:
            lines = first_lines(process.stderr.read() or b"") if process.stderr else ""
            raise FailedError("background_failed", f"the background command `{name}` ended", context=lines)
        if time.monotonic() > deadline:
            raise FailedError("background_failed", f"`{name}` was not ready within {timeout_s:g} s (`{ready}`)")
        time.sleep(0.01)


def _is_ready(ready: str) -> bool:
    host, _, port = ready.rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host, int(port)), timeout=1).close()
        elif stat.S_ISSOCK(Path(ready).stat().st_mode):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(ready)
    except OSError:
        return False
    return True


def free_port() -> int:
    """A TCP port of the loopback interface that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
