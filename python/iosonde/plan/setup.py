"""The file system and mount between a target and the workload of a case, and the layers of features below them."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field

from iosonde.core.features import contributed
from iosonde.plan.base import Frozen, JsonObject

FileSystem = Literal["none", "ext4", "xfs", "btrfs", "bluestore", "nfs"]
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
    """A layer of a feature over the devices of a setup, fully resolved.

    The serialization alias of a field is the parameter that it resolves.
    """

    part: ClassVar[str]
    """Key of `Setup.parts`, and the parameter that asks for it."""
    combines: ClassVar[bool] = False
    """True if it makes one device of all `devices`; otherwise it is over one device or layer."""
    can_be_simulated: ClassVar[bool] = False
    has_server: ClassVar[bool] = False
    """True if the device is used through a server, which is started on the machine of the device."""

    @property
    def file_system(self) -> FileSystem | None:
        """File system that comes with it, and only has to be mounted."""
        return None

    def text(self, devices: int) -> str:
        """Return a description for a reader."""
        raise NotImplementedError

    def size_bytes(self, below: int, devices: int) -> int:
        """Return a lower bound of its size, over a device (or `devices`) of `below` bytes."""
        return below

    def simulated(self) -> dict[str, Any]:
        """Return fields of a target of simulated drives; `TargetError` for a layer that they do not have."""
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
    parts: dict[str, JsonObject] = Field(default_factory=dict)
    """Layers over the devices, by `SetupPart.part`, the lowest first; read with `layers`."""
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
    def parameters(self) -> dict[str, Any]:
        """Return all of it as parameters of a case."""
        layers = [each.model_dump(by_alias=True) for each in self.layers]
        return {**self.model_dump(exclude={"parts"}), **{name: each[name] for each in layers for name in each}}

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
        return not self.parts

    @property
    def text(self) -> str:
        """Description for a reader: `one device, ext4 without journal`."""
        if self.is_bluestore:
            return f"{'one device' if self.devices == 1 else f'{self.devices} devices'} of BlueStore"
        parts = [] if any(each.combines for each in self.layers) else ["one device"]
        parts += [each.text(self.devices) for each in self.layers]
        if self.file_system != "none":
            journal = {"on": "", "off": " without journal", "external": " with an external journal"}[self.journal]
            parts.append(f"{self.file_system}{journal}")
        if self.mount_options:
            parts.append(f"mounted with {self.mount_options}")
        return ", ".join(parts)
