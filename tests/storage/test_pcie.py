"""PCIe links that drives share, on trees as the kernel shows them, and what a link carries."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.results.run_facts import members_of
from iosonde.storage import pcie
from iosonde.storage.block_layer import block_nodes, block_stack

GEN3_X4 = "8.0 GT/s PCIe x4"
GEN4_X4 = "16.0 GT/s PCIe x4"
GEN3_X4_BYTES = 8e9 * 4 * 128 / 130 / 8


@pytest.mark.parametrize(
    ("link", "gigabytes"),
    [
        ("5.0 GT/s PCIe x8", 4.0),
        ("8 GT/s x4", 3.938),  # As kernels before 5.6 wrote it.
        ("64.0 GT/s PCIe x4", 32.0),
        *((unknown, None) for unknown in ("Unknown x0", "16.0 GT/s PCIe x0", "")),
    ],
)
def test_a_link_carries_its_rate_less_its_encoding(link: str, gigabytes: float | None) -> None:
    expected = pytest.approx(gigabytes * 1e9, rel=1e-3) if gigabytes else None
    assert pcie.bytes_per_second(link) == expected


class Tree:
    """`/sys` of a machine: functions under one another, and block devices under them."""

    def __init__(self, root: Path) -> None:
        self.devices, self.numbers = root / "devices", root / "dev/block"
        self.numbers.mkdir(parents=True)

    def function(self, place: str, link: str) -> None:
        rate, _, width = link.rpartition(" x")
        for which in ("current", "max"):
            self._write(place, {f"{which}_link_speed": rate, f"{which}_link_width": width})

    def disk(self, place: str, number: str) -> str:
        self._write(place, {"dev": number, "size": "2048"})
        (self.numbers / number).symlink_to(self.devices / place)
        return number

    def _write(self, place: str, files: dict[str, str]) -> None:
        (self.devices / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.devices / place / name).write_text(f"{text}\n")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path)
    monkeypatch.setattr(block_nodes, "SYS", tmp_path)
    return made


def shared(*numbers: str) -> list[pcie.SharedLink]:
    return pcie.shared_links([block_stack.describe(number) for number in numbers])


SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0"


def drives(tree: Tree, *places: str) -> list[str]:
    """Gen 4 drives at these places."""
    numbers = []
    for port, place in enumerate(places):
        tree.function(place, GEN4_X4)
        numbers.append(tree.disk(f"{place}/nvme/nvme{port}/nvme{port}n1", f"259:{port}"))
    return numbers


def behind_a_switch(tree: Tree) -> list[str]:
    """Gen 4 drives behind a switch with a gen 3 link to the processor."""
    tree.function("pci0000:00/0000:00:01.0", GEN3_X4)
    tree.function(SWITCH, GEN3_X4)
    for port in range(2):
        tree.function(f"{SWITCH}/0000:02:0{port}.0", GEN4_X4)
    return drives(tree, *(f"{SWITCH}/0000:02:0{port}.0/0000:0{3 + port}:00.0" for port in range(2)))


def test_drives_behind_a_switch_share_its_link_and_others_nothing(tree: Tree) -> None:
    [link] = shared(*behind_a_switch(tree))
    assert (link.address, link.link, link.devices) == ("0000:01:00.0", GEN3_X4, ("nvme0n1", "nvme1n1"))
    assert link.bytes_per_second == pytest.approx(GEN3_X4_BYTES)
    assert link.is_narrow
    assert str(link) == (
        "nvme0n1 and nvme1n1 share the PCIe link of 0000:01:00.0 (8.0 GT/s PCIe x4): together 3.94 GB/s in each "
        "direction at most, and their own links 15.8 GB/s"
    )
    apart = "pci0000:00/0000:00:04.0/0000:09:00.0"
    tree.function(apart, GEN4_X4)
    assert shared("259:0", tree.disk(f"{apart}/nvme/nvme9/nvme9n1", "259:9")) == []


def test_the_path_of_a_drive_has_all_that_it_shares(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NUMA node counts where there are several; an expander has the same address on every path to it."""
    nodes = tmp_path / "online"
    monkeypatch.setattr(block_stack, "_NODES", nodes)
    nodes.write_text("0-1\n")
    first, second = behind_a_switch(tree)
    (tree.devices / SWITCH / "0000:02:00.0/0000:03:00.0/numa_node").write_text("1\n")
    drive, *above = block_stack.path_to_processor(first)
    assert drive == "device nvme0n1"
    assert above[:2] == ["PCIe function 0000:03:00.0", "PCIe function 0000:02:00.0"]
    assert above[2:] == ["PCIe function 0000:01:00.0", "PCIe function 0000:00:01.0", "NUMA node 1"]
    assert set(above) & set(block_stack.path_to_processor(second)) == set(above[2:4])
    nodes.write_text("0\n")
    assert "NUMA node 1" not in block_stack.path_to_processor(first)
    expander = "pci0000:00/0000:00:05.0/host0/port-0:0/expander-0:0"
    disk = tree.disk(f"{expander}/port-0:0:3/end_device-0:0:3/target0:0:3/0:0:3:0/block/sda", "8:0")
    assert block_stack.path_to_processor(disk)[1:] == ["SAS expander expander-0:0", "PCIe function 0000:00:05.0"]
    address = tree.devices / expander / "sas_device/expander-0:0"
    address.mkdir(parents=True)
    (address / "sas_address").write_text("0x500304801234\n")
    assert block_stack.path_to_processor(disk)[1] == "SAS expander 0x500304801234"


def test_disks_of_a_host_bus_adapter_share_its_link_and_have_none_of_their_own(tree: Tree) -> None:
    adapter = "pci0000:00/0000:00:03.0/0000:04:00.0"
    tree.function("pci0000:00/0000:00:03.0", GEN3_X4)
    tree.function(adapter, GEN3_X4)
    numbers = [tree.disk(f"{adapter}/ata{n}/host{n}/block/sd{'ab'[n]}", f"8:{16 * n}") for n in range(2)]
    [link] = shared(*numbers)
    assert (link.address, link.own_bytes_per_second, link.is_narrow) == ("0000:04:00.0", None, True)
    tree.function("pci0000:00/0000:00:01.0", "16.0 GT/s PCIe x16")
    [link] = shared(*drives(tree, *(f"pci0000:00/0000:00:01.0/0000:0{port + 2}:00.0" for port in range(2))))
    assert not link.is_narrow, "wide enough for all"


def test_a_drive_with_several_paths_is_found_by_its_controller(tree: Tree) -> None:
    """Its block device is virtual, next to a link to each controller."""
    drive = "pci0000:00/0000:00:01.0/0000:01:00.0"
    tree.function(drive, GEN4_X4)
    (tree.devices / drive / "nvme/nvme0").mkdir(parents=True)
    number = tree.disk("virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "259:0")
    (tree.devices / "virtual/nvme-subsystem/nvme-subsys0/nvme0").symlink_to(tree.devices / drive / "nvme/nvme0")
    assert block_stack.describe(number)["pcie_link"] == GEN4_X4


def test_members_that_share_a_link_in_part_bound_all_of_them(tree: Tree) -> None:
    """Two of three behind the switch: when all move as much, the two hold the third back."""
    numbers = behind_a_switch(tree)
    apart = "pci0000:00/0000:00:04.0/0000:09:00.0"
    tree.function(apart, GEN4_X4)
    numbers.append(tree.disk(f"{apart}/nvme/nvme9/nvme9n1", "259:9"))
    facts = [block_stack.describe(number) for number in numbers]
    assert pcie.of_all(facts) == pytest.approx(GEN3_X4_BYTES * 3 / 2)
    assert pcie.of_all(facts[2:]) is None
    array = {"device": "9:127", "name": "md127", "kind": "md", "under": [each["name"] for each in facts]}
    assert members_of({"devices": [array, *facts]}) == numbers


def test_a_temperature_sensor_reports_its_limit(tree: Tree) -> None:
    number = tree.disk("pci0000:00/nvme0n1", "259:0")
    sensor = tree.devices / "pci0000:00/nvme0n1/device/hwmon3"
    sensor.mkdir(parents=True)
    (sensor / "temp1_input").write_text("43850\n")
    assert block_stack.temperature(number) == {"temperature_celsius": 43.85}
    (sensor / "temp1_max").write_text("81850\n")
    assert block_stack.temperature(number) == {"temperature_celsius": 43.85, "temperature_max_celsius": 81.85}
