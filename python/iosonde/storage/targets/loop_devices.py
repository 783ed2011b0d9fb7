"""Loop devices on files in a directory of the user, in place of block devices.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError, os_errors
from iosonde.plan import Destroys, Purge, Setup
from iosonde.storage.block_layer.block_nodes import LoopStatus, closing, loop_status, loops_on, opened, read, status_of
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.own_directory import handle_of
from iosonde.storage.setups import file_systems
from iosonde.storage.targets.setup_target import DeviceProvider, Provided, SetupTarget
from iosonde.storage.targets.target import Target, check_layers
from iosonde.storage.tools import require_root
from iosonde.units import format_bytes

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
        with closing(os.open(image, os.O_RDWR | os.O_CLOEXEC) if opened is None else os.dup(opened)) as backing:
            self.path, self._descriptor, self._status = _attach(backing, image, sector_bytes)
        self.image = image

    @property
    def is_direct(self) -> bool:
        """Return True if it goes past the page cache of its file."""
        return read(Path("/sys/block", self.path.name, "loop/dio")) == "1"

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


def check_loops() -> None:
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
        # While it is open, it stays what it is: it may be another's by now.
        with contextlib.suppress(OSError), opened(loop.number) as descriptor:
            if _is_on(status_of(descriptor), entry):
                fcntl.ioctl(descriptor, _CLR_FD)
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
    handle = handle_of(Path(loop.path))
    return handle == entry.marks.get("") if handle else loop.path == entry.path


def _attach(backing: int, image: Path, sector_bytes: int) -> tuple[Path, int, LoopStatus]:
    problem = f"cannot attach a loop device to `{image}`"
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    with os_errors(problem, hint="see the kernel log (`dmesg`)"), closing(control):
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


def _wait_until(is_detached: Callable[[], bool]) -> bool:
    """The kernel detaches shortly after the last user has closed it; short opens by udev delay that."""
    deadline = time.monotonic() + _DETACH_S
    while not (detached := is_detached()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return detached


LARGEST_DEFAULT = 16 << 30
"""Default size of the files, if there is enough room."""

FREE_SHARE = 0.8
"""Largest share of the free space that the default takes."""


@dataclass(frozen=True, kw_only=True)
class LoopProvider(DeviceProvider):
    """Loop devices on files of one size in a new directory."""

    directory: Path
    """The user's directory."""
    own: str
    device_bytes: int
    sector_bytes: int
    _attached: list[LoopDevice] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The user's directory."""
        return str(self.directory)

    def smallest_bytes(self, setup: Setup) -> int:
        """That of all but further ones."""
        return self.device_bytes

    def direct_unit(self) -> int:
        """That of all."""
        return self.sector_bytes

    def purges(self) -> list[Purge]:
        """Overwriting only: support for discards is unknown before the loop device exists."""
        return ["overwrite"]

    @property
    def images(self) -> Path:
        """The directory with the files."""
        return self.directory / f"{self.own}-setup"

    def loses(self, setup: Setup, measured_bytes: int | None) -> list[Destroys]:
        """Nothing that exists."""
        files = f"{setup.devices} files of" if setup.devices > 1 else "a file of"
        files += f" {format_bytes(self.device_bytes)}"
        if setup.journal == "external":
            files += f" and one of {format_bytes(file_systems.journal_bytes(self.device_bytes))} for the journal"
        for part, size in further_files(setup, self.device_bytes):
            files += f" and one of {format_bytes(size)} for the {part}"
        what = f"creates a directory with {files}, on loop devices, and removes it at the end"
        return [Destroys(path=str(self.images), what=what)]

    def provide(self, setup: Setup) -> Provided:
        """Create the files and attach loop devices."""
        with os_errors(f"cannot create `{self.images}`"):
            journal.create_directory(self.images)
        devices = [self._attach(f"device-{number}", self.device_bytes) for number in range(setup.devices)]
        apart = None
        if setup.journal == "external":
            apart = self._attach("journal", file_systems.journal_bytes(self.device_bytes))
        further = [self._attach(part, size) for part, size in further_files(setup, self.device_bytes)]
        facts = [_facts(device) for device in self._attached]
        return Provided(devices=devices, journal_device=apart, further=further, facts=facts)

    def release(self) -> None:
        """Detach the loop devices; the journal removes their files."""
        while self._attached:
            self._attached.pop().close()

    def abandon(self) -> None:
        """Close the loop devices: the kernel detaches them when what still uses them ends."""
        for device in self._attached:
            device.close_descriptor()

    def _attach(self, name: str, size_bytes: int) -> Path:
        image = self.images / name
        journal.created(image, "loop device", facts={"image": str(image)})
        made = journal.find(self.images)
        with (
            os_errors(f"cannot create `{image}`"),
            own_directory.opened(self.images, made.identity if made else None) as directory,
        ):
            inode = journal.create_in(self.images, directory, name, size_bytes=size_bytes)
            journal.identify(image)
            backing = own_directory.open_file(directory, name, inode)
        with closing(backing):
            self._attached.append(LoopDevice(image, opened=backing, sector_bytes=self.sector_bytes))
        return self._attached[-1].path


def on_loop_devices(target: Target, setup: Setup) -> SetupTarget:
    """The target with a setup on loop devices in a directory; `TargetError` if unsupported. Nothing is written."""
    if not setup.is_bare_device and setup.setup_size is None:
        is_simulated = all(each.can_be_simulated for each in setup.layers)
        if not is_simulated:
            check_layers(setup)  # Where the kernel has no module, no other target helps.
        raise TargetError(
            f"`{target.name}` is a directory, and {setup.text} needs devices",
            where=f"by the parameter `{next(iter(setup.parts))}`",
            hint=f"name block devices{' or simulated drives (`sim:p900*4`)' * is_simulated} as the target; or "
            "use loop devices on files (`--set setup_size=4GiB`), which show how it behaves but not how fast it is",
        )
    check_loops()
    file_systems.check_possible(setup)
    check_layers(setup)
    free = target.free_bytes()
    size = setup.setup_size or min(LARGEST_DEFAULT, int(free * FREE_SHARE))
    needed = size * setup.devices + sum(each for _, each in further_files(setup, size))
    if needed > free:
        raise TargetError(
            f"no room in `{target.name}`: {format_bytes(needed)} are needed for {setup.text}, and {format_bytes(free)} "
            "are free",
            where="by the parameter `setup_size`",
            hint="make it smaller with `--set setup_size=...`, or name another target",
        )
    provider = LoopProvider(
        directory=Path(target.name),
        own=target.own,
        device_bytes=size >> 20 << 20,
        sector_bytes=max(512, target.direct_unit() or 512),
    )
    return SetupTarget(provider=provider, setup=setup, own=target.own)


def further_files(setup: Setup, device_bytes: int) -> list[tuple[str, int]]:
    """Return the files under the further devices of layers: name of the part, bytes."""
    return [(part.part, size) for part in setup.layers for size in part.further_bytes(device_bytes)]


def _facts(device: LoopDevice) -> dict[str, Any]:
    size = device.image.stat().st_size
    return {"device": str(device.path), "kind": "loop", "direct_io": device.is_direct, "size_bytes": size}
