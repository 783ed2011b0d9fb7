"""Proof that all hosts see the same block device under the name of the target.

Hosts of one machine compare the kernel's number of the device. Other hosts compare its size and a name that is unique
among all devices: the WWN of a SCSI disk, also below multipath, NGUID, EUI-64 or UUID of an NVMe namespace, or the
image of RBD. Serial numbers are no proof, and neither is the UUID of a logical volume, which is in its contents: copies
of a virtual machine have the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer import block_stack
from iosonde.storage.targets.device_target import DeviceTarget
from iosonde.units import format_bytes

UNIQUE = ("naa.", "eui.", "uuid.")
"""Prefixes of WWIDs that vendors must not use twice. Those that consist of model and serial number are no proof: `t10.`
of ATA disks, and `nvme.` of namespaces without a name (kernel `drivers/nvme/host/core.c`: `wwid_show`)."""
MULTIPATH = ("mpath-3", "mpath-2", *(f"mpath-{prefix}" for prefix in UNIQUE))
"""The same of multipath devices, where scsi_id(8) writes 3 for NAA and 2 for EUI-64."""
_SYS = Path("/sys")

Seen = Mapping[str, Any]


def seen(target: DeviceTarget) -> dict[str, Any]:
    """Names of the device on this machine and among all devices, and its size."""
    [number] = target.numbers
    return {
        "number": f"{number} {block_stack.incarnation(number)}",
        "size_bytes": block_stack.size_bytes(number),
        "unique_name": unique_name(number, _SYS),
    }


def unique_name(number: str, system: Path) -> str:
    """The name of a device that no other device has on any machine; empty if it reports none."""
    device = (system / "dev/block" / number).resolve()
    disk, part = (device.parent, _part(device)) if (device / "partition").exists() else (device, "")
    wwid = _read(disk / "wwid") or _read(disk / "device/wwid")
    mapped = _read(disk / "dm/uuid")
    image = _image(system / "bus/rbd/devices" / disk.name.removeprefix("rbd")) if disk.name.startswith("rbd") else ""
    found = [
        wwid if wwid.startswith(UNIQUE) and wwid.partition(".")[2].strip("0") else "",
        mapped if mapped.startswith(MULTIPATH) else "",
        image,
    ]
    return next((f"{name}{part}" for name in found if name), "")


def confirmation(path: str, hosts: Sequence[str]) -> str:
    """The value of `--confirm` by which a user states that these hosts see one device."""
    return f"{','.join(hosts)}:{path}"


def check(path: str, machines: Mapping[str, str], found: Mapping[str, Seen], confirmed: Sequence[str]) -> None:
    """`TargetError` unless all hosts see the same device; `machines` has the boot id of each host."""
    first, *others = found
    for host in others:
        if problem := _difference(found[first], found[host], is_one_machine=machines[first] == machines[host]):
            raise TargetError(
                f"hosts must see the same device as `{path}`; on `{host}` it differs from that of `{first}`",
                where=problem,
                hint="name it by a link that is the same on all hosts, such as one in /dev/disk/by-id",
            )
    is_proven = all(found[first]["unique_name"] or machines[host] == machines[first] for host in others)
    needed = confirmation(path, list(found))
    if not is_proven and needed not in confirmed:
        raise TargetError(
            f"cannot prove that `{path}` is the same device on all hosts: it reports no WWN, NGUID or UUID",
            where=f"on the hosts {', '.join(found)}; its size is {format_bytes(found[first]['size_bytes'])} on each",
            hint=f"compare what it is on each host, then confirm that it is the same: add --confirm {needed}",
        )


def _difference(one: Seen, other: Seen, *, is_one_machine: bool) -> str:
    if is_one_machine:
        return "" if one["number"] == other["number"] else f"{other['number']} instead of {one['number']}"
    for name, words in (("size_bytes", "size"), ("unique_name", "unique name")):
        if one[name] != other[name]:
            return f"its {words} is `{other[name]}` instead of `{one[name]}`"
    return ""


def _image(device: Path) -> str:
    """The cluster, pool, image and snapshot of an RBD device (kernel `Documentation/ABI/testing/sysfs-bus-rbd`)."""
    parts = [_read(device / name) for name in ("cluster_fsid", "pool_id", "image_id", "snap_id")]
    return f"rbd {' '.join(parts)}" if all(parts[:3]) else ""


def _part(partition: Path) -> str:
    return f" from {_read(partition / 'start')}"


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
