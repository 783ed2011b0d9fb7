"""Modules of this kernel: loaded, built in, or as files that can be loaded."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

SYS = Path("/sys")
MODULE_FILES = Path("/lib/modules")

State = Literal["loaded", "built in", "module", "missing"]


def is_loaded(module: str) -> bool:
    """Return True if a module is loaded, or built in and visible."""
    return (SYS / "module" / module.replace("-", "_")).is_dir()


def state_of(*modules: str) -> State:
    """Return the state of the least available of these modules."""
    order: tuple[State, ...] = ("missing", "module", "built in", "loaded")
    return min(map(_state, modules), key=order.index)


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
