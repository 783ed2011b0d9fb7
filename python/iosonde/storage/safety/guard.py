"""Write guard of block devices: everything that uses a device, and everything on it that must not be lost.

All of it is read at every call, from the kernel and the device itself, and nothing is written. A device is refused

- when a file system or swap area on it, or on any device that shares data with it (`overlap.py`), is in use in any
  visible mount namespace;
- when an array, volume, cache or another loop device consists of any of its data;
- when it is a member of an array or pool that is not assembled;
- when the kernel reports that it is claimed exclusively, or that a device below it is.

Devices are compared by number and files by inode, never by path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import opened
from iosonde.storage.block_layer.kernel import Kernel, read
from iosonde.storage.block_layer.loop_status import LoopStatus
from iosonde.storage.block_layer.overlap import Extent, extents, overlap, unreported_between
from iosonde.storage.block_layer.signatures import Signature, signatures

MEMBER_TYPES = ("bcache", "drbd", "swsuspend", "ceph_bluestore", "VMFS_volume_member")
"""Signatures of members besides those that end in `_member`, and that of a hibernation image."""


class InUseError(TargetError):
    """A device that must not be written, whatever the user consents to."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Reasons against writing a device, and its contents."""

    number: str
    mounted_at: list[str] = field(default_factory=list)
    """Mount point of a file system that is directly on it."""
    refusals: list[str] = field(default_factory=list)
    """Clauses, each by itself a reason never to write it."""
    signatures: list[Signature] = field(default_factory=list)
    """Its contents, which the user may agree to lose."""


_shares_claims: ContextVar[bool] = ContextVar("shares_claims", default=False)


@contextmanager
def shared_claims() -> Iterator[None]:
    """Within it another process of the same study has claimed the devices of the target, or is going to (`--hosts`)."""
    token = _shares_claims.set(True)
    try:
        yield
    finally:
        _shares_claims.reset(token)


def shares_claims() -> bool:
    """Return True within `shared_claims`."""
    return _shares_claims.get()


def examine(
    number: str, *, kernel: Kernel | None = None, read_contents: bool = True, is_claimed_by_us: bool = False
) -> Findings:
    """Examine a device for anything that forbids writing it; `TargetError` if it cannot be read."""
    kernel = kernel or Kernel()
    refusals = [*uses(number, kernel), *_state(number, kernel)]
    # A device in use need not be read, and some cannot be.
    found: list[Signature] = []
    if read_contents and not refusals:
        found = _signatures(number, kernel)
        refusals += [
            f"`{each.device}` is a member of an array or pool ({each.text})" for each in found if _is_member(each)
        ]
        if not refusals and not is_claimed_by_us and not shares_claims():
            refusals += _claims(number, kernel)
    points = [mount.point for each in (number, *kernel.partitions(number)) for mount in kernel.mounted.get(each, [])]
    return Findings(
        number=number,
        mounted_at=list(dict.fromkeys(points)),
        refusals=list(dict.fromkeys(refusals)),
        signatures=found,
    )


def uses(number: str, kernel: Kernel) -> Iterator[str]:
    """Every use of the device's data that the kernel reports."""
    own = extents(number, kernel)
    yield from _used(number, "", kernel)
    others = [each for each in kernel.numbers if each != number and overlap(own, extents(each, kernel))]
    for other in others:
        yield from _unreported(number, other, own, kernel)
    for other in others:
        yield from _stacked(number, other, own, kernel)
    for other in others:
        yield from _used(other, _relation(number, other, own, kernel), kernel)
    yield from _used_files(number, own, kernel)
    for loop in kernel.loops.values():
        if loop.is_disconnected:
            continue
        if loop.problem:
            yield from _unknown_file(loop, number, own, kernel)
        elif loop.backing_file and overlap(own, extents(loop.file_system, kernel)) and loop.number != number:
            name = kernel.name(loop.file_system)
            yield f"`{kernel.name(loop.number)}` is backed by a file in the file system on `{name}`"


def _unknown_file(loop: LoopStatus, number: str, own: list[Extent], kernel: Kernel) -> Iterator[str]:
    """A loop device whose backing file may be in this device.

    The file is in a mounted file system that contains its path, which refuses the devices below it anyway. A file
    system that is mounted nowhere any more still claims its device.
    """
    devices = kernel.devices_under(loop.path)
    if devices is not None and not any(overlap(own, extents(each, kernel)) for each in devices):
        return
    name = kernel.name(loop.number)
    yield (
        f"the backing file of `{name}` cannot be determined ({loop.problem}) and may be on `{kernel.name(number)}`: "
        f"detach it with `losetup --detach /dev/{name}`"
    )


def underlying(number: str, kernel: Kernel) -> list[str]:
    """Block devices below it that are reached through loop devices only, so that no driver has claimed them."""
    members = {member for each in kernel.members.values() for member in each}
    below = {extent.base for extent in extents(number, kernel)} - members
    return sorted(below & {loop.backing_device for loop in kernel.loops.values()})


def is_claimed(number: str) -> bool:
    """Return True if the kernel refuses an exclusive open: the device, or a part of it, is claimed."""
    try:
        with opened(number, os.O_RDONLY | os.O_EXCL):
            return False
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise


def _used(number: str, relation: str, kernel: Kernel) -> Iterator[str]:
    name = f"`{kernel.name(number)}`{relation}"
    points = dict.fromkeys(mount.point for mount in kernel.mounted.get(number, []))
    for point in points:
        yield f"{name} is mounted at `{point}`"
    if number in kernel.btrfs_members and not points:
        yield f"{name} is a member of the mounted btrfs {kernel.btrfs_members[number]}"
    if number in kernel.swaps:
        yield f"{name} is active swap"


def _used_files(number: str, own: list[Extent], kernel: Kernel) -> Iterator[str]:
    for extent in own:
        if extent.base in kernel.swap_files:
            yield f"the file below `{kernel.name(number)}` is active swap (`{kernel.swap_files[extent.base]}`)"


def _unreported(number: str, other: str, own: list[Extent], kernel: Kernel) -> Iterator[str]:
    """Volumes that are side by side on one member, and may share any of it as far as the kernel reports."""
    if _is_below(other, own) or _is_above(other, number, kernel):
        return
    for each in sorted(unreported_between(own, extents(other, kernel))):
        yield (
            f"`{kernel.name(other)}` has a member in common with `{kernel.name(number)}`, and the kernel does not "
            f"report which part of it `{kernel.name(each)}` uses (`DM_TABLE_STATUS`, which needs root)"
        )


def _stacked(number: str, other: str, own: list[Extent], kernel: Kernel) -> Iterator[str]:
    """A device that consists of the same data but is not below this one."""
    if other in {extent.base for extent in own}:
        return
    name, loop = kernel.name(other), kernel.loops.get(other)
    members = [each for each in kernel.members.get(other, []) if overlap(own, extents(each, kernel))]
    nearest = [each for each in members if each in (number, *kernel.partitions(number)) or _is_below(each, own)]
    for member in nearest:
        yield f"`{kernel.name(member)}` is part of `{name}`"
    if loop and loop.backing_device:
        yield f"`{name}` is attached to `{kernel.name(loop.backing_device)}`"
    elif loop:
        yield f"`{name}` is attached to the same file as `{kernel.name(_loop_of(loop.backing_file, own, kernel))}`"
    elif members and not nearest and not _is_above(other, number, kernel):
        yield f"`{name}` shares data with `{kernel.name(number)}`"


def _is_below(number: str, own: list[Extent]) -> bool:
    return any(extent.base == number for extent in own)


def _is_above(other: str, number: str, kernel: Kernel) -> bool:
    return any(extent.base in (number, *kernel.partitions(number)) for extent in extents(other, kernel))


def _loop_of(file: str, own: list[Extent], kernel: Kernel) -> str:
    """The loop device through which a device consists of that file."""
    below = [extent.base for extent in own]
    return next((each for each in below if each in kernel.loops and kernel.loops[each].backing_file == file), below[0])


def _relation(number: str, other: str, own: list[Extent], kernel: Kernel) -> str:
    """Return how another device shares data with this one; nothing for a disk and its partitions."""
    if kernel.disk(other) == number or kernel.disk(number) == other:
        return ""
    name = kernel.name(number)
    if _is_below(other, own):
        return f", which is below `{name}`,"
    return f", stacked on `{name}`," if _is_above(other, number, kernel) else f", which shares data with `{name}`,"


def _claims(number: str, kernel: Kernel) -> Iterator[str]:
    for each in (number, *underlying(number, kernel)):
        try:
            if is_claimed(each):
                yield f"`{kernel.name(each)}` is claimed exclusively by another program"
        except OSError as error:
            raise TargetError(
                f"cannot open `{kernel.name(each)}`: {error.strerror}", hint="run iosonde as root"
            ) from error


def _state(number: str, kernel: Kernel) -> Iterator[str]:
    path = kernel.path(number)
    if not path.exists():
        yield "the kernel has no such device"
    elif read(path / "size") in ("", "0"):
        yield f"`{path.name}` has no size"
    elif read(path / "ro") == "1":
        yield f"`{path.name}` is read-only"


def _signatures(number: str, kernel: Kernel) -> list[Signature]:
    """Of the device and of its partitions."""
    return [found for each in (number, *kernel.partitions(number)) for found in signatures(each, kernel.name(each))]


def _is_member(signature: Signature) -> bool:
    kind = signature.kind
    return kind.endswith("_member") or kind in MEMBER_TYPES or signature.is_one_of_several
