"""Files as targets: in a directory of the user's, or one file that the user named.

Nothing that exists is ever written: in a directory iosonde creates a subdirectory of its own, and a file must not exist
yet, or be one that iosonde created.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from iosonde.errors import TargetError, os_errors
from iosonde.plan import Capacity, Destroys, Purge, Setup
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import attached_to, identity_of
from iosonde.storage.block_layer.block_stack import describe_path, stack_of
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.block_layer.mounts import mount_of
from iosonde.storage.safety import journal
from iosonde.storage.targets import direct_io
from iosonde.storage.targets.loop_devices import on_loop_devices
from iosonde.storage.targets.target import Files, IoMode, Target, files_in
from iosonde.units import compact_size, format_bytes

MOST_LOOP_DEVICES = 8
"""Most loop devices on files of a directory."""

NO_STORAGE = {
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
}
"""File systems that hold no data of their own."""

MOUNT_PLACES = re.compile("/|/mnt|/media|/media/[^/]+|/srv|/run/media/[^/]+")
"""Directories whose subdirectories are usually mount points."""


@dataclass(frozen=True, kw_only=True)
class _OnDisk(Target):
    """Common parts of directories and single files."""

    name: str

    @property
    @abstractmethod
    def _directory(self) -> Path:
        """The directory that exists already."""

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Room, and what direct I/O can do here."""
        free = self.free_bytes()
        if bytes_needed > free:
            raise TargetError(
                f"no room on `{self.name}`: {format_bytes(bytes_needed)} are needed and {format_bytes(free)} are free",
                hint="make the span smaller with `--set span=...`, or name another target",
            )
        if io_mode == "direct":
            self._check_direct(block_sizes)

    def _check_direct(self, block_sizes: Iterable[int]) -> None:
        alignment = self.direct_alignment
        if alignment is None:
            raise TargetError(
                f"`{self.name}` cannot do direct I/O",
                where=self._file_system_text(),
                hint="measure through the page cache with `--set io_mode=buffered`, or name another target",
            )
        for size in block_sizes:
            if size % alignment:
                number, rest = divmod(size, 1000)
                is_decimal = number and not rest
                binary = f"`{number}KB` are {size:,} bytes: write `{number}KiB`, " if is_decimal else ""
                raise TargetError(
                    f"direct I/O of {format_bytes(size)} is not supported on `{self.name}`: it takes multiples of "
                    f"{format_bytes(alignment)}",
                    where=self._file_system_text(),
                    hint=f"{binary}start at that with `--set block_size={compact_size(alignment)},...`, or "
                    "measure through the page cache with `--set io_mode=buffered`",
                )

    def _file_system_text(self) -> str:
        mount = mount_of(self._directory)
        return f"on the file system {mount.kind} mounted at `{mount.point}`" if mount else ""

    @cached_property
    def direct_alignment(self) -> int | None:
        """Bytes that direct I/O takes multiples of; None if there is no direct I/O here."""
        with os_errors(f"cannot write in `{self._directory}`", hint="name a target that you may write to"):
            return direct_io.offset_alignment(self._directory)

    def direct_unit(self) -> int | None:
        """As the file system reports it, or a read shows."""
        return self.direct_alignment

    @cached_property
    def writes_to_page_cache(self) -> bool | None:
        """Return True if direct writes go through the page cache here; None if that cannot be found out."""
        return direct_io.writes_to_page_cache(self._directory)

    def free_bytes(self) -> int:
        """Bytes that the file system leaves to this user."""
        space = os.statvfs(self._directory)
        return space.f_bavail * space.f_frsize

    def capacity(self) -> Capacity:
        """The whole file system with the space used by others."""
        space = os.statvfs(self._directory)
        unit = space.f_frsize
        used, reserved = space.f_blocks - space.f_bfree, space.f_bfree - space.f_bavail
        own = self.free_bytes() - space.f_bavail * unit
        return Capacity(bytes=space.f_blocks * unit, used=used * unit - own, reserved=reserved * unit)

    def purges(self) -> list[Purge]:
        """Its blocks are freed, or else overwritten."""
        return ["trim", "overwrite"] if direct_io.can_trim(self._directory) else ["overwrite"]

    def file_system(self) -> int:
        """As `stat` numbers it."""
        return self._directory.stat().st_dev

    def block_devices(self) -> list[str]:
        """The stack under the file system, without partitions."""
        return block_stack.watched(stack_of(self._directory))

    def describe(self) -> dict[str, Any]:
        """File system, mount and block devices."""
        found = describe_path(self._directory, writes_to_page_cache=self.writes_to_page_cache)
        return {"kind": self.kind, "name": self.name, **found}


@dataclass(frozen=True, kw_only=True)
class DirectoryTarget(_OnDisk):
    """A directory of the user, in which iosonde creates a subdirectory of its own."""

    kind: Literal["directory"] = "directory"
    own: str = field(default_factory=lambda: f"iosonde-{secrets.token_hex(4)}")
    """Name of the subdirectory."""

    @property
    def _directory(self) -> Path:
        return Path(self.name)

    def with_setup(self, setup: Setup) -> Target:
        """Loop devices on files in the directory."""
        if setup.is_plain:
            return self
        return on_loop_devices(self, setup)

    def device_count(self) -> int:
        """Most loop devices on files."""
        return MOST_LOOP_DEVICES

    def check_on_hosts(self, setup: Setup | None) -> None:
        """Each host has files of its own, also those under loop devices."""
        served = next((part for part in setup.layers if part.has_server), None) if setup else None
        if served and setup:
            raise TargetError(
                f"`--hosts` does not support {setup.text} on a directory: each host would use a server of its own",
                where=f"by the parameter `{served.part}`",
                hint="name an export that all hosts can mount as the target, `nfs:SERVER:/EXPORT`",
            )

    def called(self, own: str) -> DirectoryTarget:
        """The target with that name of its subdirectory."""
        return replace(self, own=own or self.own)

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """A file, or a directory of files, in the subdirectory."""
        return files_in(Path(self.name, self.own), files, size_bytes)

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Nothing that exists."""
        what = f"creates a directory with {format_bytes(size_bytes)} of files and {_afterwards(keep)}"
        return [Destroys(path=str(Path(self.name, self.own)), what=what)]


@dataclass(frozen=True, kw_only=True)
class FileTarget(_OnDisk):
    """A file that iosonde creates, or has created."""

    kind: Literal["file"] = "file"

    @property
    def _directory(self) -> Path:
        return Path(self.name).parent

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """The file."""
        if files == "per_job":
            raise TargetError(
                f"`{self.name}` is one file, and every job needs its own",
                where='by the parameter `files = "per_job"`',
                hint="name a directory as the target, or share one file with `--set files=shared`",
            )
        return {"kind": "file", "path": self.name, "size_bytes": size_bytes}

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Only its own file."""
        kept = Path(self.name).exists()
        size = format_bytes(size_bytes)
        # The name may be a misspelt directory, and the file then on another device.
        does = (
            f"overwrites the file that iosonde kept there, {size}"
            if kept
            else f"does not exist yet: creates a file of {size} {self._file_system_text()}".rstrip()
        )
        return [Destroys(path=self.name, what=f"{does}, and {_afterwards(keep)}")]

    def free_bytes(self) -> int:
        """Free bytes of the file system, plus those that a file kept from an earlier run occupies."""
        kept = Path(self.name)
        return super().free_bytes() + (kept.stat().st_blocks * 512 if kept.exists() else 0)


def open_existing(path: Path, mode: int) -> Target:
    """The target that an existing directory or file is."""
    if stat.S_ISDIR(mode):
        _check_writable(path)
        return DirectoryTarget(name=str(path))
    if stat.S_ISREG(mode):
        return _own_file(path)
    raise TargetError(
        f"`{path}` is neither a directory nor a file", hint="name a directory, or a file that does not exist yet"
    )


def _own_file(path: Path) -> FileTarget:
    if not journal.is_ours(path):
        raise TargetError(
            f"`{path}` exists already, and would be overwritten",
            hint=f"name a file that does not exist yet, or the directory `{path.parent}`: iosonde then creates its "
            "own file there",
        )
    check_unused(path)
    _check_writable(path.parent)
    return FileTarget(name=str(path))


def check_unused(path: Path) -> None:
    """`TargetError` if a file is attached to a loop device, is active swap, or has a second name."""
    devices = attached_to(path)
    if devices:
        raise TargetError(
            f"`{path}` is the backing file of the loop device `{devices[0]}`",
            hint=f"detach it with `losetup --detach {devices[0]}`, or name another target",
        )
    found = path.lstat()
    if identity_of(found) in Kernel().swap_files:
        raise TargetError(f"`{path}` is active swap", hint=f"disable it with `swapoff {path}`, or name another target")
    if found.st_nlink != 1:
        raise TargetError(
            f"`{path}` has {found.st_nlink} names (hard links), and writing to it would change the others",
            hint=f"find them with `find -samefile {path}`, or name another target",
        )


def open_new(path: Path, text: str) -> FileTarget:
    """The target that a file is which does not exist yet."""
    if text.endswith("/"):
        raise TargetError(f"there is no directory `{text}`", hint=f"create it with `mkdir -p {text}`")
    parent = path.parent.resolve()
    if not parent.is_dir():
        raise TargetError(
            f"`{path}` cannot be created: there is no directory `{parent}`", hint=f"create it with `mkdir -p {parent}`"
        )
    _check_no_mount_point(parent / path.name)
    _check_writable(parent)
    return FileTarget(name=str(parent / path.name))


def _check_no_mount_point(path: Path) -> None:
    """`TargetError` if a file at this path was probably meant to be a mounted file system."""
    mount = mount_of(path.parent)
    if not looks_like_mount_point(path) or (mount and mount.point == str(path.parent) != "/"):
        return
    raise TargetError(
        f"`{path}` does not exist, and its name looks like a mount point",
        where=f"a file there would be on the file system {mount.kind} mounted at `{mount.point}`" if mount else "",
        hint=f"check the spelling, or mount the file system; for a file there name `{path}.dat`, or the directory "
        f"`{path.parent}`",
    )


def looks_like_mount_point(path: Path) -> bool:
    """Return True for a name without extension in a directory of mount points."""
    return not path.suffix and MOUNT_PLACES.fullmatch(str(path.parent)) is not None


def _check_writable(directory: Path) -> None:
    mount = mount_of(directory)
    if mount and mount.kind in NO_STORAGE:
        raise TargetError(
            f"`{directory}` is on `{mount.kind}`, which stores no data", hint="name a directory on a disk"
        )
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        where = f"mounted at `{mount.point}` from `{mount.source}`" if mount else ""
        raise TargetError(
            f"`{directory}` is on a file system that is mounted read-only",
            where=where,
            hint="remount it writable, or name another target",
        )
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise TargetError(
            f"you may not write in `{directory}`", hint="name a directory of your own, or change its permissions"
        )


def _afterwards(keep: bool) -> str:
    return "keeps it" if keep else "removes it at the end"
