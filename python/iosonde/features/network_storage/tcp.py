"""TCP connections to a server, as the kernel accounts for them (`tcp_info`, kernel `include/uapi/linux/tcp.h`)."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from stat import S_IRUSR, S_IWUSR
from typing import NamedTuple

from iosonde.errors import TargetError

ROUTE, SOCK_DIAG = 0, 4
_REQUEST, _DUMP = 1, 0x300
_ERROR, _DONE = 2, 3
_TIMEOUT_S = 2.0
_sequence = count(1)


def request(family: int, kind: int, payload: bytes, *, is_dump: bool = False) -> Iterator[bytes]:
    """Yield the payload of each message of the reply; `OSError` if the kernel refuses."""
    flags = _REQUEST | (_DUMP if is_dump else 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as link:
        link.settimeout(_TIMEOUT_S)
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + len(payload), kind, flags, next(_sequence), 0) + payload)
        while True:
            for message, body in _messages(link.recv(1 << 18)):
                if message == _DONE:
                    return
                if message == _ERROR:
                    if number := struct.unpack_from("=i", body)[0]:
                        raise OSError(-number, "netlink request failed")
                    return
                yield body
            if not is_dump:
                return


def attributes(data: bytes) -> Mapping[int, bytes]:
    """Attributes of a message by type: length, type and value of each, padded to 4 bytes."""
    found, place = {}, 0
    while place + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, place)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[place + 4 : place + length]
        place += (length + 3) & ~3
    return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, place)
        if length < 16:
            return
        yield kind, data[place + 16 : place + length]
        place += (length + 3) & ~3


UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
PORTS_OF_ROOT = 1024
_LISTEN = "0A"
_BY_FAMILY, _INFO, _ESTABLISHED = 20, 2, 1
_SHOW_NAME, _SHOW_PEER = 1, 4
_NAME, _PEER = 0, 2
"""Requests and attributes of Unix sockets (kernel `include/uapi/linux/unix_diag.h`)."""
_FIRST_OF_OWN = 3
"""File descriptors below it are standard streams."""

_FIELDS = {
    "round_trip_us": ("I", 68),
    "retransmits": ("I", 100),
    "acknowledged_bytes": ("Q", 120),
    "received_bytes": ("Q", 128),
    "min_round_trip_us": ("I", 148),
    "busy_us": ("Q", 168),
    "receive_window_limited_us": ("Q", 176),
    "send_buffer_limited_us": ("Q", 184),
    "needless_retransmits": ("I", 216),
    "out_of_order": ("I", 224),
}
"""Offset of each field; a kernel without a field has a shorter structure."""

SUMMED = ("retransmits", "acknowledged_bytes", "received_bytes", "busy_us", "receive_window_limited_us",
          "send_buffer_limited_us", "needless_retransmits", "out_of_order")  # fmt: skip

CONNECTION, BYTES, LIMITED = "tcp_connection_", "_bytes", "_limited_us"
"""Prefix of the counters of one connection, and what they are, after its address."""
LIMITS = ("receive_window", "send_buffer")


def connections(server: str, port: int, *, but: Collection[int] = ()) -> dict[str, dict[str, int]]:
    """Accounts of the established connections of this network namespace to a server, by `ADDRESS:PORT` on this side.

    Those from the local ports `but` are left out. Empty if not permitted.
    """
    try:
        wanted = ipaddress.ip_address(server.partition("%")[0])
        found = _connections(wanted.version)
        return {each.name: each.info for each in found if each.remote == (wanted, port) and each.local_port not in but}
    except (ValueError, OSError, struct.error):
        return {}


def servers(process: int) -> dict[tuple[str, int], set[int]]:
    """Addresses and ports to which a process is connected, with the processes that have the connections.

    They are the process, its children, and programs with which it shares a socket pair or a pipe in each direction:
    sshfs leaves its connection to ssh, whose parent is init by then. Those that may not be read are missing.
    """
    found: dict[tuple[str, int], set[int]] = {}
    with suppress(OSError, struct.error):
        near = {process, *_partners(process)}
        holders = {each: set(_sockets(each)) for each in near.union(*map(_children, near))}
        for connection in (each for version in (4, 6) for each in _connections(version)):
            if holding := {each for each, inodes in holders.items() if connection.inode in inodes}:
                found.setdefault((str(connection.remote[0]), connection.remote[1]), set()).update(holding)
    return found


def listening(port: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Addresses of this network namespace on which a port accepts connections (proc_net_tcp(5))."""
    found = []
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # A kernel without IPv6.
            for fields in map(str.split, Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]):
                address, _, number = fields[1].partition(":")
                if fields[3] == _LISTEN and int(number, 16) == port:
                    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
                    found.append(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words)))
    return found


def require_ports_of_root(need: str) -> None:
    """`TargetError` where other users may listen on ports below 1024, or connect from them (ip(7))."""
    if int(UNPRIVILEGED.read_text(encoding="ascii")) < PORTS_OF_ROOT:
        raise TargetError(
            f"cannot {need}: other users of this machine may use ports below {PORTS_OF_ROOT}, and so reach the data",
            where=f"`{UNPRIVILEGED}` must be at least {PORTS_OF_ROOT}",
            hint=f"reserve these ports for root with `sysctl net.ipv4.ip_unprivileged_port_start={PORTS_OF_ROOT}`",
        )


def info(data: bytes) -> dict[str, int]:
    """Fields of a `struct tcp_info`."""
    return {
        name: struct.unpack_from(f"={kind}", data, offset)[0]
        for name, (kind, offset) in _FIELDS.items()
        if offset + struct.calcsize(kind) <= len(data)
    }


def counters(found: Mapping[str, dict[str, int]]) -> dict[str, int]:
    """Counters of all connections together, and of each the bytes and the time in which it could not send."""
    if not found:
        return {}
    counted = {f"tcp_{name}": sum(each.get(name, 0) for each in found.values()) for name in SUMMED}
    for name, each in found.items():
        counted[f"{CONNECTION}{name}{BYTES}"] = each.get("acknowledged_bytes", 0) + each.get("received_bytes", 0)
        counted[f"{CONNECTION}{name}{LIMITED}"] = sum(each.get(f"{why}_limited_us", 0) for why in LIMITS)
    shortest = min((time for each in found.values() if (time := each.get("min_round_trip_us"))), default=0)
    return {**counted, "tcp_connections": len(found), "tcp_min_round_trip_us": shortest}


class _Connection(NamedTuple):
    name: str
    """`ADDRESS:PORT` on this side."""
    local_port: int
    remote: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]
    inode: int
    info: dict[str, int]


def _connections(version: int) -> Iterator[_Connection]:
    """All connections of a version of IP (`struct inet_diag_msg`)."""
    family, address_bytes = (socket.AF_INET, 4) if version == 4 else (socket.AF_INET6, 16)
    payload = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, 1 << _ESTABLISHED) + bytes(48)
    for body in request(SOCK_DIAG, _BY_FAMILY, payload, is_dump=True):
        local_port, remote_port = struct.unpack_from(">HH", body, 4)
        local, remote = (ipaddress.ip_address(body[at : at + address_bytes]) for at in (8, 24))
        details = attributes(body[72:])
        if _INFO in details:
            (inode,) = struct.unpack_from("=I", body, 68)
            name = f"[{local}]:{local_port}" if version == 6 else f"{local}:{local_port}"
            yield _Connection(name, local_port, (remote, remote_port), inode, info(details[_INFO]))


def _children(process: int) -> list[int]:
    found: list[int] = []
    for each in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, each.read_text(encoding="utf-8").split())
    return found


def _partners(process: int) -> list[int]:
    """Processes that exchange data with a process over a socket pair, or over a pipe in each direction.

    Standard streams are left out, and so are sockets with a name: they lead to a terminal, a shell or a log.
    """
    read, written = _pipes(process)
    own, other_ends = set(_sockets(process, least=_FIRST_OF_OWN)), set[int]()
    with suppress(OSError, struct.error):  # A kernel without CONFIG_UNIX_DIAG.
        other_ends = {peer for inode, peer in _socket_pairs() if inode in own}
    found = []
    for each in (int(place.name) for place in Path("/proc").glob("[0-9]*") if place.name != str(process)):
        their_read, their_written = _pipes(each, least=0)
        if other_ends & set(_sockets(each)) or (read & their_written and written & their_read):
            found.append(each)
    return found


def _socket_pairs() -> Iterator[tuple[int, int]]:
    """Inodes of each Unix socket without a name and of its peer (`struct unix_diag_msg`)."""
    payload = struct.pack("=BBHIII8x", socket.AF_UNIX, 0, 0, 1 << _ESTABLISHED, 0, _SHOW_NAME | _SHOW_PEER)
    for body in request(SOCK_DIAG, _BY_FAMILY, payload, is_dump=True):
        details = attributes(body[16:])
        if _NAME not in details and _PEER in details:
            yield struct.unpack_from("=I", body, 4)[0], struct.unpack("=I", details[_PEER])[0]


def _sockets(process: int, *, least: int = 0) -> Iterator[int]:
    """Inodes of the sockets of a process, from a file descriptor on."""
    return (inode for kind, inode, _ in _descriptors(process, least) if kind == "socket")


def _pipes(process: int, *, least: int = _FIRST_OF_OWN) -> tuple[set[int], set[int]]:
    """Inodes of the pipes that a process reads, and of those that it writes."""
    found = [(inode, mode) for kind, inode, mode in _descriptors(process, least) if kind == "pipe"]
    return {inode for inode, mode in found if mode & S_IRUSR}, {inode for inode, mode in found if mode & S_IWUSR}


def _descriptors(process: int, least: int) -> Iterator[tuple[str, int, int]]:
    """Kind, inode and mode of sockets and pipes; the mode of the link is that of the descriptor (proc_pid_fd(5))."""
    for each in Path(f"/proc/{process}/fd").glob("*"):
        with suppress(OSError):
            kind, _, inode = str(each.readlink()).partition(":[")
            if kind in ("socket", "pipe") and int(each.name) >= least:
                yield kind, int(inode.rstrip("]")), each.lstat().st_mode
