"""Swap of a run: an area on the target or on zram, and the kernel's settings for swap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.features.swap_areas import area, settings
from iosonde.features.swap_areas.area import AreaReading, SwapArea
from iosonde.features.swap_areas.record import SwapReading
from iosonde.features.swap_areas.settings import Changed
from iosonde.features.swap_areas.setup import DEFAULT_BYTES, uses_swap
from iosonde.plan import Case, Destroys
from iosonde.results.schema import RecordWarning
from iosonde.storage.setups import machine_settings
from iosonde.storage.targets.device_target import DeviceTarget
from iosonde.units import format_bytes

if TYPE_CHECKING:
    from iosonde.storage import Target


def _allow(context: RunContext) -> RunContext:
    parameters = context.case.parameters
    if not uses_swap(parameters):
        return context
    is_device = parameters["swap"] == "target" and context.target.kind == "device"
    size_bytes = parameters.get("swap_size") or (context.target.free_bytes() if is_device else DEFAULT_BYTES)
    return replace(context, swap_bytes=size_bytes)


PREPARATIONS = (_allow,)


def _requirements(case: Case, place: Target) -> Iterator[Destroys]:
    """Yield what is created as swap, or overwritten; `TargetError` if it is impossible here."""
    parameters = case.parameters
    if uses_swap(parameters):
        area.check_possible()
    settings.check_possible(settings.requested(parameters))
    if parameters.get("swap") == "zram":
        area.check_zram()
    elif uses_swap(parameters):
        yield _on_target(place, parameters.get("swap_size"))


def _on_target(place: Target, size_bytes: int | None) -> Destroys:
    if place.kind not in ("directory", "device"):
        raise TargetError(
            f"`{place.name}` cannot be a swap area",
            where="by the parameter `swap`",
            hint="name a directory or a block device as the target",
        )
    size_bytes = size_bytes or (DEFAULT_BYTES if place.kind == "directory" else 0)
    if size_bytes > place.free_bytes():
        raise TargetError(
            f"no room for a swap area of {format_bytes(size_bytes)} on `{place.name}`: "
            f"{format_bytes(place.free_bytes())} are free",
            where="by the parameter `swap_size`",
            hint="make it smaller with `--set swap_size=...`, or name another target",
        )
    if place.kind == "device":
        return Destroys(path=place.name, what="overwrites it as a swap area for each run that swaps")
    return Destroys(
        path=f"{place.name}/{place.own}-setup",
        what=f"creates a swap file of {format_bytes(size_bytes)} for each run that swaps, and removes it after the run",
    )


REQUIREMENTS = (_requirements,)


FOREIGN_SHARE = 0.05
"""Share of the swapped bytes from which the use of other processes is reported."""


class SwapAreas(Instrument):
    """Enables swap for a run with the parameter `swap`, and changes `page_cluster` and `zswap`."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._changed: list[machine_settings.Saved] = []
        self._area: SwapArea | None = None
        self._released = ""
        """Number of the target's device, whose claim was released for the area."""

    def start(self) -> None:
        """Change the settings and enable the area."""
        parameters = self.context.parameters
        try:
            self._changed = settings.apply(settings.requested(parameters), own=self.context.session.plan.created_name)
            if uses_swap(parameters):
                area.check_possible()
                self._area = self._enabled()
        except TargetError as error:
            raise NotStartedError("setup", error) from error

    def stop(self, done: EngineRun) -> Reading:
        """Record area and settings, and whether other processes used the area."""
        if self._area is None and not self._changed:
            return Reading()
        found = self._area.reading() if self._area else None
        changed = [Changed(**each.fact()) for each in self._changed]
        part = SwapReading(area=found, settings=settings.in_effect(), changed=changed)
        return Reading(parts=[part], warnings=self._warnings(found))

    def close(self) -> None:
        """Remove the area and restore the settings."""
        enabled, self._area = self._area, None
        changed, self._changed = self._changed, []
        released, self._released = self._released, ""
        try:
            if enabled is not None:
                enabled.remove()
            target = self.context.target
            if released and isinstance(target, DeviceTarget):
                target.claims.take(released, str(target.devices[released]))
        finally:
            machine_settings.restore(changed)

    def _enabled(self) -> SwapArea:
        parameters, own, target = self.context.parameters, self.context.session.plan.created_name, self.context.target
        size_bytes = parameters.get("swap_size")
        if parameters["swap"] == "zram":
            return area.on_zram(own, size_bytes or DEFAULT_BYTES)
        if target.kind == "directory":
            return area.on_file(Path(target.name), own, size_bytes or DEFAULT_BYTES)
        assert isinstance(target, DeviceTarget), "checked when the study was planned"
        self._released = target.numbers[0]
        target.claims.release(self._released)
        return area.on_device(self._released, own, size_bytes)

    def _warnings(self, found: AreaReading | None) -> Iterator[RecordWarning]:
        """After the run's processes have exited, the remaining pages are those of others, or of files on tmpfs."""
        if found is None or self.context.parameters.get("in_memory"):
            return
        if found.used_bytes > FOREIGN_SHARE * found.size_bytes:
            yield RecordWarning(
                code="foreign_swap",
                message=f"other processes used {format_bytes(found.used_bytes)} of the swap area after the run",
                hint="memory is short on this machine; the kernel cannot reserve swap for one control group",
            )


INSTRUMENTS = (SwapAreas,)
