"""Array, block cache and file system between the user's target and the workload, and how often they are created.

A setup is written in a study like any parameter, so it can be a factor; but it belongs to the case and not to a stream.
`SetupParameters` is the one list of parameters, with their meaning; `Setup` (plan) is the result
on a target, with everything decided. The devices that a level needs are listed only here.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from iosonde.errors import StudyError
from iosonde.plan import (
    ArrayKind,
    ArrayLevel,
    ArrayState,
    CacheKind,
    CacheMode,
    CacheState,
    FileSystem,
    Fresh,
    Journal,
    Setup,
)
from iosonde.plan.setup import check_mount_options
from iosonde.study import queue, swap, tracing
from iosonde.units import format_bytes, parse_size

FEWEST_DEVICES: dict[str, int] = {"single": 1, "raid0": 1, "raid1": 2, "raid10": 4, "raid5": 3, "raid6": 4}
"""Devices that a level needs at least."""

DEFAULT_CHUNK: dict[str, int] = {"md": 512 << 10, "btrfs": 64 << 10}
"""Chunk of md where none is named, and the only one that btrfs has."""

SMALLEST_CHUNK = 4096

SMALLEST_BYTES: dict[str, int] = {"none": 1 << 20, "ext4": 16 << 20, "xfs": 300 << 20, "btrfs": 128 << 20,
                                  "bluestore": 1 << 30}  # fmt: skip
"""Devices that are smaller take no such file system (xfsprogs and btrfs-progs refuse; ext4 would have no journal)."""

DEFAULT_CUTOFF = 4 << 20
"""bcache's own."""
DEFAULT_HIT_RATIO = 0.9
DEFAULT_DIRTY_FRACTION = 0.1

COMMAS = ("mount_options",)
"""Parameters whose value may hold commas."""

SMALLEST_CACHE = 64 << 20
"""bcache needs 128 buckets at least."""

CACHE_MODES: dict[str, tuple[str, ...]] = {
    "bcache": ("writethrough", "writeback", "writearound"),
    "dm-cache": ("writethrough", "writeback"),
    "dm-writecache": ("writeback",),
}
"""Modes of each block cache, its default first."""

SIZES = ("chunk", "setup_size", "cache_sequential_cutoff", "cache_file_size", *queue.SIZES, *swap.SIZES)
"""Parameters in bytes."""


def _read_chunk(value: Any) -> int:
    chunk = parse_size(value)
    if chunk < SMALLEST_CHUNK or chunk & (chunk - 1):
        raise ValueError(f"{format_bytes(chunk)} is not a chunk; it is a power of two, 4 KiB at least")
    return chunk


def _read_setup_size(value: Any) -> int:
    size = parse_size(value)
    if size < 1 << 20:
        raise ValueError(f"{format_bytes(size)} is too small; it is 1 MiB at least")
    return size


def _read_cutoff(value: Any) -> int:
    return 0 if value in (0, "0") else int(parse_size(value))


def _read_cache_file_size(value: Any) -> int:
    size = parse_size(value)
    if size < SMALLEST_CACHE:
        raise ValueError(f"{format_bytes(size)} is too small; it is {format_bytes(SMALLEST_CACHE)} at least")
    return size


def _read_share(value: Any) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        raise ValueError("it is not a number; it is a share between 0 and 1, such as 0.9") from None
    if not 0 < share <= 1:
        raise ValueError("it is out of range; it is a share above 0 and up to 1, such as 0.9")
    return share


def _read_count(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _read_journal(value: Any) -> Any:
    # TOML has no bare `on`, and who writes `true` means it.
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _read_mount_options(value: Any) -> Any:
    if isinstance(value, str) and any(each.isspace() for each in value.strip()):
        raise ValueError(f"`{value}` contains a space; mount options are separated by commas alone")
    if not isinstance(value, str):
        return value
    return "" if value in ("none", "defaults") else check_mount_options(value.strip())


class SetupParameters(BaseModel):
    """Parameters of a setup; those that a study omits are decided when the target is known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: Annotated[int | None, BeforeValidator(_read_count), Field(ge=1, le=256)] = Field(
        None, description="Number of devices, the first ones of the target. Empty: one, or all for an array."
    )
    array: ArrayLevel | None = Field(None, description="RAID level over them; `single` is one device without an array.")
    array_kind: ArrayKind | None = Field(None, description="Implementation of the array: Linux md or btrfs.")
    chunk: Annotated[int | None, BeforeValidator(_read_chunk)] = Field(
        None, description="Bytes on one device before the next (512 KiB with md, always 64 KiB with btrfs)."
    )
    array_state: ArrayState | None = Field(
        None,
        description="`synced` (the first synchronisation has ended), `clean` (assumed, without one), `degraded` "
        "(members have failed), or `rebuilding` (a failed member is replaced while measuring).",
    )
    failed_members: Annotated[int | None, BeforeValidator(_read_count), Field(ge=0, le=256)] = Field(
        None, description="How many members have failed in a `degraded` or `rebuilding` array (1)."
    )
    cache: CacheKind | None = Field(
        None,
        description="Block cache over the device or array: `bcache`, `dm-cache` or `dm-writecache`. The cache device "
        "is the last device of the target.",
    )
    cache_mode: CacheMode | None = Field(
        None,
        description="Where writes go: cache and backing device (`writethrough`), cache first (`writeback`), backing "
        "device only (`writearound`, bcache). Default: `writethrough`; dm-writecache is always `writeback`.",
    )
    cache_sequential_cutoff: Annotated[int | None, BeforeValidator(_read_cutoff)] = Field(
        None, description="bcache: sequential I/O larger than this bypasses the cache (4 MiB); 0 caches all of it."
    )
    cache_state: CacheState | None = Field(
        None,
        description="Cache before each run: `cold` (emptied; the default), `warm` (loaded until `cache_hit_ratio` is "
        "reached), `dirty` (written until `cache_dirty_fraction` is dirty), or `kept` as the previous run left it.",
    )
    cache_hit_ratio: Annotated[float | None, BeforeValidator(_read_share)] = Field(
        None, description="Read hit ratio from which on the cache counts as warm, from 0 to 1 (0.9)."
    )
    cache_dirty_fraction: Annotated[float | None, BeforeValidator(_read_share)] = Field(
        None, description="Share of the cache device that is dirty before the run, from 0 to 1 (0.1)."
    )
    cache_file_size: Annotated[int | None, BeforeValidator(_read_cache_file_size)] = Field(
        None,
        description="On a directory as target: size of the file under the cache's loop device. Empty: a quarter of "
        "`setup_size`.",
    )
    file_system: FileSystem | None = Field(
        None,
        description="Created on top; `none` leaves the device raw. `bluestore`: each object daemon of Ceph takes a "
        "device raw (workload `objects`).",
    )
    journal: Annotated[Journal | None, BeforeValidator(_read_journal)] = Field(
        None, description="ext4: with a journal, without one, or with one on a separate device."
    )
    mount_options: Annotated[str | None, BeforeValidator(_read_mount_options)] = Field(
        None, description="Options of mount(8), separated by commas."
    )
    fresh: Fresh | None = Field(None, description="How often all of it is recreated: once a `study`, `case` or `run`.")
    setup_size: Annotated[int | None, BeforeValidator(_read_setup_size)] = Field(
        None,
        description="On a directory as target: size of the file under a loop device that represents a device. Empty: "
        "most of the free space, at most 16 GiB.",
    )


SETUP_NAMES = tuple(SetupParameters.model_fields)
NAMES = (*SETUP_NAMES, *queue.NAMES, *swap.NAMES, *tracing.NAMES)
"""Parameters of a case as a whole: the setup, settings of the block queues, swap, and tracing."""

_FIELDS = {
    **SetupParameters.model_fields,
    **queue.QueueParameters.model_fields,
    **swap.SwapParameters.model_fields,
    **tracing.TraceParameters.model_fields,
}


def is_setup(parameter: str) -> bool:
    """Whether a parameter (`STREAM.NAME` or `NAME`) belongs to the case and not to a stream."""
    return parameter.rpartition(".")[2] in NAMES


def read_value(name: str, value: Any) -> Any:
    """One parameter as written -> checked, sizes in bytes; `StudyError` where it is invalid."""
    try:
        return _adapter(name).validate_python(value)
    except ValidationError as error:
        raise _wrong_value(name, value, error) from None


def without(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some parameters that are the workload's."""
    return {name: value for name, value in parameters.items() if not is_setup(name)}


def kernel_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the block queues, of swap and of tracing among the parameters of a case, checked."""
    names = (*queue.NAMES, *swap.NAMES, *tracing.NAMES)
    read = {name: read_value(name, value) for name, value in parameters.items() if name in names}
    return {name: value for name, value in read.items() if value is not None}


def resolve(parameters: Mapping[str, Any], *, devices: int) -> Setup | None:
    """The setup by the parameters of a case, on a target of this many devices; None if there are none."""
    written = {name: read_value(name, value) for name, value in parameters.items() if name in SETUP_NAMES}
    given = SetupParameters.model_construct(**written)
    if not written:
        return None
    level = given.array or "single"
    kind = given.array_kind or "md"
    state = given.array_state or "synced"
    is_btrfs_array = kind == "btrfs" and level != "single"
    has_cache = given.cache not in (None, "none")
    osds = int(parameters.get("osds") or 1) if given.file_system == "bluestore" else 1
    setup = Setup(
        devices=given.devices or (osds if level == "single" else max(1, devices - has_cache)),
        array=level,
        array_kind=kind,
        chunk=given.chunk or DEFAULT_CHUNK[kind],
        array_state=state,
        failed_members=int(state in ("degraded", "rebuilding"))
        if given.failed_members is None
        else given.failed_members,
        **(_cache(given) if has_cache else {}),
        file_system=given.file_system or ("btrfs" if is_btrfs_array else "none"),
        journal=given.journal or "on",
        mount_options=given.mount_options or "",
        fresh=given.fresh or "study",
        setup_size=given.setup_size,
    )
    _check(setup, devices)
    if setup.is_bluestore and setup.devices < osds:
        raise StudyError(
            f"{osds} object daemons need as many devices, and `devices` gives them {setup.devices}",
            hint="leave `devices` out, or lower `osds`",
        )
    return setup


def _cache(given: SetupParameters) -> dict[str, Any]:
    """Fields of `Setup` about a block cache."""
    assert given.cache is not None
    state, cutoff = given.cache_state or "cold", given.cache_sequential_cutoff
    return {
        "cache": given.cache,
        "cache_mode": given.cache_mode or CACHE_MODES[given.cache][0],
        "cache_sequential_cutoff": DEFAULT_CUTOFF if cutoff is None else cutoff,
        "cache_state": state,
        "cache_hit_ratio": given.cache_hit_ratio or (DEFAULT_HIT_RATIO if state == "warm" else 0.0),
        "cache_dirty_fraction": given.cache_dirty_fraction or (DEFAULT_DIRTY_FRACTION if state == "dirty" else 0.0),
        "cache_file_size": given.cache_file_size,
    }


def tolerated_failures(setup: Setup) -> int:
    """Members that may fail, chosen well, before data is lost."""
    is_btrfs = setup.array_kind == "btrfs"  # Two copies of everything, wherever they are, however many devices.
    match setup.array:
        case "raid1":
            return 1 if is_btrfs else setup.devices - 1
        case "raid10":
            return 1 if is_btrfs else setup.devices // 2
        case "raid5":
            return 1
        case "raid6":
            return 2
        case _:
            return 0


def _check(setup: Setup, available: int) -> None:
    problem = next(((text, hint) for wrong, text, hint in _rules(setup, available) if wrong), None)
    if problem:
        raise StudyError(problem[0], hint=problem[1])


def _rules(setup: Setup, available: int) -> list[tuple[bool, str, str]]:
    """Rules for parameters that depend on each other: a condition, the error if it is true, and a hint."""
    level, count, fewest = setup.array, setup.devices, FEWEST_DEVICES[setup.array]
    breaks = setup.array_state in ("degraded", "rebuilding")
    survives = tolerated_failures(setup)
    even = " and an even number" if level == "raid10" else ""
    is_btrfs_array = setup.array_kind == "btrfs" and level != "single"
    apart = int(setup.cache != "none")
    exclude = "leave the combination out with `[[parts.exclude]]`"
    return [
        (level == "single" and count > 1 and not setup.is_bluestore,
         f"`array = \"single\"` is one device, and `devices` is {count}",
         "choose a level with `array`, such as `raid0`"),
        (count < fewest or (level == "raid10" and count % 2 == 1),
         f"`{level}` needs at least {fewest} devices{even}, and `devices` gives it {count}",
         f"raise `devices`, or {exclude}"),
        (count + apart > available,
         f"the case needs {count + apart} devices{_apart_words(setup)}, and the target has {available}",
         f"name more devices as the target, or leave out what needs them with `--set devices={_up_to(available)}`"),
        (setup.failed_members > 0 and not breaks,
         f"`failed_members` is {setup.failed_members}, but nothing fails with `array_state = \"{setup.array_state}\"`",
         "set `array_state` to `degraded` or `rebuilding`"),
        (breaks and setup.failed_members == 0,
         f"`array_state = \"{setup.array_state}\"` needs a member that fails", "set `failed_members` to 1 or more"),
        (setup.failed_members > survives,
         f"`{level}` of {count} devices does not survive {setup.failed_members} failed "
         f"member{'s' * (setup.failed_members != 1)}: at most {survives}",
         f"lower `failed_members`, choose another level, or {exclude}"),
        (is_btrfs_array and setup.file_system != "btrfs",
         f"`array_kind = \"btrfs\"` is an array inside a file system, so `file_system` cannot be `{setup.file_system}`",
         "leave `file_system` out, or choose `array_kind = \"md\"`"),
        (setup.array_kind == "btrfs" and setup.chunk != DEFAULT_CHUNK["btrfs"],
         f"btrfs has chunks of 64 KiB, and `chunk` is {format_bytes(setup.chunk)}",
         "leave `chunk` out, or choose `array_kind = \"md\"`"),
        (setup.journal != "on" and setup.file_system != "ext4",
         f"`journal` is for ext4, and `file_system` is `{setup.file_system}`", "leave `journal` out"),
        (bool(setup.mount_options) and setup.file_system == "none",
         "`mount_options` are for a file system, and `file_system` is `none`", "leave them out, or choose one"),
        (setup.setup_size is not None and setup.setup_size < SMALLEST_BYTES[setup.file_system],
         f"`{setup.file_system}` needs {format_bytes(SMALLEST_BYTES[setup.file_system])} at least, and `setup_size` is "
         f"{format_bytes(setup.setup_size or 0)}", "raise `setup_size`"),
        *_bluestore_rules(setup),
        *_cache_rules(setup, is_btrfs_array=is_btrfs_array),
    ]  # fmt: skip


def _bluestore_rules(setup: Setup) -> list[tuple[bool, str, str]]:
    """Rules of devices that object daemons take raw."""
    if not setup.is_bluestore:
        return []
    return [
        (setup.array != "single", "`file_system = \"bluestore\"` gives each object daemon a device, and `array` is "
         f"`{setup.array}`", "leave `array` out, or choose a file system such as `ext4` on the array"),
        (setup.cache != "none", f"`file_system = \"bluestore\"` gives each object daemon a device, and `cache` is "
         f"`{setup.cache}`", "leave `cache` out, or choose a file system such as `ext4` on the cache"),
        (bool(setup.mount_options), "`mount_options` are for a file system, and BlueStore has none", "leave them out"),
    ]  # fmt: skip


def _cache_rules(setup: Setup, *, is_btrfs_array: bool) -> list[tuple[bool, str, str]]:
    """Rules of block caches. A case without one may have their other parameters: `cache` is a factor then."""
    if setup.cache == "none":
        return []
    modes = CACHE_MODES[setup.cache]
    exclude = "leave the combination out with `[[parts.exclude]]`"
    return [
        (is_btrfs_array, f"`cache = \"{setup.cache}\"` needs one block device below it, and a btrfs array is a file "
         "system", "choose `array_kind = \"md\"`"),
        (setup.cache_mode not in modes,
         f"`cache = \"{setup.cache}\"` has no mode `{setup.cache_mode}`, only `{'` and `'.join(modes)}`",
         f"set `cache_mode`, or {exclude}"),
        (setup.cache_sequential_cutoff != DEFAULT_CUTOFF and setup.cache != "bcache",
         f"`cache_sequential_cutoff` is for bcache, and `cache` is `{setup.cache}`", "leave it out"),
        (setup.cache_state == "dirty" and setup.cache_mode != "writeback",
         f"a cache has dirty data in writeback mode only, and `cache_mode` is `{setup.cache_mode}`",
         f"set `cache_mode = \"writeback\"`, or {exclude}"),
        (setup.cache_hit_ratio > 0 and setup.cache_state != "warm",
         f"`cache_hit_ratio` is for a warm cache, and `cache_state` is `{setup.cache_state}`",
         "set `cache_state = \"warm\"`, or leave it out"),
        (setup.cache_dirty_fraction > 0 and setup.cache_state != "dirty",
         f"`cache_dirty_fraction` is for a dirty cache, and `cache_state` is `{setup.cache_state}`",
         "set `cache_state = \"dirty\"`, or leave it out"),
        (setup.cache == "dm-writecache" and setup.cache_state == "warm",
         "dm-writecache caches writes only, so reads cannot warm it",
         "use `cache_state = \"dirty\"`, or another `cache`"),
    ]  # fmt: skip


def _apart_words(setup: Setup) -> str:
    return ", one of them for the cache" if setup.cache != "none" else ""


def _up_to(available: int) -> str:
    """1, 2, 4 and so on."""
    return ",".join(str(1 << power) for power in range(int(math.log2(available)) + 1))


@functools.cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_FIELDS[name].rebuild_annotation())


def _wrong_value(name: str, value: Any, error: ValidationError) -> StudyError:
    choices = [
        str(choice)
        for part in get_args(_FIELDS[name].annotation)
        for choice in get_args(part)
        if isinstance(choice, str)
    ]
    if choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        guess = f"did you mean `{near[0]}`? " if near else ""
        return StudyError(
            f"`{name}` cannot be `{value}`", hint=f"{guess}it is one of {', '.join(f'`{each}`' for each in choices)}"
        )
    text = error.errors()[0]["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    message, _, advice = text.partition("; ")
    named = f"`{name}` is wrong: {message}" if f"`{value}`" in message else f"`{name}` cannot be `{value}`: {message}"
    return StudyError(named, hint=advice)
