"""Creation and removal of a setup: devices, array, block cache, file system, mount.

Every step is recorded in the journal before it is carried out, so that `iosonde cleanup` can undo it after a kill, the
last step first. An array comes from `iosonde.storage.arrays.md` or `.btrfs`: `build(devices, setup, name)` returns an
object with `facts` and `device`, on which a file system is created or which is measured raw (for btrfs any member,
since its file system exists already). `remove(array)` stops it and wipes its members; `state(array)` and
`health(array)` return its state. Features put layers over the array or device (`layer.py`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from iosonde.errors import TargetError
from iosonde.storage import arrays
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
        self._array: arrays.Array | None = None
        self._layers: list[BuiltLayer] = []
        self._journal_device: Path | None = None
        self._number = ""
        self._claims = Claims()
        """On a raw array: its members are claimed by the array, and loop devices by the engine."""

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

    def state(self) -> dict[str, Any]:
        """State of the array; empty without one."""
        return dict(self._builder().state(self._array)) if self._array is not None else {}

    def health(self) -> dict[str, int]:
        """The part of the state that a failing member changes, during a run; empty without an array."""
        return dict(self._builder().health(self._array)) if self._array is not None else {}

    def layer(self, kind: type[L]) -> L | None:
        """Return the layer of a feature; None without one."""
        return next((each for each in self._layers if isinstance(each, kind)), None)

    def block_devices(self) -> list[str]:
        """Block devices whose counters are recorded, with that of an external journal."""
        apart = block_stack.stack_under(number_of(self._journal_device)) if self._journal_device else []
        return list(dict.fromkeys([*self.target.block_devices(), *block_stack.watched(apart)]))

    def remove(self) -> None:
        """Remove everything, the last step first; may be repeated."""
        with journal.undoing(f"remove {self.target.setup.text} on `{self.target.provider.name}`"):
            self._claims.release_all()
            self._number = ""
            try:
                journal.undo(self.target.point)
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
        """Also one whose creation failed, which only the journal has."""
        layered = {arrays.JOURNALED, *(kind.journal_kind for kind in layer.kinds())}
        for entry in reversed(journal.entries()):
            if entry.what in layered and self.target.own in entry.path:
                journal.undo(Path(entry.path))
        self._array, self._layers = None, []

    def _create(self) -> dict[str, Any]:
        setup, began = self.target.setup, time.monotonic()
        _create_place(self.target.place)
        provided = self.target.provider.provide(setup)
        self._journal_device = provided.journal_device
        device, steps, array = provided.devices[0], list[dict[str, Any]](), {}
        if setup.array != "single":
            with _naming(f"create {setup.text} on `{self.target.provider.name}`"):
                self._array = built = self._builder().build(provided.devices, setup, self.target.own)
            device, array = built.device, {"array": built.facts}
        further = list(provided.further)
        for part in setup.layers:
            own = [further.pop(0) for _ in part.further_bytes(0)]
            made = layer.kind_of(part).build(device, own, part, self.target.own)
            self._layers.append(made)
            device, array = made.device, {**array, part.part: made.facts}
        number = number_of(device)
        if setup.is_bluestore:
            steps += self._mount_nodes(provided.devices)
        elif setup.file_system == "none":
            self._link(device, number)
        else:
            is_made = setup.array_kind == "btrfs" and setup.array != "single"
            steps += [] if is_made else file_systems.make(device, setup, provided.journal_device, own=self.target.own)
            check_name(device, number)
            steps.append(self._mount(device))
            if self._array is not None:
                self._builder().mounted(self._array, self.target.point)
        return {
            "created_at": datetime.now().astimezone().isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 3),
            "devices": provided.facts,
            "steps": steps,
            **array,
        }

    def _builder(self) -> Any:
        kind = self.target.setup.array_kind
        return import_module(f"iosonde.storage.arrays.{kind}")

    def _mount(self, device: Path) -> dict[str, Any]:
        point = self.target.point
        journal.created(point, "mount", facts={"device": str(device)})
        point.mkdir()
        needed = self._array.mount_options if self._array is not None else ""
        options = ",".join(filter(None, [needed, self.target.setup.mount_options]))
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
