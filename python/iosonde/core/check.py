"""One thing that `iosonde doctor` looks at on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the output."""

    name: str
    state: Literal["ok", "note", "missing"]
    found: str
    advice: str = ""
