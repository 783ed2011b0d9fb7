"""Fixtures of the lab, and skips that say loudly what this machine lacks."""

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
from lab_needs import NOT_RUN, needs_tool

from iosonde.errors import LabError
from iosonde.lab import Limits
from iosonde.lab.image import Image, image
from iosonde.lab.machine import Drives, Settings


@pytest.fixture(scope="session")
def host_devices() -> None:
    """Throttled devices can be made on this machine."""
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_RUN}needs root")
    needs_tool("qemu-storage-daemon", "qemu-utils")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            pytest.skip(f"{NOT_RUN}needs `{device}`")


@pytest.fixture(scope="session")
def machine_image() -> Image:
    """The image of the lab's machine, from the user's cache: taken before tests get a cache of their own."""
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_RUN}needs root")
    needs_tool("qemu-system-x86_64", "qemu-system-x86")
    needs_tool("virtiofsd", "qemu-system-common` (Debian 12) or `virtiofsd")
    for tool, package in (("cpio", "cpio"), ("depmod", "kmod"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        needs_tool(tool, package)
    try:
        return image()
    except LabError as error:
        pytest.skip(f"{NOT_RUN}no image of its machine could be had: {error}")


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
        timeout=900,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said: dict[str, Any] = json.loads((results / "said.json").read_text())
    return said


@pytest.fixture(scope="session")
def guest_report(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What one start of the machine reports; of a second one if the guest did not get to its end."""
    for attempt in range(2):
        said = run_guest(machine_image, tmp_path_factory.mktemp("guest"), SETTINGS, str(IOPS), str(BANDWIDTH))
        if said.exit_code == 0:
            break
        print(f"start {attempt + 1}: exit code {said.exit_code}\n{said.complaint}")
    return said
