"""Block devices as the kernel shows them in `/sys`: their properties, and the devices below them.

Values are returned as found; a missing key means that the kernel does not report it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage import pcie
from iosonde.storage.block_layer.block_nodes import (
    SYS,
    chosen,
    device_number,
    identity_at,
    loop_status,
    names_in,
    natural,
    number_of,
    number_of_name,
    read,
    sys_path,
)
from iosonde.storage.block_layer.mounts import Mount, mount_of, mounts, unescape

SECTOR_BYTES = 512
"""Unit of sizes and offsets in `/sys/block`, whatever the device's own sectors."""

SYSFS = SYS / "block"

MOUNT_SYSFS = "mount it with `mount -t sysfs sysfs /sys`, or start the container with it"
"""Hint where `/sys` is missing."""

THROTTLES = ("read_bps_device", "write_bps_device", "read_iops_device", "write_iops_device")

CONTROLS = ("io.latency", "io.cost.model", "io.cost.qos")
"""The last two are only in the root group."""


_NODES = Path("/sys/devices/system/node/online")
_MD_FACTS = (
    "level raid_disks chunk_size array_state degraded sync_action metadata_version stripe_cache_size group_thread_cnt"
)


def all_devices() -> list[str]:
    """Every block device that is not a partition, as `major:minor`, by name; without empty loop and ram devices.

    `TargetError` without `/sys`.
    """
    if not SYSFS.exists():
        raise TargetError(f"listing block devices requires sysfs: `{SYSFS}` does not exist", hint=MOUNT_SYSFS)
    numbers = [read(SYSFS / name / "dev") for name in names_in(SYSFS)]  # Empty for one that vanished since.
    return [number for number in numbers if number and size_bytes(number) > 0]


def stack_under(*devices: str) -> list[str]:
    """Devices and every block device below each as `major:minor`, top first, each once.

    A partition leads to its disk, a loop device to the device that holds its backing file, dm and md to their members.
    """
    found: list[str] = []
    for device in devices:
        waiting = [device]
        while waiting:
            number = waiting.pop(0)
            if number not in found and number and sys_path(number).exists():
                found.append(number)
                waiting += _directly_under(number)
    return found


def watched(devices: list[str]) -> list[str]:
    """Devices of a stack whose counters are recorded: all but partitions, whose disk counts the same I/O."""
    return [device for device in devices if not is_partition(device)]


def drives(devices: Sequence[str]) -> list[str]:
    """Devices of a stack without a device below them: the drives."""
    return [device for device in devices if sys_path(device).exists() and not _directly_under(device)]


def path_to_processor(device: str) -> list[str]:
    """A drive and the hardware above it, which drives share that have the same there: evidence from `/sys`.

    PCIe functions (root port, switch ports, controller or host adapter), SAS expanders, and the NUMA node where the
    machine has several.
    """
    path = _attached(sys_path(disk_of(device)))
    found = [f"device {path.name}"]
    for each in path.parents:
        if re.fullmatch(pcie.ADDRESS, each.name):
            found.append(f"PCIe function {each.name}")
        elif each.name.startswith("expander-"):
            address = read(each / "sas_device" / each.name / "sas_address")
            found.append(f"SAS expander {address or each.name}")
    node = next(filter(None, (read(each / "numa_node") for each in path.parents)), "")
    return found + ([f"NUMA node {node}"] if node.isdigit() and re.search("[,-]", read(_NODES)) else [])


def describe(device: str) -> dict[str, Any]:
    """Properties and settings of a device."""
    path = sys_path(device)
    disk = sys_path(disk_of(device))
    facts: dict[str, Any] = {
        "device": device,
        "name": path.name,
        "kind": _kind(path),
        "size_bytes": size_bytes(device),
        "under": [name_of(lower) for lower in _directly_under(device)],
        **_hardware(disk),
        **_queue(disk),
        "io_counters": None if _counts_io(disk) else "off",
        **_link(disk),
        **temperature(device),
        **_array(path),
        "limits": limits(device),
        "io_control": controls(device),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


def name_of(device: str) -> str:
    """The kernel's name of a device, such as `nvme0n1`."""
    return sys_path(device).name


def size_bytes(device: str) -> int:
    """Size of a device."""
    return int(read(sys_path(device) / "size") or 0) * SECTOR_BYTES


def logical_block_bytes(device: str) -> int:
    """Smallest unit that a device can address."""
    return int(read(sys_path(disk_of(device)) / "queue" / "logical_block_size") or SECTOR_BYTES)


def is_partition(device: str) -> bool:
    """Return True if it is a partition."""
    return (sys_path(device) / "partition").exists()


def disk_of(device: str) -> str:
    """The disk of a partition; any other device itself."""
    path = sys_path(device)
    return (read(path.parent / "dev") or device) if is_partition(device) else device


def partitions(device: str) -> list[str]:
    """The partitions of a disk as `major:minor`."""
    below = (sys_path(device) / name for name in names_in(sys_path(device)))
    numbers = (read(each / "dev") for each in below if (each / "partition").exists())
    return [number for number in numbers if number]  # One may have been deleted since it was listed.


def holders(device: str) -> list[str]:
    """Names of the devices that have it as a member (dm, md, bcache)."""
    return names_in(sys_path(device) / "holders")


def model(device: str) -> str:
    """Vendor and model as the device gives them."""
    return str(_hardware(sys_path(disk_of(device))).get("model", ""))


def serial(device: str) -> str:
    """Serial number as the device gives it, or nothing."""
    path = sys_path(disk_of(device))
    page = read(path / "device" / "vpd_pg80")  # After a header of four bytes.
    return read(path / "device" / "serial") or read(path / "serial") or page[4:].strip()


def wwid(device: str) -> str:
    """The name of a disk that is the same on every path to it, or nothing."""
    path = sys_path(disk_of(device))
    return read(path / "wwid") or read(path / "device" / "wwid")


def incarnation(device: str) -> str:
    """Return properties that differ when another disk has been given the same name and number.

    The kernel's sequence number of the disk (Linux 5.15), or else what identifies its hardware.
    """
    disk = disk_of(device)
    return read(sys_path(disk) / "diskseq") or f"{wwid(disk)} {serial(disk)} {size_bytes(disk)}"


def _directly_under(device: str) -> list[str]:
    path = sys_path(device)
    if is_partition(device):
        return [disk_of(device)]
    if (path / "loop" / "backing_file").exists():
        return _under_loop(device)
    return [number for name in names_in(path / "slaves") if (number := number_of_name(name))]


def _under_loop(device: str) -> list[str]:
    status = loop_status(device)
    if status is None:
        return []
    # Without the privilege for the ioctl only the path is known.
    found = status.backing_device or status.file_system or identity_at(status.path).rpartition(":")[0]
    return [found] if found and sys_path(found).exists() else []


def _kind(path: Path) -> str:
    if (path / "partition").exists():
        return "partition"
    if path.name.startswith("bcache"):
        return "bcache"  # Cache and backing devices have a directory `bcache` too.
    for folder, kind in (("md", "md"), ("dm", "dm"), ("loop", "loop")):
        if (path / folder).exists():
            return kind
    return "disk"


def _hardware(disk: Path) -> dict[str, Any]:
    device = disk / "device"
    vendor = read(device / "vendor")
    return {
        # virtio has a number where SCSI has a name.
        "model": " ".join(part for part in ("" if vendor.startswith("0x") else vendor, read(device / "model")) if part),
        "firmware": read(device / "firmware_rev") or read(device / "rev"),
        "serial_hash": _hashed(serial(read(disk / "dev"))),
        "transport": _transport(disk),
        "driver": (device / "driver").resolve().name if (device / "driver").exists() else "",
    }


def _queue(disk: Path) -> dict[str, Any]:
    queue = disk / "queue"
    numbers = {
        "logical_block_bytes": "logical_block_size",
        "physical_block_bytes": "physical_block_size",
        "nr_requests": "nr_requests",
        "max_request_kib": "max_sectors_kb",
        "max_segments": "max_segments",
        "read_ahead_kib": "read_ahead_kb",
        "discard_max_bytes": "discard_max_bytes",
        "io_poll": "io_poll",
        "wbt_lat_us": "wbt_lat_usec",
    }
    return {
        **{name: int(text) for name, file in numbers.items() if (text := read(queue / file)).lstrip("-").isdigit()},
        "rotational": read(queue / "rotational") == "1" if (queue / "rotational").exists() else None,
        "scheduler": chosen(read(queue / "scheduler")),
        "write_cache": read(queue / "write_cache"),
        "hardware_queues": len(names_in(disk / "mq")) or None,
    }


def _counts_io(disk: Path) -> bool:
    """True if the kernel counts its I/O: not with `iostats` off, nor of multipath NVMe disks in older kernels."""
    return read(disk / "queue" / "iostats") != "0" and any(map(int, read(disk / "stat").split()))


def _link(disk: Path) -> dict[str, Any]:
    """The PCIe link of the nearest function up the device's path that has one, and all of them up to the processor."""
    functions = [path for path in _attached(disk).parents if read(path / "current_link_speed")]
    if not functions:
        return {}
    nearest = functions[0]
    return {
        "pcie_link": _pcie_link(nearest, "current"),
        "pcie_link_max": _pcie_link(nearest, "max"),
        "pcie_address": nearest.name,
        "pcie_path": [{"address": path.name, "link": _pcie_link(path, "current")} for path in functions],
        "numa_node": int(read(nearest / "numa_node") or -1),
    }


def _attached(disk: Path) -> Path:
    """Path of the hardware: an NVMe disk that may have several paths is virtual, next to links to each of them."""
    if "nvme-subsystem" not in disk.parts:
        return disk
    controllers = [path for path in disk.parent.glob("nvme*") if re.fullmatch(r"nvme\d+", path.name)]
    return min(controllers, key=lambda path: natural(path.name)).resolve() / disk.name if controllers else disk


def _pcie_link(function: Path, which: str) -> str:
    return f"{read(function / f'{which}_link_speed')} x{read(function / f'{which}_link_width')}"


def temperature(device: str) -> dict[str, Any]:
    """Temperature and limit of a device; empty if it reports none."""
    disk = sys_path(disk_of(device))
    # NVMe: below the controller; SATA with the module drivetemp: below the SCSI device.
    for pattern in (
        "device/hwmon*/temp1_input",
        "device/hwmon/hwmon*/temp1_input",
        "device/device/hwmon/*/temp1_input",
    ):
        for sensor in sorted(disk.glob(pattern)):
            text = read(sensor)
            if text.lstrip("-").isdigit():
                limit = read(sensor.with_name("temp1_max"))
                most = {"temperature_max_celsius": int(limit) / 1000} if limit.isdigit() and int(limit) else {}
                return {"temperature_celsius": int(text) / 1000, **most}
    return {}


def _array(path: Path) -> dict[str, Any]:
    if (path / "md").exists():
        return _facts(path / "md", _MD_FACTS)
    if (path / "dm").exists():
        return {"dm_name": read(path / "dm" / "name"), "dm_uuid_kind": read(path / "dm" / "uuid").partition("-")[0]}
    if (path / "loop").exists():
        return _facts(path / "loop", "backing_file offset dio")
    return {}


def _facts(folder: Path, names: str) -> dict[str, Any]:
    return {f"{folder.name}_{name}": read(folder / name) for name in names.split()}


def _transport(disk: Path) -> str:
    nvme = read(disk / "device" / "transport")
    if nvme:
        return f"nvme-{nvme}"
    marks = (("/virtual/", ""), ("/nvme", "nvme"), ("/virtio", "virtio"), ("/usb", "usb"), ("/ata", "ata"))
    return next((kind for mark, kind in marks if mark in str(disk)), "")


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def limits(device: str) -> list[str]:
    """Every limit on a device (`major:minor`), such as `read_iops_device 2000`."""
    found = [
        f"{throttle} {limit}"
        for group in groups("blkio")
        for throttle in THROTTLES
        for limit in _settings(group / f"blkio.throttle.{throttle}", device)
    ]
    # Version 2: `259:0 rbps=max wbps=max riops=2000 wiops=max`.
    of_version_2 = [limit for group in groups("") for limit in _settings(group / "io.max", device)]
    return list(dict.fromkeys(found + [limit for limit in of_version_2 if not limit.endswith("=max")]))


def controls(device: str) -> list[str]:
    """Further settings of the kernel's I/O controllers for a device: `io.latency`, `io.cost.model`, `io.cost.qos`.

    They protect other groups rather than state a rate, so they are no limits; they may still slow this process down.
    """
    found = [
        f"{file} {' '.join(settings)}"
        for group in groups("")
        for file in CONTROLS
        if (settings := _settings(group / file, device))
    ]
    return list(dict.fromkeys(found))


def groups(controller: str, process: int | str = "self") -> list[Path]:
    """A process's group of a hierarchy and its ancestors, as directories; `` is version 2."""
    for mount in mounts():
        is_wanted = controller in mount.options if controller else mount.kind == "cgroup2"
        if is_wanted and mount.kind in ("cgroup", "cgroup2"):
            break
    else:
        return []
    for line in read(Path("/proc", str(process), "cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = Path(mount.point, path.lstrip("/"))
            return [group for group in (own, *own.parents) if group.is_relative_to(mount.point)]
    return []


def _settings(file: Path, device: str) -> list[str]:
    """Words after a device in a file of a group."""
    lines = map(str.split, read(file).splitlines())
    return [word for found, *words in filter(None, lines) if found == device for word in words]


def stack_of(path: Path) -> list[str]:
    """Every block device under `path`, which exists: the top one first, as `major:minor`."""
    lowest, mount = _layers(path)[-1]
    number = device_number(lowest.stat().st_dev)
    if sys_path(number).exists() or mount is None:
        return stack_under(number)
    # btrfs and bcachefs have anonymous numbers; what was mounted names a device, if anything does.
    number = number_of(mount.source)
    if mount.kind == "btrfs":  # One over several devices lists them all; the mount names only one.
        for members in (SYS / "fs/btrfs").glob("*/devices"):
            numbers = [read(members / name / "dev") for name in names_in(members)]
            if number in numbers:
                return stack_under(*numbers)
    return stack_under(number)


def describe_path(path: Path, *, writes_to_page_cache: bool | None = None) -> dict[str, Any]:
    """File system, mount and block devices under `path`, which exists; a file system has those `below` it."""
    found: dict[str, Any] = {}
    for mount in reversed([mount for _, mount in _layers(path) if mount]):
        below = {"below": found} if found else {}
        found = {"kind": mount.kind, "mount_point": mount.point, "source": mount.source, "options": mount.options}
        found |= below
    space = os.statvfs(path)
    found["size_bytes"] = space.f_blocks * space.f_frsize
    found["free_bytes"] = space.f_bavail * space.f_frsize
    found["block_bytes"] = space.f_bsize
    if writes_to_page_cache:
        found["direct_writes"] = "page cache"
    return {"file_system": found, "devices": [describe(device) for device in stack_of(path)]}


def _layers(path: Path) -> list[tuple[Path, Mount | None]]:
    """`path` with its mount, then the directories in which overlays and FUSE daemons keep its files, top first."""
    found = [(path, mount_of(path))]
    while (mount := found[-1][1]) and (lower := _lower_directory(mount)):
        layer = lower, mount_of(lower)
        if layer[1] in [each for _, each in found]:  # Hidden by a mount over itself.
            break
        found.append(layer)
    return found


def _lower_directory(mount: Mount) -> Path | None:
    """Directory in which an overlay writes, or that a FUSE daemon names as its source; None where it is not visible.

    In a container the directories of an overlay are usually those of another mount namespace.
    """
    named = mount.source if mount.is_fuse else ""
    if mount.kind == "overlay":
        upper = [option for option in mount.options if option.startswith("upperdir=")]
        named = unescape(upper[0].partition("=")[2]) if upper else ""
    return Path(named) if named.startswith("/") and Path(named).is_dir() else None
