"""Cloud, hypervisor and kind of a device, from files as machines have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iosonde.features.rate_limits import context

MICROSOFT = {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}
MACHINES = {
    "nitro": ({"sys_vendor": "Amazon EC2", "product_name": "m5.large"}, "aws", None),
    "ec2-xen": ({"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.amazon"}, "aws", "xen"),
    "gce": ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "google", None),
    "azure": ({**MICROSOFT, "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure", "hyper-v"),
    "hyper-v": (MICROSOFT, None, "hyper-v"),
    "qemu": ({"sys_vendor": "QEMU", "product_name": "Standard PC (Q35 + ICH9, 2009)"}, None, "kvm"),
    "laptop": ({"sys_vendor": "LENOVO", "chassis_asset_tag": "inventory 4711"}, None, None),
}


@pytest.mark.parametrize("name", MACHINES)
def test_cloud_and_hypervisor_are_those_that_dmi_names(name: str, tmp_path: Path) -> None:
    files, cloud, hypervisor = MACHINES[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text + "\n")
    assert (context.cloud(tmp_path), context.hypervisor(tmp_path)) == (cloud, hypervisor)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"model": "Amazon Elastic Block Store", "name": "nvme0n1"}, ("aws", "network volume")),
        ({"model": "Amazon EC2 NVMe Instance Storage", "name": "nvme1n1"}, ("aws", "local drive")),
        ({"model": "Google PersistentDisk", "name": "sda"}, ("google", "network volume")),
        ({"model": "nvme_card-pd", "name": "nvme0n1"}, ("google", "network volume")),
        ({"model": "nvme_card", "name": "nvme0n2"}, ("google", "local drive")),
        ({"model": "MSFT NVMe Accelerator v1.0", "name": "nvme0n1"}, ("azure", "network volume")),
        ({"model": "Msft Virtual Disk", "name": "sda"}, (None, "virtual disk")),
        ({"name": "vda"}, (None, "virtual disk")),
        ({"model": "SAMSUNG MZWLL6T4HMLS-00003", "name": "nvme0n1"}, (None, None)),
    ],
)
def test_a_device_is_known_by_its_model_or_name(
    device: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    assert context.kind_of(device) == expected


def test_no_value_of_dmi_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "sys_vendor").write_text("Amazon EC2")
    (tmp_path / "chassis_asset_tag").write_text("i-0123456789")
    control = ["io.latency target=5000"]
    devices: list[dict[str, Any]] = [{"model": "Amazon Elastic Block Store", "name": "nvme0n1", "io_control": control}]
    assert context.described({"devices": devices}, tmp_path) == {
        "cloud": "aws",
        "volume_provider": "aws",
        "volume_kind": "network volume",
        "io_control": [{"name": "nvme0n1", "settings": control}],
    }
