"""Settings of the kernel's memory management for swap: set for a run, and restored after it.

They are the machine's and not those of a control group. The former value is in the journal before it is changed, and
one session at a time changes it (`machine_settings.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import read
from iosonde.storage.safety import journal
from iosonde.storage.setups import machine_settings
from iosonde.storage.tools import require_root

JOURNALED = "memory setting"
"""Kind of the journal entry of a changed file."""

FILES = {
    "page_cluster": Path("/proc/sys/vm/page-cluster"),
    "zswap": Path("/sys/module/zswap/parameters/enabled"),
}


class Changed(BaseModel):
    """A setting that was changed for the run."""

    setting: str
    before: str
    value: str


class Zram(BaseModel):
    """A zram device with a size."""

    device: str
    size_bytes: int
    compressor: str


class Settings(BaseModel):
    """Settings that decide how the kernel swaps; None where the kernel has none."""

    page_cluster: int | None
    swappiness: int | None
    zswap: dict[str, str] | None
    zram: list[Zram]


def requested(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among the parameters of a case."""
    return {name: parameters[name] for name in FILES if parameters.get(name) is not None}


def check_possible(settings: Mapping[str, Any]) -> None:
    """`TargetError` for a setting that this kernel does not have, or that this user may not change."""
    for name in settings:
        require_root(f"change `{FILES[name]}`")
        if not FILES[name].exists():
            raise TargetError(
                f"this kernel has no `{FILES[name]}`",
                where=f"by the parameter `{name}`",
                hint="leave the parameter out, or use a kernel with it",
            )


def apply(settings: Mapping[str, Any], *, own: str) -> list[machine_settings.Saved]:
    """Set them; `own` names the study."""
    check_possible(settings)
    for name in settings:
        journal.undo_abandoned(FILES[name])
    save = partial(machine_settings.save, own=own, what=JOURNALED)
    found = (save(name, FILES[name], value) for name, value in settings.items())
    return machine_settings.change(found, hint="only root may change it; a container may not be permitted to")


def in_effect() -> Settings:
    """Read the settings that decide how the kernel swaps."""
    return Settings(
        page_cluster=_number(FILES["page_cluster"]),
        swappiness=_number(Path("/proc/sys/vm/swappiness")),
        zswap={file.name: read(file) for file in sorted(FILES["zswap"].parent.glob("*"))} or None,
        zram=[
            Zram(device=device.name, size_bytes=size, compressor=read(device / "comp_algorithm"))
            for device in sorted(Path("/sys/block").glob("zram*"))
            if (size := _number(device / "disksize"))
        ],
    )


def _number(file: Path) -> int | None:
    text = read(file)
    return int(text) if text.isdecimal() else None
