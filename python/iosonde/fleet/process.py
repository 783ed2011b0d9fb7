"""A process that carries out result sets of a fleet, one after the other (`worker.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, Self

from iosonde.fleet.messages import Lines
from iosonde.tools import Process

END_S = 20.0
"""For a stopped session to restore its target, before its process is killed."""

LAST_BYTES = 4096
"""Of its errors, of which the last line is shown; a program may print without end."""


@dataclass(kw_only=True, eq=False)
class WorkerProcess:
    """The process, and the target that it measures."""

    process: Process
    errors: IO[bytes]
    host: str = ""
    """Name of the host that it is on; empty: this machine."""
    target: str = ""
    """Name of the target; empty once its session has ended."""
    hardware: frozenset[str] = frozenset()
    """Of the target, until the process has exited or measures another one."""
    is_stopping: bool = False
    _lines: Lines = field(default_factory=Lines)

    @classmethod
    def start(cls, command: Sequence[str], host: str = "") -> Self:
        """Start a process that waits for requests."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # It is open as long as the process runs.
        process = Process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,  # Ctrl-C goes to the whole group of a terminal; stopping sessions is up to this process.
        )
        return cls(process=process, errors=errors, host=host)

    @property
    def is_idle(self) -> bool:
        """True if it may measure another target."""
        return not self.target and not self.is_stopping

    def measure(self, target: str, hardware: frozenset[str], request: Mapping[str, Any]) -> None:
        """Start the session of a target; `read` reports a process that has exited."""
        self.target, self.hardware = target, hardware
        self._send(json.dumps(request).encode() + b"\n")

    def keep_alive(self) -> None:
        """Show a host that this process still listens."""
        if not self.is_stopping:
            self._send(b"\n")

    def _send(self, line: bytes) -> None:
        assert self.process.stdin
        with suppress(OSError):
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def read(self) -> list[bytes] | None:
        """Return the lines that have arrived; None at their end."""
        assert self.process.stdout
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        return self._lines.add(data) if data else None

    def request_stop(self) -> None:
        """Close its input, at which it stops."""
        self.is_stopping = True
        assert self.process.stdin
        with suppress(OSError):
            self.process.stdin.close()

    def end(self) -> str:
        """Wait for its exit, and describe it."""
        self.request_stop()
        if not self.process.exits_within(END_S):
            self.process.kill()  # Its engine stops at the end of its input.
        status = self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - LAST_BYTES))
        last_line = self.errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        self.errors.close()
        return f"its process exited with status {status}" + f": {last_line}" * bool(last_line)
