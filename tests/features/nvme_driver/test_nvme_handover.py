"""The handover of an NVMe controller, on an imitation of sysfs that binds and unbinds drivers as the kernel does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from study_texts import study_text

from iosonde.errors import TargetError, UnsupportedError
from iosonde.execution.session import execute
from iosonde.features.nvme_driver import handover, run, storage
from iosonde.features.nvme_driver.handover import JOURNALED, KERNEL_DRIVER, VFIO, Controller
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.storage.safety import guard, journal
from iosonde.storage.safety.guard import Claims, Consent
from iosonde.storage.safety.journal import Entry
from iosonde.storage.targets.device_target import DeviceTarget

ADDRESS, OTHER = "0000:01:00.0", "0000:01:00.1"
OWN = "iosonde-00112233"


class Machine:
    """One controller with two namespaces in an IOMMU group of its own."""

    def __init__(self, root: Path) -> None:
        self.pci, self.nvme, self.block, self.nodes = root / "pci", root / "nvme", root / "block", root / "dev"
        self.device = self.pci / "devices" / ADDRESS
        self.serial = "S1"
        self.accepts_vfio = True
        self.refusals: dict[str, list[str]] = {}
        self.claims_at_unbind: set[str] = set()
        self.claims = Claims()
        for driver in (VFIO, KERNEL_DRIVER):
            (self.pci / "drivers" / driver).mkdir(parents=True)
        self.device.mkdir(parents=True)
        (self.device / "driver_override").write_text("(null)\n")
        for path in (self.nvme, self.block, self.nodes):
            path.mkdir()
        self.add_to_group(ADDRESS, "0x010802")
        (self.device / "iommu_group").symlink_to(self.pci / "group")
        self.bind(KERNEL_DRIVER)

    def add_to_group(self, address: str, kind: str) -> None:
        folder = self.pci / "group" / "devices" / address
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")

    def write(self, path: Path, text: str) -> None:
        if path.name == "unbind":
            self.claims_at_unbind |= self.claims.descriptors.keys()
            self.unbind()
        elif path.name == "drivers_probe":
            override = (self.device / "driver_override").read_text().strip()
            if override != VFIO or self.accepts_vfio:
                self.bind(override or KERNEL_DRIVER)
        else:
            path.write_text(text)

    def bind(self, driver: str) -> None:
        (self.device / "driver").symlink_to(self.pci / "drivers" / driver)
        if driver == KERNEL_DRIVER:
            controller = self.nvme / "nvme0"
            controller.mkdir()
            (controller / "device").symlink_to(self.device)
            (controller / "serial").write_text(f"{self.serial:20}\n")
            for minor, name in enumerate(("nvme0n1", "nvme0n2")):
                (controller / name).mkdir()
                (self.block / name).mkdir()
                (self.block / name / "dev").write_text(f"259:{minor}\n")
                (self.nodes / name).touch()

    def unbind(self) -> None:
        (self.device / "driver").unlink()
        for path in sorted([*self.nvme.rglob("*"), *self.block.rglob("*"), *self.nodes.rglob("*")], reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    @property
    def driver(self) -> str:
        return (self.device / "driver").resolve().name


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(handover, "PCI", made.pci)
    monkeypatch.setattr(handover, "NVME", made.nvme)
    monkeypatch.setattr(handover, "BLOCK", made.block)
    monkeypatch.setattr(handover, "NODES", made.nodes)
    monkeypatch.setattr(handover, "_write", made.write)
    monkeypatch.setattr(handover, "_RETURN_S", 0)
    monkeypatch.setattr(storage, "UNDO", (replace(storage.UNDO[0], path=r"/.+/driver_override"),))

    def examine(number: str, **_: object) -> guard.Findings:
        return guard.Findings(number=number, refusals=made.refusals.get(number, []))

    monkeypatch.setattr(guard, "examine", examine)
    monkeypatch.setattr(
        "iosonde.storage.safety.guard.open_device", lambda number, flags: os.open(os.devnull, os.O_RDONLY)
    )
    return made


def controller(machine: Machine) -> handover.Controller:
    [found] = handover.controllers()
    assert found.namespaces == {"nvme0n1": "259:0", "nvme0n2": "259:1"}
    return found


def test_a_controller_is_handed_over_and_given_back(machine: Machine) -> None:
    found = controller(machine)
    machine.claims.take("259:0", "/dev/nvme0n1")
    handover.hand_over(found, machine.claims, own=OWN)
    assert machine.driver == VFIO
    assert [entry.what for entry in journal.entries()] == [JOURNALED]
    assert machine.claims_at_unbind == {"259:0"}, "no process can mount it before the driver is unbound"
    assert machine.claims.descriptors == {}, "an open node would keep its number from the namespace that returns"
    handover.give_back(found)
    assert (machine.driver, journal.entries()) == (KERNEL_DRIVER, [])
    assert handover.controllers() == [found]
    assert (machine.device / "driver_override").read_text().strip() == ""


def test_every_namespace_in_use_is_a_reason_against_it(machine: Machine) -> None:
    found = controller(machine)
    machine.refusals["259:1"] = ["`nvme0n2` is mounted at `/data`"]
    with pytest.raises(UnsupportedError, match="`nvme0n2` is mounted at `/data`"):
        handover.check(found, claimed="259:0")
    with pytest.raises(UnsupportedError, match="`nvme0n2` is mounted at `/data`"):
        handover.hand_over(found, machine.claims, own=OWN)
    assert (machine.driver, journal.entries()) == (KERNEL_DRIVER, [])


def test_it_is_refused_with_another_device_in_its_group_without_an_iommu_or_driver(machine: Machine) -> None:
    found = controller(machine)
    machine.add_to_group("0000:00:1c.0", "0x060400")  # A bridge.
    assert handover.refusals(found) == []
    machine.add_to_group(OTHER, "0x020000")
    assert handover.refusals(found) == [f"it shares its IOMMU group with `{OTHER}`"]
    (machine.pci / "group" / "name").write_text("vfio-noiommu\n")
    assert "no IOMMU limits which memory the device may access" in handover.refusals(found)
    (machine.device / "iommu_group").unlink()
    assert handover.refusals(found) == ["no IOMMU limits which memory the device may access"]
    (machine.pci / "drivers" / VFIO).rmdir()
    assert "the driver `vfio-pci` is not loaded (`modprobe vfio-pci`)" in handover.refusals(found)


def test_a_device_that_vfio_does_not_accept_goes_back_to_its_driver(machine: Machine) -> None:
    found = controller(machine)
    machine.accepts_vfio = False
    with pytest.raises(UnsupportedError, match="does not accept the device"):
        handover.hand_over(found, machine.claims, own=OWN)
    assert (machine.driver, journal.entries()) == (KERNEL_DRIVER, [])


def test_a_controller_that_returns_with_another_serial_number_is_an_error_and_stays_in_the_journal(
    machine: Machine,
) -> None:
    found = controller(machine)
    handover.hand_over(found, machine.claims, own=OWN)
    machine.serial = "S2"
    with pytest.raises(TargetError, match="`S2` and not `S1`"):
        handover.give_back(found)
    assert [entry.what for entry in journal.entries()] == [JOURNALED]


def test_cleanup_after_a_kill_at_any_step_gives_it_back(machine: Machine) -> None:
    found = controller(machine)
    facts = {"serial": "S1", "namespaces": "nvme0n1 nvme0n2", "own": OWN}
    path = machine.device / "driver_override"
    entry = Entry(path=str(path), what=JOURNALED, owner="", facts=facts)
    for step in ("journal", "override", "unbound", "vfio"):
        if step != "journal":
            machine.write(path, VFIO)
        if step in ("unbound", "vfio"):
            machine.unbind()
        if step == "vfio":
            machine.bind(VFIO)
        handover.undo(entry)
        assert (machine.driver, handover.controllers()) == (KERNEL_DRIVER, [found]), step


@pytest.mark.parametrize("driver", [VFIO, "uio_pci_generic"])
def test_another_controller_or_one_that_the_user_gave_to_another_driver_keeps_it(machine: Machine, driver: str) -> None:
    """A virtual machine of the user may have the controller that was plugged in there, by the same driver."""
    handover.hand_over(controller(machine), machine.claims, own=OWN)
    override = machine.device / "driver_override"
    if driver == VFIO:
        override.rename(machine.device / "that of the removed one")
        override.write_text(VFIO)
    else:
        machine.unbind()
        (machine.pci / "drivers" / driver).mkdir()
        machine.bind(driver)
    journal.undo(override)
    assert machine.driver == driver
    assert journal.entries() == []


@pytest.mark.parametrize("node", ["/dev/vfio/group", "/dev/vfio/devices/vfio0"])
def test_a_controller_that_another_process_uses_through_vfio_stays_bound(
    machine: Machine, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill of iosonde, when the user has given the controller to a virtual machine."""
    found = controller(machine)
    handover.hand_over(found, machine.claims, own=OWN)
    (machine.device / "vfio-dev/vfio0").mkdir(parents=True)
    descriptor = tmp_path / "proc/4711/fd/3"
    descriptor.parent.mkdir(parents=True)
    descriptor.symlink_to(node)
    monkeypatch.setattr(handover, "PROCESSES", tmp_path / "proc")
    monkeypatch.setattr(handover, "_CLOSE_S", 0)
    with pytest.raises(TargetError, match="process 4711 uses it through vfio"):
        handover.give_back(found)
    assert (machine.driver, [entry.what for entry in journal.entries()]) == (VFIO, [JOURNALED])
    descriptor.unlink()
    handover.give_back(found)
    assert (machine.driver, journal.entries()) == (KERNEL_DRIVER, [])


def test_a_device_that_is_no_namespace_of_a_controller_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "iosonde.storage.block_layer.block_stack.name_of", lambda number: {"259:0": "nvme0n1"}.get(number, "sda")
    )
    assert handover.controller_of("259:0") == controller(machine)
    with pytest.raises(UnsupportedError, match="cannot use `sda`, which is not a namespace"):
        handover.controller_of("8:0")


# Consent, by PCI address and serial number -----------------------------------------------------------------------------


CONTROLLER = Controller(address="0000:03:00.0", serial="S1", namespaces={"nvme1n1": "259:0", "nvme1n2": "259:1"})
LOAD = """
access = "random"
read_fraction = 1.0
block_size = "4KiB"
span = "64KiB"
ramp = 0
duration = "10min"
limit_operations = 4
"""


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> DeviceTarget:
    """A namespace of the controller, which could be handed over."""
    monkeypatch.setattr(handover, "controller_of", lambda number: CONTROLLER)
    monkeypatch.setattr(handover, "check", lambda controller, claimed: None)
    return DeviceTarget(devices={"259:0": Path("/dev/nvme1n1")}, incarnations={"259:0": "1"}, hardware={})


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (Consent(destroy=("/dev/nvme1n1",)), "--destroy 0000:03:00.0 --confirm S1"),
        (Consent(destroy=("0000:03:00.0",)), "--confirm S1"),
        (Consent(destroy=("0000:03:00.1",), confirm=("S1",)), "--destroy 0000:03:00.0"),
        (Consent(destroy=("0000:03:00.0",), confirm=("S2",)), "--confirm S1"),
    ],
)
def test_a_controller_needs_consent_by_address_and_serial_number(
    given: Consent, missing: str, namespace: DeviceTarget
) -> None:
    with pytest.raises(
        UnsupportedError, match=r"takes the NVMe controller at 0000:03:00.0 .* `nvme1n1`, `nvme1n2`"
    ) as found:
        run.check(namespace, given)
    assert found.value.hint == f"to allow it, add {missing}"
    run.check(namespace, Consent(destroy=("0000:03:00.0",), confirm=("S1",)))


def test_a_controller_in_use_is_refused_with_any_consent(
    namespace: DeviceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(controller: Controller, claimed: str) -> None:
        raise UnsupportedError("`nvme1n2` is mounted")

    monkeypatch.setattr(handover, "check", refuse)
    with pytest.raises(UnsupportedError, match="mounted"):
        run.check(namespace, Consent(destroy=("0000:03:00.0",), confirm=("S1",)))


def plan_on(directory: Path, backends: str) -> Any:
    study = parse(study_text("block", LOAD, f"factors.backend = {backends}"))
    return expand(study, open_target(str(directory)))


@pytest.mark.engine
def test_on_a_file_runs_with_the_driver_are_unsupported_and_a_study_of_nothing_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="needs one NVMe namespace as the target"):
        execute(plan_on(tmp_path, '["nvme_user"]'), tmp_path / "set")
    assert not (tmp_path / "set").exists()
    records = execute(plan_on(tmp_path, '["sync", "nvme_user"]'), tmp_path / "set").records()
    ended = {record.parameters["backend"]: record for record in records}
    assert ended["sync"].outcome == "complete"
    assert ended["nvme_user"].is_unsupported
    assert "not a namespace of an NVMe drive" in run._probe(tmp_path).reason
