"""Whether a block device may be written: everything that uses it, or holds what must not be lost.

All of it is read anew at every call, from `/sys`, `/proc` and the device itself, and nothing is written. A device is
refused when it, a partition of it, or anything that stands on either is in use in any mount namespace that can be seen;
when it is a member of an array or a pool, also of one that is not assembled; and when the kernel says that somebody
holds it exclusively. Aliases (`/dev/disk/by-id/...`) make no difference: devices are told by their numbers.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from iosonde.storage.mounts import Mount, mounts_in
from iosonde.storage.signatures import Signature, signatures

MEMBER_TYPES = ("bcache", "drbd", "swsuspend", "ceph_bluestore", "VMFS_volume_member")
"""Signatures of members besides those that end in `_member`, and that of an image to be woken up from."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What the kernel tells of block devices, below these directories."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")

    def path(self, number: str) -> Path:
        """The directory of a device (`major:minor`)."""
        return (self.sys / "dev/block" / number).resolve()

    def name(self, number: str) -> str:
        """`vdb`."""
        return self.path(number).name

    def is_partition(self, number: str) -> bool:
        """Whether it is a partition."""
        return (self.path(number) / "partition").exists()

    def disk(self, number: str) -> str:
        """The disk of a partition; any other device itself."""
        return _read(self.path(number).parent / "dev") or number if self.is_partition(number) else number

    def partitions(self, number: str) -> list[str]:
        """Those of a disk."""
        return [_read(each.parent / "dev") for each in sorted(self.path(number).glob("*/partition"))]

    def holders(self, number: str) -> list[str]:
        """Devices that stand directly on it: dm, md, bcache, and loop devices on its node."""
        names = [each.name for each in sorted((self.path(number) / "holders").glob("*"))]
        found = [_read(self.sys / "class/block" / name / "dev") for name in names]
        return list(dict.fromkeys(each for each in [*found, *self._loops.get(self.name(number), [])] if each))

    def above(self, number: str) -> list[str]:
        """Everything that stands on it, the nearest first."""
        found: list[str] = []
        waiting = [*self.holders(number)]
        while waiting:
            upper = waiting.pop(0)
            if upper not in found:
                found.append(upper)
                for part in (upper, *self.partitions(upper)):
                    waiting += [*([part] if part != upper else []), *self.holders(part)]
        return found

    def numbers(self) -> list[str]:
        """Every block device."""
        return [each.name for each in (self.sys / "dev/block").glob("*:*")]

    @cached_property
    def _loops(self) -> dict[str, list[str]]:
        """Name of a device node -> loop devices that have it as their file."""
        found: dict[str, list[str]] = {}
        for backing in sorted((self.sys / "block").glob("loop*/loop/backing_file")):
            text = _read(backing)
            if text.startswith("/dev/"):
                name = Path(os.path.realpath(text)).name
                found.setdefault(name, []).append(_read(backing.parents[1] / "dev"))
        return found

    @cached_property
    def mounted(self) -> dict[str, list[Mount]]:
        """Mounts by device number, of every namespace that can be seen."""
        found: dict[str, list[Mount]] = {}
        for mount in self._all_mounts():
            for number in self._devices_of(mount):
                if mount not in found.setdefault(number, []):
                    found[number].append(mount)
        return found

    def _all_mounts(self) -> Iterator[Mount]:
        seen: set[str] = set()
        for table in [self.proc / "self/mountinfo", *sorted(self.proc.glob("[0-9]*/mountinfo"))]:
            try:
                namespace = str((table.parent / "ns/mnt").readlink())
            except OSError:
                namespace = str(table)
            if namespace in seen:
                continue
            try:
                found = mounts_in(table)
            except OSError:
                continue  # It has ended, or is another user's.
            seen.add(namespace)
            yield from found

    def _devices_of(self, mount: Mount) -> list[str]:
        if (self.sys / "dev/block" / mount.device).exists():
            return [mount.device]
        # btrfs, overlays and network file systems have numbers of their own; what was mounted may be a device.
        number = number_of(mount.source)
        return [number] if number else []

    @cached_property
    def btrfs_members(self) -> dict[str, str]:
        """Number of a device -> the mounted btrfs that it is of."""
        found = {}
        for device in (self.sys / "fs/btrfs").glob("*/devices/*"):
            number = _read(device / "dev") or _read(self.sys / "class/block" / device.name / "dev")
            if number:
                found[number] = device.parents[1].name
        return found

    @cached_property
    def swaps(self) -> set[str]:
        """Numbers of devices that are swap."""
        try:
            lines = (self.proc / "swaps").read_text().splitlines()[1:]
        except OSError:
            return set()
        return {number for line in lines if (number := number_of(line.split()[0]))}


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What stands against writing a device."""

    number: str
    mounted_at: list[str] = field(default_factory=list)
    """Where a file system that is directly on it is mounted."""
    refusals: list[str] = field(default_factory=list)
    """Clauses, each by itself a reason never to write it."""
    signatures: list[Signature] = field(default_factory=list)
    """What it holds, which may be given up knowingly."""


def look_at(number: str, *, kernel: Kernel | None = None, node: Path | None = None) -> Findings:
    """What stands against writing that device; `node` is what to read it by, None if it is not to be opened."""
    kernel = kernel or Kernel()
    refusals = [*_uses(number, kernel), *_state(number, kernel)]
    # What is in use need not be read, and some of it cannot be.
    found = _signatures(number, kernel, node) if node and not refusals else []
    refusals += [f"`{each.device}` is a member of something ({each.text})" for each in found if _is_member(each)]
    if node and not refusals and is_held(node):
        refusals.append(f"`{kernel.name(number)}` is held exclusively by another program")
    points = [mount.point for each in (number, *kernel.partitions(number)) for mount in kernel.mounted.get(each, [])]
    return Findings(
        number=number,
        mounted_at=list(dict.fromkeys(points)),
        refusals=list(dict.fromkeys(refusals)),
        signatures=found,
    )


def number_of(path: str | Path) -> str:
    """`major:minor` of a block device by any of its names; empty for anything else."""
    try:
        found = Path(path).stat() if str(path).startswith("/") else None
    except OSError:
        return ""
    if found is None or not stat.S_ISBLK(found.st_mode):
        return ""
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"


def is_held(node: Path) -> bool:
    """Whether the kernel says that somebody has claimed the device, or a part of it."""
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise
    return False


def _uses(number: str, kernel: Kernel) -> Iterator[str]:
    """Who uses the device, its partitions, its disk, and what stands on any of them."""
    own = [number, *kernel.partitions(number)]
    disk = kernel.disk(number)
    for part in [*own, *([disk] if disk != number else [])]:
        yield from _used(part, "", kernel)
        for upper in kernel.holders(part):
            yield f"`{kernel.name(part)}` is part of `{kernel.name(upper)}`"
    for part in own:
        for upper in kernel.above(part):
            yield from _used(upper, f", which stands on `{kernel.name(part)}`,", kernel)


def _used(number: str, standing: str, kernel: Kernel) -> Iterator[str]:
    name = f"`{kernel.name(number)}`{standing}"
    points = dict.fromkeys(mount.point for mount in kernel.mounted.get(number, []))
    for point in points:
        yield f"{name} is mounted at `{point}`"
    if number in kernel.btrfs_members and not points:
        yield f"{name} is a member of the mounted btrfs {kernel.btrfs_members[number]}"
    if number in kernel.swaps:
        yield f"{name} is swap"


def _state(number: str, kernel: Kernel) -> Iterator[str]:
    path = kernel.path(number)
    if not path.exists():
        yield "the kernel does not know it"
    elif _read(path / "size") in ("", "0"):
        yield f"`{path.name}` has no size"
    elif _read(path / "ro") == "1":
        yield f"`{path.name}` is read-only"


def _signatures(number: str, kernel: Kernel, node: Path) -> list[Signature]:
    """Of the device and of its partitions."""
    found = signatures(node, kernel.name(number))
    for part in kernel.partitions(number):
        name = kernel.name(part)
        # The node of a partition lies beside that of its disk.
        beside = Path(os.path.realpath(node)).with_name(name)
        found += signatures(beside, name) if number_of(beside) == part else []
    return found


def _is_member(signature: Signature) -> bool:
    kind = signature.kind
    return kind.endswith("_member") or kind in MEMBER_TYPES or signature.is_one_of_several


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
