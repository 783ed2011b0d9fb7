"""The layer that a block cache is in a setup, which module creates each kind, and its journal entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.features.block_caches import bcache, device_mapper
from iosonde.features.block_caches.setup import JOURNALED, MODULES, OPTIONS, BlockCache, BlockCacheSetup
from iosonde.storage.safety.journal import MOUNTS, OWN_DIRECTORY, Entry, JournalKind
from iosonde.storage.targets.target import LayerKind
from iosonde.storage.tools import require, require_root, state_of

PROGRAMS = {"bcache": "make-bcache", "dm-cache": "dmsetup", "dm-writecache": "dmsetup"}


def _implementation(kind: str) -> Any:
    return bcache if kind == "bcache" else device_mapper


def check_possible(cache: BlockCacheSetup) -> None:
    """`TargetError` if this machine cannot create the block cache of a setup."""
    kind, purpose = cache.kind, f"create a block cache ({cache.kind})"
    require_root(purpose)
    require(PROGRAMS[kind], purpose)
    if state_of(*MODULES[kind]) == "missing":
        modules = " and ".join(f"`{module}`" for module in MODULES[kind])
        raise TargetError(
            f"this kernel has no {kind}",
            where=f'by the parameter `cache = "{kind}"`',
            hint=f"use a kernel with the module {modules} ({OPTIONS[kind]}), such as Debian's `linux-image-amd64`, or "
            "`iosonde lab run`",
        )


def build(devices: Sequence[Path], further: Sequence[Path], cache: BlockCacheSetup, name: str) -> BlockCache:
    """Create the block cache of a setup over its backing device; `TargetError` if that fails."""
    [backing], [cache_device] = devices, further
    built: BlockCache = _implementation(cache.kind).build(backing, cache_device, cache, name)
    return built


def undo(entry: Entry) -> None:
    """Remove the block cache of a journal entry; `OSError` if it is in use."""
    _implementation(str(entry.facts["kind"])).undo(entry)


LAYERS = (LayerKind(part=BlockCacheSetup, journal_kind=JOURNALED, check_possible=check_possible, build=build),)

UNDO = (
    JournalKind(
        what=JOURNALED,
        path=rf"{MOUNTS}/{OWN_DIRECTORY.pattern}/cache",
        facts={"kind": r"bcache|dm-cache|dm-writecache", "name": OWN_DIRECTORY.pattern},
        has_members=True,
        undo=undo,
    ),
)
