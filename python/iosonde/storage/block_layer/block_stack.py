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

from iosonde import pcie
from iosonde.errors import TargetError
from iosonde.storage.block_layer import cgroup_limits
from iosonde.storage.block_layer.block_nodes import device_number
from iosonde.storage.block_layer.loop_status import loop_status

SECTOR_BYTES = 512
"""Unit of sizes and offsets in `/sys/block`, whatever the device's own sectors."""

SYSFS = Path("/sys/block")

MOUNT_SYSFS = "mount it with `mount -t sysfs sysfs /sys`, or start the container with it"
"""Hint where `/sys` is missing."""

_SYS = Path("/sys/dev/block")
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
    names = sorted(SYSFS.iterdir(), key=lambda path: _natural(path.name))
    numbers = [_read(path / "dev") for path in names]  # Empty for one that vanished since it was listed.
    return [number for number in numbers if number and size_bytes(number) > 0]


def stack_under(device: str) -> list[str]:
    """`device` and every block device below it as `major:minor`, top first, each once.

    A partition leads to its disk, a loop device to the device that holds its backing file, dm and md to their members.
    """
    found: list[str] = []
    waiting = [device]
    while waiting:
        number = waiting.pop(0)
        if number not in found and (_SYS / number).exists():
            found.append(number)
            waiting += _directly_under(number)
    return found


def watched(devices: list[str]) -> list[str]:
    """Devices of a stack whose counters are recorded: all but partitions, whose disk counts the same I/O."""
    return [device for device in devices if not is_partition(device)]


def drives(devices: Sequence[str]) -> list[str]:
    """Devices of a stack without a device below them: the drives."""
    return [device for device in devices if (_SYS / device).exists() and not _directly_under(device)]


def path_to_processor(device: str) -> list[str]:
    """A drive and the hardware above it, which drives share that have the same there: evidence from `/sys`.

    PCIe functions (root port, switch ports, controller or host adapter), SAS expanders, and the NUMA node where the
    machine has several.
    """
    path = _attached(_sys_path(disk_of(device)))
    found = [f"device {path.name}"]
    for each in path.parents:
        if re.fullmatch(pcie.ADDRESS, each.name):
            found.append(f"PCIe function {each.name}")
        elif each.name.startswith("expander-"):
            address = _read(each / "sas_device" / each.name / "sas_address")
            found.append(f"SAS expander {address or each.name}")
    node = next(filter(None, (_read(each / "numa_node") for each in path.parents)), "")
    return found + ([f"NUMA node {node}"] if node.isdigit() and re.search("[,-]", _read(_NODES)) else [])


def describe(device: str) -> dict[str, Any]:
    """Properties and settings of a device."""
    path = _sys_path(device)
    disk = _sys_path(disk_of(device))
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
        **_temperature(disk),
        **_array(path),
        "limits": cgroup_limits.limits(device),
        "io_control": cgroup_limits.controls(device),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


def temperature(device: str) -> dict[str, Any]:
    """Temperature and limit of a device; empty if it reports none."""
    return _temperature(_sys_path(disk_of(device)))


def name_of(device: str) -> str:
    """The kernel's name of a device, such as `nvme0n1`."""
    return _sys_path(device).name


def size_bytes(device: str) -> int:
    """Size of a device."""
    return int(_read(_sys_path(device) / "size") or 0) * SECTOR_BYTES


def logical_block_bytes(device: str) -> int:
    """Smallest unit that a device can address."""
    return int(_read(_sys_path(disk_of(device)) / "queue" / "logical_block_size") or SECTOR_BYTES)


def is_partition(device: str) -> bool:
    """Return True if it is a partition."""
    return (_sys_path(device) / "partition").exists()


def disk_of(device: str) -> str:
    """The disk of a partition; any other device itself."""
    path = _sys_path(device)
    return (_read(path.parent / "dev") or device) if is_partition(device) else device


def partitions(device: str) -> list[str]:
    """The partitions of a disk as `major:minor`."""
    found = [each.parent for each in _sys_path(device).glob("*/partition")]
    numbers = (_read(path / "dev") for path in sorted(found, key=lambda path: _natural(path.name)))
    return [number for number in numbers if number]


def holders(device: str) -> list[str]:
    """Names of the devices that have it as a member (dm, md, bcache)."""
    return _names(_sys_path(device) / "holders")


def model(device: str) -> str:
    """Vendor and model as the device gives them."""
    return str(_hardware(_sys_path(disk_of(device))).get("model", ""))


def serial(device: str) -> str:
    """Serial number as the device gives it, or nothing."""
    path = _sys_path(disk_of(device))
    page = _read_bytes(path / "device" / "vpd_pg80")
    return _read(path / "device" / "serial") or _read(path / "serial") or page[4:].decode(errors="replace").strip()


def wwid(device: str) -> str:
    """The name of a disk that is the same on every path to it, or nothing."""
    path = _sys_path(disk_of(device))
    return _read(path / "wwid") or _read(path / "device" / "wwid")


def incarnation(device: str) -> str:
    """Return properties that differ when another disk has been given the same name and number.

    The kernel's sequence number of the disk (Linux 5.15), or else what identifies its hardware.
    """
    disk = disk_of(device)
    return _read(_sys_path(disk) / "diskseq") or f"{wwid(disk)} {serial(disk)} {size_bytes(disk)}"


def _sys_path(device: str) -> Path:
    """Its directory: by reading one link, as this is asked for many times before each run."""
    try:
        return Path(os.path.normpath(_SYS / (_SYS / device).readlink()))
    except OSError:
        return _SYS / device  # There is no such device.


def _directly_under(device: str) -> list[str]:
    path = _sys_path(device)
    if is_partition(device):
        return [disk_of(device)]
    backing = _read(path / "loop" / "backing_file")
    if backing:
        return _under_loop(device, backing)
    return [number for name in _names(path / "slaves") if (number := _number_of(name))]


def _under_loop(device: str, backing: str) -> list[str]:
    status = loop_status(device, backing)
    if status and not status.problem:
        found = status.backing_device or status.file_system
    else:  # Without the privilege for the ioctl.
        try:
            found = device_number(Path(backing).stat().st_dev)
        except OSError:
            return []
    return [found] if (_SYS / found).exists() else []


def _number_of(name: str) -> str:
    return _read(Path("/sys/class/block") / name / "dev")


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
    vendor = _read(device / "vendor")
    return {
        # virtio has a number where SCSI has a name.
        "model": " ".join(
            part for part in ("" if vendor.startswith("0x") else vendor, _read(device / "model")) if part
        ),
        "firmware": _read(device / "firmware_rev") or _read(device / "rev"),
        "serial_hash": _hashed(serial(_read(disk / "dev"))),
        "transport": _transport(disk),
        "driver": (device / "driver").resolve().name if (device / "driver").exists() else "",
    }


def _queue(disk: Path) -> dict[str, Any]:
    queue = disk / "queue"
    chosen = re.search(r"\[(.+?)\]", _read(queue / "scheduler"))
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
        **{name: int(text) for name, file in numbers.items() if (text := _read(queue / file)).lstrip("-").isdigit()},
        "rotational": _read(queue / "rotational") == "1" if (queue / "rotational").exists() else None,
        "scheduler": chosen[1] if chosen else _read(queue / "scheduler"),
        "write_cache": _read(queue / "write_cache"),
        "hardware_queues": len(_names(disk / "mq")) or None,
    }


def _counts_io(disk: Path) -> bool:
    """True if the kernel counts its I/O: not with `iostats` off, nor of multipath NVMe disks in older kernels."""
    return _read(disk / "queue" / "iostats") != "0" and any(map(int, _read(disk / "stat").split()))


def _link(disk: Path) -> dict[str, Any]:
    """The PCIe link of the nearest function up the device's path that has one, and all of them up to the processor."""
    functions = [path for path in _attached(disk).parents if _read(path / "current_link_speed")]
    if not functions:
        return {}
    nearest = functions[0]
    return {
        "pcie_link": _pcie_link(nearest, "current"),
        "pcie_link_max": _pcie_link(nearest, "max"),
        "pcie_address": nearest.name,
        "pcie_path": [{"address": path.name, "link": _pcie_link(path, "current")} for path in functions],
        "numa_node": int(_read(nearest / "numa_node") or -1),
    }


def _attached(disk: Path) -> Path:
    """Path of the hardware: an NVMe disk that may have several paths is virtual, next to links to each of them."""
    if "nvme-subsystem" not in disk.parts:
        return disk
    controllers = [path for path in disk.parent.glob("nvme*") if re.fullmatch(r"nvme\d+", path.name)]
    return min(controllers, key=lambda path: _natural(path.name)).resolve() / disk.name if controllers else disk


def _pcie_link(function: Path, which: str) -> str:
    return f"{_read(function / f'{which}_link_speed')} x{_read(function / f'{which}_link_width')}"


def _temperature(disk: Path) -> dict[str, Any]:
    # NVMe: below the controller; SATA with the module drivetemp: below the SCSI device.
    for pattern in (
        "device/hwmon*/temp1_input",
        "device/hwmon/hwmon*/temp1_input",
        "device/device/hwmon/*/temp1_input",
    ):
        for sensor in sorted(disk.glob(pattern)):
            text = _read(sensor)
            if text.lstrip("-").isdigit():
                limit = _read(sensor.with_name("temp1_max"))
                most = {"temperature_max_celsius": int(limit) / 1000} if limit.isdigit() and int(limit) else {}
                return {"temperature_celsius": int(text) / 1000, **most}
    return {}


def _array(path: Path) -> dict[str, Any]:
    if (path / "md").exists():
        return _facts(path / "md", _MD_FACTS)
    if (path / "dm").exists():
        return {"dm_name": _read(path / "dm" / "name"), "dm_uuid_kind": _read(path / "dm" / "uuid").partition("-")[0]}
    if (path / "loop").exists():
        return _facts(path / "loop", "backing_file offset dio")
    return {}


def _facts(folder: Path, names: str) -> dict[str, Any]:
    return {f"{folder.name}_{name}": _read(folder / name) for name in names.split()}


def _transport(disk: Path) -> str:
    nvme = _read(disk / "device" / "transport")
    if nvme:
        return f"nvme-{nvme}"
    marks = (("/virtual/", ""), ("/nvme", "nvme"), ("/virtio", "virtio"), ("/usb", "usb"), ("/ata", "ata"))
    return next((kind for mark, kind in marks if mark in str(disk)), "")


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def _names(directory: Path) -> list[str]:
    try:
        return sorted((path.name for path in directory.iterdir()), key=_natural)
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace", encoding="utf-8").strip()
    except OSError:
        return ""


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _natural(name: str) -> list[tuple[int, str]]:
    """`sda2` before `sda10`."""
    return [(int(digits or 0), text) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]
