"""The transport below a target: NFS, SMB, a FUSE daemon, NVMe over Fabrics, iSCSI or RBD, and the way to its server.

Texts come from mounts and devices of others, so only known options are kept, and bytes that are not UTF-8 are escaped.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from iosonde.features.network_storage import tcp
from iosonde.storage.block_layer.block_nodes import read
from iosonde.storage.block_layer.mounts import Mount, mount_of, unescape

INTERFACES = Path("/sys/class/net")
COUNTERS = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")

_GET_ROUTE = 26
_DST, _OIF, _GATEWAY, _PREFERRED_SOURCE = 1, 4, 5, 7
_LOCAL = 2
"""Type of a route to an address of this machine (`RTN_LOCAL`)."""

_ETHTOOL = 0x8946
OFFLOADS = {"tso": 0x1E, "gso": 0x23, "gro": 0x2B, "rx_checksum": 0x14, "tx_checksum": 0x16}
"""Commands of the ioctl, which read one flag each (kernel `include/uapi/linux/ethtool.h`)."""


_read = partial(read, errors="surrogateescape")


def describe_path(server: str) -> dict[str, Any]:
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
            found[f"nic_{name}"] = int(read(INTERFACES / interface / "statistics" / name))
    return found


def _route(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> dict[str, Any]:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    header = struct.pack("=BBBBBBBBI", family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    destination = struct.pack("=HH", 4 + len(address.packed), _DST) + address.packed
    for body in tcp.request(tcp.ROUTE, _GET_ROUTE, header + destination):
        route = tcp.attributes(body[12:])
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
        found["mtu_bytes"] = int(read(place / "mtu"))
    driver = place / "device" / "driver"
    found["driver"] = driver.resolve().name if driver.exists() else "none (virtual)"
    if driver.exists():
        # A virtual interface reports a speed that nothing limits.
        with suppress(OSError, ValueError):
            if (speed := int(read(place / "speed"))) > 0:
                found["speed_bits_per_second"] = speed * 1_000_000
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        enabled = [offload for offload, command in OFFLOADS.items() if _flag(any_socket, name, command)]
    return {**found, **({"offloads": enabled} if enabled else {})}


def _flag(any_socket: socket.socket, name: str, command: int) -> bool:
    value = array.array("I", [command, 0])
    try:
        fcntl.ioctl(any_socket, _ETHTOOL, struct.pack("16sP16x", name.encode(), value.buffer_info()[0]))
    except OSError:
        return False
    return bool(value[1])


NFS, SMB = ("nfs", "nfs4"), ("cifs", "smb3")
NFS_OPTIONS = (
    *(
        "vers",
        "proto",
        "rsize",
        "wsize",
        "nconnect",
        "max_connect",
        "timeo",
        "retrans",
        "sec",
        "local_lock",
        "lookupcache",
    ),
    *("actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax"),
    *("hard", "soft", "softerr", "softreval", "sync", "noac", "nolock", "fsc", "noresvport", "xprtsec"),
)
SMB_OPTIONS = (
    *("vers", "cache", "rsize", "wsize", "bsize", "actimeo", "acregmax", "acdirmax", "max_channels", "nconnect"),
    *("seal", "sign", "hard", "soft", "persistenthandles", "nostrictsync", "compress", "rdma"),
)
FUSE_OPTIONS = ("max_read", "allow_other", "default_permissions", "blksize", "sync", "dirsync")
SECTOR_BYTES = 512
"""Unit of the counters of block devices (kernel `Documentation/block/stat.rst`)."""
NVME_NAME = re.compile(r"nvme(\d+)n(\d+)")
DEVICES = ("nvme-tcp", "iscsi")
"""Transports of block devices over TCP."""
NFS_PORT, SMB_PORT = 2049, 445

SYS = Path("/sys")
FUSE_DEVICE = "/dev/fuse"
_CONNECTION = re.compile(rb"^fuse_connection:\s*(\d+)$", re.MULTILINE)
_MINOR_BITS = 20
"""Bits of the minor number in the kernel's device numbers (kernel `include/linux/kdev_t.h`)."""


def describe(file: Path, devices: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Facts of the transport below a file or directory that exists, or below its devices; empty of a local one."""
    mount = mount_of(file)
    found = of_mount(mount) if mount else {}
    for device in devices if not found else ():
        found = found or of_device(str(device.get("name", "")))
    if address := str(found.get("server", "")):
        found["path"] = describe_path(address)
    return found


def options_of(texts: Iterable[str], known: Iterable[str]) -> dict[str, Any]:
    """Known options with their values; True for one without a value."""
    found: dict[str, Any] = {}
    for text in texts:
        name, is_valued, value = text.partition("=")
        if name in known:
            found[name] = (int(value) if value.isascii() and value.isdigit() else plain(value)) if is_valued else True
    return found


def plain(text: str) -> str:
    """Text without bytes that JSON cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def of_mount(mount: Mount) -> dict[str, Any]:
    """Facts of a mount of network storage; empty of a local one."""
    if mount.kind in NFS:
        return nfs(mount, mount_statistics(mount.point))
    if mount.kind in SMB:
        return _mounted(mount, "smb", SMB_PORT) | {"options": options_of(mount.options, SMB_OPTIONS)}
    return _fuse(mount) if mount.is_fuse else {}


def nfs(mount: Mount, statistics: MountStatistics | None) -> dict[str, Any]:
    """Facts of a mount of NFS; its statistics list times of the attribute cache that the table of mounts leaves out."""
    listed = [*mount.options, *(statistics.options if statistics else [])]
    return {
        **_mounted(mount, "nfs", NFS_PORT),
        "mount_point": plain(mount.point),
        "options": options_of(listed, NFS_OPTIONS),
        **({"connections": statistics.connections} if statistics else {}),
    }


def _mounted(mount: Mount, transport: str, port: int) -> dict[str, Any]:
    values = dict(option.partition("=")[::2] for option in mount.options)
    return {
        "transport": transport,
        "version": plain(values.get("vers", "")),
        "server": plain(values.get("addr", "")),
        "port": _number(values.get("port"), port),
        "source": plain(mount.source),
    }


def _fuse(mount: Mount) -> dict[str, Any]:
    """Facts of a FUSE mount; the number of its connection is that of its device within the kernel."""
    found: dict[str, Any] = {
        "transport": "fuse",
        "version": plain(mount.kind.partition(".")[2]),
        "source": plain(mount.source),
        "options": options_of(mount.options, FUSE_OPTIONS),
    }
    major, _, minor = mount.device.partition(":")
    number = int(major) << _MINOR_BITS | int(minor)
    for name in ("max_background", "congestion_threshold"):
        with suppress(OSError, ValueError):
            found[name] = int((SYS / "fs/fuse/connections" / str(number) / name).read_text(encoding="utf-8"))
    values = dict(option.partition("=")[::2] for option in mount.options)
    daemons = fuse_daemons(_number(values.get("user_id"), 0), number)
    if len(daemons) == 1:
        [found["daemon_pid"]] = daemons
        found["daemon"] = _program(daemons[0])
        if len(servers := tcp.servers(daemons[0])) == 1:
            [((found["server"], found["port"]), holders)] = servers.items()
            if daemons[0] not in holders:
                found["connection_pids"] = sorted(holders)
                found["connected_by"] = _program(min(holders))
    return found


def _program(process: int) -> str:
    return plain(Path(os.fsdecode(_contents(Path(f"/proc/{process}/cmdline")).partition(b"\0")[0])).name)


def fuse_daemons(user: int, connection: int) -> list[int]:
    """Processes of a user that serve a connection, or may: some kernels do not report which one a process serves."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == user and any(each in (None, connection) for each in _connections_of(process)):
                found.append(int(process.name))
    return found


def _connections_of(process: Path) -> Iterator[int | None]:
    """Number of the connection of each open FUSE device; None where the kernel does not report it."""
    for each in (process / "fd").iterdir():
        with suppress(OSError):
            if str(each.readlink()) == FUSE_DEVICE:
                number = _CONNECTION.search(_contents(process / "fdinfo" / each.name))
                yield int(number[1]) if number else None


def of_device(name: str) -> dict[str, Any]:
    """Facts of a block device of a server; empty of a local one."""
    if not name or "/" in name:
        return {}
    found = _nvme(name) or _iscsi(name) or _rbd(name)
    return {**found, "device": name} if found else {}


def device_counters(name: str) -> dict[str, int]:
    """Reads and writes of a device of a server, their bytes and time; empty if the kernel does not count them.

    With native multipath those of its paths: before Linux 6.2 the device above them has none (kernel
    `drivers/nvme/host/multipath.c`).
    """
    place, parts = SYS / "block" / name, NVME_NAME.fullmatch(name)
    paths = place.glob(f"device/nvme*/nvme{parts[1]}c*n{parts[2]}/stat") if parts else ()
    files = list(paths) or [place / "stat"]
    lines = [_read(each).split() for each in files]
    is_off = any(_read(each.parent / "queue/iostats") == "0" for each in files)
    if is_off or any(len(each) < 8 for each in lines):
        return {}
    reads, _, read_sectors, read_ms, writes, _, written_sectors, write_ms = (
        sum(int(line[field]) for line in lines) for field in range(8)
    )
    return {
        "device_read_operations": reads,
        "device_write_operations": writes,
        "device_read_wait_ms": read_ms,
        "device_write_wait_ms": write_ms,
        "device_read_bytes": SECTOR_BYTES * read_sectors,
        "device_write_bytes": SECTOR_BYTES * written_sectors,
    }


def _nvme(name: str) -> dict[str, Any]:
    """NVMe over Fabrics: the controllers of a namespace, or with native multipath those of its subsystem."""
    device = (SYS / "block" / name / "device").resolve()
    controllers = [device] if (device / "transport").exists() else sorted(device.glob("nvme[0-9]*"))
    found = [facts for each in controllers if (facts := _controller(each.resolve()))]
    if not found:
        return {}
    return {**found[0], **({"controllers": len(found)} if len(found) > 1 else {})}


def _controller(controller: Path) -> dict[str, Any]:
    transport = _read(controller / "transport")
    if transport in ("", "pcie", "loop"):
        return {}
    address = dict(part.partition("=")[::2] for part in _read(controller / "address").split(","))
    return {
        "transport": f"nvme-{plain(transport)}",
        "server": plain(address.get("traddr", "")),
        "port": _number(address.get("trsvcid"), 0),
        "source": plain(_read(controller / "subsysnqn")),
        "queues": _number(_read(controller / "queue_count"), 0),
        "queue_entries": _number(_read(controller / "sqsize"), 0),
    }


def _iscsi(name: str) -> dict[str, Any]:
    device = (SYS / "block" / name / "device").resolve()
    session = next((part for part in device.parts if part.startswith("session")), "")
    place = SYS / "class/iscsi_session" / session
    if not session or not place.exists():
        return {}
    connections = sorted((SYS / "class/iscsi_connection").glob(f"connection{session.removeprefix('session')}:*"))
    first = connections[0] if connections else place
    return {
        "transport": "iscsi",
        "server": plain(_read(first / "persistent_address")),
        "port": _number(_read(first / "persistent_port"), 0),
        "source": plain(_read(place / "targetname")),
        "connections": len(connections),
    }


def _rbd(name: str) -> dict[str, Any]:
    place = SYS / "bus/rbd/devices" / name.removeprefix("rbd")
    if not name.startswith("rbd") or not place.exists():
        return {}
    return {"transport": "rbd", "pool": plain(_read(place / "pool")), "source": plain(_read(place / "name"))}


def _contents(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else default


TABLE = Path("/proc/self/mountstats")

PER_OPERATION = (
    "operations",
    "transmissions",
    "timeouts",
    "bytes_sent",
    "bytes_received",
    "queue_ms",
    "round_trip_ms",
    "execute_ms",
)
"""Columns of an operation; later ones (errors) are not in every kernel."""
COUNTED_BYTES = ("normal_read", "normal_write", "direct_read", "direct_write", "server_read", "server_write")
SEPARATE = ("READ", "WRITE", "COMMIT")
"""Operations that are counted apart; the others are `other`: metadata, sessions, locks."""


@dataclass(kw_only=True)
class MountStatistics:
    """Options and counters of one mount."""

    options: list[str] = field(default_factory=list)
    connections: int = 0
    counters: dict[str, int] = field(default_factory=dict)


def mount_statistics(point: str) -> MountStatistics | None:
    """The counters of the mount at `point`; None if it is not one of NFS."""
    return parse_statistics(_read(TABLE), point)


def parse_statistics(text: str, point: str) -> MountStatistics | None:
    """The same from the text of the table (kernel `fs/nfs/super.c`, `net/sunrpc/stats.c`)."""
    found = None
    for section in re.split(r"^device ", text, flags=re.MULTILINE)[1:]:
        heading, *lines = section.splitlines()
        words = heading.split(" ")
        if len(words) > 6 and words[5] == "fstype" and words[6].startswith("nfs") and unescape(words[3]) == point:
            found = _statistics(lines)  # A later mount hides an earlier one at the same point.
    return found


def _statistics(lines: list[str]) -> MountStatistics:
    found = MountStatistics()
    is_operation = False
    for line in lines:
        name, _, rest = line.strip().partition(":")
        if is_operation and rest:
            _add(found.counters, name.strip(), rest.split())
        elif name == "opts":
            found.options = rest.strip().split(",")
        elif name == "bytes":
            numbers = zip(COUNTED_BYTES, rest.split(), strict=False)
            found.counters |= {f"{each}_bytes": int(value) for each, value in numbers}
        elif name == "xprt":
            found.connections += 1
        is_operation = is_operation or name == "per-op statistics"
    return found


def _add(counters: dict[str, int], operation: str, values: list[str]) -> None:
    kind = operation.lower() if operation in SEPARATE else "other"
    for name, value in zip(PER_OPERATION, values, strict=False):
        counters[f"{kind}_{name}"] = counters.get(f"{kind}_{name}", 0) + int(value)
