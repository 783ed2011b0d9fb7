"""The array, block cache, file system and mount between a target and the workload of a case."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, SerializerFunctionWrapHandler, model_serializer

from iosonde.plan.base import Frozen
from iosonde.units import format_bytes

ArrayLevel = Literal["single", "raid0", "raid1", "raid10", "raid5", "raid6"]
ArrayKind = Literal["md", "btrfs"]
ArrayState = Literal["clean", "synced", "degraded", "rebuilding"]
CacheKind = Literal["none", "bcache", "dm-cache", "dm-writecache"]
CacheMode = Literal["writethrough", "writeback", "writearound"]
CacheState = Literal["cold", "warm", "dirty", "kept"]
FileSystem = Literal["none", "ext4", "xfs", "btrfs", "bluestore"]
Journal = Literal["on", "off", "external"]
Fresh = Literal["study", "case", "run"]


_REDIRECTING = ("bind", "rbind", "move", "remount", "loop", "helper", "uhelper")


def check_mount_options(options: str) -> str:
    """Return options of mount(8); `ValueError` for those that name a device or path, or mount something else."""
    for option in filter(None, options.split(",")):
        name = option.partition("=")[0].strip().lower()
        if "/" in option or not option.isprintable():
            raise ValueError(f"the mount option `{option}` names a path or device: a study contains none")
        if name in _REDIRECTING or name.startswith(("journal_dev", "journal_path", "logdev", "rtdev", "x-mount")):
            raise ValueError(f"the mount option `{option}` mounts something else than the file system of the setup")
    return options


class Setup(Frozen):
    """What is between the user's target and the workload, fully resolved (study/setup.py)."""

    devices: int = 1
    """The first this many of the target's devices."""
    array: ArrayLevel = "single"
    array_kind: ArrayKind = "md"
    chunk: int = 512 << 10
    """Bytes."""
    array_state: ArrayState = "synced"
    failed_members: int = 0
    cache: CacheKind = "none"
    """Block cache over the device or array; the cache device is the one after the others."""
    cache_mode: CacheMode = "writethrough"
    cache_sequential_cutoff: int = 4 << 20
    """Bytes; 0 caches sequential I/O too. bcache only."""
    cache_state: CacheState = "cold"
    """State of the cache before each run."""
    cache_hit_ratio: float = 0.0
    """Of a warm cache."""
    cache_dirty_fraction: float = 0.0
    """Of a dirty cache: share of the cache device."""
    cache_file_size: int | None = None
    """Bytes of the file under the loop device of the cache; None for a quarter of the other file."""
    file_system: FileSystem = "none"
    journal: Journal = "on"
    mount_options: Annotated[str, AfterValidator(check_mount_options)] = ""
    """Separated by commas."""
    fresh: Fresh = "study"
    setup_size: int | None = None
    """Bytes of the file under a loop device; None where there is none, or where its size is left to the target."""

    @model_serializer(mode="wrap")
    def _without_unused_cache(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Setups without a cache have the keys that they had before there were caches."""
        written: dict[str, Any] = handler(self)
        if self.cache == "none":
            return {name: value for name, value in written.items() if not name.startswith("cache")}
        return written

    @property
    def is_plain(self) -> bool:
        """Whether nothing has to be created for it."""
        return (
            self.array == "single" and self.cache == "none" and self.file_system == "none" and self.setup_size is None
        )

    @property
    def is_bluestore(self) -> bool:
        """Whether object daemons of Ceph take the devices raw, without a file system."""
        return self.file_system == "bluestore"

    @property
    def is_bare_device(self) -> bool:
        """Whether the workload or file system is directly on one device."""
        return self.array == "single" and self.cache == "none"

    @property
    def text(self) -> str:
        """Description for a reader: `raid5 of 4, chunk 64 KiB, ext4 without journal`."""
        if self.is_bluestore:
            return f"{'one device' if self.devices == 1 else f'{self.devices} devices'} of BlueStore"
        parts = ["one device" if self.array == "single" else f"{self.array} of {self.devices}"]
        if self.array != "single":
            parts += [self.array_kind, f"chunk {format_bytes(self.chunk)}", self.array_state]
        if self.failed_members:
            parts.append(f"{self.failed_members} failed")
        if self.cache != "none":
            parts.append(f"{self.cache} in {self.cache_mode} mode")
        if self.file_system != "none":
            journal = {"on": "", "off": " without journal", "external": " with an external journal"}[self.journal]
            parts.append(f"{self.file_system}{journal}")
        if self.mount_options:
            parts.append(f"mounted with {self.mount_options}")
        return ", ".join(parts)
