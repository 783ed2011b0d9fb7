"""Creation and removal of a setup: devices, layers of features (`layer.py`), file system, mount.

Every step is recorded in the journal before it is carried out, so that `iosonde cleanup` can undo it after a kill, the
last step first. The device of the last layer gets the file system, unless it has one, or is measured raw.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from iosonde.errors import TargetError
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import check_name, number_of
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.claims import Claims
from iosonde.storage.safety.journal_entry import MOUNTS
from iosonde.storage.setups import bluestore, file_systems
from iosonde.storage.targets import layer
from iosonde.storage.targets.layer import BuiltLayer
from iosonde.storage.targets.setup_target import SetupTarget
from iosonde.units import format_bytes

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
        return self._claims.descriptors

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
        stacks = [number for device in apart for number in block_stack.stack_under(number_of(device))]
        return list(dict.fromkeys([*self.target.block_devices(), *block_stack.watched(stacks)]))

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
        layered = {name for kind in layer.kinds() for name in (kind.journal_kind, *kind.further_kinds)}
        for entry in reversed(journal.entries()):
            if (entry.what in layered and self.target.own in entry.path) or entry.path == str(self.target.point):
                journal.undo(Path(entry.path))
        self._layers = []

    def _create(self) -> dict[str, Any]:
        setup, began = self.target.setup, time.monotonic()
        _create_place(self.target.place)
        provided = self.target.provider.provide(setup)
        self._journal_device = provided.journal_device
        device, steps, layers = provided.devices[0], list[dict[str, Any]](), {}
        further = list(provided.further)
        for part in setup.layers:
            own = [further.pop(0) for _ in part.further_bytes(0)]
            below = provided.devices if part.combines else [device]
            with _naming(f"create {setup.text} on `{self.target.provider.name}`"):
                made = layer.kind_of(part).build(below, own, part, self.target.own)
            self._layers.append(made)
            device, layers[part.part] = made.device, made.facts
        number = number_of(device)
        if setup.is_bluestore:
            steps += self._mount_nodes(provided.devices)
        elif setup.file_system == "none":
            self._link(device, number)
        else:
            is_made = any(part.file_system for part in setup.layers)
            steps += [] if is_made else file_systems.make(device, setup, provided.journal_device, own=self.target.own)
            check_name(device, number)
            steps.append(self._mount(device))
            for each in self._layers:
                each.mounted(self.target.point)
        return {
            "created_at": datetime.now().astimezone().isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 3),
            "devices": provided.facts,
            "steps": steps,
            **layers,
        }

    def _mount(self, device: Path) -> dict[str, Any]:
        point = self.target.point
        journal.created(point, "mount", facts={"device": str(device)})
        point.mkdir()
        needed = [each.mount_options for each in self._layers]
        options = ",".join(filter(None, [*needed, self.target.setup.mount_options]))
        step = file_systems.mount(device, point, self.target.setup.model_copy(update={"mount_options": options}))
        journal.identify(point)
        return step

    def _mount_nodes(self, devices: Sequence[Path]) -> list[dict[str, Any]]:
        point = self.target.point
        journal.created(point, "mount", facts={"device": str(devices[0])})
        point.mkdir()
        steps = bluestore.mount(point, devices)
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


@contextlib.contextmanager
def _naming(act: str) -> Iterator[None]:
    """Name what failed where a device does not answer or stays in use."""
    try:
        yield
    except OSError as error:
        raise TargetError(
            f"cannot {act}: {error.strerror}", hint="look for errors of the devices in the kernel's log, `dmesg`"
        ) from error


def _create_place(place: Path) -> None:
    journal.created(place, "setup")
    try:
        MOUNTS.mkdir(mode=0o755, exist_ok=True)
        own_directory.create(place)
    except OSError as error:
        raise TargetError(
            f"cannot create `{place}`: {error.strerror}", hint="`iosonde cleanup` removes leftovers of an earlier run"
        ) from error
