"""Removes a drive while it is measured, inside the lab's machine, and gives its name to another one if the kernel lets it."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest_md import LAB
from guest_sessions import During

from iosonde.errors import IosondeError
from iosonde.execution import execute, resume
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent

NEIGHBOUR, DRIVE = (LAB / "10").resolve(), (LAB / "11").resolve()
PATTERN = b"\xa5" * (1 << 20)
STUDY = """
name = "unplugged"
title = "unplugged"
question = "?"
repeats = 3

[measurement]
span = "16MiB"
block_size = "16KiB"
access = "random"
read_fraction = 0.0
queue_depth = 4
ramp = 0
duration = "5s"
interval = "100ms"
{measurement}

[[parts]]

[profiles.standard]
"""


def try_unplug() -> dict[str, Any]:
    """Reports about a drive that is removed, raw and under a file system, and the state of the others."""
    return {"raw": tried(""), "file system": tried('file_system = "ext4"')}


def tried(measurement: str) -> dict[str, Any]:
    """The report, or a traceback of this module's own."""
    try:
        return unplugged(measurement)
    except Exception:
        return {"broken": traceback.format_exc()}


def unplugged(measurement: str) -> dict[str, Any]:
    """A study of three runs whose drive is removed in the first; then `resume` with the drive back."""
    drive, neighbour = Controller(DRIVE), Controller(NEIGHBOUR)
    fill(neighbour.node)
    plan = planned(drive.node, measurement)
    consent = Consent(destroy=(str(drive.node),), confirm=(drive.serial,))
    named = drive.node

    def unplug() -> None:
        drive.remove()
        neighbour.rebind()  # It takes the lowest free number: perhaps that of the drive.

    observer = During(unplug, interval=2)
    directory = Path(tempfile.mkdtemp()) / "set"
    found: dict[str, Any] = {"error": attempted(lambda: execute(plan, directory, observer=observer, consent=consent))}
    found |= {
        "notes": observer.notes,
        "records": [
            (each.outcome, each.failure.message if each.failure else "") for each in ResultSet.open(directory).records()
        ],
        "name": named.name,
        "name_of_neighbour": neighbour.node.name,
        "written_to_neighbour": neighbour.written_sectors(),
        "neighbour_is_intact": is_filled(neighbour.node),
        "mounted": [line for line in Path("/proc/mounts").read_text().splitlines() if "iosonde" in line],
        "journal": [entry.what for entry in journal.entries()],
    }
    drive.plug_in()
    found["resumed"] = attempted(lambda: resume(directory, retry_failed=True, consent=consent))
    found["written_to_neighbour_by_resume"] = neighbour.written_sectors()
    return found


def planned(drive: Path, measurement: str) -> Plan:
    return expand(parse(STUDY.replace("{measurement}", measurement)), open_target(str(drive)))


def attempted(action: Callable[[], object]) -> str:
    """Error message of an action; a traceback if it is not an error of iosonde's own."""
    try:
        action()
    except IosondeError as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return ""


class Controller:
    """An NVMe controller by its place on the PCI bus, which stays when its number changes."""

    def __init__(self, drive: Path) -> None:
        self.serial = (Path("/sys/block", drive.name, "device/serial").read_text()).strip()
        self._function = self._found("function").resolve()

    @property
    def node(self) -> Path:
        return Path("/dev", self._found("node").name)

    def remove(self) -> None:
        """Unplug it: the kernel drops the function."""
        (self._function / "remove").write_text("1")

    def plug_in(self) -> None:
        Path("/sys/bus/pci/rescan").write_text("1")
        wait_for(lambda: self.node.is_block_device())

    def rebind(self) -> None:
        """Give it a new number, as when it is plugged in again."""
        driver = Path("/sys/bus/pci/drivers/nvme")
        (driver / "unbind").write_text(self._function.name)
        (driver / "bind").write_text(self._function.name)
        wait_for(lambda: self.node.is_block_device())

    def written_sectors(self) -> int:
        """Since it has its number."""
        return int(Path("/sys/class/block", self.node.name, "stat").read_text().split()[6])

    def _found(self, what: str) -> Path:
        for controller in Path("/sys/class/nvme").glob("nvme*"):
            if (controller / "serial").read_text().strip() == self.serial:
                return controller / "device" if what == "function" else Path(f"{controller.name}n1")
        return Path("missing")


def fill(node: Path) -> None:
    """Data at the start of a drive."""
    with node.open("r+b", buffering=0) as file:
        file.write(PATTERN)
        os.fsync(file.fileno())


def is_filled(node: Path) -> bool:
    """Return True if it still has this data, read from the drive."""
    descriptor = os.open(node, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(descriptor, len(PATTERN), 0) == PATTERN
    finally:
        os.close(descriptor)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        if time.monotonic() > deadline:
            raise RuntimeError("waited in vain")
        time.sleep(0.05)
