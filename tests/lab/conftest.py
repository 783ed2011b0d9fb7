"""Fixtures of the lab, and skips that say loudly what this machine lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab_needs import NOT_RUN, needs_tool

from iosonde.errors import LabError
from iosonde.lab.image import Image, image


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
