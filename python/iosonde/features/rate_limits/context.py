"""Surroundings of a volume: cloud or hypervisor of the machine, kind of its devices, and limits of control groups.

Read from DMI (`/sys/class/dmi/id`), the devices' model strings, and control groups; no network is used. Values of DMI
are compared and not recorded, since asset tags and versions can identify a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

DMI = Path("/sys/class/dmi/id")

NETWORK_VOLUME = "network volume"
"""Kind of devices whose limits are rules of a provider."""

_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Chassis asset tag of every virtual machine on Azure; other ones on Hyper-V have the same vendor."""

_CLOUDS = (
    ("azure", "chassis_asset_tag", _AZURE_TAG),
    ("aws", "sys_vendor", "amazon"),
    ("aws", "bios_vendor", "amazon"),
    ("aws", "bios_version", "amazon"),
    ("google", "product_name", "google compute engine"),
    ("alibaba", "sys_vendor", "alibaba cloud"),
    ("digitalocean", "sys_vendor", "digitalocean"),
    ("hetzner", "sys_vendor", "hetzner"),
    ("openstack", "product_name", "openstack"),
    ("oracle", "chassis_asset_tag", "oraclecloud.com"),
)
"""Cloud, file in DMI, and a part of its content in lower case."""

_HYPERVISORS = (
    ("kvm", "sys_vendor", "qemu"),
    ("kvm", "product_name", "kvm"),
    ("kvm", "bios_vendor", "seabios"),
    ("xen", "sys_vendor", "xen"),
    ("vmware", "sys_vendor", "vmware"),
    ("hyper-v", "product_name", "virtual machine"),
    ("virtualbox", "product_name", "virtualbox"),
    ("parallels", "sys_vendor", "parallels"),
)

_DEVICES = (
    ("amazon elastic block store", "aws", NETWORK_VOLUME),
    ("amazon ebs", "aws", NETWORK_VOLUME),
    ("amazon ec2 nvme instance storage", "aws", "local drive"),
    ("nvme_card-pd", "google", NETWORK_VOLUME),
    ("persistentdisk", "google", NETWORK_VOLUME),
    ("nvme_card", "google", "local drive"),
    ("ephemeraldisk", "google", "local drive"),
    ("msft nvme accelerator", "azure", NETWORK_VOLUME),
    ("microsoft nvme direct disk", "azure", "local drive"),
    ("msft virtual disk", "", "virtual disk"),
    ("qemu", "", "virtual disk"),
    ("vmware", "", "virtual disk"),
    ("vbox", "", "virtual disk"),
)
"""Part of a model string in lower case, provider, and kind of device."""


def cloud(dmi: Path = DMI) -> str | None:
    """The cloud of this machine; None if DMI names none."""
    return _matching(_CLOUDS, dmi)


def hypervisor(dmi: Path = DMI) -> str | None:
    """The hypervisor of this machine, where DMI names one."""
    return _matching(_HYPERVISORS, dmi)


def kind_of(device: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Provider and kind of a device as a target describes it; None where its model and name tell nothing."""
    model, name = str(device.get("model", "")).lower(), str(device.get("name", ""))
    for part, provider, kind in _DEVICES:
        if part in model:
            return provider or None, kind
    if name.startswith(("vd", "xvd")):
        return None, "virtual disk"
    return None, None


def described(target: Mapping[str, Any], dmi: Path = DMI) -> dict[str, Any]:
    """Facts for the record of a run on this target; empty where nothing is known."""
    found: dict[str, Any] = {"cloud": cloud(dmi), "hypervisor": hypervisor(dmi)}
    kinds = {kind_of(device) for device in target.get("devices", ())}
    providers = {provider for provider, _ in kinds if provider}
    found["volume_provider"] = providers.pop() if len(providers) == 1 else None
    found["volume_kind"] = next((kind for _, kind in sorted(kinds, key=str) if kind), None)
    for name in ("limits", "io_control"):
        found[name] = [
            {"name": device["name"], "settings": device[name]}
            for device in target.get("devices", ())
            if device.get(name)
        ]
    return {name: value for name, value in found.items() if value}


def provider_of(context: Mapping[str, Any]) -> str | None:
    """The provider whose published limits apply: that of the device, else the cloud of the machine."""
    return context.get("volume_provider") or context.get("cloud")


def size_of(target: Mapping[str, Any]) -> int:
    """Size of the volume in bytes: that of its device, else of the target."""
    sizes = [int(device.get("size_bytes", 0)) for device in target.get("devices", ())]
    return max(sizes, default=0) or int(target.get("size_bytes", 0) or 0)


def _matching(table: tuple[tuple[str, str, str], ...], dmi: Path) -> str | None:
    content: dict[str, str] = {}
    for name, file, part in table:
        if file not in content:
            content[file] = _read(dmi / file)
        if part in content[file]:
            return name
    return None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip().lower()
    except OSError:
        return ""
