"""The array, file system and mount between a target and the workload of a case, and what features put there."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field

from iosonde.core.features import contributed
from iosonde.plan.base import Frozen, JsonObject
from iosonde.units import format_bytes

ArrayLevel = Literal["single", "raid0", "raid1", "raid10", "raid5", "raid6"]
ArrayKind = Literal["md", "btrfs"]
ArrayState = Literal["clean", "synced", "degraded", "rebuilding"]
FileSystem = Literal["none", "ext4", "xfs", "btrfs", "bluestore"]
Journal = Literal["on", "off", "external"]
Fresh = Literal["study", "case", "run"]


_REDIRECTING = ("bind", "rbind", "move", "remount", "loop", "helper", "uhelper")


def check_mount_options(options: str) -> str:
    """Return options of mount(8); `ValueError` for those that name a device or path, or mount something else."""
    for option in filter(None, options.split(",")):
        name = option.partition("=")[0].strip().lower()
        if "/" in option or not option.isprintable():
            raise ValueError(f"the mount option `{option}` names a path or device, which a study cannot contain")
        if name == "ro":
            raise ValueError("the mount option `ro` is not supported: iosonde creates its files in the file system")
        if name in _REDIRECTING or name.startswith(("journal_dev", "journal_path", "logdev", "rtdev", "x-mount")):
            raise ValueError(f"the mount option `{option}` must not change what is mounted")
    return options


class SetupPart(Frozen):
    """A layer of a feature over the device or array of a setup, fully resolved."""

    part: ClassVar[str]
    """Key of `Setup.parts`, and the parameter that asks for it."""

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the device below that it takes for itself."""
        return 0

    @property
    def text(self) -> str:
        raise NotImplementedError

    def further_bytes(self, device_bytes: int) -> list[int]:
        """Sizes of the further devices that it needs, where they are files; they are the last devices of a target."""
        return []


P = TypeVar("P", bound=SetupPart)


def part_kinds() -> dict[str, type[SetupPart]]:
    """Return the parts that features define, by name."""
    kinds: tuple[type[SetupPart], ...] = contributed("setup", "PARTS")
    return {kind.part: kind for kind in kinds}


class Setup(Frozen):
    """Layers between the user's target and the workload, fully resolved (study/setup.py)."""

    devices: int = 1
    """The first this many of the target's devices."""
    array: ArrayLevel = "single"
    array_kind: ArrayKind = "md"
    chunk: int = 512 << 10
    """Bytes."""
    array_state: ArrayState = "synced"
    failed_members: int = 0
    parts: dict[str, JsonObject] = Field(default_factory=dict)
    """Layers over the device or array, by `SetupPart.part`, the lowest first; read with `layers`."""
    file_system: FileSystem = "none"
    journal: Journal = "on"
    mount_options: Annotated[str, AfterValidator(check_mount_options)] = ""
    """Separated by commas."""
    fresh: Fresh = "study"
    setup_size: int | None = None
    """Bytes of the file under a loop device; None where there is none, or where its size is left to the target."""

    def __hash__(self) -> int:
        """Setups are keys; parts are objects, so the hash is that of the text."""
        return hash(self.model_dump_json())

    @cached_property
    def layers(self) -> tuple[SetupPart, ...]:
        """Return the parts of features as their types; `ValueError` for one that no feature of this iosonde defines."""
        kinds = part_kinds()
        unknown = next((name for name in self.parts if name not in kinds), "")
        if unknown:
            raise ValueError(f"`{unknown}` is no part of a setup of this iosonde")
        return tuple(kinds[name].model_validate(values) for name, values in self.parts.items())

    def layer(self, kind: type[P]) -> P | None:
        """Return the part of a feature; None without one."""
        return next((each for each in self.layers if isinstance(each, kind)), None)

    @property
    def is_plain(self) -> bool:
        """True if nothing has to be created for it."""
        return self.is_bare_device and self.file_system == "none" and self.setup_size is None

    @property
    def is_bluestore(self) -> bool:
        """True if object daemons of Ceph use the devices directly, without a file system."""
        return self.file_system == "bluestore"

    @property
    def is_bare_device(self) -> bool:
        """True if the workload or file system is directly on one device."""
        return self.array == "single" and not self.parts

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
        parts += [each.text for each in self.layers]
        if self.file_system != "none":
            journal = {"on": "", "off": " without journal", "external": " with an external journal"}[self.journal]
            parts.append(f"{self.file_system}{journal}")
        if self.mount_options:
            parts.append(f"mounted with {self.mount_options}")
        return ", ".join(parts)
