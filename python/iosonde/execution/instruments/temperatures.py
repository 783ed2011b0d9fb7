"""Temperatures of the target's devices after a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.storage.block_layer import block_stack


class Temperatures(Instrument):
    """Reads the kernel's sensors; the description of the target has the temperatures before the run."""

    def stop(self, done: EngineRun) -> Reading:
        """Read them."""
        return Reading(facts={"target_after": temperatures(self.context.target_facts)})


def temperatures(target: Mapping[str, Any]) -> dict[str, Any]:
    """Current temperatures of the devices in a target's description; empty where none has a sensor."""
    found = [
        {"name": device["name"], **temperature}
        for device in target.get("devices", [])
        # A simulated drive is unknown to the kernel.
        if device.get("kind") != "simulated" and (temperature := block_stack.temperature(device["device"]))
    ]
    return {"devices": found} if found else {}
