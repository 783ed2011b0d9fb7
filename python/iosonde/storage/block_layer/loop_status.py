"""Backing file or device of each loop device, as the kernel itself reports it (`LOOP_GET_STATUS64`, loop(4)).

`/sys/block/loopN/loop/backing_file` is only the path at which the file was opened. The file may have been renamed,
replaced or deleted since, the path may belong to another mount namespace, and a device node may have any name. The
kernel's answer is device and inode number of a file, or the number of a block device, with offset and size limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from iosonde.storage.block_layer.block_nodes import device_number, number_of_descriptor, opened

_SYS = Path("/sys/dev/block")
_GET_STATUS64 = 0x4C05
_INFO = struct.Struct("=5Q 4I 64s 64s 32s 2Q")
"""`struct loop_info64` (`linux/loop.h`)."""


@dataclass(frozen=True, kw_only=True)
class LoopStatus:
    """One attached loop device."""

    number: str
    """The loop device, as `major:minor`."""
    node: Path = Path()
    """Path of its node."""
    backing_device: str = ""
    """The block device that it is attached to, as `major:minor`; empty if it is attached to a file."""
    file_system: str = ""
    """Device number of the file system that contains the backing file (or the node of the backing device)."""
    inode: int = 0
    offset: int = 0
    """Bytes of the backing file or device before the first byte of the loop device."""
    path: str = ""
    """Path at which the backing file was opened, for messages."""
    problem: str = ""
    """Reason for the lack of a status from the kernel; then only `path` is known."""
    is_disconnected: bool = False
    """The problem is that the daemon of the backing file's file system (FUSE) has exited: no I/O reaches any device."""

    @property
    def backing_file(self) -> str:
        """Identity of the backing file, as `identity_of` returns it; empty for a block device."""
        return "" if self.backing_device or self.problem else f"{self.file_system}:{self.inode}"


def identity_of(found: os.stat_result) -> str:
    """Device and inode number of a file as `major:minor:inode`."""
    return f"{device_number(found.st_dev)}:{found.st_ino}"


def attached_loops(sys: Path = Path("/sys")) -> list[LoopStatus]:
    """Every loop device that is attached to something."""
    found = []
    for directory in sorted((sys / "block").glob("loop*")):
        number = _text(directory / "dev")
        if number and (directory / "loop/backing_file").exists():
            status = loop_status(number, _text(directory / "loop/backing_file"))
            found += [replace(status, node=Path("/dev", directory.name))] if status else []
    return found


def loop_status(number: str, path: str = "") -> LoopStatus | None:
    """Return the attachment of a loop device; None if it is not attached (any more)."""
    try:
        with opened(number) as descriptor:
            return status_of(descriptor)
    except OSError as error:
        if error.errno == errno.ENXIO:  # Detached in the meantime.
            return None
        is_disconnected = error.errno == errno.ENOTCONN
        return LoopStatus(
            number=number, path=path, problem=error.strerror or str(error), is_disconnected=is_disconnected
        )


def status_of(descriptor: int) -> LoopStatus:
    """Return the attachment of an open loop device; `OSError` (`ENXIO`) if it is not attached.

    It stays attached to that for as long as the descriptor is open: a detachment waits for the last user.
    """
    answer = fcntl.ioctl(descriptor, _GET_STATUS64, bytes(_INFO.size))
    file_system, inode, device, offset, *_ = _INFO.unpack(answer)
    number = number_of_descriptor(descriptor)
    return LoopStatus(
        number=number,
        backing_device=device_number(device) if device else "",
        file_system=device_number(file_system),
        inode=inode,
        offset=offset,
        path=_text(_SYS / number / "loop/backing_file"),
    )


def loops_on(identities: set[str]) -> list[LoopStatus]:
    """The loop devices that are attached to any of these files.

    A user who may not ask the kernel gets those whose backing path leads to such a file.
    """
    return [loop for loop in attached_loops() if (loop.backing_file or _identity_at(loop.path)) in identities]


def attached_to(path: Path) -> list[Path]:
    """The loop devices that are attached to a file, or to any file in a directory."""
    files = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    identities = set()
    for file in files:
        with contextlib.suppress(OSError):
            identities.add(identity_of(file.lstat()))
    return [loop.node for loop in loops_on(identities)]


def _identity_at(path: str) -> str:
    try:
        return identity_of(Path(path).stat())
    except OSError:
        return ""


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="surrogateescape", encoding="utf-8").strip()
    except OSError:
        return ""
