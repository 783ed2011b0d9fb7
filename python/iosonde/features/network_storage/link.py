"""The path to a server, cut and restored: a blackhole route to its address, which stops all connections to it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.features.network_storage import transport
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS, Entry
from iosonde.storage.tools import call

JOURNALED = "route"
"""Kind of the journal entry of a blackhole route; its path is a key, not a file."""


@dataclass(frozen=True)
class Link:
    """The path to an address."""

    address: str
    own: str

    def stop_server(self) -> None:
        """Add the route; the journal has it first. `TargetError` if another one has cut the path."""
        if _blackhole(self.address):
            raise TargetError(f"the route to `{self.address}` is a blackhole already")
        journal.created(self._key, JOURNALED, facts={"address": self.address, "own": self.own})
        try:
            call("ip", _family(self.address), "route", "add", "blackhole", self.address)
        except TargetError:
            journal.undo(self._key)
            raise

    def start_server(self) -> None:
        """Remove it."""
        journal.undo(self._key)

    @property
    def _key(self) -> Path:
        return MOUNTS / self.own / "route"


def address_of(target: Mapping[str, Any]) -> str:
    """Address of the server of a target on another machine; `TargetError` if there is none."""
    point = (target.get("file_system") or {}).get("mount_point")
    found = next((transport.of_mount(each) for each in mounts() if each.point == point), {})
    for device in target.get("devices") or []:
        found = found or transport.of_device(str(device.get("name", "")))
    address = str(found.get("server", ""))
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(address)
        if transport.describe_path(address).get("server_is_local") is False:
            return address
    raise TargetError(
        "the target has no server on another machine" + (f" (`{address}`)" if address else ""),
        where='by the parameter `outage = "link"`',
        hint='use `outage = "server"` for a server that iosonde sets up on this machine',
    )


def is_ssh_client(server: str) -> bool:
    """Return True if this session was opened over SSH from a server, by its address or name."""
    client = _ssh_client()
    with contextlib.suppress(OSError):
        return bool(client) and client in {found[4][0] for found in socket.getaddrinfo(server, None)}
    return client == server


def _ssh_client() -> str:
    """Address of the SSH client (sshd(8)), also that of an ancestor, as sudo removes the variable; empty without."""
    connection, pid = os.environ.get("SSH_CONNECTION", ""), os.getppid()
    with contextlib.suppress(OSError):
        while not connection and pid > 1:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            named = (os.fsdecode(each).partition("=") for each in variables)
            connection = next((value for name, _, value in named if name == "SSH_CONNECTION"), "")
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return connection.partition(" ")[0]


def _family(address: str) -> str:
    return "-6" if ":" in address else "-4"


def _blackhole(address: str) -> str:
    """The blackhole route to an address; empty without one."""
    return str(call("ip", _family(address), "route", "show", "type", "blackhole", address)["output"]).strip()


def undo(entry: Entry) -> None:
    """Remove a blackhole route if it is there; `OSError` if the kernel refuses."""
    address = str(entry.facts["address"])
    if _blackhole(address):
        try:
            call("ip", _family(address), "route", "del", "blackhole", address)
        except TargetError as error:
            raise OSError(error.what) from None
