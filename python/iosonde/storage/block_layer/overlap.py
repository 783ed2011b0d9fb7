"""Extents of block devices on disks and files, and detection of devices that share data.

A partition is a range of its disk, a loop device a range of a file or of another device, a volume ranges of its members
(`mapper_tables.py`), and an array or cache consists of its members. Following these downward gives the *extents* of a
device. Two devices that have overlapping extents on the same disk or in the same file share data, wherever each of them
is in its stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from iosonde.storage.block_layer.kernel import Kernel


@dataclass(frozen=True)
class Extent:
    """Bytes `start` to `end` (exclusive) of a block device or file."""

    base: str
    """A device number, the identity of a file, or a disk's WWID."""
    start: int
    end: int
    members: frozenset[str] = frozenset()
    """Members of arrays and of some volumes on the way down to here. How these map their members is not followed."""
    unreported: frozenset[str] = frozenset()
    """Volumes on the way down to here whose table the kernel does not report: they may use all of their members."""

    def overlaps(self, other: Extent) -> bool:
        """Return True if both may contain the same byte.

        Two snapshots or thin volumes have the same members, and the device mapper gives each its own part of them.
        """
        is_same = self.base == other.base and self.start < other.end and other.start < self.end
        return is_same and not self.members & other.members


def extents(number: str, kernel: Kernel) -> list[Extent]:
    """The device itself and everything below it, top first."""
    found: list[Extent] = []
    waiting = [Extent(number, 0, kernel.size_bytes(number))]
    while waiting:
        extent = waiting.pop(0)
        if extent not in found:
            found.append(extent)
            waiting += _below(extent, kernel)
    return found


def overlap(one: list[Extent], other: list[Extent]) -> bool:
    """Return True if two devices, each given by its extents, share any byte."""
    return any(mine.overlaps(theirs) for mine in one for theirs in other)


def unreported_between(one: list[Extent], other: list[Extent]) -> frozenset[str]:
    """Return the volumes without a table due to which two devices count as sharing data; none if they do anyway."""
    pairs = [mine.unreported | theirs.unreported for mine in one for theirs in other if mine.overlaps(theirs)]
    return min(pairs, key=len, default=frozenset())


def _below(extent: Extent, kernel: Kernel) -> Iterator[Extent]:
    number, start, end = extent.base, extent.start, extent.end
    if kernel.is_partition(number):
        offset = kernel.start_bytes(number)
        yield Extent(kernel.disk(number), start + offset, end + offset, extent.members, extent.unreported)
    loop = kernel.loops.get(number)
    if loop and not loop.problem:
        base = loop.backing_device or loop.backing_file
        yield Extent(base, start + loop.offset, end + loop.offset, extent.members, extent.unreported)
    table = kernel.tables.get(number)
    if table and table.ranges is not None:
        for each in table.ranges:
            if start < each.at + each.span and each.at < end:
                yield Extent(each.member, *each.part(start, end), extent.members, extent.unreported)
    else:
        for member in kernel.members.get(number, []):
            is_apart = member in table.shared if table else number not in kernel.without_table
            members = extent.members | ({member} if is_apart else set())
            unreported = extent.unreported | ({number} & kernel.without_table)
            yield Extent(member, 0, kernel.size_bytes(member), members, unreported)
    if wwid := kernel.wwid(number):
        yield Extent(f"wwid {wwid}", start, end, extent.members, extent.unreported)
