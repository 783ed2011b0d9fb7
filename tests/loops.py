"""Whether file systems can really be made here, on loop devices: asked once, by doing it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from iosonde.errors import TargetError
from iosonde.storage import tools
from iosonde.storage.loop_devices import LoopDevice


def needed() -> None:
    """Skip the test, and say why, where loop devices cannot be made and mounted."""
    reason = lacking()
    if reason:
        pytest.skip(f"needs root, loop devices and mkfs.ext4: {reason}")


@cache
def lacking() -> str:
    """Why it cannot be done; empty if it can."""
    if os.geteuid() != 0:
        return "this is not root"
    with tempfile.TemporaryDirectory() as directory:
        image, point = Path(directory, "image"), Path(directory, "point")
        image.touch()
        os.truncate(image, 16 << 20)
        point.mkdir()
        try:
            device = LoopDevice(image, sector_bytes=512)
        except (OSError, TargetError) as error:
            return str(error)
        try:
            tools.call("mkfs.ext4", "-q", "-F", device.path)
            tools.call("mount", "-t", "ext4", device.path, point)
            subprocess.run(["umount", point], check=True)
        except TargetError as error:
            return error.what
        finally:
            device.close()
    return ""
