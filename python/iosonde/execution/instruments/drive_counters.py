"""Counters of the drives under a run: media writes, wear and temperature.

They are read before the engine starts and after it has exited, together with the kernel's counters: the difference
gives the media write amplification, and shows whether drive and kernel count the same host writes.
"""

from __future__ import annotations

from typing import Any

from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.device_totals import counters
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.storage.block_layer import block_stack
from iosonde.storage.nvme import counters as nvme

Counters = tuple[dict[str, Any], dict[str, int]]
"""Of a drive: its own (`storage/nvme/counters.py`), and the kernel's."""


class DriveCounters(Instrument):
    """Reads the drives at the bottom of the run's block devices."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._before: dict[str, Counters] = {}

    def start(self) -> None:
        """Read them before the run."""
        devices = block_stack.drives(self.context.run.spec["observe"]["block_devices"])
        self._before = {device: _now(device) for device in devices}

    def stop(self, done: EngineRun) -> Reading:
        """Of each drive its counters at `begin` and `end`, and the kernel's bytes in between, where it counts them."""
        return Reading(facts={"drives": [_between(device, first) for device, first in self._before.items()]})


def _now(device: str) -> Counters:
    return nvme.now(block_stack.name_of(device)), counters(device)


def _between(device: str, before: Counters) -> dict[str, Any]:
    (own_before, host_before), (own_after, host_after) = before, _now(device)
    host: dict[str, Any] = {
        name: host_after[name] - host_before[name]
        for name in ("read_bytes", "write_bytes")
        if name in host_before and name in host_after
    }
    return {"device": device, "name": block_stack.name_of(device), **host, "start": own_before, "end": own_after}
