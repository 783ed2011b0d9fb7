"""Swap areas of a run: on a file or device of the target, or on zram, above all other swap, and gone afterwards.

No path is trusted. The header is written to a descriptor whose identity was checked, that of a device under its
exclusive claim, and swapon(2) and swapoff(2) get a descriptor (`/proc/self/fd/N`), so what was checked is what the
kernel uses. An area is in the journal before the kernel uses it, so `iosonde cleanup` turns it off after a kill. Its
header has a UUID of the study: a device number may be that of another area after a reboot.

The kernel has no means to reserve an area for one control group. A run's group may use as much swap as the area has
(`control_group.py`), and other processes use swap only when memory is short for them. `Use` states who used the area.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import node_of, number_of_descriptor, open_device
from iosonde.storage.block_layer.kernel import read
from iosonde.storage.block_layer.loop_status import identity_of
from iosonde.storage.block_layer.mounts import unescape
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.claims import Claims
from iosonde.storage.safety.journal_entry import MOUNTS, SWAP
from iosonde.units import format_bytes

PROC = Path("/proc")
ZRAM_CONTROL = Path("/sys/class/zram-control")
FILE_NAME = "swap"
PREFER = 0x8000
"""`SWAP_FLAG_PREFER` of swapon(2): the lower bits are the priority."""
HIGHEST_PRIORITY = 0x7FFF
RETRIES_S = 5.0
"""How long pages of processes that were just killed may keep an area busy."""
RETRY_S = 0.05

_HEADER = struct.Struct("=1024xIII16s16s")
"""Version, last page, bad pages, UUID and label (`union swap_header` in linux/swap.h)."""
_MAGIC = b"SWAPSPACE2"

Kind = Literal["file", "device", "zram"]


@dataclass(frozen=True, kw_only=True)
class Active:
    """One line of `/proc/swaps`."""

    path: str
    kind: str
    size_bytes: int
    used_bytes: int
    priority: int


def active(proc: Path = PROC) -> list[Active]:
    """Every swap area that the kernel uses."""
    found = []
    for line in read(proc / "swaps").splitlines()[1:]:
        path, kind, size, used, priority = line.split()[:5]
        found.append(
            Active(
                path=unescape(path),
                kind=kind,
                size_bytes=int(size) << 10,
                used_bytes=int(used) << 10,
                priority=int(priority),
            )
        )
    return found


def traffic(proc: Path = PROC) -> dict[str, int]:
    """Bytes that the machine has read from swap and written to it since it started; empty without swap."""
    words = [line.split() for line in read(proc / "vmstat").splitlines()]
    pages = {word[0]: int(word[1]) for word in words if len(word) == 2 and word[1].isdecimal()}
    if "pswpin" not in pages or "pswpout" not in pages:
        return {}
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return {"swap_in_bytes": pages["pswpin"] * page_bytes, "swap_out_bytes": pages["pswpout"] * page_bytes}


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


class SwapArea:
    """An area that this process created, from `on_*` to `remove`."""

    def __init__(self, own: str, kind: Kind, area: Path, identity: str, size_bytes: int) -> None:
        self._own = own
        self.kind = kind
        self.area = area
        self.identity = identity
        self.size_bytes = size_bytes
        self.priority = 0
        self._key = key_of(own)

    @classmethod
    def on_file(cls, directory: Path, own: str, size_bytes: int) -> SwapArea:
        """A new file `swap` in a new directory of iosonde's own in `directory`."""
        place = directory / f"{own}-setup"
        free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_frsize
        if size_bytes > free:
            raise TargetError(
                f"no room in `{directory}` for a swap file: {format_bytes(size_bytes)} are needed and "
                f"{format_bytes(free)} are free",
                where="by the parameter `swap_size`",
                hint="make it smaller with `--set swap_size=...`, or name another target",
            )
        journal.created(place, "directory")
        try:
            own_directory.create(place)
            journal.identify(place)
            journal.add_files(place, {FILE_NAME: own_directory.ANNOUNCED})
            with own_directory.opened(place) as opened:
                inode = own_directory.create_file(opened, FILE_NAME)
                journal.add_files(place, {FILE_NAME: inode})
                descriptor = os.open(FILE_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
            try:
                _allocate(descriptor, size_bytes)
                area = cls(own, "file", place / FILE_NAME, identity_of(os.fstat(descriptor)), size_bytes)
                area._enable(descriptor)
            finally:
                os.close(descriptor)
        except BaseException as error:
            with contextlib.suppress(OSError):
                remove_place(place)
            if isinstance(error, OSError):
                raise _refused(f"create a swap file in `{directory}`", error) from error
            raise
        return area

    @classmethod
    def on_device(cls, claims: Claims, number: str, own: str, size_bytes: int | None) -> SwapArea:
        """The block device with that number. Its claim is released after the header is written: `swapon` claims it."""
        descriptor = open_device(number, os.O_RDWR)
        try:
            device_bytes = os.lseek(descriptor, 0, os.SEEK_END)
            size_bytes = size_bytes or device_bytes
            if size_bytes > device_bytes:
                raise TargetError(
                    f"a swap area of {format_bytes(size_bytes)} has no room on `{node_of(number)}`, which has "
                    f"{format_bytes(device_bytes)}",
                    where="by the parameter `swap_size`",
                    hint="make it smaller with `--set swap_size=...`",
                )
            area = cls(own, "device", node_of(number), number, size_bytes)
            try:
                area._enable(descriptor, claimed=claims.descriptor(number), release=lambda: claims.release(number))
            except OSError as error:
                raise _refused(f"use `{area.area}` as swap", error) from error
        finally:
            os.close(descriptor)
        return area

    @classmethod
    def on_zram(cls, own: str, size_bytes: int) -> SwapArea:
        """A new zram device of that size."""
        check_zram()
        device = _add_zram()
        number = read(Path("/sys/block", device.name, "dev"))
        try:
            Path("/sys/block", device.name, "disksize").write_text(str(size_bytes), encoding="utf-8")
            descriptor = open_device(number, os.O_RDWR)
            try:
                area = cls(own, "zram", device, number, size_bytes)
                area._enable(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                _remove_zram(device)
            with contextlib.suppress(OSError):  # The entry is left if the open descriptor kept the device busy.
                journal.undo(key_of(own))
            raise _refused("create swap on zram", error) from error
        return area

    def facts(self) -> dict[str, Any]:
        """What the record keeps of it."""
        return {
            "kind": self.kind,
            "area": str(self.area),
            "size_bytes": self.size_bytes,
            "priority": self.priority,
            "used_bytes": next((each.used_bytes for each in active() if self._is(each)), 0),
            "others": [vars(each) for each in active() if not self._is(each)],
        }

    def remove(self) -> None:
        """Turn it off and remove it; `TargetError` if the kernel refuses, and then it stays in the journal."""
        with journal.undoing(f"turn off the swap area `{self.area}`"):
            journal.undo(self._key)
            if self.kind == "file":
                remove_place(self.area.parent)

    def _enable(
        self, descriptor: int, *, claimed: int | None = None, release: Callable[[], None] = lambda: None
    ) -> None:
        """Write the header, to the claim of a device, and turn the area on through the descriptor."""
        self.priority = _priority_above([each.priority for each in active()])
        facts = {"kind": self.kind, "area": str(self.area), "identity": self.identity, "own": self._own}
        journal.created(self._key, SWAP, facts=facts)
        try:
            written = descriptor if claimed is None else claimed
            os.pwrite(written, header(self.size_bytes, self._own), 0)
            os.fsync(written)
            release()
            _system_call("swapon", f"/proc/self/fd/{descriptor}", PREFER | self.priority)
        except BaseException:
            release()
            with contextlib.suppress(OSError):
                journal.undo(self._key)
            raise

    def _is(self, line: Active) -> bool:
        return _identity_at(line.path) == self.identity


def key_of(own: str) -> Path:
    """The path under which the journal has the area of a study: nothing is there."""
    return MOUNTS / own / "swap-area"


def header(size_bytes: int, own: str) -> bytes:
    """The first page of a swap area of a study, as mkswap(8) writes it."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    first = _HEADER.pack(1, size_bytes // page_bytes - 1, 0, _uuid_of(own), b"iosonde")
    return first.ljust(page_bytes - len(_MAGIC), b"\0") + _MAGIC


def _uuid_of(own: str) -> bytes:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"iosonde:{own}/swap").bytes


def _is_area_of(descriptor: int, own: str) -> bool:
    """Whether a file or device has the header of that study's area."""
    first = os.pread(descriptor, os.sysconf("SC_PAGE_SIZE"), 0)
    return first.endswith(_MAGIC) and _HEADER.unpack_from(first)[3] == _uuid_of(own)


def undo(entry: journal.Entry) -> None:
    """Turn off the area of a journal entry if it is still the one that was created; `OSError` if that fails.

    A swap file cannot be renamed or deleted, but a directory above it can be: the kernel reports its current path.
    """
    area, identity, own = Path(entry.facts["area"]), entry.facts["identity"], entry.facts["own"]
    now = next((each.path for each in active() if _identity_at(each.path) == identity), None)
    if now is not None:
        with _opened(Path(now), identity) as descriptor:
            if _is_area_of(descriptor, own):
                _turn_off(descriptor)
    if entry.facts["kind"] == "device":
        _erase_header(identity, own)
    elif entry.facts["kind"] == "zram" and _identity_at(str(area)) == identity:
        with _opened(area, identity) as descriptor:
            is_ours = _is_area_of(descriptor, own)
        if is_ours:
            _remove_zram(area)


def remove_place(place: Path) -> None:
    """Remove the directory of a swap file, unless it is gone or not ours."""
    if journal.find(place) is not None:
        if place.is_dir():
            journal.remove(place)
        journal.removed(place)


def _turn_off(descriptor: int) -> None:
    """swapoff(2) in a process of its own; pages of processes that are just exiting need a moment."""
    deadline = time.monotonic() + RETRIES_S
    script = Path(__file__).with_name("swapoff_process.py")
    while True:
        done = subprocess.run(
            [sys.executable, "-I", str(script), str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            process_group=0,  # Ctrl-C in a terminal must not interrupt it: swapoff(2) would give up.
        )
        if done.returncode == 0:
            return
        if done.returncode != errno.EINTR or time.monotonic() > deadline:
            break
    if done.returncode < 0:
        raise OSError("the kernel killed swapoff: not enough memory for the swapped-out pages")
    if done.returncode == errno.ENOMEM:
        raise OSError(
            errno.ENOMEM,
            "not enough memory for the swapped-out pages; the swap area stays in use: stop other processes",
        )
    raise OSError(done.returncode, os.strerror(done.returncode))


@contextlib.contextmanager
def _opened(area: Path, identity: str) -> Any:
    """A descriptor of a file or device with that identity."""
    if identity.count(":") == 1:
        descriptor = open_device(identity, os.O_RDONLY)
    else:
        descriptor = os.open(area, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _identity_of(descriptor) != identity:
            raise OSError(f"`{area}` is not the swap area that iosonde created")
        yield descriptor
    finally:
        os.close(descriptor)


def _identity_of(descriptor: int) -> str:
    return number_of_descriptor(descriptor) or identity_of(os.fstat(descriptor))


def _identity_at(path: str) -> str:
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    if stat.S_ISBLK(found.st_mode):
        return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    return identity_of(found)


def _erase_header(number: str, own: str) -> None:
    """Overwrite the header, so that the device is not recognized as swap; nothing if it has another or is gone."""
    with contextlib.suppress(OSError):
        descriptor = open_device(number, os.O_RDWR | os.O_EXCL)
        try:
            if _is_area_of(descriptor, own):
                os.pwrite(descriptor, bytes(os.sysconf("SC_PAGE_SIZE")), 0)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _add_zram() -> Path:
    """A new zram device; `TargetError` if the kernel refuses one, which reading the file reports."""
    number = read(ZRAM_CONTROL / "hot_add").strip()
    if not number.isdecimal():
        raise TargetError(
            "the kernel could not add a zram device",
            where="by the parameter `swap`",
            hint="see the kernel log (`dmesg`), or leave out the level `zram`",
        )
    return Path(f"/dev/zram{number}")


def _remove_zram(device: Path) -> None:
    """Remove a zram device with its contents; another program, such as udev, may have it open for a moment."""
    deadline = time.monotonic() + RETRIES_S
    while True:
        try:
            (ZRAM_CONTROL / "hot_remove").write_text(device.name.removeprefix("zram"), encoding="utf-8")
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Allocate all blocks: a swap file has no holes. On btrfs it is neither copied on write nor compressed."""
    with contextlib.suppress(OSError):
        _set_no_copy_on_write(descriptor)
    os.posix_fallocate(descriptor, 0, size_bytes)


def _set_no_copy_on_write(descriptor: int) -> None:
    import fcntl

    get_flags, set_flags, no_copy = 0x80086601, 0x40086602, 0x00800000
    flags = struct.unpack("=l", fcntl.ioctl(descriptor, get_flags, struct.pack("=l", 0)))[0]
    fcntl.ioctl(descriptor, set_flags, struct.pack("=l", flags | no_copy))


def _priority_above(others: list[int]) -> int:
    highest = max(others, default=-1)
    if highest >= HIGHEST_PRIORITY:
        raise OSError(errno.EBUSY, "another swap area has the highest priority that there is")
    return max(0, highest + 1)


def _system_call(name: str, path: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(os.fsencode(path), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _refused(action: str, error: OSError) -> TargetError:
    hints = {
        errno.EINVAL: "the file system does not support swap files (overlay, tmpfs, btrfs with several devices): name "
        "a directory on ext4 or xfs, or a block device",
        errno.ENOSPC: "free some space, or make it smaller with `--set swap_size=...`",
        errno.EPERM: "swap needs root and the capability CAP_SYS_ADMIN, which containers often lack",
        errno.EBUSY: "`swapon --show` lists swap areas; `iosonde devices` shows users of devices",
    }
    return TargetError(
        f"cannot {action}: {error.strerror or error}",
        where="by the parameter `swap`",
        hint=hints.get(error.errno or 0, "see the kernel log (`dmesg`)"),
    )
