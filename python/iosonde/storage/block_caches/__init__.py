"""Block caches of a setup: a fast cache device over a slower backing device, created, emptied and removed.

Each implementation is a module with `check_possible()`, `build(backing, cache, setup, name) -> BlockCache`,
`counters(built)` and `state(built)`, `empty(built)` (write dirty data back and forget everything cached),
`hold_dirty(built, held)` (stop and resume writing back), `settle(built)` (wait until the counters cover all past I/O)
and `undo(entry)`. A cache is in the journal before its first command. `undo` stops only what has the identity in the
journal, and wipes a device only if it has a superblock of that identity, or is part of the cache that was just stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Setup
from iosonde.storage.block_caches import kernel_support
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import BLOCK_CACHE
from iosonde.storage.tools import call, require, require_root

MODULES = {"bcache": "bcache", "dm-cache": "device_mapper", "dm-writecache": "device_mapper"}
"""Python module of each kind."""

PROGRAMS = {"bcache": "make-bcache", "dm-cache": "dmsetup", "dm-writecache": "dmsetup"}


@dataclass(frozen=True, kw_only=True)
class BlockCache:
    """An active block cache."""

    kind: str
    device: Path
    """The cached device."""
    backing: Path
    cache: Path
    key: Path
    """Path of its journal entry."""
    identity: str
    """UUID of the cache set (bcache); prefix of the names of its devices (device mapper)."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record: commands, settings, sizes."""


def implementation(kind: str) -> Any:
    """The module of a kind."""
    return import_module(f"iosonde.storage.block_caches.{MODULES[kind]}")


def check_possible(setup: Setup) -> None:
    """`TargetError` if this machine cannot create the block cache of a setup."""
    if setup.cache == "none":
        return
    purpose = f"create a block cache ({setup.cache})"
    require_root(purpose)
    require(PROGRAMS[setup.cache], purpose)
    if kernel_support.support(setup.cache).is_available:
        return
    raise TargetError(
        f"this kernel has no {setup.cache}",
        where=f'by the parameter `cache = "{setup.cache}"`',
        hint=kernel_support.advice(setup.cache),
    )


def load(kind: str) -> None:
    """Load the kernel modules of a kind; `TargetError` if that fails."""
    for module in kernel_support.MODULES[kind]:
        if not kernel_support.is_loaded(module):
            call("modprobe", module)


def announce(key: Path, kind: str, name: str, backing: Path, cache: Path, **facts: Any) -> None:
    """Record a block cache before its first command, or record more about it."""
    members = [str(backing), str(cache)]
    journal.created(key, BLOCK_CACHE, facts={"kind": kind, "name": name, "members": members, **facts})


def undo(entry: journal.Entry) -> None:
    """Remove the block cache of a journal entry; `OSError` if it is in use."""
    implementation(str(entry.facts["kind"])).undo(entry)
