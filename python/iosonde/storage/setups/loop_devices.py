"""Loop devices: files used as block devices.

Attached through the kernel's own interface (`loop(4)`, `linux/loop.h`) with `LO_FLAGS_AUTOCLEAR`, so that a device
detaches when its last user closes it: this process, an engine, or a mount. It bypasses the page cache of the file
(`LO_FLAGS_DIRECT_IO`) if the file system supports that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import opened
from iosonde.storage.block_layer.loop_status import LoopStatus, loop_status, loops_on, status_of
from iosonde.storage.safety import journal
from iosonde.storage.safety.file_handle import handle_of
from iosonde.storage.tools import require_root

CONTROL = Path("/dev/loop-control")

_CTL_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_CLR_FD = 0x4C01
_AUTOCLEAR = 4
_DIRECT_IO = 16
_CONFIG = struct.Struct("=II QQQQQ IIII 64s64s32s QQ 64x")
"""`struct loop_config`: descriptor, block size, then `struct loop_info64`, whose ninth field holds the flags."""

_DELETED = " (deleted)"
"""Suffix of the path of a backing file that has been unlinked."""

_ATTEMPTS = 20
_DETACH_S = 10.0


class LoopDevice:
    """A block device over a file, held until `close`.

    `opened` is a descriptor of the file, which stays open; without it the file is opened by its path.
    """

    def __init__(self, image: Path, *, opened: int | None = None, sector_bytes: int = 512) -> None:
        backing = os.open(image, os.O_RDWR | os.O_CLOEXEC) if opened is None else os.dup(opened)
        try:
            self.path, self._descriptor, self._status = _attach(backing, image, sector_bytes)
        finally:
            os.close(backing)
        self.image = image

    @property
    def is_direct(self) -> bool:
        """Return True if it goes past the page cache of its file."""
        return _attribute(self.path.name, "dio") == "1"

    @property
    def is_attached(self) -> bool:
        """Return True if it is still attached to our file; another process may have attached another one since."""
        own, now = self._status, loop_status(self._status.number)
        if now is None or now.problem:
            return now is not None  # There is no status if the file system of the file has failed.
        return (now.file_system, now.inode) == (own.file_system, own.inode)

    def close(self) -> bool:
        """Close it and wait until the kernel has detached it.

        Return whether it has: not while it has another user. It may be closed again, to wait again.
        """
        self.close_descriptor()
        return _wait_until(lambda: not self.is_attached)

    def close_descriptor(self) -> None:
        """Close it without waiting: the kernel detaches it as soon as it has no other user."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_possible() -> None:
    """`TargetError` if loop devices cannot be created."""
    require_root("create a loop device")
    if not os.access(CONTROL, os.R_OK | os.W_OK):
        raise TargetError(
            f"loop devices cannot be created: `{CONTROL}` is missing or cannot be opened",
            hint="load the module with `modprobe loop`; in a container, give it the device",
        )


def undo(entry: journal.Entry) -> None:
    """Detach the loop device on the file that an entry is about; `OSError` if it is still in use.

    Only that file counts: what was attached at its path since, and a file that got its inode number, stay as they are.
    """
    if entry.identity is None:
        return  # We died before the file had anything attached to it.
    for loop in loops_on({entry.identity}):
        _detach(loop.number, entry)
    if not _wait_until(lambda: not _own_loops(entry)) and (left := _own_loops(entry)):
        raise OSError(errno.EBUSY, f"`{left[0].node}` is still in use")


def _own_loops(entry: journal.Entry) -> list[LoopStatus]:
    return [loop for loop in loops_on({entry.identity or ""}) if _is_on(loop, entry)]


def _is_on(loop: LoopStatus, entry: journal.Entry) -> bool:
    """Return True if the backing file is that of the entry.

    Its inode number cannot be given to another file while it is attached, but it can after it was detached and deleted.
    """
    if loop.backing_file != entry.identity:
        return False
    if loop.path == f"{entry.path}{_DELETED}":
        return True
    if entry.handle is None:  # A file system without handles.
        return loop.path == entry.path
    return handle_of(Path(loop.path)) == entry.handle


def _attach(backing: int, image: Path, sector_bytes: int) -> tuple[Path, int, LoopStatus]:
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            path = Path(f"/dev/loop{fcntl.ioctl(control, _CTL_GET_FREE)}")
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                _configure(descriptor, backing, image, sector_bytes)
                return path, descriptor, status_of(descriptor)
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBUSY:  # Busy: another process took it first; the next one may be free.
                    raise
    except OSError as error:
        raise TargetError(
            f"cannot attach a loop device to `{image}`: {error.strerror}", hint="see the kernel log (`dmesg`)"
        ) from error
    finally:
        os.close(control)
    raise TargetError("no free loop device: other processes took each one first", hint="try again")


def _configure(descriptor: int, backing: int, image: Path, sector_bytes: int) -> None:
    try:
        fcntl.ioctl(descriptor, _CONFIGURE, _configuration(backing, image, sector_bytes, _AUTOCLEAR | _DIRECT_IO))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A file system without direct I/O, such as tmpfs.
        fcntl.ioctl(descriptor, _CONFIGURE, _configuration(backing, image, sector_bytes, _AUTOCLEAR))


def _configuration(backing: int, image: Path, sector_bytes: int, flags: int) -> bytes:
    name = str(image).encode()[:63]
    return _CONFIG.pack(backing, sector_bytes, 0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)


def _detach(number: str, entry: journal.Entry) -> None:
    """Detach a loop device if, while it is open, it is on the file of the entry: it may be another's by now."""
    with contextlib.suppress(OSError), opened(number) as descriptor:
        if _is_on(status_of(descriptor), entry):
            fcntl.ioctl(descriptor, _CLR_FD)


def _wait_until(is_detached: Callable[[], bool]) -> bool:
    """The kernel detaches shortly after the last user has closed it; short opens by udev delay that."""
    deadline = time.monotonic() + _DETACH_S
    while not (detached := is_detached()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return detached


def _attribute(name: str, attribute: str) -> str:
    try:
        return Path("/sys/block", name, "loop", attribute).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
