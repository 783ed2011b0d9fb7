"""Make what a setup asks for, and take it apart: devices, array, file system, mount.

Every step is noted in the journal before it is done, so that `iosonde cleanup` undoes after a kill what stands, the
last first. An array comes from `iosonde.storage.arrays.md` or `.btrfs`: `build(devices, setup, name)` gives an object
with `device` (what a file system is made on, or what is measured raw; of btrfs any member, and its file system is made
already) and `facts`; `remove(built)` stops it and wipes its members; `state(built)` and `health(built)` tell how it
is now.
"""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage import arrays, block_stack, file_systems, journal, own_directory
from iosonde.storage.block_nodes import check_name, number_of
from iosonde.storage.claims import Claims
from iosonde.storage.journal_entry import MOUNTS
from iosonde.storage.setup_target import SetupTarget
from iosonde.units import format_bytes


class ActiveSetup:
    """One setup, from `make` to `remove`."""

    def __init__(self, target: SetupTarget) -> None:
        self.target = target
        self._array: arrays.Array | None = None
        self._journal_device: Path | None = None
        self._number = ""
        self._claims = Claims()
        """Of a raw array: what stands under it is claimed by the array itself, and loop devices by the engine."""

    def make(self) -> dict[str, Any]:
        """Make all of it -> facts for the record; whatever stands when that fails is taken apart again."""
        self.remove()  # What a session that was killed has left.
        try:
            return self._make()
        except BaseException:
            with contextlib.suppress(TargetError):  # The reason why it was not made matters more.
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
        """How the array is now; nothing without one."""
        return dict(self._builder().state(self._array)) if self._array is not None else {}

    def health(self) -> dict[str, int]:
        """Of the state what a member that fails changes, while a run goes on; nothing without an array."""
        return dict(self._builder().health(self._array)) if self._array is not None else {}

    def block_devices(self) -> list[str]:
        """Those that are watched, a journal on a device of its own among them."""
        apart = block_stack.stack_under(number_of(self._journal_device)) if self._journal_device else []
        return list(dict.fromkeys([*self.target.block_devices(), *block_stack.watched(apart)]))

    def remove(self) -> None:
        """Undo what stands, the last first; may be called again."""
        with journal.undoing(f"take apart {self.target.setup.text} on `{self.target.provider.name}`"):
            self._claims.release_all()
            self._number = ""
            journal.undo(self.target.point)
            self._remove_array()
            self.target.provider.release()
            journal.clear(self.target.own)

    def _remove_array(self) -> None:
        """Also one that was being made when that failed, which only the journal knows."""
        for entry in reversed(journal.entries()):
            if entry.what == arrays.JOURNALED and self.target.own in entry.path:
                journal.undo(Path(entry.path))
        self._array = None

    def _make(self) -> dict[str, Any]:
        setup, began = self.target.setup, time.monotonic()
        _make_place(self.target.place)
        provided = self.target.provider.provide(setup)
        self._journal_device = provided.journal_device
        device, steps, array = provided.devices[0], list[dict[str, Any]](), {}
        if setup.array != "single":
            self._array = built = self._builder().build(provided.devices, setup, self.target.own)
            device, array = built.device, {"array": built.facts}
        number = number_of(device)
        if setup.file_system == "none":
            self._link(device, number)
        else:
            is_made = setup.array_kind == "btrfs" and setup.array != "single"
            steps += [] if is_made else file_systems.make(device, setup, provided.journal_device, own=self.target.own)
            check_name(device, number)
            steps.append(self._mount(device))
            if self._array is not None:
                self._builder().mounted(self._array, self.target.point)
        return {
            "made_at": datetime.now().astimezone().isoformat(timespec="seconds"),
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
        return file_systems.mount(device, point, self.target.setup.model_copy(update={"mount_options": options}))

    def _link(self, device: Path, number: str) -> None:
        size = block_stack.size_bytes(number)
        if size < self.target.free_bytes():
            raise TargetError(
                f"`{device}` has {format_bytes(size)}, and {format_bytes(self.target.free_bytes())} were expected of "
                f"{self.target.setup.text}",
                hint="plan the study again: the devices are others than those that it was planned for",
            )
        self.target.link.symlink_to(device)
        self._number = number
        if self.target.provider.is_exclusive or self.target.setup.array != "single":
            self._claims.take(number, str(device))


def undo(entry: journal.Entry) -> None:
    """Remove the directory of mount points and links, which holds nothing else any more."""
    place = Path(entry.path)
    with contextlib.suppress(FileNotFoundError):
        (place / "device").unlink()
    with contextlib.suppress(FileNotFoundError):
        place.rmdir()
    with contextlib.suppress(OSError):  # Another study may have something there.
        MOUNTS.rmdir()


def _make_place(place: Path) -> None:
    journal.created(place, "setup")
    try:
        MOUNTS.mkdir(mode=0o755, exist_ok=True)
        own_directory.create(place)
    except OSError as error:
        raise TargetError(
            f"cannot make `{place}`: {error.strerror}", hint="`iosonde cleanup` removes what an earlier run left there"
        ) from error
