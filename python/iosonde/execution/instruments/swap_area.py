"""Swap of a run: an area on the target or on zram, and the kernel's settings for swap."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading, RunContext
from iosonde.execution.swap_allowance import uses_swap
from iosonde.results.schema import RecordWarning
from iosonde.storage.setups import memory_settings, swap
from iosonde.storage.targets.device_target import DeviceTarget
from iosonde.study.swap import DEFAULT_BYTES
from iosonde.units import format_bytes

SETUP_FAILED = "setup"
FOREIGN_SHARE = 0.05
"""Share of the swapped bytes from which the use of other processes is reported."""


class SwapArea(Instrument):
    """Enables swap for a run with the parameter `swap`, and changes `page_cluster` and `zswap`."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._saved: list[memory_settings.Saved] = []
        self._area: swap.SwapArea | None = None
        self._released: str = ""

    def start(self) -> None:
        """Change the settings and enable the area."""
        parameters, own = self.context.parameters, self.context.plan.created_name
        settings = {name: parameters[name] for name in memory_settings.FILES if parameters.get(name) is not None}
        try:
            self._saved = memory_settings.apply(settings, own=own)
            if uses_swap(parameters):
                swap.check_possible()
                self._area = self._enabled(parameters, own)
        except TargetError as error:
            raise NotStartedError(SETUP_FAILED, error) from error

    def stop(self, done: EngineRun) -> Reading:
        """Record area and settings, and whether other processes used the area."""
        if self._area is None and not self._saved:
            return Reading()
        facts: dict[str, Any] = {
            "area": self._area.facts() if self._area else None,
            "settings": memory_settings.in_effect(),
            "changed": [{"setting": each.setting, "before": each.before, "value": each.value} for each in self._saved],
        }
        return Reading(facts={"swap": facts}, warnings=list(self._warnings(facts["area"])))

    def close(self) -> None:
        """Remove the area and restore the settings."""
        area, self._area = self._area, None
        saved, self._saved = self._saved, []
        try:
            if area is not None:
                area.remove()
            if self._released:
                self._claim_again()
        finally:
            memory_settings.restore(saved)

    def _enabled(self, parameters: Mapping[str, Any], own: str) -> swap.SwapArea:
        size_bytes = parameters.get("swap_size")
        target = self.context.ready.target
        if parameters["swap"] == "zram":
            return swap.SwapArea.on_zram(own, size_bytes or DEFAULT_BYTES)
        if target.kind == "directory":
            return swap.SwapArea.on_file(Path(target.name), own, size_bytes or DEFAULT_BYTES)
        if isinstance(target, DeviceTarget):
            (number, *_) = target.numbers
            self._released = number
            return swap.SwapArea.on_device(target.claims, number, own, size_bytes)
        raise TargetError(
            f"`{target.name}` cannot be a swap area",
            where="by the parameter `swap`",
            hint="name a directory or a block device as the target",
        )

    def _claim_again(self) -> None:
        """Claim the device of the target, which the kernel had claimed as swap."""
        target, number = self.context.ready.target, self._released
        self._released = ""
        if isinstance(target, DeviceTarget):
            target.claims.take(number, str(target.devices[target.numbers.index(number)]))

    def _warnings(self, area: Mapping[str, Any] | None) -> list[RecordWarning]:
        """After the run's processes have exited, the remaining pages are those of others, or of files on tmpfs."""
        if area is None or self.context.parameters.get("in_memory"):
            return []
        if area["used_bytes"] <= FOREIGN_SHARE * area["size_bytes"]:
            return []
        return [
            RecordWarning(
                code="foreign_swap",
                message=f"other processes used {format_bytes(area['used_bytes'])} of the swap area after the run",
                hint="memory is short on this machine; the kernel cannot reserve swap for one control group",
            )
        ]
