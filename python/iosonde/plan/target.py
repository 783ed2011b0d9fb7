"""Statements of a plan about its target: data that it destroys, purge methods, and capacity."""

from __future__ import annotations

from typing import Literal

from iosonde.plan.base import Frozen


class Destroys(Frozen):
    """Something that is overwritten, or created and removed again."""

    path: str
    what: str
    """A clause: `creates a file of 1 GiB and removes it at the end`."""


DeviceState = Literal["fresh", "preconditioned", "steady", "unknown", "not_applicable"]
"""State of the device that is measured; `not_applicable` to loads that write nothing, and without a device."""

Purge = Literal["format", "sanitize", "trim", "overwrite"]
"""A method of discarding the contents of a target."""

OF_WHOLE_DEVICE: tuple[Purge, ...] = ("format", "sanitize")
"""Means that take all of a device, and not only what is measured."""


class Capacity(Frozen):
    """Basis of a fill level."""

    bytes: int
    used: int = 0
    """By others, and not to be given up."""
    reserved: int = 0
    """Kept back from this user by the file system."""
