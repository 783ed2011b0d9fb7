"""bcache: a cache set of one cache device over one backing device (kernel `Documentation/admin-guide/bcache.rst`).

The UUID of the cache set follows from the name of the study's setup, and both superblocks have it. Detaching clears it
from the backing device, so the UUIDs of both devices are in the journal too. Removal stops both and never detaches:
writing dirty data back to a device that is wiped next would only take time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError, os_errors
from iosonde.features.block_caches.setup import SMALLEST, BlockCache, BlockCacheSetup, announce, begin
from iosonde.storage.block_layer import block_stack, signatures
from iosonde.storage.block_layer.block_nodes import chosen, node_of, number_of, opened_exclusively, read
from iosonde.storage.safety import journal
from iosonde.storage.tools import call, wait_until
from iosonde.units import format_bytes

OFFSET = 4096
MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_HEAD = struct.Struct("<24x16s16s16s")
"""Magic, UUID of the device, UUID of the cache set."""


@dataclass(frozen=True, kw_only=True)
class Superblock:
    """Identity of a device of bcache."""

    device_uuid: str
    set_uuid: str
    """Of zeros on a backing device that was detached."""


def superblock_of(descriptor: int) -> Superblock | None:
    """The superblock of an open device; None without one."""
    data = os.pread(descriptor, _HEAD.size, OFFSET)
    if len(data) < _HEAD.size:
        return None
    magic, device, cache_set = _HEAD.unpack(data)
    if magic != MAGIC:
        return None
    return Superblock(device_uuid=str(uuid.UUID(bytes=device)), set_uuid=str(uuid.UUID(bytes=cache_set)))


def read_superblock(device: Path) -> Superblock | None:
    """The superblock of a device; None without one, or if it cannot be read."""
    with contextlib.suppress(OSError), device.open("rb", buffering=0) as opened:
        return superblock_of(opened.fileno())
    return None


SYS = Path("/sys")
ACTIVE_S = 60.0
"""Longest time until a registered cache set is active."""
BUSY_S = 10.0
EMPTY_S = 3600.0
"""Longest time to write dirty data back."""
POLL_S = 0.05
BUCKETS = ((256 << 20, "128k"), (1 << 60, "512k"))
"""Bucket size for cache devices below a size: a set needs 128 buckets, and 512 KiB is the default of make-bcache."""
COUNTERS_UPDATE_S = 300 / 22
"""Update period, in seconds, of the counters in `/sys` (`drivers/md/bcache/stats.c`)."""
COUNTERS = ("cache_hits", "cache_misses", "cache_bypass_hits", "cache_bypass_misses", "cache_miss_collisions")
DETACHED = str(uuid.UUID(int=0))
"""UUID of the cache set in the superblock of a detached backing device."""
_UNITS = "kMGTPEZY"


class Bcache(BlockCache):
    """An active cache set with its backing device."""

    def counters(self) -> dict[str, int]:
        """Counters since the cache was created, up to 13.6 s old, and what is dirty and congested now."""
        folder = _folder(self.device)
        found = {name: number(read(folder / "stats_total" / name)) for name in COUNTERS}
        found["bypassed_bytes"] = number(read(folder / "stats_total/bypassed"))
        found["dirty_bytes"] = number(read(folder / "dirty_data"))
        found["congested"] = number(read(_set(self.identity) / "congested"))
        return {name: value for name, value in found.items() if value is not None}

    def settle(self) -> None:
        """Wait until the counters cover all I/O so far: until they change, or their update is certain."""
        names = (*COUNTERS, "bypassed_bytes")
        before = self.counters()
        deadline = time.monotonic() + COUNTERS_UPDATE_S + 1
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            now = self.counters()
            if any(now.get(name) != before.get(name) for name in names):
                return

    def empty(self) -> None:
        """Write dirty data back, and forget all cached data: a device that is attached again has none."""
        folder = _folder(self.device)
        _write(folder / "detach", "1")
        problem = f"`{self.device}` did not detach from its cache"
        wait_until(lambda: read(folder / "state") == "no cache", EMPTY_S, problem)
        _attach(folder, self.identity, f"`{self.device}` did not attach")
        # Attaching restores nothing of the backing device's settings; write the mode again to be certain.
        _write(folder / "cache_mode", str(self.facts["mode"]))

    def hold_dirty(self, *, held: bool) -> None:
        """Stop or resume writing dirty data back."""
        _write(_folder(self.device) / "writeback_running", "0" if held else "1")


def build(backing: Path, cache: Path, setup: BlockCacheSetup, name: str) -> BlockCache:
    """Create superblocks, register both devices, wait until they are attached, and set them up."""
    _check(backing, cache)
    identity = identity_of(name)
    key = begin("bcache", name, backing, cache, uuids=[])
    steps = [call(*create_command(backing, cache, identity))]
    uuids = [_created(device, identity) for device in (backing, cache)]
    announce(key, "bcache", name, backing, cache, uuids=uuids)
    for device in (cache, backing):
        steps.append(_register(device))
    device = _attached(backing, identity)
    steps += _set_up(device, setup)
    facts = {
        "kind": "bcache",
        "name": name,
        "device": str(device),
        "backing": str(backing),
        "cache": str(cache),
        "cache_bytes": block_stack.size_bytes(number_of(cache)),
        "set_uuid": identity,
        "mode": setup.mode,
        "settings": _settings(device, identity),
        "steps": steps,
    }
    return Bcache(kind="bcache", device=device, backing=backing, cache=cache, key=key, identity=identity, facts=facts)


def identity_of(name: str) -> str:
    """UUID of the cache set of a study."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"iosonde:{name}/cache"))


def create_command(backing: Path, cache: Path, identity: str) -> list[str]:
    """The command that writes both superblocks."""
    size = block_stack.size_bytes(number_of(cache))
    bucket = next(bucket for below, bucket in BUCKETS if size < below)
    return ["make-bcache", "--bucket", bucket, "--cset-uuid", identity, "-C", str(cache), "-B", str(backing)]


def _attach(folder: Path, identity: str, problem: str) -> None:
    """Attach to a cache set, unless the kernel does so itself.

    The kernel refuses (EINVAL) until it has finished detaching, a moment after the state shows it; and if it has
    attached a device that was just registered after the state was read.
    """
    deadline = time.monotonic() + ACTIVE_S
    while read(folder / "state") in ("", "no cache"):
        try:
            _write(folder / "attach", identity)
        except TargetError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise TargetError(f"{problem} within {ACTIVE_S:.0f} s", hint="see the kernel log (`dmesg`)")
        time.sleep(POLL_S)


def undo(entry: journal.Entry) -> None:
    """Stop the cache set and the devices that are ours, and wipe their superblocks."""
    identity = identity_of(str(entry.facts["name"]))
    uuids = entry.facts.get("uuids") or []
    deadline = time.monotonic() + BUSY_S
    while True:
        members = [Path(each) for each in entry.facts["members"]]
        ours = [device for device in members if _is_ours(read_superblock(device), identity, uuids)]
        busy = [device for device in ours if not _stop_and_wipe(device, identity, uuids)]
        if not busy and not _set(identity).exists():
            return
        if time.monotonic() > deadline:
            what = f"`{busy[0]}`" if busy else f"the cache set {identity}"
            raise OSError(errno.EBUSY, f"{what} is still in use")
        _stop_set(identity)
        time.sleep(POLL_S)


def number(text: str) -> int | None:
    """A number as bcache prints it: `17`, `4.0M`, `0.5k`; units are powers of 1024. None for anything else."""
    unit = text[-1:] if text[-1:] in _UNITS and text[-1:] else ""
    try:
        value = float(text.removesuffix(unit))
    except ValueError:
        return None
    return round(value * (1 << 10 * (_UNITS.index(unit) + 1 if unit else 0)))


def _check(backing: Path, cache: Path) -> None:
    if number_of(backing) == number_of(cache):
        raise TargetError(
            f"`{cache}` is both backing device and cache device", hint="name two devices, the cache device last"
        )
    size = block_stack.size_bytes(number_of(cache))
    if size < SMALLEST:
        raise TargetError(
            f"the cache device `{cache}` has {format_bytes(size)}, and bcache needs {format_bytes(SMALLEST)}",
            hint="name a larger cache device, or set `cache_file_size`",
        )


def _created(device: Path, identity: str) -> str:
    """UUID of a device with a new superblock. make-bcache skips a device with a signature, and exits with 0."""
    found = read_superblock(device)
    if found is None or found.set_uuid != identity:
        raise TargetError(
            f"make-bcache wrote no superblock to `{device}`", hint="see which signatures it has with `wipefs`"
        )
    return found.device_uuid


def _register(device: Path) -> dict[str, Any]:
    """Register a device, unless udev has done so already (`register_quiet` then succeeds)."""
    began = time.monotonic()
    _write(SYS / "fs/bcache/register_quiet", str(device))
    return {
        "command": ["write", "/sys/fs/bcache/register_quiet", str(device)],
        "seconds": round(time.monotonic() - began, 3),
        "output": "",
    }


def _attached(backing: Path, identity: str) -> Path:
    """The cached device, once backing device and cache set are active and attached."""
    folder = _folder(backing)
    wait_until(_set(identity).is_dir, ACTIVE_S, f"the cache set of `{backing}` did not become active")
    wait_until(lambda: _device_of(backing) != "", ACTIVE_S, f"`{backing}` was not registered by bcache")
    _attach(folder, identity, f"`{backing}` did not attach to its cache")
    return node_of(read(SYS / "class/block" / _device_of(backing) / "dev"))


def _device_of(backing: Path) -> str:
    """The kernel's name of the cached device: `bcache0`; empty if there is none."""
    with contextlib.suppress(OSError):
        return (_folder(backing) / "dev").readlink().name
    return ""


def _set_up(device: Path, setup: BlockCacheSetup) -> list[dict[str, Any]]:
    folder = _folder(device)
    settings = {"cache_mode": setup.mode, "sequential_cutoff": str(setup.sequential_cutoff)}
    for file, value in settings.items():
        _write(folder / file, value)
    return [{"command": ["write", str(folder / file), value], "seconds": 0.0} for file, value in settings.items()]


def _settings(device: Path, identity: str) -> dict[str, str]:
    """Settings that decide what is cached and when it is written back."""
    of_device = ("cache_mode", "sequential_cutoff", "readahead_cache_policy", "writeback_percent", "writeback_delay")
    of_set = ("congested_read_threshold_us", "congested_write_threshold_us", "block_size", "bucket_size")
    folder = _folder(device)
    found = {name: chosen(read(folder / name)) for name in of_device}
    found |= {name: read(_set(identity) / name) for name in of_set}
    return {name: value for name, value in found.items() if value}


def _folder(device: Path) -> Path:
    return SYS / "class/block" / device.name / "bcache"


def _set(identity: str) -> Path:
    return SYS / "fs/bcache" / identity


def _is_ours(found: Superblock | None, identity: str, uuids: list[str]) -> bool:
    """Return True if a superblock is ours: of our cache set, or, once detached, of our device."""
    if found is None:
        return False
    return found.set_uuid == identity or (found.set_uuid == DETACHED and found.device_uuid in uuids)


def _stop_and_wipe(device: Path, identity: str, uuids: list[str]) -> bool:
    """Stop a device of ours, and wipe it once it is unused; False if it is still in use."""
    folder = _folder(device)
    if folder.is_dir():
        if (folder / "stop").exists():  # A backing device; a cache device stops with its set.
            _ask(folder / "stop")
        _stop_set(identity)
        return False
    try:
        with opened_exclusively(device) as descriptor:
            if _is_ours(superblock_of(descriptor), identity, uuids):
                signatures.wipe_edges(descriptor)
    except TargetError:
        return False
    # udev may have registered it a moment before it was wiped.
    return not folder.is_dir()


def _stop_set(identity: str) -> None:
    if (_set(identity) / "stop").exists():
        _ask(_set(identity) / "stop")


def _ask(file: Path) -> None:
    """Write to a file that may be gone by now."""
    with contextlib.suppress(OSError):
        file.write_text("1", encoding="utf-8")


def _write(file: Path, value: str) -> None:
    with os_errors(f"the kernel refused `{value}` for `{file}`", hint="see the kernel log (`dmesg`)"):
        file.write_text(value, encoding="utf-8")
