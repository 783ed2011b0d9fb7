"""Block devices by number, whatever their nodes are called, and the attachments of loop devices.

A path is only a name: a link or a node may lead elsewhere a moment later, and a container's `/dev` may lack nodes. The
number (`major:minor`) is the kernel's. Every descriptor returned here was checked with `fstat` after it was opened.

`/sys/block/loopN/loop/backing_file` is only the path at which the file was opened. The file may have been renamed,
replaced or deleted since, the path may belong to another mount namespace, and a device node may have any name. The
kernel's answer (`LOOP_GET_STATUS64`, loop(4)) is device and inode number of a file, or the number of a block device,
with offset and size limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iosonde.engine.supervisor.account import sysfs_directory
from iosonde.errors import TargetError

SYS = Path("/sys")

_GET_STATUS64 = 0x4C05
_INFO = struct.Struct("=5Q 4I 64s 64s 32s 2Q")
"""`struct loop_info64` (`linux/loop.h`)."""


def number_of(path: str | Path) -> str:
    """`major:minor` of a block device by any of its absolute names; empty for anything else."""
    try:
        found = Path(path).stat() if str(path).startswith("/") else None
    except OSError:
        return ""
    return device_number(found.st_rdev) if found is not None and stat.S_ISBLK(found.st_mode) else ""


def device_number(device: int) -> str:
    """A `dev_t` as `major:minor`."""
    return f"{os.major(device)}:{os.minor(device)}"


def number_of_descriptor(descriptor: int) -> str:
    """`major:minor` of an open block device; empty for anything else."""
    found = os.fstat(descriptor)
    return device_number(found.st_rdev) if stat.S_ISBLK(found.st_mode) else ""


def identity_of(found: os.stat_result) -> str:
    """Device and inode number of a file as `major:minor:inode`."""
    return f"{device_number(found.st_dev)}:{found.st_ino}"


def node_of(number: str) -> Path:
    """The kernel's node of a device in `/dev`, for programs that take a path; `TargetError` if there is none."""
    for node in _nodes(number):
        if number_of(node) == number:
            return node
    raise TargetError(
        f"there is no node in `/dev` for the block device {number}",
        hint="start udev, or create the node with `mknod`",
    )


def check_name(device: Path, number: str) -> None:
    """`TargetError` if a name does not lead to this device any more."""
    now = number_of(device)
    if now != number:
        leads = f"now leads to the block device {now}" if now else "no longer leads to a block device"
        raise TargetError(
            f"`{device}` {leads}, and led to {number} when it was checked",
            hint="restore the name, or start again; `iosonde devices` lists the devices",
        )


def open_device(number: str, flags: int) -> int:
    """A descriptor of the device with this number; `OSError` if it cannot be opened, or if there is no number."""
    if not number:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    for node in _nodes(number):
        if number_of(node) == number:
            descriptor = os.open(node, flags | os.O_CLOEXEC)
            if number_of_descriptor(descriptor) == number:
                return descriptor
            os.close(descriptor)
    # A `/dev` without the node: in a directory of ours, as file systems elsewhere may be mounted `nodev`.
    with tempfile.TemporaryDirectory(dir="/dev", prefix=".iosonde-") as directory:
        node = Path(directory, "node")
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(*map(int, number.split(":"))))
        return os.open(node, flags | os.O_CLOEXEC)


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """A descriptor for the length of a block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def opened(number: str, flags: int = os.O_RDONLY) -> contextlib.AbstractContextManager[int]:
    """`open_device` for the length of a block."""
    return closing(open_device(number, flags))


@contextlib.contextmanager
def opened_exclusively(device: Path) -> Iterator[int]:
    """A descriptor with an exclusive claim; `TargetError` if another program has one.

    While it is open, the kernel gives the device's number to no other one.
    """
    try:
        descriptor = open_device(number_of(device), os.O_RDWR | os.O_EXCL)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise TargetError(
            f"`{device}` is claimed exclusively by another program", hint="`iosonde devices` shows its users"
        ) from None
    with closing(descriptor):
        yield descriptor


def sys_path(number: str) -> Path:
    """The directory of a device in `/sys`; for an unknown device, a path that does not exist."""
    return sysfs_directory(number, SYS)


def number_of_name(name: str) -> str:
    """`major:minor` of a device by the kernel's name; empty for an unknown one."""
    return read(SYS / "class/block" / name / "dev")


def names_in(folder: Path) -> list[str]:
    """Names in a directory of `/sys`; none if it has disappeared, as with a device that was removed meanwhile."""
    try:
        return sorted((each.name for each in folder.iterdir()), key=natural)
    except (FileNotFoundError, NotADirectoryError):
        return []


def natural(name: str) -> list[tuple[int, str]]:
    """Key of an order with `sda2` before `sda10`."""
    return [(int(digits or 0), text) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def read(file: Path, errors: str = "replace") -> str:
    """Text of a file in `/sys`; empty if it cannot be read."""
    try:
        with file.open("rb", buffering=0) as opened:
            return opened.read().decode(errors=errors).strip()
    except OSError:
        return ""


def chosen(text: str) -> str:
    """The selected one of several words: `writethrough [writeback] writearound none`; all of it if none is."""
    found = re.search(r"\[(.*?)\]", text)
    return found[1] if found else text


def _nodes(number: str) -> list[Path]:
    """Paths of its nodes from the kernel (devtmpfs) and udev."""
    lines = read(sys_path(number) / "uevent").splitlines()
    names = [line.partition("=")[2] for line in lines if line.startswith("DEVNAME=")]
    return [Path("/dev", name) for name in (*names, f"block/{number}")] if lines else []


@dataclass(frozen=True, kw_only=True)
class LoopStatus:
    """One attached loop device."""

    number: str
    """The loop device, as `major:minor`."""
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
    def node(self) -> Path:
        """Path of its node."""
        return Path("/dev", sys_path(self.number).name)

    @property
    def backing_file(self) -> str:
        """Identity of the backing file, as `identity_of` returns it; empty for a block device."""
        return "" if self.backing_device or self.problem else f"{self.file_system}:{self.inode}"


def attached_loops() -> list[LoopStatus]:
    """Every loop device that is attached to something."""
    attached = (each.parents[1] for each in sorted((SYS / "block").glob("loop*/loop/backing_file")))
    numbers = (read(directory / "dev") for directory in attached)  # Empty for one that vanished since it was listed.
    return [status for number in numbers if number and (status := loop_status(number))]


def loop_status(number: str) -> LoopStatus | None:
    """Return the attachment of a loop device; None if it is not attached (any more)."""
    path = _backing_path(sys_path(number))
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
        path=_backing_path(sys_path(number)),
    )


def loops_on(identities: set[str]) -> list[LoopStatus]:
    """The loop devices that are attached to any of these files.

    A user who may not ask the kernel gets those whose backing path leads to such a file.
    """
    return [loop for loop in attached_loops() if (loop.backing_file or identity_at(loop.path)) in identities]


def attached_to(path: Path) -> list[Path]:
    """The loop devices that are attached to a file, or to any file in a directory."""
    files = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    identities = {identity_at(file, follow=False) for file in files}
    return [loop.node for loop in loops_on(identities - {""})]


def identity_at(path: str | Path, *, follow: bool = True) -> str:
    """Identity of what is at a path now; empty if there is nothing."""
    try:
        return identity_of(Path(path).stat(follow_symlinks=follow)) if path else ""
    except OSError:
        return ""


def _backing_path(directory: Path) -> str:
    return read(directory / "loop/backing_file", "surrogateescape")
