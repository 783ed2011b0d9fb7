"""The array, file system and mount between a target and the workload of a case."""

from __future__ import annotations

from typing import Literal

from iosonde.plan.base import Frozen
from iosonde.units import format_bytes

ArrayLevel = Literal["single", "raid0", "raid1", "raid10", "raid5", "raid6"]
ArrayKind = Literal["md", "btrfs"]
ArrayState = Literal["clean", "synced", "degraded", "rebuilding"]
FileSystem = Literal["none", "ext4", "xfs", "btrfs"]
Journal = Literal["on", "off", "external"]
Fresh = Literal["study", "case", "run"]


class Setup(Frozen):
    """Array, file system and mount between the user's target and the workload, fully resolved (study/setup.py)."""

    devices: int = 1
    """The first so many of the target's devices."""
    array: ArrayLevel = "single"
    array_kind: ArrayKind = "md"
    chunk: int = 512 << 10
    """Bytes."""
    array_state: ArrayState = "synced"
    failed_members: int = 0
    file_system: FileSystem = "none"
    journal: Journal = "on"
    mount_options: str = ""
    """Separated by commas."""
    fresh: Fresh = "study"
    setup_size: int | None = None
    """Bytes of the file under a loop device; None where there is none, or where its size is left to the target."""

    @property
    def is_plain(self) -> bool:
        """Whether it asks for nothing that would have to be made."""
        return self.array == "single" and self.file_system == "none" and self.setup_size is None

    @property
    def text(self) -> str:
        """What it is, for a reader: `raid5 of 4, chunk 64 KiB, ext4 without journal`."""
        parts = ["one device" if self.array == "single" else f"{self.array} of {self.devices}"]
        if self.array != "single":
            parts += [self.array_kind, f"chunk {format_bytes(self.chunk)}", self.array_state]
        if self.failed_members:
            parts.append(f"{self.failed_members} failed")
        if self.file_system != "none":
            journal = {"on": "", "off": " without journal", "external": " with its journal apart"}[self.journal]
            parts.append(f"{self.file_system}{journal}")
        if self.mount_options:
            parts.append(f"mounted with {self.mount_options}")
        return ", ".join(parts)
