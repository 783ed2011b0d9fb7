"""The engine's process: its pipes, its end, and the kernel's account of it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.errors import EngineError

_PIPE_BYTES = 1 << 16
_STDERR_TAIL_BYTES = 4096


class ChildProcess:
    """The engine's process and its pipes."""

    def __init__(
        self,
        engine: Sequence[str | Path],
        inherited: Sequence[int],
        identities: Mapping[str, str],
        shims: Mapping[str, int],
        environment: Mapping[str, str],
    ) -> None:
        self._begin_ns = time.monotonic_ns()
        self._own_peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            # Its own process group: Ctrl-C in a terminal goes to a whole group, and what follows is ours to decide.
            self._process = subprocess.Popen(
                [
                    *engine,
                    "--stop-at-eof",
                    *(f"--identity={path}={each}" for path, each in identities.items()),
                    *(f"--{store}-shim={descriptor}" for store, descriptor in shims.items()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
                pass_fds=[*inherited, *shims.values()],
                env={**os.environ, **environment},
            )
        except OSError as error:
            raise EngineError(
                f"cannot start `{engine[0]}`: {error.strerror}", hint=f"check that it runs: `{engine[0]} --version`"
            ) from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin = self._process.stdin.fileno()
        self.stdout = self._process.stdout.fileno()
        self.stderr = self._process.stderr.fileno()
        self.exit = os.pidfd_open(self._process.pid)
        """Readable once the process has ended, even if another process has its pipes open."""
        for pipe in (self.stdout, self.stderr):
            os.set_blocking(pipe, False)
        self._tail = bytearray()

    def send(self, text: bytes) -> None:
        """Write to its standard input; nothing if it has closed it."""
        with suppress(BrokenPipeError):  # Its exit status shows what happened.
            while text:
                text = text[os.write(self._stdin, text) :]

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; until it is reaped the process number is its own."""
        os.kill(self._process.pid, number)

    def read(self, source: int) -> bytes:
        """Available output of one of its pipes; empty if there is none now."""
        try:
            data = os.read(source, _PIPE_BYTES)
        except BlockingIOError:
            return b""
        if source == self.stderr:
            self._tail += data
            del self._tail[:-_STDERR_TAIL_BYTES]
        return data

    @property
    def last_error_line(self) -> str:
        """The last line that it wrote to standard error."""
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def end(self) -> dict[str, Any]:
        """Kill it unless it has exited, and return the kernel's account."""
        self.signal(signal.SIGKILL)  # Means nothing to a process that has ended already.
        _, status, usage = os.wait4(self._process.pid, 0)
        wall_ns = time.monotonic_ns() - self._begin_ns
        self._process.returncode = os.waitstatus_to_exitcode(status)
        while self.read(self.stderr):
            pass
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        os.close(self.exit)
        return self._account(usage, wall_ns)

    def _account(self, usage: resource.struct_rusage, wall_ns: int) -> dict[str, Any]:
        # A child's peak memory begins with what its parent held when it became another program (exec_mmap in the
        # kernel's fs/exec.c), so only a larger figure is its own.
        is_its_own = usage.ru_maxrss > self._own_peak_kib
        return {
            "wall_ns": wall_ns,
            "user_ns": round(usage.ru_utime * 1e9),
            "system_ns": round(usage.ru_stime * 1e9),
            "voluntary_switches": usage.ru_nvcsw,
            "involuntary_switches": usage.ru_nivcsw,
            "minor_faults": usage.ru_minflt,
            "major_faults": usage.ru_majflt,
            "fs_inputs": usage.ru_inblock,
            "fs_outputs": usage.ru_oublock,
            "max_rss_bytes": usage.ru_maxrss * 1024 if is_its_own else None,
            "exit_status": self._process.returncode,
        }
