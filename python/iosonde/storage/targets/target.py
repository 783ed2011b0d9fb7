"""Interface of targets, to which a study's I/O goes.

`opening.open_target` turns what the user named into one of them: files (`file_target.py`), block devices
(`device_target.py`), no storage at all (`opening.py`), or a kind of target of a feature (`TargetKind`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from iosonde.base.features import contributed
from iosonde.errors import TargetError
from iosonde.plan import Capacity, Destroys, JsonObject, Plan, Purge, Setup, SetupPart

if TYPE_CHECKING:
    from iosonde.storage.safety.guard import Consent


MOST_BYTES = 128
"""With a suffix this is well below the 255 bytes that file systems allow."""


def is_file_name(name: str) -> bool:
    """Return True if a name can be part of a file name: printable, no directory, not hidden."""
    if not name or not name.isprintable() or "/" in name or name.startswith("."):
        return False
    return len(name.encode()) <= MOST_BYTES


@dataclass(frozen=True, kw_only=True)
class BuiltLayer:
    """An active layer of a setup."""

    device: Path
    """The block device over those below."""
    below: tuple[Path, ...] = ()
    """Devices below it that the kernel does not list as such."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record: commands, settings, sizes."""
    mount_options: str = ""
    """Options that mounting it needs."""

    def mounted(self, point: Path) -> None:
        """Do what needs the mounted file system."""


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """Listed in `LAYERS` of a feature's `storage.py`."""

    part: type[SetupPart]
    journal_kind: str
    """Kind of the journal entry that `build` announces before its first command."""
    further_kinds: tuple[str, ...] = ()
    """Kinds of the entries that `mounted` adds."""
    check_possible: Callable[[Any], None]
    """`TargetError` if this machine cannot create a part of that type."""
    build: Callable[[Sequence[Path], Sequence[Path], Any, str], BuiltLayer]
    """Create a part over a device (or all of a setup), with its further devices, under the name of the study."""


def layer_kinds() -> tuple[LayerKind, ...]:
    """Return the layers of all features."""
    return contributed("storage", "LAYERS", LayerKind)


def layer_kind_of(part: SetupPart) -> LayerKind:
    """Return the kind that creates a part of a setup."""
    return next(each for each in layer_kinds() if isinstance(part, each.part))


def check_layers(setup: Setup) -> None:
    """`TargetError` if this machine cannot create the layers of a setup."""
    for part in setup.layers:
        layer_kind_of(part).check_possible(part)


Files = Literal["shared", "per_job", "per_device"]
SIDE_BY_SIDE = range(2, 9)
"""Number of devices with `files = "per_device"`."""
IoMode = Literal["direct", "buffered"]
Kind = Literal["file", "directory", "device", "null", "simulated"]


class Target(ABC):
    """Somewhere to send I/O to."""

    kind: Kind
    name: str
    """Absolute path, or a text with a prefix such as `null:...`: `open_target` takes it back."""

    @property
    def is_model(self) -> bool:
        """True if results are those of a model, which the host's I/O path does not reach; records are marked."""
        return False

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"`{self.name}`"

    @abstractmethod
    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Raise `TargetError` when this many bytes have no room, or I/O of these sizes is unsupported in this mode."""

    def side_by_side(self, size_bytes: int) -> Target:
        """The target as devices of `size_bytes`, one after the other; `TargetError` if they are not `SIDE_BY_SIDE`."""
        raise TargetError(
            f'`files = "per_device"` requires {SIDE_BY_SIDE[0]} to {SIDE_BY_SIDE[-1]} devices; got {self.title}',
            hint="name block devices, such as `--target /dev/sdb,/dev/sdc`, or simulated volumes, such as "
            "`sim:gp2-100g*2`",
        )

    @abstractmethod
    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """The spec's `target`: one file (or each job's file) of that size."""

    def backend(self) -> dict[str, Any] | None:
        """The spec's `backend` where the target leaves no choice, with what it does not set left out."""
        return None

    def most_operations(self) -> float:
        """Operations per second that random access does not exceed; infinite unless a model has such a limit."""
        return math.inf

    @abstractmethod
    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Return the things that a study of that size creates and removes, or overwrites."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Room for a study's data."""

    def direct_unit(self) -> int | None:
        """Bytes that direct I/O takes multiples of; None where there is no such unit, or no direct I/O."""
        return None

    def capacity(self) -> Capacity:
        """Capacity of which a fill level is a share."""
        return Capacity(bytes=self.free_bytes())

    def over_provisioning(self) -> float | None:
        """Spare capacity as a share of the capacity, where it is known."""
        return None

    def purges(self) -> list[Purge]:
        """Methods to purge the target, the strongest first; none if it stores nothing."""
        return []

    own: str = ""
    """Name of what iosonde creates on the target for a study; empty if nothing."""

    def called(self, own: str) -> Target:
        """The target with the name of its own directory that a plan recorded."""
        return self

    @contextmanager
    def claimed(self, given: Consent, *, keep: bool = False) -> Iterator[None]:
        """Claim block devices for the length of a study, if the user's consent is sufficient."""
        yield

    def recheck(self) -> None:
        """`TargetError` if a claimed device came into use: called before and after each run."""
        return

    def numbers_by_name(self) -> dict[str, str]:
        """The device (`major:minor`) that each path was resolved to, for block devices."""
        return {}

    def file_system(self) -> int | None:
        """Number of the file system that it is a part of; None for whole devices and without any."""
        return None

    def notes(self) -> list[str]:
        """Notes for the user before a study starts."""
        return []

    def asks(self) -> list[str]:
        """Options that the user has to give before a study is carried out on it."""
        return []

    def require_directory(self, reason: str, *, parameter: str) -> None:
        """`TargetError` unless it is a directory; `reason` is a clause."""
        if self.kind != "directory":
            raise TargetError(
                f"{self.title} is not a directory, and {reason}",
                where=f"by the parameter `{parameter}`",
                hint="name a directory as the target, or create a file system on the device with "
                "`--set file_system=ext4`",
            )

    def osd_bytes(self) -> int | None:
        """Size of the device that each object daemon of Ceph takes raw; None where it has a file."""
        return None

    def osd_nodes(self) -> list[Path]:
        """Nodes of devices that object daemons take raw; none where they have files."""
        return []

    def device_count(self) -> int:
        """Number of devices that the user named, of which a setup takes the first ones."""
        return 1

    def with_setup(self, setup: Setup) -> Target:
        """The target of a workload on this setup; `TargetError` if the setup is unsupported here.

        Nothing is created: its paths exist once the setup is active (`setup_target.py`).
        """
        if setup.is_plain:
            return self
        raise TargetError(
            f"`{self.name}` cannot be {setup.text}",
            where="by the parameters of its setup",
            hint="name block devices as the target, a directory (for a file system in a file), or simulated drives "
            "such as `sim:p900*4`",
        )

    def check_on_hosts(self, setup: Setup | None) -> None:
        """`TargetError` unless several hosts can use it at the same time, each with a setup of its own."""
        raise TargetError(
            f"`--hosts` requires a directory, one block device or an NFS export as the target; got `{self.name}`",
            hint="name a directory on the storage that the hosts share, or a device that all of them see",
        )

    def block_devices(self) -> list[str]:
        """Block devices under the target whose counters are recorded, as `major:minor`.

        The one directly under the file system first: its counters are what iosonde requested. The devices below it (the
        members of an array, the disk under a loop device) follows, and counts the same data again.
        """
        return []

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the description of the target for the record."""


def files_in(own: Path, files: Files, size_bytes: int) -> dict[str, Any]:
    """The spec's `target`: a file, or a directory of files, in one of iosonde's own directories."""
    if files == "per_job":
        return {"kind": "file_per_job", "directory": str(own), "size_bytes": size_bytes}
    return {"kind": "file", "path": str(own / "data"), "size_bytes": size_bytes}


@dataclass(frozen=True)
class TargetState:
    """Data of a target that iosonde itself keeps between the runs of a study: here none, as of files and devices."""

    plan: Plan
    """The runs on this target."""
    directory: Path
    """That of the result set."""

    def create(self) -> None:
        """Create the place of the data, unless it remains from before an interruption."""

    def remove(self) -> None:
        """Remove it after the last run."""

    def begin(self, setup: str, *, is_fresh: bool) -> dict[str, Any]:
        """Start without data, unless those of this setup exist and may be used; return facts for the record."""
        return {}

    def purge(self) -> None:
        """Discard the data: the next run starts without."""

    def with_state(self, spec: JsonObject) -> JsonObject:
        """The spec with the place of the data."""
        return spec


@dataclass(frozen=True, kw_only=True)
class ShippedTarget:
    """A target that comes with iosonde."""

    name: str
    """For `--target`."""
    title: str
    class_: str
    """The class of devices."""


@dataclass(frozen=True, kw_only=True)
class TargetKind:
    """Listed in `TARGETS` of a feature's `storage.py`."""

    prefix: str
    """Text before the colon."""
    open: Callable[[str], Target]
    """The target with that name; `TargetError` if there is none."""
    shipped: Callable[[], list[ShippedTarget]] = list
    """Targets that come with iosonde."""
    state: Callable[[Plan, Path], TargetState] = TargetState


def target_kinds() -> Mapping[str, TargetKind]:
    """Return those of all features by their prefix."""
    return {each.prefix: each for each in contributed("storage", "TARGETS", TargetKind)}


def kind_of(target: str) -> TargetKind | None:
    """Return the kind of the target with this name; None if it is of no feature."""
    return target_kinds().get(target.partition(":")[0])


def state_of(plan: Plan, directory: Path) -> TargetState:
    """Return the state of a plan's target, for a result set in this directory."""
    kind = kind_of(plan.target)
    return kind.state(plan, directory) if kind else TargetState(plan, directory)
