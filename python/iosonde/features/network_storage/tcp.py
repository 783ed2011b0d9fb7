"""TCP connections to a server, as the kernel accounts for them (`tcp_info`, kernel `include/uapi/linux/tcp.h`)."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from iosonde.features.network_storage import netlink

_BY_FAMILY, _INFO, _ESTABLISHED = 20, 2, 1 << 1

_FIELDS = {
    "mss_bytes": ("I", 16),
    "round_trip_us": ("I", 68),
    "congestion_window": ("I", 80),
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


def connections(server: str, port: int, *, but: Collection[int] = ()) -> list[dict[str, int]]:
    """Established connections of this network namespace to a server, with their accounts; empty if not permitted.

    Those from the local ports `but` are left out.
    """
    try:
        wanted = ipaddress.ip_address(server.partition("%")[0])
        return [each for local_port, each in _connections(wanted, port) if local_port not in but]
    except (ValueError, OSError, struct.error):
        return []


def info(data: bytes) -> dict[str, int]:
    """Fields of a `struct tcp_info`."""
    return {
        name: struct.unpack_from(f"={kind}", data, offset)[0]
        for name, (kind, offset) in _FIELDS.items()
        if offset + struct.calcsize(kind) <= len(data)
    }


def summed(found: Iterable[dict[str, int]]) -> dict[str, int]:
    """Counters of all connections together."""
    listed = list(found)
    counted = {f"tcp_{name}": sum(each.get(name, 0) for each in listed) for name in SUMMED}
    shortest = min((time for each in listed if (time := each.get("min_round_trip_us"))), default=0)
    return {**counted, "tcp_connections": len(listed), "tcp_min_round_trip_us": shortest} if listed else {}


def _connections(server: Any, port: int) -> Iterator[tuple[int, dict[str, int]]]:
    family = socket.AF_INET if server.version == 4 else socket.AF_INET6
    payload = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED) + bytes(48)
    for body in netlink.request(netlink.SOCK_DIAG, _BY_FAMILY, payload, is_dump=True):
        local_port, remote_port = struct.unpack_from(">HH", body, 4)
        remote = ipaddress.ip_address(body[24 : 24 + len(server.packed)])
        if remote_port == port and remote == server:
            details = netlink.attributes(body[72:])
            if _INFO in details:
                yield local_port, info(details[_INFO])
