"""How much swap a run may use beyond its memory limit: as much as the area that its case enables has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.study.swap import DEFAULT_BYTES

if TYPE_CHECKING:
    from iosonde.storage import Target

ENABLED = ("target", "zram")


def uses_swap(parameters: Mapping[str, Any]) -> bool:
    """Whether a case has a swap area of its own."""
    return parameters.get("swap") in ENABLED


def swap_allowance(parameters: Mapping[str, Any], target: Target) -> int:
    """Bytes of swap for the control group of a run; 0 without an area of its own."""
    if not uses_swap(parameters):
        return 0
    if size_bytes := parameters.get("swap_size"):
        return int(size_bytes)
    is_device = parameters["swap"] == "target" and target.kind == "device"
    return target.free_bytes() if is_device else DEFAULT_BYTES
