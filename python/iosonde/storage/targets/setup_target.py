"""The target of a workload on a setup: a file system mounted for it, or a raw device.

It is planned before anything is created, so its names are those of links and mount points that iosonde will create, and
its capacity is an estimate on the low side. `ActiveSetup` creates and removes it: devices, layers of features, file
system, mount. Every step is recorded in the journal before it is carried out, so that `iosonde cleanup` can undo it
after a kill, the last step first. The device of the last layer gets the file system, unless it has one, or is measured
raw.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from iosonde.errors import TargetError, os_errors
from iosonde.plan import OF_WHOLE_DEVICE, Destroys, Purge, Setup
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import check_name, number_of
from iosonde.storage.block_layer.block_stack import describe_path, stack_of
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.guard import Claims
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.setups import file_systems
from iosonde.storage.targets import direct_io
from iosonde.storage.targets.target import BuiltLayer, Files, IoMode, Target, files_in, layer_kind_of, layer_kinds
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


class DeviceProvider(ABC):
    """Provides the devices of a setup."""

    name: str
    """The target that the user named."""
    is_exclusive: ClassVar[bool] = False
    """True if its devices are claimed while no layer or file system uses them."""

    @abstractmethod
    def smallest_bytes(self, setup: Setup) -> int:
        """Size of the smallest device of a setup that holds data."""

    @abstractmethod
    def direct_unit(self) -> int:
        """The largest of their logical sectors."""

    def purges(self) -> list[Purge]:
        """Methods to purge them raw."""
        return []

    @abstractmethod
    def loses(self, setup: Setup, measured_bytes: int | None) -> list[Destroys]:
        """Return the existing data that could be lost, and the things that are created and removed.

        `measured_bytes` are those of a single raw device; None where anything on the devices may be written.
        """

    @abstractmethod
    def provide(self, setup: Setup) -> Provided:
        """Create the devices of a setup, or release their claims."""

    def release(self) -> None:
        """Undo that; may be repeated."""
        return

    def abandon(self) -> None:
        """Give up own descriptors, because what is on the devices cannot be removed. Nothing is written."""
        return


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

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """As its provider."""
        if keep:
            raise TargetError(
                f"the files on {self.title} cannot be kept: it is removed at the end",
                hint="leave out `--keep`",
            )
        is_bounded = self.kind == "device" and self.setup.is_bare_device
        return self.provider.loses(self.setup, size_bytes if is_bounded else None)

    def device_bytes(self) -> int:
        """Size of the device or layer under the file system."""
        size = self.provider.smallest_bytes(self.setup)
        for layer in self.setup.layers:
            size = layer.size_bytes(size, self.setup.devices)
        return size

    def free_bytes(self) -> int:
        """Room on a new file system, or all of a raw device."""
        return file_systems.room(self.setup, self.device_bytes())

    def purges(self) -> list[Purge]:
        """A file system frees the blocks of its files; a raw device has its own methods."""
        if self.kind == "directory":
            return ["trim", "overwrite"]
        return [each for each in self.provider.purges() if each not in OF_WHOLE_DEVICE or self.setup.is_bare_device]

    def direct_unit(self) -> int:
        """The sector size, or what the file system requires."""
        return max(self.provider.direct_unit(), file_systems.DIRECT_UNIT.get(self.setup.file_system, 1))

    def osd_bytes(self) -> int | None:
        """Those of the smallest."""
        return self.device_bytes() if self.setup.is_bluestore else None

    def osd_nodes(self) -> list[Path]:
        """In its file system in memory."""
        return file_systems.osd_nodes(self.point, self.setup.devices) if self.setup.is_bluestore else []

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
        if self.kind == "directory" and not self.setup.is_bluestore:
            return stack_of(self.point) if self.point.exists() else []
        of_daemons = file_systems.osd_numbers(self.point, self.setup.devices)
        return block_stack.stack_under(*(of_daemons if self.setup.is_bluestore else [number_of(self.link)]))


L = TypeVar("L", bound=BuiltLayer)


class ActiveSetup:
    """One setup, from `create` to `remove`."""

    def __init__(self, target: SetupTarget) -> None:
        self.target = target
        self._layers: list[BuiltLayer] = []
        self._journal_device: Path | None = None
        self._number = ""
        self._claims = Claims()
        """On a raw layer: the devices below are claimed by it, and loop devices by the engine."""

    def create(self) -> dict[str, Any]:
        """Create all of it -> facts for the record; if that fails, what was created is removed."""
        journal.check_unused(self.target.own)
        self.remove()  # What a killed session left.
        try:
            return self._create()
        except BaseException:
            with contextlib.suppress(TargetError):  # The reason of the failure matters more.
                self.remove()
            raise

    @property
    def claims(self) -> list[int]:
        """Descriptors that hold a raw device exclusively, for the engine to inherit."""
        return list(self._claims.descriptors.values())

    @property
    def numbers(self) -> dict[str, str]:
        """The raw device that the link leads to, by the path of the link."""
        return {str(self.target.link): self._number} if self._number else {}

    def layer(self, kind: type[L]) -> L | None:
        """Return the layer of a feature; None without one."""
        return next((each for each in self._layers if isinstance(each, kind)), None)

    def block_devices(self) -> list[str]:
        """Block devices whose counters are recorded, with those below layers and that of an external journal."""
        apart = [device for each in self._layers for device in each.below]
        apart += [self._journal_device] if self._journal_device else []
        below = block_stack.watched(block_stack.stack_under(*map(number_of, apart)))
        return list(dict.fromkeys([*self.target.block_devices(), *below]))

    def remove(self) -> None:
        """Remove everything, the last step first; may be repeated."""
        with journal.undoing(f"remove {self.target.setup.text} on `{self.target.provider.name}`"):
            self._claims.release_all()
            self._number = ""
            try:
                self._remove_layers()
            except BaseException:
                self.target.provider.abandon()
                raise
            try:
                self.target.provider.release()
            except TargetError:
                # A device that is gone, or not wiped, keeps its entry: `resume` and `cleanup` try again.
                with contextlib.suppress(OSError):
                    journal.undo(self.target.place)
                raise
            journal.clear(self.target.own)

    def _remove_layers(self) -> None:
        """With the mount, in reverse; also a layer whose creation failed, which only the journal has."""
        layered = {name for kind in layer_kinds() for name in (kind.journal_kind, *kind.further_kinds)}
        for entry in reversed(journal.entries()):
            if (entry.what in layered and self.target.own in entry.path) or entry.path == str(self.target.point):
                journal.undo(Path(entry.path))
        self._layers = []

    def _create(self) -> dict[str, Any]:
        setup, began = self.target.setup, time.monotonic()
        place = self.target.place
        journal.created(place, "setup")
        with os_errors(f"cannot create `{place}`", hint="`iosonde cleanup` removes leftovers of an earlier run"):
            MOUNTS.mkdir(mode=0o755, exist_ok=True)
            own_directory.create(place)
        provided = self.target.provider.provide(setup)
        self._journal_device = provided.journal_device
        device, steps, layers = provided.devices[0], list[dict[str, Any]](), {}
        further = list(provided.further)
        for part in setup.layers:
            own = [further.pop(0) for _ in part.further_bytes(0)]
            below = provided.devices if part.combines else [device]
            with os_errors(  # A device does not answer or stays in use.
                f"cannot create {setup.text} on `{self.target.provider.name}`",
                hint="look for errors of the devices in the kernel's log, `dmesg`",
            ):
                made = layer_kind_of(part).build(below, own, part, self.target.own)
            self._layers.append(made)
            device, layers[part.part] = made.device, made.facts
        number = number_of(device)
        if setup.is_bluestore:
            steps += self._mount(provided.devices)
        elif setup.file_system == "none":
            self._link(device, number)
        else:
            is_made = any(part.file_system for part in setup.layers)
            steps += [] if is_made else file_systems.make(device, setup, provided.journal_device, own=self.target.own)
            check_name(device, number)
            steps += self._mount([device])
            for each in self._layers:
                each.mounted(self.target.point)
        return {
            "created_at": datetime.now().astimezone().isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 3),
            "devices": provided.facts,
            "steps": steps,
            **layers,
        }

    def _mount(self, devices: Sequence[Path]) -> list[dict[str, Any]]:
        """Mount the file system on the first device, or what the object daemons on all of them need."""
        point, setup = self.target.point, self.target.setup
        journal.created(point, "mount", facts={"device": str(devices[0])})
        point.mkdir()
        if setup.is_bluestore:
            steps = file_systems.mount_nodes(point, devices)
        else:
            needed = [each.mount_options for each in self._layers]
            options = ",".join(filter(None, [*needed, setup.mount_options]))
            steps = [file_systems.mount(devices[0], point, setup.model_copy(update={"mount_options": options}))]
        journal.identify(point)
        return steps

    def _link(self, device: Path, number: str) -> None:
        size = block_stack.size_bytes(number)
        if size < self.target.free_bytes():
            raise TargetError(
                f"`{device}` has {format_bytes(size)}, and {self.target.setup.text} needs "
                f"{format_bytes(self.target.free_bytes())}",
                hint="plan the study again: it was planned for other devices",
            )
        self.target.link.symlink_to(device)
        self._number = number
        if self.target.provider.is_exclusive or not self.target.setup.is_bare_device:
            self._claims.take(number, str(device))


def undo(entry: journal.Entry) -> None:
    """Remove the directory of mount point and link, which is otherwise empty by now."""
    place = Path(entry.path)
    with contextlib.suppress(FileNotFoundError):
        (place / "device").unlink()
    with contextlib.suppress(FileNotFoundError):
        place.rmdir()
    with contextlib.suppress(OSError):  # Another study may have something there.
        MOUNTS.rmdir()
