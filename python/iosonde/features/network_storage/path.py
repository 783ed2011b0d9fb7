"""The way to a server: route, interface, its speed and offloads."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.features.network_storage import netlink

INTERFACES = Path("/sys/class/net")
COUNTERS = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")

_GET_ROUTE = 26
_DST, _OIF, _GATEWAY, _PREFERRED_SOURCE = 1, 4, 5, 7
_LOCAL = 2
"""Type of a route to an address of this machine (`RTN_LOCAL`)."""

_ETHTOOL = 0x8946
OFFLOADS = {"tso": 0x1E, "gso": 0x23, "gro": 0x2B, "rx_checksum": 0x14, "tx_checksum": 0x16}
"""Commands of the ioctl, which read one flag each (kernel `include/uapi/linux/ethtool.h`)."""


def describe(server: str) -> dict[str, Any]:
    """Route to an address, and its interface; empty where the kernel reports none."""
    try:
        found = _route(ipaddress.ip_address(server.partition("%")[0]))
    except (ValueError, OSError, struct.error):
        return {}
    interface = found.get("interface")
    return {**found, **(_interface(interface) if interface else {})}


def counters(interface: str) -> dict[str, int]:
    """Bytes, drops and errors of an interface since it exists."""
    found = {}
    for name in COUNTERS:
        with suppress(OSError, ValueError):
            found[f"nic_{name}"] = int(_text(INTERFACES / interface / "statistics" / name))
    return found


def _route(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> dict[str, Any]:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    header = struct.pack("=BBBBBBBBI", family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    destination = struct.pack("=HH", 4 + len(address.packed), _DST) + address.packed
    for body in netlink.request(netlink.ROUTE, _GET_ROUTE, header + destination):
        route = netlink.attributes(body[12:])
        names = {_GATEWAY: "gateway", _PREFERRED_SOURCE: "source_address"}
        found: dict[str, Any] = {
            name: str(ipaddress.ip_address(route[key])) for key, name in names.items() if key in route
        }
        if _OIF in route:
            found["interface"] = socket.if_indextoname(struct.unpack("=I", route[_OIF])[0])
        return {**found, "server_is_local": body[7] == _LOCAL}
    return {}


def _interface(name: str) -> dict[str, Any]:
    place = INTERFACES / name
    found: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        found["mtu_bytes"] = int(_text(place / "mtu"))
    driver = place / "device" / "driver"
    found["driver"] = driver.resolve().name if driver.exists() else "none (virtual)"
    if driver.exists():
        # A virtual interface reports a speed that nothing limits.
        with suppress(OSError, ValueError):
            if (speed := int(_text(place / "speed"))) > 0:
                found["speed_bits_per_second"] = speed * 1_000_000
    offloads = _offloads(name)
    return {**found, **({"offloads": offloads} if offloads else {})}


def _offloads(name: str) -> list[str]:
    """Offloads that are enabled."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return [offload for offload, command in OFFLOADS.items() if _flag(any_socket, name, command)]


def _flag(any_socket: socket.socket, name: str, command: int) -> bool:
    value = array.array("I", [command, 0])
    try:
        fcntl.ioctl(any_socket, _ETHTOOL, struct.pack("16sP16x", name.encode(), value.buffer_info()[0]))
    except OSError:
        return False
    return bool(value[1])


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
