"""Fixtures of the lab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine
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
BANDWIDTH = 15_000_000
"""Low enough that two emulated processors keep eight drives busy beside other work."""

SETTINGS = Settings(
    drives=Drives(count=8, size_bytes=128 << 20, limits=Limits(iops=IOPS, bandwidth=BANDWIDTH)),
    silence_s=300,
)


@pytest.fixture(scope="session")
def studies_said(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the studies of `guest_studies.py` came to, in one start of the machine."""
    results = tmp_path_factory.mktemp("studies")
    environment = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT / "python"),
        "XDG_CACHE_HOME": str(machine_image.directory.parents[2]),
        "IOSONDE_ENGINE": str(real_engine()),
    }
    guest = Path(__file__).with_name("guest_studies.py")
    drives = ("--drives", "3", "--size", "512MiB")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "iosonde", "lab", "run", *drives, "--results", str(results), "--"),
            *(sys.executable, "-B", str(guest), "said.json"),
        ],
        capture_output=True,
        text=True,
        env=environment,
        timeout=1700,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said: dict[str, Any] = json.loads((results / "said.json").read_text())
    return said


@pytest.fixture(scope="session")
def guest_report(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What one start of the machine reports."""
    return run_guest(machine_image, tmp_path_factory.mktemp("guest"), SETTINGS, str(IOPS), str(BANDWIDTH))
