"""Block devices and their users as the kernel reports them: `/sys`, `/proc`, the loop driver, read at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.loop_status import LoopStatus, attached_loops, identity_of
from iosonde.storage.block_layer.mapper_tables import MapperTable, mapper_table
from iosonde.storage.block_layer.mounts import Mount, mounts_in, unescape

SECTOR_BYTES = 512
"""Unit of sizes and offsets in `/sys`, whatever the device's own sectors."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A snapshot of the machine: what was read once is not read again."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    read_loops: Callable[[], list[LoopStatus]] = attached_loops
    read_table: Callable[[str], MapperTable | None] = mapper_table
    _paths: dict[str, Path] = field(default_factory=dict, init=False, repr=False, compare=False)
    _attributes: dict[tuple[str, str], str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _partitions: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def path(self, number: str) -> Path:
        """The directory of a device (`major:minor`) in `/sys`."""
        if number not in self._paths:
            self._paths[number] = (self.sys / "dev/block" / number).resolve()
        return self._paths[number]

    def name(self, number: str) -> str:
        """The kernel's name: `vdb`."""
        return self.path(number).name

    def size_bytes(self, number: str) -> int:
        """Size of a device; 0 for an unknown one."""
        return int(self._attribute(number, "size") or 0) * SECTOR_BYTES

    def start_bytes(self, number: str) -> int:
        """First byte of a partition on its disk."""
        return int(self._attribute(number, "start") or 0) * SECTOR_BYTES

    def is_partition(self, number: str) -> bool:
        """Return True if it is a partition."""
        if number not in self._partitions:
            self._partitions[number] = (self.path(number) / "partition").exists()
        return self._partitions[number]

    def disk(self, number: str) -> str:
        """The disk of a partition; any other device itself."""
        return read(self.path(number).parent / "dev") or number if self.is_partition(number) else number

    def partitions(self, number: str) -> list[str]:
        """Those of a disk."""
        below = (self.path(number) / name for name in names_in(self.path(number)))
        found = (read(each / "dev") for each in below if (each / "partition").exists())
        return [each for each in found if each]  # One may have been deleted since it was listed.

    def wwid(self, number: str) -> str:
        """The name of a disk that is the same on every path to it; empty for partitions and where there is none."""
        if self.is_partition(number):
            return ""
        return self._attribute(number, "wwid") or self._attribute(number, "device/wwid")

    @cached_property
    def numbers(self) -> list[str]:
        """Every block device."""
        return sorted(each.name for each in (self.sys / "dev/block").glob("*:*"))

    @cached_property
    def loops(self) -> dict[str, LoopStatus]:
        """Attached loop devices by number."""
        return {status.number: status for status in self.read_loops()}

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """Members of each md, dm or bcache device, by its number."""
        found: dict[str, list[str]] = {}
        for number in self.numbers:
            pairs = [(self._number_of_name(name), number) for name in names_in(self.path(number) / "holders")]
            pairs += [(number, self._number_of_name(name)) for name in names_in(self.path(number) / "slaves")]
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
            number for number in self.members if number not in self.tables and (self.path(number) / "dm").is_dir()
        )

    @cached_property
    def mounted(self) -> dict[str, list[Mount]]:
        """Mounts by device number, of every visible mount namespace."""
        found: dict[str, list[Mount]] = {}
        for mount in self._all_mounts():
            for number in self._devices_of(mount):
                if mount not in found.setdefault(number, []):
                    found[number].append(mount)
        return found

    def devices_under(self, path: str) -> list[str] | None:
        """Return the devices of every mounted file system that a path may lead to; None if it leads to none."""
        found = [mount for mount in self._all_mounts() if path and Path(path).is_relative_to(mount.point)]
        return [number for mount in found for number in self._devices_of(mount)] if found else None

    @cached_property
    def btrfs_members(self) -> dict[str, str]:
        """UUID of the mounted btrfs by the number of each of its devices."""
        found = {}
        for file_system in names_in(self.sys / "fs/btrfs"):
            devices = self.sys / "fs/btrfs" / file_system / "devices"
            for name in names_in(devices):
                number = read(devices / name / "dev") or self._number_of_name(name)
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

    def _attribute(self, number: str, name: str) -> str:
        """Text of a file of a device in `/sys`, as it was when it was first read."""
        if (number, name) not in self._attributes:
            self._attributes[number, name] = read(self.path(number) / name)
        return self._attributes[number, name]

    def _number_of_name(self, name: str) -> str:
        return read(self.sys / "class/block" / name / "dev")

    def _all_mounts(self) -> Iterator[Mount]:
        seen: set[str] = set()
        for process in [self.proc / "self", *sorted(self.proc.glob("[0-9]*"))]:
            table = process / "mountinfo"
            try:
                namespace = str((process / "ns/mnt").readlink())
            except OSError:
                namespace = str(table)
            if namespace in seen:
                continue
            try:
                found = mounts_in(table)
            except OSError:
                continue  # The process has exited, or belongs to another user.
            seen.add(namespace)
            yield from found

    def _devices_of(self, mount: Mount) -> list[str]:
        if (self.sys / "dev/block" / mount.device).exists():
            return [mount.device]
        # btrfs, overlays and network file systems have anonymous numbers; their source may name a device.
        number = number_of(mount.source)
        return [number] if number else []


def names_in(folder: Path) -> list[str]:
    """Names in a directory of `/sys`; none if it has disappeared, as with a device that was removed meanwhile."""
    try:
        return sorted(each.name for each in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def read(file: Path) -> str:
    """Text of a file in `/sys`; empty if it cannot be read."""
    try:
        with file.open("rb", buffering=0) as opened:
            return opened.read().decode(errors="replace").strip()
    except OSError:
        return ""
