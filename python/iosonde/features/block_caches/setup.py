"""The block cache of a setup: its parameters in a study, their rules, and what they resolve to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict

from iosonde.plan import Setup, SetupPart
from iosonde.storage import tools
from iosonde.storage.block_layer import signatures
from iosonde.storage.block_layer.block_nodes import opened_exclusively
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.targets.target import BuiltLayer
from iosonde.study.setup_extension import Rule, SetupExtension
from iosonde.study.workload.workload import Workload
from iosonde.units import MIB, format_bytes, parse_size

MODULES = {
    "bcache": ("bcache",),
    "dm-cache": ("dm-cache", "dm-cache-smq"),
    "dm-writecache": ("dm-writecache",),
}
"""Kernel modules of each block cache."""

OPTIONS = {"bcache": "CONFIG_BCACHE", "dm-cache": "CONFIG_DM_CACHE", "dm-writecache": "CONFIG_DM_WRITECACHE"}
"""Options of the kernel's configuration."""


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

    def counters(self) -> dict[str, int]:
        """Return counters since the cache was created or emptied, and its dirty bytes now."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until the counters cover all I/O so far; most are always current."""

    def empty(self) -> None:
        """Write dirty data back, and forget all cached data."""
        raise NotImplementedError

    def hold_dirty(self, *, held: bool) -> None:
        """Stop or resume writing dirty data back; device mapper has no way to stop it."""


def announce(key: Path, kind: str, name: str, backing: Path, cache: Path, **facts: Any) -> None:
    """Record a block cache before its first command, or record more about it."""
    members = [str(backing), str(cache)]
    journal.created(key, JOURNALED, facts={"kind": kind, "name": name, "members": members, **facts})


def begin(kind: str, name: str, backing: Path, cache: Path, **facts: Any) -> Path:
    """Load the kernel modules, announce the block cache and wipe both devices -> the path of its journal entry."""
    for module in MODULES[kind]:
        if not tools.is_loaded(module):
            tools.call("modprobe", module)
    key = MOUNTS / name / "cache"
    announce(key, kind, name, backing, cache, **facts)
    for device in (backing, cache):
        with opened_exclusively(device) as descriptor:
            signatures.wipe_edges(descriptor)
    return key


CacheKind = Literal["none", "bcache", "dm-cache", "dm-writecache"]
CacheMode = Literal["writethrough", "writeback", "writearound"]
CacheState = Literal["cold", "warm", "dirty", "kept"]

MODES: Mapping[str, tuple[CacheMode, ...]] = {
    "bcache": ("writethrough", "writeback", "writearound"),
    "dm-cache": ("writethrough", "writeback"),
    "dm-writecache": ("writeback",),
}
"""Modes of each block cache, its default first."""

DEFAULT_CUTOFF = 4 << 20
"""bcache's own."""
DEFAULT_HIT_RATIO = 0.9
DEFAULT_DIRTY_FRACTION = 0.1
SMALLEST = 64 << 20
"""bcache needs 128 buckets at least."""


class BlockCacheSetup(SetupPart):
    """A block cache over the device or array. The cache device is the one after the others."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=lambda name: "cache" if name == "kind" else f"cache_{name}")
    )
    part = "cache"
    kind: Literal["bcache", "dm-cache", "dm-writecache"]
    mode: CacheMode
    sequential_cutoff: int = DEFAULT_CUTOFF
    """Bytes; 0 caches sequential I/O too. bcache only."""
    state: CacheState = "cold"
    """State of the cache before each run."""
    hit_ratio: float = 0.0
    """Of a warm cache."""
    dirty_fraction: float = 0.0
    """Of a dirty cache: share of the cache device."""
    file_size: int | None = None
    """Bytes of the file under the loop device of the cache; None for a quarter of the other file."""

    def size_bytes(self, below: int, devices: int) -> int:
        """Return the size without the superblock of bcache, which takes 8 KiB of the backing device."""
        return below - MIB if self.kind == "bcache" else below

    def text(self, devices: int) -> str:
        """`bcache in writeback mode`."""
        return f"{self.kind} in {self.mode} mode"

    def further_bytes(self, device_bytes: int) -> list[int]:
        """The cache device."""
        return [max(SMALLEST, (self.file_size or device_bytes // 4) >> 20 << 20)]


PARTS = (BlockCacheSetup,)


def _read_cutoff(value: Any) -> int:
    return 0 if value in (0, "0") else int(parse_size(value))


def _read_file_size(value: Any) -> int:
    size = parse_size(value)
    if size < SMALLEST:
        raise ValueError(f"{format_bytes(size)} is too small; it must be at least {format_bytes(SMALLEST)}")
    return size


def _read_share(value: Any) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        raise ValueError("it must be a number; write a share above 0 and up to 1, such as 0.9") from None
    if not 0 < share <= 1:
        raise ValueError("it is out of range; write a share above 0 and up to 1, such as 0.9")
    return share


class BlockCacheParameters(BaseModel):
    """Parameters of a case about its block cache."""

    cache: CacheKind | None = None
    """Block cache over the device or array: `bcache`, `dm-cache` or `dm-writecache`. The cache device is the last
    device of the target."""
    cache_mode: CacheMode | None = None
    """Where writes go: cache and backing device (`writethrough`), cache first (`writeback`), backing device only
    (`writearound`, bcache). Default: `writethrough`; dm-writecache is always `writeback`."""
    cache_sequential_cutoff: Annotated[int | None, BeforeValidator(_read_cutoff)] = None
    """bcache: sequential I/O larger than this bypasses the cache (4 MiB); 0 caches all of it."""
    cache_state: CacheState | None = None
    """Cache before each run: `cold` (emptied; the default), `warm` (loaded until `cache_hit_ratio` is reached), `dirty`
    (written until `cache_dirty_fraction` is dirty), or `kept` as the previous run left it."""
    cache_hit_ratio: Annotated[float | None, BeforeValidator(_read_share)] = None
    """Read hit ratio from which on the cache counts as warm, from 0 to 1 (0.9)."""
    cache_dirty_fraction: Annotated[float | None, BeforeValidator(_read_share)] = None
    """Share of the cache device that is dirty before the run, from 0 to 1 (0.1)."""
    cache_file_size: Annotated[int | None, BeforeValidator(_read_file_size)] = None
    """On a directory as target: size of the file under the cache's loop device. Empty: a quarter of `setup_size`."""


def resolve(given: Mapping[str, Any]) -> BlockCacheSetup | None:
    """Return the block cache of a case; None without one."""
    kind = given.get("cache")
    if kind in (None, "none"):
        return None
    state: CacheState = given.get("cache_state") or "cold"
    cutoff = given.get("cache_sequential_cutoff")
    return BlockCacheSetup(
        kind=kind,
        mode=given.get("cache_mode") or MODES[kind][0],
        sequential_cutoff=DEFAULT_CUTOFF if cutoff is None else cutoff,
        state=state,
        hit_ratio=given.get("cache_hit_ratio") or (DEFAULT_HIT_RATIO if state == "warm" else 0.0),
        dirty_fraction=given.get("cache_dirty_fraction") or (DEFAULT_DIRTY_FRACTION if state == "dirty" else 0.0),
        file_size=given.get("cache_file_size"),
    )


def rules(setup: Setup) -> list[Rule]:
    """Return the rules of a setup with a block cache."""
    cache = setup.layer(BlockCacheSetup)
    if cache is None:
        return []
    modes = MODES[cache.kind]
    exclude = "leave the combination out with `[[parts.exclude]]`"
    return [
        (any(layer.file_system for layer in setup.layers),
         f"`cache = \"{cache.kind}\"` requires one block device below it, but {setup.text} has a file system there",
         f"choose another setup, or {exclude}"),
        (setup.is_bluestore,
         f"`file_system = \"bluestore\"` gives each object daemon a device, but `cache` is `{cache.kind}`",
         "leave `cache` out, or choose a file system such as `ext4` on the cache"),
        (cache.mode not in modes,
         f"`cache = \"{cache.kind}\"` has no mode `{cache.mode}`, only `{'` and `'.join(modes)}`",
         f"set `cache_mode`, or {exclude}"),
        (cache.sequential_cutoff != DEFAULT_CUTOFF and cache.kind != "bcache",
         f"`cache_sequential_cutoff` requires bcache, but `cache` is `{cache.kind}`", "leave it out"),
        (cache.state == "dirty" and cache.mode != "writeback",
         f"a cache has dirty data in writeback mode only, but `cache_mode` is `{cache.mode}`",
         f"set `cache_mode = \"writeback\"`, or {exclude}"),
        (cache.hit_ratio > 0 and cache.state != "warm",
         f"`cache_hit_ratio` requires a warm cache, but `cache_state` is `{cache.state}`",
         "set `cache_state = \"warm\"`, or leave it out"),
        (cache.dirty_fraction > 0 and cache.state != "dirty",
         f"`cache_dirty_fraction` requires a dirty cache, but `cache_state` is `{cache.state}`",
         "set `cache_state = \"dirty\"`, or leave it out"),
        (cache.kind == "dm-writecache" and cache.state == "warm",
         "dm-writecache caches writes only, so reads cannot warm it",
         "use `cache_state = \"dirty\"`, or another `cache`"),
    ]  # fmt: skip


def rules_with_workload(setup: Setup, workload: Workload) -> list[Rule]:
    """Return the rules of the load: a cache is warmed and made dirty with it, in steps that only block I/O has."""
    cache = setup.layer(BlockCacheSetup)
    state = cache.state if cache else ""
    return [
        (
            state in ("warm", "dirty") and workload.io != "blocks",
            f'`cache_state = "{state}"` requires block I/O',
            'use `cache_state = "cold"`, or `kept` with a ramp',
        )
    ]


SIZES = ("cache_sequential_cutoff", "cache_file_size")
EXTENSIONS = (
    SetupExtension(
        parameters=BlockCacheParameters,
        resolve=resolve,
        rules=rules,
        rules_with_workload=rules_with_workload,
    ),
)
