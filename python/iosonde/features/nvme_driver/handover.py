"""Hands an NVMe controller over to the user-level driver (vfio), and back to the kernel's driver.

Every namespace of the controller disappears during the handover. So none of them may be in use (`guard.py`), and all
are claimed until the kernel's driver is unbound. The journal has the controller before that, so `iosonde cleanup` and
`resume` return it after a kill. Without an IOMMU, which limits the device to memory of the run, a handover is refused;
so is one of a device that shares its IOMMU group.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import UnsupportedError
from iosonde.storage import pcie
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.safety import guard, journal
from iosonde.storage.safety.guard import Claims
from iosonde.storage.safety.journal import Entry

JOURNALED = "handover of an NVMe controller"
"""Kind of its journal entry."""

PCI = Path("/sys/bus/pci")
NVME = Path("/sys/class/nvme")
BLOCK = Path("/sys/block")
NODES = Path("/dev")
PROCESSES = Path("/proc")
VFIO, KERNEL_DRIVER = "vfio-pci", "nvme"

_BRIDGE = "0x0604"
"""Class of PCI-to-PCI bridges, which may be in the IOMMU group of a device behind them."""
_CLOSE_S = 10.0
"""Seconds to wait for a process to close the device after its iosonde was killed."""
_RETURN_S = 60
"""Seconds to wait for the kernel to find the namespaces again."""


@dataclass(frozen=True, kw_only=True)
class Controller:
    """An NVMe controller by its place on the PCI bus."""

    address: str
    serial: str
    namespaces: Mapping[str, str]
    """Device numbers of its namespaces by name (`nvme0n1`)."""

    @property
    def device(self) -> Path:
        """Its PCI function in sysfs."""
        return PCI / "devices" / self.address


def controller_of(number: str) -> Controller:
    """The controller of a namespace; `UnsupportedError` for any other block device."""
    name = block_stack.name_of(number)
    found = [each for each in controllers() if name in each.namespaces]
    if len(found) == 1:
        return found[0]
    why = "is reached through several controllers" if found else "is not a namespace of an NVMe controller on PCI"
    raise UnsupportedError(
        f"the backend `nvme_user` cannot use `{name}`, which {why}",
        hint="name a whole namespace of a local NVMe drive, or use another backend",
    )


def controllers() -> list[Controller]:
    """All NVMe controllers on PCI that the kernel's driver has."""
    found = []
    for path in sorted(NVME.glob("nvme*")):
        address = (path / "device").resolve().name
        if re.fullmatch(pcie.ADDRESS, address):
            serial = (path / "serial").read_text(encoding="utf-8").strip()
            found.append(Controller(address=address, serial=serial, namespaces=_namespaces(path)))
    return found


def refusals(controller: Controller, *, claimed: str = "") -> list[str]:
    """Clauses, each by itself a reason against handing the controller over; `claimed` is a namespace that we claim."""
    kernel = Kernel()
    found = _without_iommu(controller)
    for number in controller.namespaces.values():
        findings = guard.examine(number, kernel=kernel, is_claimed_by_us=number == claimed)
        found += findings.refusals
    if not (PCI / "drivers" / VFIO).is_dir():
        found.append(f"the driver `{VFIO}` is not loaded (`modprobe {VFIO}`)")
    return found


def check(controller: Controller, *, claimed: str = "") -> None:
    """`UnsupportedError` if the controller must not be handed over."""
    found = refusals(controller, claimed=claimed)
    if found:
        raise UnsupportedError(
            f"the NVMe controller at {controller.address} cannot be handed over to the user-level driver: {found[0]}",
            where="; ".join(found[1:]),
            hint="all its namespaces must be unused, and the IOMMU on, in the firmware and for the kernel "
            "(`intel_iommu=on`)",
        )


def hand_over(controller: Controller, claims: Claims, *, own: str) -> None:
    """Unbind the kernel's driver and bind vfio; `UnsupportedError` if that fails, with the kernel's driver bound again.

    `claims` holds the namespace that is measured. The claims end once no driver has the namespaces.
    """
    others = Claims()
    names = {
        number: f"/dev/{name}" for name, number in controller.namespaces.items() if number not in claims.descriptors
    }
    with others.held(names):
        for number in controller.namespaces.values():
            if found := guard.examine(number, is_claimed_by_us=True).refusals:
                raise UnsupportedError(
                    f"the NVMe controller at {controller.address} must not be handed over: {found[0]}"
                )
        entry = controller.device / "driver_override"
        namespaces = " ".join(sorted(controller.namespaces))
        facts = {"serial": controller.serial, "namespaces": namespaces, "own": own}
        journal.created(entry, JOURNALED, facts=facts)
        journal.identify(entry)
        try:
            _write(entry, VFIO)
            _write(controller.device / "driver" / "unbind", controller.address)
            claims.release_all()
            others.release_all()
            _write(PCI / "drivers_probe", controller.address)
            if _driver(controller.device) != VFIO:
                raise OSError(0, f"`{VFIO}` does not accept the device")
        except BaseException as error:
            claims.release_all()
            others.release_all()
            give_back(controller)
            if not isinstance(error, OSError):
                raise
            raise UnsupportedError(
                f"cannot bind the NVMe controller at {controller.address} to `{VFIO}`: {error.strerror}",
                hint="see the kernel log (`dmesg`); the kernel's driver has it again",
            ) from error


def give_back(controller: Controller) -> None:
    """Bind the kernel's driver again and wait for the namespaces; `TargetError` if that fails."""
    with journal.undoing(f"return the NVMe controller at {controller.address} to the kernel's driver"):
        journal.undo(controller.device / "driver_override")


def undo(entry: Entry) -> None:
    """Return a controller to the kernel's driver; `OSError` if that fails. Nothing if it was removed.

    The kernel gives the files of a controller that was plugged in since another identity, and the user may have bound
    another driver: such a controller is not ours to unbind.
    """
    device = Path(entry.path).parent
    if entry.identity is not None and not journal.is_ours(Path(entry.path)):
        return
    if _driver(device) not in ("", VFIO, KERNEL_DRIVER):
        return
    try:
        _bind_kernel_driver(device)
        _wait_for_namespaces(device, entry)
    except OSError:
        if device.exists():
            raise


def _bind_kernel_driver(device: Path) -> None:
    if _driver(device) == VFIO:
        _wait_until_unused(device)
        _write(device / "driver" / "unbind", device.name)
    _write(device / "driver_override", "\n")
    if not _driver(device):
        _write(PCI / "drivers_probe", device.name)


def _wait_until_unused(device: Path) -> None:
    """Wait for the engine of a killed session to exit; `OSError` if another process has it, as a virtual machine."""
    nodes = {f"/dev/vfio/{(device / 'iommu_group').resolve().name}"}
    nodes |= {f"/dev/vfio/devices/{each.name}" for each in (device / "vfio-dev").glob("vfio*")}
    deadline = time.monotonic() + _CLOSE_S
    while processes := _having_open(nodes):
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, f"process {processes[0]} uses it through vfio")
        time.sleep(0.05)


def _having_open(nodes: set[str]) -> list[int]:
    """Processes with a descriptor of one of these nodes."""
    found = set()
    for process in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has exited.
            for each in (process / "fd").iterdir():
                with contextlib.suppress(OSError):  # It was closed.
                    if str(each.readlink()) in nodes:
                        found.add(int(process.name))
    return sorted(found)


def _wait_for_namespaces(device: Path, entry: Entry) -> None:
    """Wait until the kernel has found the namespaces again, or the device is gone."""
    expected = set(str(entry.facts["namespaces"]).split())
    deadline = time.monotonic() + _RETURN_S
    while not (found := _returned(device.name, expected)):
        if not device.exists():
            return
        if time.monotonic() > deadline:
            raise OSError(0, f"the kernel did not find its namespaces again ({', '.join(sorted(expected))})")
        time.sleep(0.05)
    if found.serial != entry.facts["serial"]:
        raise OSError(0, f"it returned with the serial number `{found.serial}` and not `{entry.facts['serial']}`")


def _returned(address: str, expected: set[str]) -> Controller | None:
    """The controller once as many namespaces have nodes as before; their names may have changed."""
    for each in controllers():
        nodes = [(NODES / name).exists() for name in each.namespaces]
        if each.address == address and len(nodes) >= len(expected) and all(nodes):
            return each
    return None


def _namespaces(controller: Path) -> dict[str, str]:
    found = {}
    for path in sorted(controller.glob("nvme*n*")):
        # A path to a namespace that may have several (`nvme0c0n1`) is hidden; the device is `nvme0n1`.
        name = re.sub(r"^(nvme\d+)c\d+(n\d+)$", r"\1\2", path.name)
        node = BLOCK / name / "dev"
        if node.exists():
            found[name] = node.read_text(encoding="utf-8").strip()
    return found


def _without_iommu(controller: Controller) -> list[str]:
    group = controller.device / "iommu_group"
    noiommu = (group / "name").exists() and (group / "name").read_text(encoding="utf-8").strip() == "vfio-noiommu"
    if not group.exists() or noiommu:
        return ["no IOMMU limits which memory the device may access"]
    others = [each for each in (group / "devices").iterdir() if each.name != controller.address]
    shared = [each.name for each in others if not (each / "class").read_text(encoding="utf-8").startswith(_BRIDGE)]
    return [f"it shares its IOMMU group with `{shared[0]}`"] if shared else []


def _driver(device: Path) -> str:
    """Name of the driver of a PCI device; empty if it has none."""
    driver = device / "driver"
    return driver.resolve().name if driver.exists() else ""


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
