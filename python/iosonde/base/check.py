"""One thing that `iosonde doctor` looks at on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OTHER_KERNEL = "use a kernel with it, such as Debian's `linux-image-amd64`, or `iosonde lab run`"
"""Advice where a module of the kernel is missing."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the output."""

    name: str
    state: Literal["ok", "note", "missing"]
    found: str
    advice: str = ""
    is_use: bool = False
    """True if what was found can be measured as it is."""
