"""Limit on swap of a run beyond its memory limit: the size of the area that its case enables."""

from __future__ import annotations

from dataclasses import replace

from iosonde.execution.preparation import Workbench
from iosonde.execution.setups import ReadyTarget
from iosonde.features.swap_areas.setup import DEFAULT_BYTES, uses_swap
from iosonde.plan import Case, Run


def _allow(run: Run, case: Case, ready: ReadyTarget, bench: Workbench) -> tuple[Run, ReadyTarget]:
    parameters = case.parameters
    if not uses_swap(parameters):
        return run, ready
    is_device = parameters["swap"] == "target" and ready.target.kind == "device"
    size_bytes = parameters.get("swap_size") or (ready.target.free_bytes() if is_device else DEFAULT_BYTES)
    return run, replace(ready, swap_bytes=size_bytes)


PREPARATIONS = (_allow,)
