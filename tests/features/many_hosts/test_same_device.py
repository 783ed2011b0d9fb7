"""Proof that hosts see the same block device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import TargetError
from iosonde.features.many_hosts import same_device

pytestmark = pytest.mark.unit

GIB = 1 << 30
NAA = "naa.600140550d8a4f4"


def seen(name: str = NAA, *, number: str = "8:16 7", size: int = GIB) -> dict[str, Any]:
    return {"number": number, "size_bytes": size, "unique_name": name}


def check(*found: dict[str, Any], confirmed: str = "", is_one_machine: bool = False) -> None:
    hosts = [f"host{number}" for number in range(len(found))]
    machines = {host: "same" if is_one_machine else host for host in hosts}
    same_device.check("/dev/sdb", machines, dict(zip(hosts, found, strict=True)), [confirmed])


def test_a_unique_name_and_the_size_prove_the_device() -> None:
    check(seen(), seen(number="8:32 9"))
    with pytest.raises(TargetError, match="on `host1` it differs from that of `host0`") as other:
        check(seen(), seen("naa.600140550d8a4f5"))
    assert other.value.where == "its unique name is `naa.600140550d8a4f5` instead of `naa.600140550d8a4f4`"
    with pytest.raises(TargetError, match="differs"):
        check(seen(), seen(size=2 * GIB))
    with pytest.raises(TargetError, match="differs"):
        check(seen(), seen(""), confirmed="host0,host1:/dev/sdb")


def test_hosts_of_one_machine_compare_the_number_of_the_device() -> None:
    check(seen(""), seen(""), is_one_machine=True)
    with pytest.raises(TargetError, match="differs"):
        check(seen(""), seen("", number="7:1 4"), is_one_machine=True)


def test_a_device_without_a_unique_name_has_to_be_confirmed_for_these_hosts() -> None:
    with pytest.raises(TargetError, match="cannot prove that `/dev/sdb` is the same device on all hosts") as unproven:
        check(seen(""), seen(""))
    assert unproven.value.hint.endswith("add --confirm host0,host1:/dev/sdb")
    check(seen(""), seen(""), confirmed="host0,host1:/dev/sdb")
    with pytest.raises(TargetError, match="cannot prove"):
        check(seen(""), seen(""), seen(""), confirmed="host0,host1:/dev/sdb")


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("device/wwid", NAA, NAA),
        ("wwid", "eui.0025388b710bf6a1", "eui.0025388b710bf6a1"),
        ("wwid", "eui.0000000000000000", ""),
        ("device/wwid", "t10.ATA QEMU HARDDISK QM00001", ""),
        ("wwid", "nvme.1b36-6469736b31-51454d55204e564d65204374726c-00000001", ""),
        ("dm/uuid", "mpath-3600140550d8a4f4", "mpath-3600140550d8a4f4"),
        ("dm/uuid", "mpath-1ATA_QEMU_HARDDISK_QM00001", ""),
        ("dm/uuid", "LVM-Z0cGxXnfZVdAvxJyYkDKZV8Tg0gJKuJY", ""),
        ("dm/uuid", "CRYPT-LUKS2-0f", ""),
        ("serial", "disk1", ""),
    ],
)
def test_only_names_that_no_other_device_has_are_unique(tmp_path: Path, file: str, text: str, name: str) -> None:
    disk = tmp_path / "dev/block/8:16"
    (disk / file).parent.mkdir(parents=True, exist_ok=True)
    (disk / file).write_text(f"{text}\n")
    assert same_device.unique_name("8:16", tmp_path) == name


def test_a_partition_has_the_name_of_its_disk_and_its_start(tmp_path: Path) -> None:
    disk = tmp_path / "devices/sdb"
    (disk / "sdb1").mkdir(parents=True)
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block/8:17").symlink_to(disk / "sdb1")
    for file, text in (("wwid", NAA), ("sdb1/partition", "1"), ("sdb1/start", "2048")):
        (disk / file).write_text(text)
    assert same_device.unique_name("8:17", tmp_path) == f"{NAA} from 2048"
    (tmp_path / "devices/rbd0").mkdir(parents=True)
    (tmp_path / "dev/block/252:0").symlink_to(tmp_path / "devices/rbd0")
    facts = tmp_path / "bus/rbd/devices/0"
    facts.mkdir(parents=True)
    for name, text in (("cluster_fsid", "a1"), ("pool_id", "2"), ("image_id", "10ab"), ("snap_id", "head")):
        (facts / name).write_text(f"{text}\n")
    assert same_device.unique_name("252:0", tmp_path) == "rbd a1 2 10ab head", "an image has that of its cluster"
