"""Fixtures of the lab."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report, run_guest

from iosonde.lab import Limits
from iosonde.lab.image import Image, image
from iosonde.lab.machine import Settings
from iosonde.lab.qemu import Drives


@pytest.fixture(scope="session")
def host_devices() -> None:
    """Throttled devices can be created on this machine: `tests/tiers.py` checks it for every test that asks for this."""


@pytest.fixture(scope="session")
def machine_image() -> Image:
    """The image of the virtual machine, from the user's cache: taken before tests get a cache of their own."""
    return image()


IOPS = 300
BANDWIDTH = 10_000_000
"""Low enough that two emulated processors keep eight drives busy beside other work."""

DRIVES = Drives(count=8, unlimited=4, size_bytes=512 << 20, limits=Limits(iops=IOPS, bandwidth=BANDWIDTH))
SETTINGS = Settings(drives=DRIVES, silence_s=900)


@pytest.fixture(scope="session")
def guest_report(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What one start of the machine reports: everything that tests look at in a guest is tried in it, in turn."""
    return run_guest(machine_image, tmp_path_factory.mktemp("guest"), SETTINGS, str(IOPS), str(BANDWIDTH))


@pytest.fixture(scope="session")
def studies_said(guest_report: Report) -> dict[str, Any]:
    """Results of the studies of `guest_studies.py`."""
    return guest_report.file("studies.json")
