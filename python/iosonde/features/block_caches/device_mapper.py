"""dm-cache and dm-writecache, created by dmsetup (kernel `Documentation/admin-guide/device-mapper/`).

The names and UUIDs of all device mapper devices start with the name that iosonde uses for the study; removal stops no
others. dm-cache needs a metadata device: the first part of the cache device.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.features.block_caches.setup import SMALLEST, BlockCache, BlockCacheSetup, begin
from iosonde.storage.block_layer import block_stack, signatures
from iosonde.storage.block_layer.block_nodes import node_of, number_of, opened, opened_exclusively, read, sys_path
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.safety import journal
from iosonde.storage.tools import call, find, patiently, wait_until
from iosonde.units import MIB, format_bytes

SECTOR_BYTES = 512
KIB = 1 << 10
BLOCK_BYTES = 64 * KIB
"""Unit in which dm-cache promotes data."""
WRITECACHE_BLOCK_BYTES = 4 * KIB
METADATA_BYTES_PER_BLOCK = 16
METADATA_BYTES = 4 * MIB
EMPTY_S = 3600.0
UUID_PREFIX = "IOSONDE-"


class MappedCache(BlockCache):
    """An active cache of the device mapper."""

    def counters(self) -> dict[str, int]:
        """Counters since the cache was created or emptied, and what is dirty now."""
        return parse(self.kind, call("dmsetup", "status", f"{self.identity}-cached")["output"])

    def empty(self) -> None:
        """Write dirty data back, replace the cache by its backing device, clear it, and put it back."""
        name, is_dm_cache = f"{self.identity}-cached", self.kind == "dm-cache"
        if is_dm_cache:
            self._clean(name)
        else:
            call("dmsetup", "message", name, "0", "flush")
        sectors = block_stack.size_bytes(number_of(self.backing)) // SECTOR_BYTES
        _swap(name, f"0 {sectors} linear {self.backing} 0")
        _clear(Path(f"/dev/mapper/{self.identity}-cache-metadata") if is_dm_cache else self.cache)
        _swap(name, str(self.facts["table"]))

    def _clean(self, name: str) -> None:
        """Write everything dirty back, by the policy that the kernel has for it."""
        if self.facts["mode"] == "writeback":
            _swap(name, str(self.facts["table"]).replace(" smq 0", " cleaner 0"))
            problem = f"`{self.device}` did not write its dirty data back"
            wait_until(lambda: not self.counters().get("dirty_bytes", 0), EMPTY_S, problem)


def build(backing: Path, cache: Path, setup: BlockCacheSetup, name: str) -> BlockCache:
    """Create the device mapper devices."""
    size = block_stack.size_bytes(number_of(cache))
    if size < SMALLEST or number_of(cache) == number_of(backing):
        raise TargetError(
            f"`{cache}` ({format_bytes(size)}) cannot be the cache device of `{backing}`",
            hint=f"name another device of {format_bytes(SMALLEST)} or more, last",
        )
    key = begin(setup.kind, name, backing, cache)
    steps = [] if setup.kind == "dm-writecache" else _create_parts(cache, name, size)
    table = table_of(setup.kind, setup.mode, backing, cache, name)
    steps.append(_create(f"{name}-cached", table))
    device = _node(f"{name}-cached")
    facts = {
        "kind": setup.kind,
        "name": name,
        "device": str(device),
        "backing": str(backing),
        "cache": str(cache),
        "cache_bytes": size,
        "mode": setup.mode,
        "table": table,
        "steps": steps,
    }
    return MappedCache(
        kind=setup.kind, device=device, backing=backing, cache=cache, key=key, identity=name, facts=facts
    )


def table_of(kind: str, mode: str, backing: Path, cache: Path, name: str) -> str:
    """The table of the cached device."""
    sectors = block_stack.size_bytes(number_of(backing)) // SECTOR_BYTES
    if kind == "dm-writecache":
        return f"0 {sectors} writecache s {backing} {cache} {WRITECACHE_BLOCK_BYTES} 0"
    metadata, data = (f"/dev/mapper/{name}-cache-{part}" for part in ("metadata", "data"))
    return f"0 {sectors} cache {metadata} {data} {backing} {BLOCK_BYTES // SECTOR_BYTES} 1 {mode} smq 0"


def metadata_bytes(cache_bytes: int) -> int:
    """Size of the metadata of dm-cache, in whole MiB."""
    needed = METADATA_BYTES + cache_bytes // BLOCK_BYTES * METADATA_BYTES_PER_BLOCK
    return -(-needed // MIB) * MIB


def parse(kind: str, status: str) -> dict[str, int]:
    """Read `dmsetup status` of a cached device; empty if it is not a cache now."""
    words = status.split()
    target = {"dm-cache": "cache", "dm-writecache": "writecache"}[kind]
    if len(words) < 4 or words[2] != target:
        return {}
    return _parse_cache(words[3:]) if kind == "dm-cache" else _parse_writecache(words[3:])


def undo(entry: journal.Entry) -> None:
    """Remove our device mapper devices, and wipe the devices that were below them; `OSError` for one that is in use.

    These are the kernel's members of our devices, by number, held open from before the removal until they are claimed:
    the names in the entry may lead elsewhere by now, and a loop device that nobody has open may get another file.
    """
    if find("dmsetup") is None:
        return
    name = str(entry.facts["name"])
    names = [f"{name}-cached", f"{name}-cache-metadata", f"{name}-cache-data"]
    with contextlib.ExitStack() as stack:
        held = []
        for number in _members(names):
            with contextlib.suppress(OSError):  # It was unplugged.
                stack.enter_context(opened(number))
                held.append(number)
        for each in names:
            _remove(each)
        unwiped = [node for number in held if not _wiped(node := node_of(number))]
    if unwiped:
        raise OSError(
            f"`{unwiped[0]}` still has the signatures of a block cache, and another program claims it exclusively: "
            f"use `wipefs --all {unwiped[0]}` once that has ended"
        )


def _wiped(device: Path) -> bool:
    """Wipe a device that is not in use."""
    try:
        with opened_exclusively(device) as descriptor:
            signatures.wipe_edges(descriptor)
    except TargetError:
        return False
    return True


def _members(names: Sequence[str]) -> list[str]:
    """Numbers of the devices below those of our device mapper devices that have these names."""
    kernel = Kernel()
    ours = [number for number in kernel.members if read(sys_path(number) / "dm/name") in names]
    ours = [each for each in ours if read(sys_path(each) / "dm/uuid").startswith(UUID_PREFIX)]
    below = [member for number in ours for member in kernel.members[number]]
    return [member for member in dict.fromkeys(below) if member not in ours]


def _parse_cache(words: list[str]) -> dict[str, int]:
    """`Documentation/admin-guide/device-mapper/cache.rst`, section "Status"."""
    block_bytes = int(words[2]) * SECTOR_BYTES
    names = ("cache_hits", "cache_misses", "write_hits", "write_misses", "demotions", "promotions", "dirty_bytes")
    found = dict(zip(names, map(int, words[4:11]), strict=False))
    found["dirty_bytes"] *= block_bytes
    used, _, total = words[3].partition("/")
    return found | {"used_bytes": int(used) * block_bytes, "total_bytes": int(total) * block_bytes}


def _parse_writecache(words: list[str]) -> dict[str, int]:
    """`Documentation/admin-guide/device-mapper/writecache.rst`, section "Status"; counters since Linux 5.15."""
    numbers = [int(word) for word in words if word.isdigit()]
    total, free, writing = numbers[1:4]
    found = {
        "dirty_bytes": (total - free) * WRITECACHE_BLOCK_BYTES,
        "total_bytes": total * WRITECACHE_BLOCK_BYTES,
        "writing_back_bytes": writing * WRITECACHE_BLOCK_BYTES,
    }
    if len(numbers) >= 6:
        found |= {"cache_hits": numbers[5], "cache_misses": max(0, numbers[4] - numbers[5])}
    if len(numbers) >= 10:
        found["bypassed_bytes"] = numbers[9] * WRITECACHE_BLOCK_BYTES
    return found


def _create_parts(cache: Path, name: str, size: int) -> list[dict[str, Any]]:
    """Metadata and data, one after the other on the cache device."""
    first = metadata_bytes(size) // SECTOR_BYTES
    rest = (size // BLOCK_BYTES * BLOCK_BYTES) // SECTOR_BYTES - first
    steps = [_create(f"{name}-cache-metadata", f"0 {first} linear {cache} 0")]
    steps.append(_create(f"{name}-cache-data", f"0 {rest} linear {cache} {first}"))
    return steps


def _create(name: str, table: str) -> dict[str, Any]:
    step = call("dmsetup", "create", name, "--uuid", UUID_PREFIX + name, "--table", table)
    call("dmsetup", "mknodes", name)  # Without udev nothing else creates the node.
    return step


def _node(name: str) -> Path:
    output = str(call("dmsetup", "info", "-c", "--noheadings", "--separator", ":", "-o", "major,minor", name)["output"])
    return node_of(output.strip())


def _swap(name: str, table: str) -> None:
    """Replace the table; I/O waits meanwhile. An exclusive claim or a mount of the device remains."""
    call("dmsetup", "suspend", name)
    try:
        call("dmsetup", "load", name, "--table", table)
    finally:
        call("dmsetup", "resume", name)


def _clear(device: Path) -> None:
    """Zero the superblock, so that the cache starts empty. The cache no longer holds the device: it is claimed."""

    def zero() -> None:
        with opened_exclusively(device) as descriptor:
            os.pwrite(descriptor, bytes(64 * KIB), 0)
            os.fsync(descriptor)

    patiently(zero)


def _remove(name: str) -> None:
    """Remove a device if it is ours; `OSError` if it is in use."""
    try:
        uuid = str(call("dmsetup", "info", "-c", "--noheadings", "-o", "uuid", name)["output"]).strip()
    except TargetError:
        return  # There is none of that name.
    if uuid != UUID_PREFIX + name:
        return
    try:
        patiently(lambda: call("dmsetup", "remove", name))
    except TargetError:
        raise OSError(errno.EBUSY, f"`/dev/mapper/{name}` is still in use") from None
    Path("/dev/mapper", name).unlink(missing_ok=True)  # Without udev the node remains.
