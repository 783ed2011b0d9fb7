"""The target of a workload on a setup: a file system mounted for it, or a raw device.

It is planned before anything is created, so its names are those of links and mount points that iosonde will create, and
its capacity is an estimate on the low side. `active_setup.py` creates it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from iosonde.errors import TargetError
from iosonde.plan import OF_WHOLE_DEVICE, Capacity, Destroys, Purge, Setup
from iosonde.storage.block_layer import block_stack
from iosonde.storage.safety.journal_entry import MOUNTS
from iosonde.storage.setups import bluestore, file_systems
from iosonde.storage.targets import direct_io
from iosonde.storage.targets.describe import describe_path, stack_of
from iosonde.storage.targets.target import Files, IoMode, Target, files_in
from iosonde.units import compact_size, format_bytes


@dataclass
class Provided:
    """Devices that a setup may use, until they are released."""

    devices: list[Path]
    journal_device: Path | None
    """For an external journal."""
    facts: list[dict[str, Any]]
    """Of each device, for the record."""
    further: Sequence[Path] = ()
    """Further devices of the layers (`SetupPart.further_bytes`), in their order."""


class DeviceProvider(Protocol):
    """Provides the devices of a setup."""

    @property
    def name(self) -> str:
        """The target that the user named."""

    @property
    def device_bytes(self) -> int:
        """Size of the smallest."""

    @property
    def sector_bytes(self) -> int:
        """The largest of their logical sectors."""

    @property
    def purges(self) -> list[Purge]:
        """Methods to purge them raw."""

    @property
    def is_exclusive(self) -> bool:
        """Return True if its devices are claimed while no layer or file system uses them."""

    def destroys(self, setup: Setup, measured_bytes: int | None) -> list[Destroys]:
        """Return the existing data that could be lost, and the things that are created and removed.

        `measured_bytes` are those of a single raw device; None where anything on the devices may be written.
        """

    def provide(self, setup: Setup) -> Provided:
        """Create the devices of a setup, or release their claims."""

    def release(self) -> None:
        """Undo that; may be repeated."""

    def abandon(self) -> None:
        """Give up own descriptors, because what is on the devices cannot be removed. Nothing is written."""


@dataclass(frozen=True, kw_only=True)
class SetupTarget(Target):
    """A setup on devices of a provider."""

    provider: DeviceProvider
    setup: Setup
    own: str
    """Name of what iosonde creates for the study: `iosonde-XXXXXXXX`."""

    @property
    def kind(self) -> Literal["directory", "device"]:  # type: ignore[override]
        """A directory on the file system, or a raw device."""
        return "device" if self.setup.file_system == "none" else "directory"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The path of the mount point or link."""
        return str(self.link if self.kind == "device" else self.point)

    @property
    def title(self) -> str:
        """The devices and what is created on them."""
        return f"`{self.provider.name}` as {self.setup.text}"

    @property
    def place(self) -> Path:
        """The directory of mount point and link."""
        return MOUNTS / self.own

    @property
    def point(self) -> Path:
        """Mount point of its file system."""
        return self.place / "mounted"

    @property
    def link(self) -> Path:
        """The link to the raw device."""
        return self.place / "device"

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Its size, and the alignment of direct I/O."""
        if bytes_needed > self.free_bytes():
            raise TargetError(
                f"no room on {self.title}: {format_bytes(bytes_needed)} are needed, and "
                f"there will be {format_bytes(self.free_bytes())}",
                hint="make the span smaller with `--set span=...`, or use larger devices (`--set setup_size=...` where "
                "they are files)",
            )
        unit = self.direct_unit()
        for size in block_sizes if io_mode == "direct" else ():
            if size % unit:
                raise TargetError(
                    f"{self.title} cannot do direct I/O of {format_bytes(size)}, only "
                    f"of multiples of {format_bytes(unit)}",
                    hint=f"start at that with `--set block_size={compact_size(unit)},...`, or measure through the page "
                    "cache with `--set io_mode=buffered`",
                )

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """Files in a new directory of the file system, or the raw device."""
        if self.kind == "directory":
            return files_in(self.point / self.own, files, size_bytes)
        if files == "per_job":
            raise TargetError(
                f"{self.title} is one device, and every job needs a file of its own",
                where='by the parameter `files = "per_job"`',
                hint="give each job a part of it with `--set files=shared` and `--set span_sharing=split`, or choose a "
                "`file_system`",
            )
        return {"kind": "device", "path": str(self.link), "size_bytes": size_bytes}

    def backend(self) -> None:
        """The workload chooses."""
        return

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """As its provider."""
        if keep:
            raise TargetError(
                f"the files on {self.title} cannot be kept: it is removed at the end",
                hint="leave out `--keep`",
            )
        is_bounded = self.kind == "device" and self.setup.is_bare_device
        return self.provider.destroys(self.setup, size_bytes if is_bounded else None)

    def device_bytes(self) -> int:
        """Size of the device or layer under the file system."""
        size = self.provider.device_bytes
        for layer in self.setup.layers:
            size = layer.size_bytes(size, self.setup.devices)
        return size

    def free_bytes(self) -> int:
        """Room on a new file system, or all of a raw device."""
        return file_systems.room(self.setup, self.device_bytes())

    def capacity(self) -> Capacity:
        """That room."""
        return Capacity(bytes=self.free_bytes())

    def purges(self) -> list[Purge]:
        """A file system frees the blocks of its files; a raw device has its own methods."""
        if self.kind == "directory":
            return ["trim", "overwrite"]
        return [each for each in self.provider.purges if each not in OF_WHOLE_DEVICE or self.setup.is_bare_device]

    def direct_unit(self) -> int:
        """The sector size, or what the file system requires."""
        return max(self.provider.sector_bytes, file_systems.DIRECT_UNIT.get(self.setup.file_system, 1))

    def osd_bytes(self) -> int | None:
        """Those of the smallest."""
        return self.device_bytes() if self.setup.is_bluestore else None

    def osd_nodes(self) -> list[Path]:
        """In its file system in memory."""
        return bluestore.nodes(self.point, self.setup.devices) if self.setup.is_bluestore else []

    def block_devices(self) -> list[str]:
        """The stack below it, once it is active."""
        return block_stack.watched(self._stack())

    def describe(self) -> dict[str, Any]:
        """The active setup."""
        if self.kind == "directory" and not self.setup.is_bluestore:
            found = describe_path(self.point, writes_to_page_cache=direct_io.writes_to_page_cache(self.point))
            return {"kind": self.kind, "name": self.name, **found}
        devices = [block_stack.describe(device) for device in self._stack()]
        size = {"size_bytes": devices[0]["size_bytes"]} if devices else {}
        return {"kind": self.kind, "name": self.name, **size, "devices": devices}

    def _stack(self) -> list[str]:
        if self.setup.is_bluestore:
            stacks = map(block_stack.stack_under, bluestore.numbers(self.point, self.setup.devices))
            return list(dict.fromkeys(device for stack in stacks for device in stack))
        if self.kind == "directory":
            return stack_of(self.point) if self.point.exists() else []
        if not self.link.is_block_device():
            return []
        number = self.link.stat().st_rdev
        return block_stack.stack_under(f"{os.major(number)}:{os.minor(number)}")
