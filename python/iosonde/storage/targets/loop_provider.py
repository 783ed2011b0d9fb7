"""Loop devices on files in a directory of the user, in place of block devices."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Destroys, Purge, Setup
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.setups import file_systems, loop_devices
from iosonde.storage.setups.loop_devices import LoopDevice
from iosonde.storage.targets import layer
from iosonde.storage.targets.setup_target import Provided, SetupTarget
from iosonde.storage.targets.target import Target
from iosonde.units import format_bytes

LARGEST_DEFAULT = 16 << 30
"""Default size of the files, if there is enough room."""

FREE_SHARE = 0.8
"""Largest share of the free space that the default takes."""


@dataclass(frozen=True, kw_only=True)
class LoopProvider:
    """Loop devices on files of one size in a new directory."""

    directory: Path
    """The user's directory."""
    own: str
    device_bytes: int
    sector_bytes: int
    _attached: list[LoopDevice] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """The user's directory."""
        return str(self.directory)

    @property
    def is_exclusive(self) -> bool:
        """Files of our own have no other users."""
        return False

    @property
    def purges(self) -> list[Purge]:
        """Overwriting only: support for discards is unknown before the loop device exists."""
        return ["overwrite"]

    @property
    def images(self) -> Path:
        """The directory with the files."""
        return self.directory / f"{self.own}-setup"

    def destroys(self, setup: Setup, measured_bytes: int | None) -> list[Destroys]:
        """Nothing that exists."""
        files = f"{setup.devices} files of" if setup.devices > 1 else "a file of"
        files += f" {format_bytes(self.device_bytes)}"
        if setup.journal == "external":
            files += f" and one of {format_bytes(file_systems.journal_bytes(self.device_bytes))} for the journal"
        for part, size in further_files(setup, self.device_bytes):
            files += f" and one of {format_bytes(size)} for the {part}"
        what = f"creates a directory with {files}, on loop devices, and removes it at the end"
        return [Destroys(path=str(self.images), what=what)]

    def provide(self, setup: Setup) -> Provided:
        """Create the files and attach loop devices."""
        _make_directory(self.images)
        devices = [self._attach(f"device-{number}", self.device_bytes) for number in range(setup.devices)]
        apart = None
        if setup.journal == "external":
            apart = self._attach("journal", file_systems.journal_bytes(self.device_bytes))
        further = [self._attach(part, size) for part, size in further_files(setup, self.device_bytes)]
        return Provided(
            devices=[device.path for device in devices],
            journal_device=apart.path if apart else None,
            further=[device.path for device in further],
            facts=[_facts(device) for device in self._attached],
        )

    def release(self) -> None:
        """Detach the loop devices; the journal removes their files."""
        while self._attached:
            self._attached.pop().close()

    def abandon(self) -> None:
        """Close the loop devices: the kernel detaches them when what still uses them ends."""
        for device in self._attached:
            device.close_descriptor()

    def _attach(self, name: str, size_bytes: int) -> LoopDevice:
        image = self.images / name
        journal.created(image, "loop device", facts={"image": str(image)})
        made = journal.find(self.images)
        try:
            journal.add_files(self.images, {name: own_directory.ANNOUNCED})
            with own_directory.opened(self.images, made.identity if made else None) as directory:
                inode = own_directory.create_file(directory, name, size_bytes)
                journal.add_files(self.images, {name: inode})
                journal.identify(image)
                backing = own_directory.open_file(directory, name, inode)
        except OSError as error:
            raise TargetError(f"cannot create `{image}`: {error.strerror or error}") from error
        try:
            device = LoopDevice(image, opened=backing, sector_bytes=self.sector_bytes)
        finally:
            os.close(backing)
        self._attached.append(device)
        return device


def on_loop_devices(target: Target, setup: Setup) -> SetupTarget:
    """The target with a setup on loop devices in a directory; `TargetError` if unsupported. Nothing is written."""
    if not setup.is_bare_device and setup.setup_size is None:
        is_simulated = all(each.can_be_simulated for each in setup.layers)
        if not is_simulated:
            layer.check_possible(setup)  # Where the kernel has no module, no other target helps.
        raise TargetError(
            f"`{target.name}` is a directory, and {setup.text} needs devices",
            where=f"by the parameter `{next(iter(setup.parts))}`",
            hint=f"name block devices{' or simulated drives (`sim:p900*4`)' * is_simulated} as the target; or "
            "use loop devices on files (`--set setup_size=4GiB`), which show how it behaves but not how fast it is",
        )
    loop_devices.check_possible()
    file_systems.check_possible(setup)
    layer.check_possible(setup)
    free = target.free_bytes()
    size = setup.setup_size or min(LARGEST_DEFAULT, int(free * FREE_SHARE))
    needed = size * setup.devices + sum(each for _, each in further_files(setup, size))
    if needed > free:
        raise TargetError(
            f"no room in `{target.name}`: {format_bytes(needed)} are needed for {setup.text}, and {format_bytes(free)} "
            "are free",
            where="by the parameter `setup_size`",
            hint="make it smaller with `--set setup_size=...`, or name another target",
        )
    provider = LoopProvider(
        directory=Path(target.name),
        own=target.own,
        device_bytes=size >> 20 << 20,
        sector_bytes=max(512, target.direct_unit() or 512),
    )
    return SetupTarget(provider=provider, setup=setup, own=target.own)


def further_files(setup: Setup, device_bytes: int) -> list[tuple[str, int]]:
    """Return the files under the further devices of layers: name of the part, bytes."""
    return [(part.part, size) for part in setup.layers for size in part.further_bytes(device_bytes)]


def _make_directory(path: Path) -> None:
    journal.created(path, "directory")
    try:
        own_directory.create(path)
    except OSError as error:
        journal.removed(path)
        raise TargetError(f"cannot create `{path}`: {error.strerror}") from error
    journal.identify(path)


def _facts(device: LoopDevice) -> dict[str, Any]:
    facts: dict[str, Any] = {"device": str(device.path), "kind": "loop", "direct_io": device.is_direct}
    with contextlib.suppress(OSError):
        facts["size_bytes"] = device.image.stat().st_size
    return facts
