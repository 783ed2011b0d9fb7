"""A backend of block I/O: the interface through which it is done, what that can carry out, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One of them; those of features are listed in `BACKENDS` of their `backends.py`."""

    name: str
    title: str = ""
    """Noun for the description of the parameter `backend`; empty if another row's title covers it."""
    target: str = ""
    """A target that sets it, such as `null:1GiB`; empty if a study may set it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Its parameters, with their names in the engine's spec."""
    parameters: type[BaseModel] | None = None
    """Model of parameters of its own."""
    one_at_a_time: bool = False
    """True if a job has one I/O in flight."""
    direct_only: bool = False
    """True if it needs `io_mode = "direct"`."""
    trims: bool = True
    always_runs: bool = False
    """True if its runs are never unsupported: it is available everywhere, or falls back to another."""
    is_counted: bool = True
    """False if the kernel counts its I/O neither for the process nor for the block device."""
    is_virtual: bool = False
    """True if it reaches no file and no device of the kernel."""
    has_virtual_time: bool = False
    """True if its I/Os take the time of a model."""
    stores_data: bool = True
    """False if it keeps nothing of what is written."""
