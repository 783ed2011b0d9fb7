"""Fixtures of the lab, and skips that say loudly what this machine lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab_needs import NOT_RUN, needs_tool


@pytest.fixture(scope="session")
def host_devices() -> None:
    """Throttled devices can be made on this machine."""
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_RUN}needs root")
    needs_tool("qemu-storage-daemon", "qemu-utils")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            pytest.skip(f"{NOT_RUN}needs `{device}`")
