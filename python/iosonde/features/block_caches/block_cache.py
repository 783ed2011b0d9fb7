"""The block cache of a setup: a fast cache device over a slower backing device, created, emptied and removed.

Each implementation is a module with `check_possible()`, `build(backing, cache, setup, name) -> BlockCache`,
`counters(built)` and `state(built)`, `empty(built)` (write dirty data back and forget everything cached),
`hold_dirty(built, held)` (stop and resume writing back), `settle(built)` (wait until the counters cover all past I/O)
and `undo(entry)`. A cache is in the journal before its first command. `undo` stops only what has the identity in the
journal, and wipes a device only if it has a superblock of that identity, or is part of the cache that was just stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.features.block_caches import kernel_support
from iosonde.storage.block_layer import kernel_modules
from iosonde.storage.safety import journal
from iosonde.storage.targets.layer import BuiltLayer
from iosonde.storage.tools import call

JOURNALED = "block cache"
"""Kind of its journal entry, whose path is that of no file."""


@dataclass(frozen=True, kw_only=True)
class BlockCache(BuiltLayer):
    """An active block cache; `device` is the cached device."""

    kind: str
    backing: Path
    cache: Path
    key: Path
    """Path of its journal entry."""
    identity: str
    """UUID of the cache set (bcache); prefix of the names of its devices (device mapper)."""


def load(kind: str) -> None:
    """Load the kernel modules of a kind; `TargetError` if that fails."""
    for module in kernel_support.MODULES[kind]:
        if not kernel_modules.is_loaded(module):
            call("modprobe", module)


def announce(key: Path, kind: str, name: str, backing: Path, cache: Path, **facts: Any) -> None:
    """Record a block cache before its first command, or record more about it."""
    members = [str(backing), str(cache)]
    journal.created(key, JOURNALED, facts={"kind": kind, "name": name, "members": members, **facts})
