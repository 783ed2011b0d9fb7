"""Which block caches this kernel has: loaded, built in, or as modules that can be loaded."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SYS = Path("/sys")
MODULE_FILES = Path("/lib/modules")

MODULES = {
    "bcache": ("bcache",),
    "dm-cache": ("dm-cache", "dm-cache-smq"),
    "dm-writecache": ("dm-writecache",),
}
"""Kernel modules of each block cache."""

OPTIONS = {"bcache": "CONFIG_BCACHE", "dm-cache": "CONFIG_DM_CACHE", "dm-writecache": "CONFIG_DM_WRITECACHE"}
"""Options of the kernel's configuration."""

State = Literal["loaded", "built in", "module", "missing"]


@dataclass(frozen=True, kw_only=True)
class Support:
    """Whether the kernel has a block cache."""

    kind: str
    state: State

    @property
    def is_available(self) -> bool:
        """Whether it is there or can be loaded."""
        return self.state != "missing"


def support(kind: str) -> Support:
    """Whether this kernel has a kind of block cache: all of its modules."""
    states = [_state(module) for module in MODULES[kind]]
    order: tuple[State, ...] = ("missing", "module", "built in", "loaded")
    return Support(kind=kind, state=min(states, key=order.index))


def every() -> list[Support]:
    """Each kind of block cache."""
    return [support(kind) for kind in MODULES]


def advice(kind: str) -> str:
    """Where to get it."""
    modules = " and ".join(f"`{module}`" for module in MODULES[kind])
    return (
        f"use a kernel with the module {modules} ({OPTIONS[kind]}), such as Debian's `linux-image-amd64`, or "
        "`iosonde lab run`"
    )


def is_loaded(module: str) -> bool:
    """Whether a module is loaded, or built in and visible."""
    return (SYS / "module" / module.replace("-", "_")).is_dir()


def _state(module: str) -> State:
    if is_loaded(module):
        return "loaded"
    files = MODULE_FILES / os.uname().release
    pattern = module.replace("-", "[-_]")
    name = re.compile(rf"/{pattern}\.ko\b")
    if name.search(_text(files / "modules.builtin")):
        return "built in"
    return "module" if name.search(_text(files / "modules.dep")) else "missing"


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace", encoding="utf-8")
    except OSError:
        return ""
