"""Limit on swap of a run beyond its memory limit: the size of the area that its case enables."""

from __future__ import annotations

from dataclasses import replace

from iosonde.execution.context import RunContext
from iosonde.features.swap_areas.setup import DEFAULT_BYTES, uses_swap


def _allow(context: RunContext) -> RunContext:
    parameters = context.case.parameters
    if not uses_swap(parameters):
        return context
    is_device = parameters["swap"] == "target" and context.target.kind == "device"
    size_bytes = parameters.get("swap_size") or (context.target.free_bytes() if is_device else DEFAULT_BYTES)
    return replace(context, swap_bytes=size_bytes)


PREPARATIONS = (_allow,)
