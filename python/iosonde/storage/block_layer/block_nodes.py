"""Block devices by number, whatever their nodes are called.

A path is only a name: a link or a node may lead elsewhere a moment later, and a container's `/dev` may lack nodes. The
number (`major:minor`) is the kernel's. Every descriptor returned here was checked with `fstat` after it was opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from iosonde.errors import TargetError

_SYS = Path("/sys/dev/block")


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
    return _open_own_node(number, flags)


@contextlib.contextmanager
def opened(number: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """`open_device` for the length of a block."""
    descriptor = open_device(number, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _nodes(number: str) -> list[Path]:
    """Paths of its nodes from the kernel (devtmpfs) and udev."""
    try:
        lines = (_SYS / number / "uevent").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    names = [line.partition("=")[2] for line in lines if line.startswith("DEVNAME=")]
    return [Path("/dev", name) for name in (*names, f"block/{number}")]


def _open_own_node(number: str, flags: int) -> int:
    """For a `/dev` without the node: in a directory of ours, as file systems elsewhere may be mounted `nodev`."""
    with tempfile.TemporaryDirectory(dir="/dev", prefix=".iosonde-") as directory:
        node = Path(directory, "node")
        major, minor = map(int, number.split(":"))
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(major, minor))
        return os.open(node, flags | os.O_CLOEXEC)
