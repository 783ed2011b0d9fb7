"""Block devices and their users as the kernel reports them: `/sys`, `/proc`, the loop driver, read at each call.

A partition is a range of its disk, a loop device a range of a file or of another device, a volume ranges of its
members, and an array or cache consists of its members. Following these downward gives the *extents* of a device. Two
devices that have overlapping extents on the same disk or in the same file share data, wherever each of them is in its
stack.

`/sys` names the members of a device mapper volume, and not which part of each: the kernel's own table does
(`DM_TABLE_STATUS`, which dmsetup(8) reads). The targets `linear`, `striped`, `crypt`, `delay` and `flakey` map ranges
of their members as they are. What others map depends on their metadata, and is not followed: they may use all of their
members. So may volumes whose table the kernel does not report. Snapshots of one origin and volumes of one thin pool
share a member, each with blocks of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from iosonde.base.tools import ask, find
from iosonde.storage.block_layer import block_nodes
from iosonde.storage.block_layer.block_nodes import (
    LoopStatus,
    attached_loops,
    identity_of,
    names_in,
    number_of,
    number_of_name,
    read,
    sys_path,
)
from iosonde.storage.block_layer.block_stack import SECTOR_BYTES, disk_of, is_partition, size_bytes, wwid
from iosonde.storage.block_layer.mounts import Mount, namespaces, unescape


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """A range of a member that a range of a volume consists of."""

    member: str
    """Device number."""
    start: int
    """First byte of the range on the member."""
    size: int
    at: int
    """First byte of the range in the volume."""
    span: int
    """Size of the range in the volume: larger than `size` where it is striped over several members."""

    def part(self, start: int, end: int) -> tuple[int, int]:
        """Return the bytes of the member that bytes `start` to `end` of the volume can be in."""
        if self.span != self.size:
            return self.start, self.start + self.size
        return self.start + max(start - self.at, 0), self.start + min(end - self.at, self.size)


@dataclass(frozen=True, kw_only=True)
class MapperTable:
    """The table of a volume."""

    ranges: tuple[Mapped, ...] | None
    """Return its extents; None if a target maps it by metadata of its own."""
    shared: frozenset[str] = frozenset()
    """Members of which other volumes use other blocks, as their metadata decides."""


def mapper_table(number: str) -> MapperTable | None:
    """Return the table of a volume; None if the kernel does not report it, and for any other device."""
    tool = find("dmsetup") if (sys_path(number) / "dm").is_dir() else None
    major, minor = number.split(":")
    answer = ask(tool, "table", "--major", major, "--minor", minor) if tool else None
    if answer is None or answer.returncode != 0 or not answer.stdout:
        return None
    try:
        lines = map(str.split, answer.stdout.splitlines())
        return parse([(int(start), int(length), kind, " ".join(rest)) for start, length, kind, *rest in lines])
    except (ValueError, IndexError):
        return None


def parse(targets: Sequence[tuple[int, int, str, str]]) -> MapperTable:
    """Return the table with these targets, each with start and length in sectors, type and parameters.

    `ValueError` or `IndexError` for parameters that are not of the type's form.
    """
    found: list[Mapped] = []
    shared: set[str] = set()
    is_followed = True
    for start, length, kind, parameters in targets:
        if kind in _DEVICES:
            found += _ranges(start, length, kind, parameters.split())
        else:
            is_followed = False
            shared |= {parameters.split()[0]} if kind in _SHARING else set()
    return MapperTable(ranges=tuple(found) if is_followed else None, shared=frozenset(shared))


def _ranges(start: int, length: int, kind: str, words: list[str]) -> Iterator[Mapped]:
    pairs = _DEVICES[kind](words)
    parts = len(pairs) if kind == "striped" else 1
    for device, offset in pairs:
        major, minor = map(int, device.split(":"))
        yield Mapped(
            member=f"{major}:{minor}",
            start=int(offset) * SECTOR_BYTES,
            size=length // parts * SECTOR_BYTES,
            at=start * SECTOR_BYTES,
            span=length * SECTOR_BYTES,
        )


def _pairs(words: list[str], *places: int) -> list[tuple[str, str]]:
    return [(words[place], words[place + 1]) for place in places if place < len(words)]


_DEVICES: dict[str, Callable[[list[str]], list[tuple[str, str]]]] = {
    "linear": lambda words: _pairs(words, 0),
    "crypt": lambda words: [(words[3], words[4])],
    "flakey": lambda words: _pairs(words, 0),
    "delay": lambda words: _pairs(words, 0, 3, 6),
    "striped": lambda words: _pairs(words, *range(2, 2 + 2 * int(words[0]), 2)),
    "zero": lambda words: [],
    "error": lambda words: [],
}
"""Members and offsets in the parameters of each target that maps its members as they are."""

_SHARING = ("snapshot", "snapshot-origin", "snapshot-merge", "thin")
"""Targets of which several share the member that their parameters name first."""


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

    def on(self, base: str, start: int, end: int) -> Extent:
        """The part of a device below it that it is."""
        return Extent(base, start, end, self.members, self.unreported)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A snapshot of the machine: what was read once is not read again."""

    proc: Path = Path("/proc")
    read_loops: Callable[[], list[LoopStatus]] = attached_loops
    read_table: Callable[[str], MapperTable | None] = mapper_table
    _extents: dict[str, list[Extent]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def extents(self, number: str) -> list[Extent]:
        """The device itself and everything below it, top first."""
        if number not in self._extents:
            found: list[Extent] = []
            waiting = [Extent(number, 0, size_bytes(number))]
            while waiting:
                extent = waiting.pop(0)
                if extent not in found:
                    found.append(extent)
                    waiting += self._below(extent)
            self._extents[number] = found
        return self._extents[number]

    def overlap(self, one: str, other: str) -> bool:
        """Return True if two devices share any byte."""
        return any(mine.overlaps(theirs) for mine in self.extents(one) for theirs in self.extents(other))

    def is_below(self, lower: str, upper: str) -> bool:
        """Return True if a device consists of data of another one."""
        return any(extent.base == lower for extent in self.extents(upper))

    def unreported_between(self, one: str, other: str) -> frozenset[str]:
        """Return the volumes without a table due to which two devices count as sharing data; none if they do anyway."""
        pairs = ((mine, theirs) for mine in self.extents(one) for theirs in self.extents(other))
        found = [mine.unreported | theirs.unreported for mine, theirs in pairs if mine.overlaps(theirs)]
        return min(found, key=len, default=frozenset())

    @cached_property
    def numbers(self) -> list[str]:
        """Every block device."""
        listed = (number_of_name(name) for name in names_in(block_nodes.SYS / "class/block"))
        return sorted(filter(None, listed))

    @cached_property
    def loops(self) -> dict[str, LoopStatus]:
        """Attached loop devices by number."""
        return {status.number: status for status in self.read_loops()}

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """Members of each md, dm or bcache device, by its number."""
        found: dict[str, list[str]] = {}
        for number in self.numbers:
            pairs = [(number_of_name(name), number) for name in names_in(sys_path(number) / "holders")]
            pairs += [(number, number_of_name(name)) for name in names_in(sys_path(number) / "slaves")]
            for holder, member in pairs:
                if holder and member and member not in found.setdefault(holder, []):
                    found[holder].append(member)
        return found

    @cached_property
    def tables(self) -> dict[str, MapperTable]:
        """Tables of device mapper volumes by number, as far as the kernel reports them."""
        tables = {number: self.read_table(number) for number in self.members}
        return {number: table for number, table in tables.items() if table is not None}

    @cached_property
    def without_table(self) -> frozenset[str]:
        """Numbers of device mapper volumes whose table the kernel does not report, as to a user without privileges."""
        return frozenset(
            number for number in self.members if number not in self.tables and (sys_path(number) / "dm").is_dir()
        )

    @cached_property
    def _mounts(self) -> list[Mount]:
        return [mount for _, found in namespaces(self.proc) for mount in found]

    @cached_property
    def mounted(self) -> dict[str, list[Mount]]:
        """Mounts by device number, of every visible mount namespace."""
        found: dict[str, list[Mount]] = {}
        for mount in self._mounts:
            for number in self._devices_of(mount):
                if mount not in found.setdefault(number, []):
                    found[number].append(mount)
        return found

    def devices_under(self, path: str) -> list[str] | None:
        """Return the devices of every mounted file system that a path may lead to; None if it leads to none."""
        found = [mount for mount in self._mounts if path and Path(path).is_relative_to(mount.point)]
        return [number for mount in found for number in self._devices_of(mount)] if found else None

    @cached_property
    def btrfs_members(self) -> dict[str, str]:
        """UUID of the mounted btrfs by the number of each of its devices."""
        found = {}
        all_of_them = block_nodes.SYS / "fs/btrfs"
        for file_system in names_in(all_of_them):
            for name in names_in(all_of_them / file_system / "devices"):
                number = read(all_of_them / file_system / "devices" / name / "dev") or number_of_name(name)
                if number:
                    found[number] = file_system
        return found

    @cached_property
    def swaps(self) -> set[str]:
        """Numbers of swap devices."""
        return {number for path in self._swap_paths() if (number := number_of(path))}

    @cached_property
    def swap_files(self) -> dict[str, str]:
        """Path of each swap file by its identity (`identity_of`)."""
        found = {}
        for path in self._swap_paths():
            try:
                status = Path(path).stat()
            except OSError:
                continue  # Deleted, or of another namespace: the kernel refuses writes to it (ETXTBSY).
            if not number_of(path):
                found[identity_of(status)] = path
        return found

    def _swap_paths(self) -> list[str]:
        try:
            lines = (self.proc / "swaps").read_text(errors="surrogateescape", encoding="utf-8").splitlines()[1:]
        except OSError:
            return []
        return [unescape(line.split()[0]) for line in lines if line.strip()]

    def _devices_of(self, mount: Mount) -> list[str]:
        if sys_path(mount.device).exists():
            return [mount.device]
        # btrfs, overlays and network file systems have anonymous numbers; their source may name a device.
        number = number_of(mount.source)
        return [number] if number else []

    def _below(self, extent: Extent) -> Iterator[Extent]:
        number, start, end = extent.base, extent.start, extent.end
        if is_partition(number):
            offset = int(read(sys_path(number) / "start") or 0) * SECTOR_BYTES
            yield extent.on(disk_of(number), start + offset, end + offset)
        loop = self.loops.get(number)
        if loop and not loop.problem:
            yield extent.on(loop.backing_device or loop.backing_file, start + loop.offset, end + loop.offset)
        table = self.tables.get(number)
        if table and table.ranges is not None:
            for each in table.ranges:
                if start < each.at + each.span and each.at < end:
                    yield extent.on(each.member, *each.part(start, end))
        else:
            for member in self.members.get(number, []):
                is_apart = member in table.shared if table else number not in self.without_table
                members = extent.members | ({member} if is_apart else set())
                unreported = extent.unreported | ({number} & self.without_table)
                yield Extent(member, 0, size_bytes(member), members, unreported)
        if not is_partition(number) and (name := wwid(number)):
            yield extent.on(f"wwid {name}", start, end)
