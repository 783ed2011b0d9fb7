"""Byte ranges of members in device mapper volumes, from the kernel's own table (`DM_TABLE_STATUS`).

`/sys` names the members of a volume, and not which part of each. The targets `linear`, `striped`, `crypt`, `delay` and
`flakey` map ranges of their members as they are. What others map depends on their metadata, and is not followed: they
may use all of their members. So may volumes whose table the kernel does not report. Snapshots of one origin and volumes
of one thin pool share a member, each with blocks of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECTOR_BYTES = 512

_HEADER = struct.Struct("=3I 3I i 3I Q 128s 129s 7s")
"""`struct dm_ioctl` (`linux/dm-ioctl.h`)."""
_TARGET = struct.Struct("=2Q i I 16s")
"""`struct dm_target_spec`; its parameters follow as text."""
_TABLE_STATUS = (3 << 30) | (_HEADER.size << 16) | (0xFD << 8) | 12
_STATUS_TABLE, _BUFFER_FULL, _SECURE_DATA = 1 << 4, 1 << 8, 1 << 15
_SIZES = (1 << 14, 1 << 17, 1 << 20)
"""Sizes of the buffer for a table: the next one where a table does not fit."""


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


def mapper_table(number: str, *, sys: Path = Path("/sys")) -> MapperTable | None:
    """Return the table of a volume; None if the kernel does not report it, and for any other device."""
    if not (sys / "dev/block" / number / "dm").is_dir():
        return None
    try:
        return parse(list(_targets_of(number, sys)))
    except (OSError, ValueError, IndexError, struct.error):
        return None


def parse(targets: list[tuple[int, int, str, str]]) -> MapperTable:
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


def _targets_of(number: str, sys: Path) -> Iterator[tuple[int, int, str, str]]:
    """The live table, as `parse` takes it; `OSError` if the kernel does not give it."""
    major, minor = map(int, number.split(":"))
    device = (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)
    with _control(sys) as control:
        for size in _SIZES:
            buffer = bytearray(size)
            flags = _STATUS_TABLE | _SECURE_DATA
            _HEADER.pack_into(buffer, 0, 4, 0, 0, size, _HEADER.size, 0, 0, flags, 0, 0, device, b"", b"", b"")
            fcntl.ioctl(control, _TABLE_STATUS, buffer)
            _, _, _, _, first, count, _, flags, *_ = _HEADER.unpack_from(buffer)
            if not flags & _BUFFER_FULL:
                yield from _targets(bytes(buffer[first:]), count)
                return
    raise OSError(f"the table of {number} is longer than {_SIZES[-1]} bytes")


def _targets(data: bytes, count: int) -> Iterator[tuple[int, int, str, str]]:
    at = 0
    for _ in range(count):
        start, length, _, after, kind = _TARGET.unpack_from(data, at)
        text = data[at + _TARGET.size :].split(b"\0", 1)[0]
        yield start, length, kind.split(b"\0", 1)[0].decode(), text.decode()
        at = after


@contextlib.contextmanager
def _control(sys: Path) -> Iterator[int]:
    """The device mapper's control device, also where `/dev` has no node for it."""
    major, minor = map(int, (sys / "class/misc/device-mapper/dev").read_text(encoding="utf-8").split(":"))
    with tempfile.TemporaryDirectory(dir="/dev", prefix=".iosonde-") as directory:
        node = Path(directory, "control")
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(major, minor))
        descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
