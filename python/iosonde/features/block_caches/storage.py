"""The layer that a block cache is in a setup, which module creates each kind, and its journal entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.features.block_caches import bcache, device_mapper, setup
from iosonde.features.block_caches.setup import JOURNALED, BlockCache, BlockCacheSetup
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS, OWN_DIRECTORY, Entry, JournalKind
from iosonde.storage.targets.target import LayerKind
from iosonde.storage.tools import require, require_root


def _undo(entry: Entry) -> None:

    undo(entry)


UNDO = (
    JournalKind(
        what="block cache",
        path=rf"{MOUNTS}/{OWN_DIRECTORY.pattern}/cache",
        facts={"kind": r"bcache|dm-cache|dm-writecache", "name": OWN_DIRECTORY.pattern},
        has_members=True,
        undo=_undo,
    ),
)


PROGRAMS = {"bcache": "make-bcache", "dm-cache": "dmsetup", "dm-writecache": "dmsetup"}


def implementation(kind: str) -> Any:
    """The module of a kind."""
    return bcache if kind == "bcache" else device_mapper


def check_possible(cache: BlockCacheSetup) -> None:
    """`TargetError` if this machine cannot create the block cache of a setup."""
    purpose = f"create a block cache ({cache.kind})"
    require_root(purpose)
    require(PROGRAMS[cache.kind], purpose)
    if setup.support(cache.kind).is_available:
        return
    raise TargetError(
        f"this kernel has no {cache.kind}",
        where=f'by the parameter `cache = "{cache.kind}"`',
        hint=setup.advice(cache.kind),
    )


def build(devices: Sequence[Path], further: Sequence[Path], cache: BlockCacheSetup, name: str) -> BlockCache:
    """Create the block cache of a setup over its backing device; `TargetError` if that fails."""
    [backing], [cache_device] = devices, further
    built: BlockCache = implementation(cache.kind).build(backing, cache_device, cache, name)
    return built


def undo(entry: journal.Entry) -> None:
    """Remove the block cache of a journal entry; `OSError` if it is in use."""
    implementation(str(entry.facts["kind"])).undo(entry)


LAYERS = (LayerKind(part=BlockCacheSetup, journal_kind=JOURNALED, check_possible=check_possible, build=build),)
