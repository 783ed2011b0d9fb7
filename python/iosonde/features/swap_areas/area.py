"""Swap areas of a run: on a file or device of the target, or on zram, above all other swap, and gone afterwards.

The programs are those of util-linux. mkswap(8) writes through a descriptor whose identity was checked, and an area is
enabled only once the kernel lists that identity. It is in the journal before the kernel uses it, so `iosonde cleanup`
turns it off after a kill. Its header has a UUID of the study: a device number may be that of another area after a
reboot.

The kernel has no means to reserve an area for one control group. A run's group may use as much swap as the area has
(`preparations.py`), and other processes use swap only when memory is short for them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import (
    closing,
    identity_at,
    identity_of,
    node_of,
    number_of,
    number_of_descriptor,
    opened,
    read,
)
from iosonde.storage.block_layer.mounts import unescape
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.tools import call
from iosonde.units import format_bytes

JOURNALED = "swap area"
"""Kind of its journal entry, whose path is that of no file."""

PROC = Path("/proc")
ZRAM_CONTROL = Path("/sys/class/zram-control")
FILE_NAME = "swap"
HIGHEST_PRIORITY = 0x7FFF
RETRIES_S = 5.0
"""Seconds to retry while another program, such as udev, keeps a zram device open."""
RETRY_S = 0.05

_UUID_OFFSET = 1036
"""In the header (`union swap_header` in linux/swap.h)."""


Kind = Literal["file", "device", "zram"]


class ActiveArea(BaseModel):
    """One line of `/proc/swaps`."""

    path: str
    kind: str
    size_bytes: int
    used_bytes: int
    priority: int


class AreaReading(BaseModel):
    """The swap area of a run, for its record."""

    kind: Kind
    path: str
    size_bytes: int
    priority: int
    """In effect, above that of all others."""
    used_bytes: int
    """After the run's processes have exited."""
    others: list[ActiveArea]


def active(proc: Path = PROC) -> list[ActiveArea]:
    """Return every swap area that the kernel uses."""
    found = []
    for line in read(proc / "swaps").splitlines()[1:]:
        path, kind, size, used, priority = line.split()[:5]
        found.append(
            ActiveArea(
                path=unescape(path),
                kind=kind,
                size_bytes=int(size) << 10,
                used_bytes=int(used) << 10,
                priority=int(priority),
            )
        )
    return found


def check_possible() -> None:
    """`TargetError` if this user cannot use swap, or this kernel has none."""
    if os.geteuid() != 0:
        raise TargetError(
            "only root can create and enable a swap area",
            where="by the parameter `swap`",
            hint="run iosonde as root (`sudo -E iosonde ...`), or leave out the cases with swap",
        )
    if not (PROC / "swaps").exists():
        raise TargetError(
            "this kernel has no swap", where="by the parameter `swap`", hint="measure without, `--set swap=off`"
        )


def check_zram() -> None:
    """`TargetError` if zram devices cannot be added."""
    if not ZRAM_CONTROL.exists():
        raise TargetError(
            "this kernel has no zram, or its module is not loaded",
            where='by the parameter `swap = "zram"`',
            hint="load it with `modprobe zram`, or leave out the level `zram`",
        )


@dataclass(frozen=True, kw_only=True)
class SwapArea:
    """An area that this process has enabled."""

    own: str
    """The study's name for what it creates."""
    kind: Kind
    path: Path
    identity: str
    size_bytes: int
    priority: int

    def reading(self) -> AreaReading:
        """Return the area with its use at this moment."""
        ours = _with_identity(self.identity)
        return AreaReading(
            kind=self.kind,
            path=str(self.path),
            size_bytes=self.size_bytes,
            priority=self.priority,
            used_bytes=ours.used_bytes if ours else 0,
            others=[each for each in active() if each != ours],
        )

    def remove(self) -> None:
        """Turn it off and remove it; `TargetError` if the kernel refuses, and then it stays in the journal."""
        with journal.undoing(f"turn off the swap area `{self.path}`"):
            journal.undo(key_of(self.own))
            if self.kind == "file":
                _remove_place(self.path.parent)


def on_file(directory: Path, own: str, size_bytes: int) -> SwapArea:
    """Enable a new file `swap` in a new directory of iosonde's own in `directory`."""
    place = directory / f"{own}-setup"
    free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_frsize
    if size_bytes > free:
        raise TargetError(
            f"no room in `{directory}` for a swap file: {format_bytes(size_bytes)} are needed and "
            f"{format_bytes(free)} are free",
            where="by the parameter `swap_size`",
            hint="make it smaller with `--set swap_size=...`, or name another target",
        )
    with _refusals(f"create a swap file in `{directory}`"):
        try:
            journal.create_directory(place)
            with own_directory.opened(place) as parent:
                journal.create_in(place, parent, FILE_NAME)
                descriptor = os.open(FILE_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            with closing(descriptor):
                with contextlib.suppress(TargetError):  # For btrfs: neither copied on write nor compressed.
                    call("chattr", "+C", place / FILE_NAME)
                os.posix_fallocate(descriptor, 0, size_bytes)  # A swap file has no holes.
                return _enable(own, "file", place / FILE_NAME, descriptor, size_bytes)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove_place(place)
            raise


def on_device(number: str, own: str, size_bytes: int | None) -> SwapArea:
    """Enable the block device with that number; mkswap(8) and the kernel claim it, so no claim may exist."""
    device = node_of(number)
    with _refusals(f"use `{device}` as swap"), opened(number, os.O_RDWR) as descriptor:
        return _enable(own, "device", device, descriptor, size_bytes or os.lseek(descriptor, 0, os.SEEK_END))


def on_zram(own: str, size_bytes: int) -> SwapArea:
    """Enable a new zram device of that size."""
    check_zram()
    device = _add_zram()
    number = read(Path("/sys/block", device.name, "dev"))
    with _refusals("create swap on zram"):
        try:
            Path("/sys/block", device.name, "disksize").write_text(str(size_bytes), encoding="utf-8")
            with opened(number, os.O_RDWR) as descriptor:
                return _enable(own, "zram", device, descriptor, size_bytes)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove_zram(device)
            with contextlib.suppress(OSError):  # The entry stays if the open descriptor kept the device busy.
                journal.undo(key_of(own))
            raise


def key_of(own: str) -> Path:
    """Return the path under which the journal has the area of a study."""
    return MOUNTS / own / "swap-area"


def uuid_of(own: str) -> uuid.UUID:
    """Return the UUID of the area of a study."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"iosonde:{own}/swap")


def undo(entry: journal.Entry) -> None:
    """Turn off the area of a journal entry if it is still the one that was created; `OSError` if that fails.

    A swap file cannot be renamed or deleted, but a directory above it can be: the kernel reports its current path.
    """
    identity, own, area = entry.facts["identity"], entry.facts["own"], Path(entry.facts["area"])
    now = _with_identity(identity)
    if now and _has_header(Path(now.path), identity, own):
        try:
            call("swapoff", now.path)
        except TargetError as error:
            is_short = any(each in error.what for each in (os.strerror(errno.ENOMEM), "SIGKILL"))
            raise OSError(error.what + "; the swapped-out pages need more memory" * is_short) from None
    if entry.facts["kind"] == "device":
        with contextlib.suppress(OSError), opened(identity, os.O_RDWR | os.O_EXCL) as descriptor:
            if _is_of(descriptor, own):  # Otherwise the device would be recognized as swap.
                os.pwrite(descriptor, bytes(os.sysconf("SC_PAGE_SIZE")), 0)
                os.fsync(descriptor)
    elif entry.facts["kind"] == "zram" and _has_header(area, identity, own):
        _remove_zram(area)


def _enable(own: str, kind: Kind, path: Path, descriptor: int, size_bytes: int) -> SwapArea:
    """Write the header through the descriptor, and turn the area on."""
    identity = _identity_of(descriptor)
    priority = _priority_above([each.priority for each in active()])
    facts = {"kind": kind, "area": str(path), "identity": identity, "own": own}
    journal.created(key_of(own), JOURNALED, facts=facts)
    try:
        checked = f"/proc/{os.getpid()}/fd/{descriptor}"
        call("mkswap", "--label", "iosonde", "--uuid", str(uuid_of(own)), checked, str(size_bytes >> 10))
        call("swapon", "--priority", str(priority), path)
        enabled = _with_identity(identity)
        if enabled is None:
            raise OSError(f"`{path}` leads to another file or device by now")
    except BaseException:
        with contextlib.suppress(OSError):
            journal.undo(key_of(own))
        raise
    return SwapArea(own=own, kind=kind, path=path, identity=identity, size_bytes=size_bytes, priority=enabled.priority)


def _with_identity(identity: str) -> ActiveArea | None:
    return next((each for each in active() if identity in (number_of(each.path), identity_at(each.path))), None)


def _has_header(area: Path, identity: str, own: str) -> bool:
    """Return True if a file or device is still the area that was created for a study."""
    try:
        descriptor = os.open(area, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with closing(descriptor):
        return _identity_of(descriptor) == identity and _is_of(descriptor, own)


def _is_of(descriptor: int, own: str) -> bool:
    """Return True for the header of that study's area."""
    return os.pread(descriptor, 16, _UUID_OFFSET) == uuid_of(own).bytes


def _identity_of(descriptor: int) -> str:
    return number_of_descriptor(descriptor) or identity_of(os.fstat(descriptor))


def _remove_place(place: Path) -> None:
    """Remove the directory of a swap file, unless it is gone or not ours."""
    if journal.find(place) is not None:
        if place.is_dir():
            journal.remove(place)
        journal.removed(place)


def _add_zram() -> Path:
    """Add a zram device; `TargetError` if the kernel refuses one, which reading the file reports."""
    number = read(ZRAM_CONTROL / "hot_add").strip()
    if not number.isdecimal():
        raise TargetError(
            "the kernel could not add a zram device",
            where="by the parameter `swap`",
            hint="see the kernel log (`dmesg`), or leave out the level `zram`",
        )
    return Path(f"/dev/zram{number}")


def _remove_zram(device: Path) -> None:
    """Remove a zram device with its contents."""
    deadline = time.monotonic() + RETRIES_S
    while True:
        try:
            (ZRAM_CONTROL / "hot_remove").write_text(device.name.removeprefix("zram"), encoding="utf-8")
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


def _priority_above(others: list[int]) -> int:
    highest = max(others, default=-1)
    if highest >= HIGHEST_PRIORITY:
        raise OSError(errno.EBUSY, "another swap area has the highest priority that there is")
    return max(0, highest + 1)


_HINTS = {
    errno.EINVAL: "the file system does not support swap files (overlay, tmpfs, btrfs with several devices): name "
    "a directory on ext4 or xfs, or a block device",
    errno.ENOSPC: "free some space, or make it smaller with `--set swap_size=...`",
    errno.EPERM: "swap needs root and the capability CAP_SYS_ADMIN, which containers often lack",
    errno.EBUSY: "`swapon --show` lists swap areas; `iosonde devices` shows users of devices",
}


@contextlib.contextmanager
def _refusals(action: str) -> Iterator[None]:
    """Turn the errors of the kernel and of util-linux into a `TargetError`; `action` is a verb with its object."""
    try:
        yield
    except (OSError, TargetError) as error:
        if isinstance(error, TargetError) and error.where:
            raise
        message = error.what if isinstance(error, TargetError) else error.strerror or str(error)
        hints = (hint for number, hint in _HINTS.items() if os.strerror(number) in message)
        raise TargetError(
            f"cannot {action}: {message}",
            where="by the parameter `swap`",
            hint=next(hints, "see the kernel log (`dmesg`)"),
        ) from error
