"""A loop device on an open file that detaches itself when nobody holds it any more.

losetup(8) cannot ask for that, so this speaks to the kernel directly (loop(4), `linux/loop.h`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from pathlib import Path

from iosonde.errors import LabError

CONTROL = Path("/dev/loop-control")

_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_AUTOCLEAR = 4
_DIRECT_IO = 16
_CONFIG = struct.Struct("=II QQQQQ IIII 64s64s32s QQ 64x")
"""`struct loop_config`: descriptor, block size, then `struct loop_info64` with the flags as its ninth field."""

_ATTEMPTS = 20
_DETACH_S = 5.0


class LoopDevice:
    """A block device over a file, with direct I/O. It is there as long as this object, or anybody else, holds it."""

    def __init__(self, file: Path) -> None:
        backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.path, self._descriptor = _attach(backing, file.name)
        finally:
            os.close(backing)
        if self._attribute("dio") != "1":
            self.close()
            raise LabError(f"the kernel refuses direct I/O between `{self.path}` and its file")

    @property
    def is_attached(self) -> bool:
        """Whether the device still has a file under it: ours, as long as somebody holds the device."""
        return self._attribute("backing_file") != ""

    def close(self) -> None:
        """Let go of the device; it detaches as soon as everybody has."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def wait_until_detached(self) -> bool:
        """Whether it is gone after a few seconds, which others need who only look at new devices."""
        deadline = time.monotonic() + _DETACH_S
        while self.is_attached and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.is_attached

    def _attribute(self, name: str) -> str:
        try:
            return Path("/sys/block", self.path.name, "loop", name).read_text().strip()
        except OSError:
            return ""


def _attach(backing: int, name: str) -> tuple[Path, int]:
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            path = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _LOOP_CONFIGURE, _configuration(backing, name))
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBUSY:  # Busy: somebody else was faster, and the next one may be free.
                    raise
            else:
                return path, descriptor
    except OSError as error:
        raise LabError(
            f"cannot make a loop device: {error.strerror}", hint="the lab needs the kernel's loop devices, and root"
        ) from error
    finally:
        os.close(control)
    raise LabError("cannot get a free loop device: others always take it first", hint="try again")


def _configuration(backing: int, name: str) -> bytes:
    flags = _AUTOCLEAR | _DIRECT_IO
    return _CONFIG.pack(backing, 0, 0, 0, 0, 0, 0, 0, 0, 0, flags, name.encode()[:63], b"", b"", 0, 0)
