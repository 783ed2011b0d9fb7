"""Hosts that the OpenSSH client reaches, the file that lists them for `--hosts ssh:FILE`, and processes on them."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from iosonde.base import text_files
from iosonde.base.python_process import module_command
from iosonde.base.tools import Process
from iosonde.errors import TargetError

SHAPE = "list the hosts: `[[hosts]]` with `address`, and optionally `name`, `user`, `port`, `python` and `role`"

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\]-]*$", max_length=255)]
"""Never an option of ssh."""

OPTIONS = (
    *("-a", "-x", "-T"),
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
"""No agent, display or terminal; no questions; an error after 15 s without an answer. All else is the user's
configuration of ssh, host keys included."""

OF_SSH = 255
"""Exit status of ssh for errors of its own."""

MOST_BYTES = 256 << 20
"""Of a line from a host, and of its errors; a record has a few MiB."""
SHOWN_BYTES = 100
"""Of a line that is too long."""
LAST_BYTES = 4096
"""Of its errors, of which the last line is shown."""
END_S = 20.0
"""For a process that is stopped to restore its host, before it is killed."""


class SshHost(BaseModel):
    """One host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: Word
    """As ssh takes it: a name of the user's configuration of ssh, a host name or an IP address."""
    name: str = ""
    """In results; the address if it is empty."""
    user: Word | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    python: str = sys.executable
    """The Python with iosonde on the host."""
    role: Literal["client", "server"] = "client"
    """`server` for the machine that serves the target: it runs no load, and its counters are read."""

    @property
    def called(self) -> str:
        """Its name in results."""
        return self.name or self.address

    def command(self, *remote: str) -> list[str]:
        """The command that runs another one on the host."""
        port = ["-p", str(self.port)] if self.port else []
        user = ["-l", self.user] if self.user else []
        return ["ssh", *OPTIONS, *port, *user, "--", self.address, shlex.join(remote)]

    def error(self, status: int, errors: bytes) -> TargetError:
        """The error for a command on the host that has ended with this status."""
        lacks = re.search(rb"No module named '(?!iosonde)", errors)
        install = f"install what it lacks with `{shlex.quote(self.python)} -m pip install 'iosonde[hosts]'` there"
        same = install if lacks else "install the same version of iosonde there"
        wanted = "connect without a password" if status == OF_SSH else same
        return TargetError(
            f"no worker on host `{self.called}` (`{self.address}`): {described_exit('ssh', status, errors)}",
            hint=f"{wanted}, and try `{self.by_hand()}`",
        )

    def by_hand(self) -> str:
        """A command for the user that shows how the host can be reached, and which iosonde it has."""
        port = f"-p {self.port} " if self.port else ""
        user = f"{self.user}@" if self.user else ""
        return f"ssh {port}{user}{self.address} {shlex.quote(self.python)} -m iosonde --version"


class SshHosts(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    coordinator: Word | None = None
    """Address of this machine for the hosts; without it the one from which ssh connects."""
    hosts: Annotated[list[SshHost], Field(min_length=1)]

    @field_validator("hosts")
    @classmethod
    def _check_names(cls, hosts: list[SshHost]) -> list[SshHost]:
        names = [host.called for host in hosts]
        if len(set(names)) < len(names):
            raise ValueError("hosts must have different names")
        if all(host.role == "server" for host in hosts):
            raise ValueError("at least one host must have the role `client`")
        return hosts


def read(path: Path) -> SshHosts:
    """Read and check a file."""
    return text_files.read_toml(SshHosts, path, "list of hosts", TargetError, hint=SHAPE)


def described_exit(program: str, status: int, errors: bytes) -> str:
    """Describe the exit of a program by its last line of errors."""
    last = errors.decode(errors="replace").strip().rpartition("\n")[2].strip()
    return f"{program} exited with status {status}" + f": {last}" * bool(last)


class Lines:
    """Lines of a stream, of which any part may have arrived."""

    def __init__(self) -> None:
        self._incomplete = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now; one that is too long is cut, so that it is no message."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0], self._incomplete = bytes(self._incomplete) + lines[0], bytearray()
        self._incomplete += rest
        if len(self._incomplete) > MOST_BYTES:
            lines.append(bytes(self._incomplete[:SHOWN_BYTES]))
            self._incomplete.clear()
        return [line for line in lines if line.strip()]


@dataclass(kw_only=True, eq=False)
class WorkerProcess:
    """A process here, or on a host, that reads requests from its standard input and stops at the end of it.

    Its input ends also when this process is killed, and when the connection to its host breaks.
    """

    process: Process
    host: SshHost | None = None
    """None: this machine."""
    _errors: IO[bytes]
    _lines: Lines = field(default_factory=Lines)

    @classmethod
    def start(cls, module: str, *arguments: str, host: SshHost | None = None) -> Self:
        """Start a module of iosonde, on a host over ssh; `TargetError` if it cannot be started."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # It is open as long as the process runs.
        try:
            process = Process(
                host.command(host.python, "-P", "-m", module, *arguments)
                if host
                else module_command(module, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,  # Ctrl-C goes to the whole group of a terminal; it is up to this process.
            )
        except OSError as error:
            errors.close()
            raise TargetError(f"cannot start `ssh`: {error.strerror}", hint="install OpenSSH's client") from error
        if host:
            # A host that prints without end would fill this machine: ssh is killed instead.
            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
        return cls(process=process, host=host, _errors=errors)

    @property
    def output(self) -> IO[bytes]:
        """Its standard output."""
        assert self.process.stdout
        return self.process.stdout

    @property
    def is_stopping(self) -> bool:
        """True once it was requested to stop."""
        assert self.process.stdin
        return self.process.stdin.closed

    def send(self, request: Mapping[str, Any] | None = None) -> None:
        """Write a request, or an empty line, which shows that this process still listens; nothing once it stops."""
        assert self.process.stdin
        if self.is_stopping:
            return
        with suppress(OSError):  # Its exit is found when it is read.
            self.process.stdin.write((json.dumps(request) if request is not None else "").encode() + b"\n")
            self.process.stdin.flush()

    def read(self) -> list[bytes] | None:
        """Return the lines that have arrived; None at their end."""
        data = os.read(self.output.fileno(), 1 << 16)
        return self._lines.add(data) if data else None

    def request_stop(self) -> None:
        """Close its input, at which it stops."""
        assert self.process.stdin
        with suppress(OSError):
            self.process.stdin.close()

    def end(self, within_s: float = END_S) -> int:
        """Wait for its exit, kill it if it does not exit in time, and return its status; may be called again."""
        self.request_stop()
        if not self.process.exits_within(within_s):
            self.process.kill()  # What it has started stops at the end of its input.
        return self.process.wait()

    def errors(self) -> bytes:
        """Return the end of what it has written to standard error."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - LAST_BYTES))
        return self._errors.read()

    def close(self) -> None:
        """End it, and release its files."""
        self.end()
        self.output.close()
        self._errors.close()


def close_all(processes: Sequence[WorkerProcess], within_s: float = END_S) -> None:
    """Stop all at once, and wait for them; may be called again."""
    until = time.monotonic() + within_s
    for process in processes:
        process.request_stop()
    for process in processes:
        process.end(until - time.monotonic())
        process.close()
