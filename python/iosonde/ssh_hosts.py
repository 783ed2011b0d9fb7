"""Hosts that the OpenSSH client reaches, and the file that lists them for `--hosts ssh:FILE`."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from iosonde import toml_files
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


def ssh_problem(status: int, errors: bytes) -> str:
    """Describe the end of a command on a host by its last line of errors."""
    lines = errors.decode(errors="replace").strip().splitlines()
    return f"ssh exited with status {status}" + "".join(f": {line.strip()}" for line in lines[-1:])


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
            f"no worker on host `{self.called}` (`{self.address}`): {ssh_problem(status, errors)}",
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
    return toml_files.read(SshHosts, path, "list of hosts", TargetError, hint=SHAPE)
