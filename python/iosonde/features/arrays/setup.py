"""Arrays in the setup of a case: parameters, what they resolve to, which ones exclude each other, and their members."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from iosonde.errors import StudyError, TargetError
from iosonde.plan import FileSystem, Setup, SetupPart
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of, opened_exclusively
from iosonde.storage.safety import journal
from iosonde.storage.targets.target import BuiltLayer
from iosonde.storage.tools import patiently
from iosonde.study.setup_extension import Rule, SetupExtension
from iosonde.units import format_bytes, parse_size

JOURNALED = "array"
"""Kind of its journal entry."""


@dataclass(frozen=True, kw_only=True)
class Array(BuiltLayer):
    """An active array."""

    members: list[Path]
    key: Path
    """Path of its journal entry."""

    def state(self) -> dict[str, Any]:
        """Return its state at this moment."""
        raise NotImplementedError

    def health(self) -> dict[str, int]:
        """Return what a failing member changes of its state, which is cheap enough to be read during a run."""
        raise NotImplementedError


def announce(key: Path, kind: str, members: list[Path], **facts: Any) -> None:
    """Record an array before its first command."""
    journal.created(key, JOURNALED, facts={"kind": kind, "members": [str(each) for each in members], **facts})


def array_words(level: str) -> str:
    """Name a RAID level: `RAID 5`, `one device`, `the target as it is`."""
    known = {"single": "one device", "target": "the target as it is"}
    return known.get(level, f"RAID {level.removeprefix('raid')}")


def _words(factor: str, level: Any) -> str | None:
    if factor == "array" and isinstance(level, str):
        return array_words(level)
    return f"{level} arrays" if factor == "state" and level in ("healthy", "degraded", "rebuilding") else None


WORDS = (_words,)


Level = Literal["raid0", "raid1", "raid10", "raid5", "raid6"]
Kind = Literal["md", "btrfs"]
State = Literal["clean", "synced", "degraded", "rebuilding"]

BROKEN = ("degraded", "rebuilding")

FEWEST_DEVICES: dict[str, int] = {"raid0": 1, "raid1": 2, "raid10": 4, "raid5": 3, "raid6": 4}
"""Devices that a level needs at least."""
PARITIES: dict[str, int] = {"raid5": 1, "raid6": 2}
"""Devices for parity."""
DEFAULT_CHUNK: dict[str, int] = {"md": 512 << 10, "btrfs": 64 << 10}
"""Chunk of md where none is named, and the only one that btrfs has."""
SMALLEST_CHUNK = 4096
MOST_METADATA = 160 << 20
"""Metadata and alignment of md, which grow with the members (mdadm's `data_offset` is 128 MiB at most)."""


class ArraySetup(SetupPart):
    """An array over the devices of a setup, fully resolved."""

    part = "array"
    combines: ClassVar[bool] = True
    can_be_simulated: ClassVar[bool] = True

    level: Level = Field(serialization_alias="array")
    kind: Kind = Field("md", serialization_alias="array_kind")
    chunk: int = DEFAULT_CHUNK["md"]
    """Bytes."""
    state: State = Field("synced", serialization_alias="array_state")
    failed_members: int = 0

    @property
    def file_system(self) -> FileSystem | None:
        """That of btrfs, whose arrays are inside."""
        return "btrfs" if self.kind == "btrfs" else None

    def text(self, devices: int) -> str:
        """`raid5 of 4, md, chunk 64 KiB, synced`."""
        failed = f", {self.failed_members} failed" if self.failed_members else ""
        return f"{self.level} of {devices}, {self.kind}, chunk {format_bytes(self.chunk)}, {self.state}{failed}"

    def size_bytes(self, below: int, devices: int) -> int:
        """Return a lower bound of its size over devices of `below` bytes."""
        usable = (below - min(below // 16, MOST_METADATA)) // self.chunk * self.chunk
        if self.level == "raid1":
            return usable
        return usable * ((devices - PARITIES.get(self.level, 0)) // (2 if self.level == "raid10" else 1))

    def simulated(self) -> dict[str, Any]:
        """Return level and chunk; simulated members neither fail nor synchronise."""
        reasons = {
            "array_kind": (self.kind, self.kind == "btrfs", "md"),
            "array_state": (self.state, self.state in BROKEN, "synced"),
        }
        for name, (value, is_beyond, remedy) in reasons.items():
            if is_beyond:
                raise TargetError(
                    f"a simulated array cannot have `{name} = {value}`",
                    hint=f"set the parameter to `{remedy}`, or name block devices as the target",
                )
        return {"level": self.level.removeprefix("raid"), "chunk_bytes": self.chunk}

    def tolerated_failures(self, devices: int) -> int:
        """Return how many members may fail, chosen well, before data is lost."""
        is_btrfs = self.kind == "btrfs"  # Two copies of everything, wherever they are, however many devices.
        mirrored = {"raid1": 1 if is_btrfs else devices - 1, "raid10": 1 if is_btrfs else devices // 2}
        return {**mirrored, **PARITIES}.get(self.level, 0)


PARTS = (ArraySetup,)


def _read_chunk(value: Any) -> int:
    chunk = parse_size(value)
    if chunk < SMALLEST_CHUNK or chunk & (chunk - 1):
        raise ValueError("chunk size must be a power of two and at least 4 KiB")
    return chunk


class ArrayParameters(BaseModel):
    """Parameters of a case about its array."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    array: Literal["single"] | Level | None = None
    """RAID level over the devices; `single` is one device without an array."""
    array_kind: Kind | None = None
    """Implementation of the array: Linux md or btrfs."""
    chunk: Annotated[int | None, BeforeValidator(_read_chunk)] = None
    """Bytes on one device before the next (512 KiB with md, always 64 KiB with btrfs)."""
    array_state: State | None = None
    """`synced` (the first synchronisation has ended), `clean` (assumed, without one), `degraded` (members have failed),
    or `rebuilding` (a failed member is replaced while measuring)."""
    failed_members: Annotated[int | None, Field(ge=0, le=256)] = None
    """How many members have failed in a `degraded` or `rebuilding` array (1)."""


def resolve(given: Mapping[str, Any]) -> ArraySetup | None:
    """Return the array of a case; None without one."""
    level: Level | Literal["single"] | None = given.get("array")
    kind: Kind = given.get("array_kind") or "md"
    state: State = given.get("array_state") or "synced"
    failed = given.get("failed_members")
    if level is None or level == "single":
        if state in BROKEN or failed:
            given_text = f"`array_state` is `{state}`" if state in BROKEN else f"`failed_members` is {failed}"
            raise StudyError(
                f"one device without an array has no members that fail, but {given_text}",
                hint="choose a level with `array`, or leave the combination out with `[[parts.exclude]]`",
            )
        return None
    return ArraySetup(
        level=level,
        kind=kind,
        chunk=given.get("chunk") or DEFAULT_CHUNK[kind],
        state=state,
        failed_members=int(state in BROKEN) if failed is None else failed,
    )


def rules(setup: Setup) -> list[Rule]:
    """Return the rules of a setup with or without an array."""
    array, count = setup.layer(ArraySetup), setup.devices
    if array is None:
        return [
            (count > 1 and not setup.is_bluestore,
             f"`array = \"single\"` requires one device; `devices` is {count}",
             "choose a level with `array`, such as `raid0`"),
        ]  # fmt: skip
    level, fewest, breaks = array.level, FEWEST_DEVICES[array.level], array.state in BROKEN
    survives = array.tolerated_failures(count)
    even = " and an even number" if level == "raid10" else ""
    exclude = "leave the combination out with `[[parts.exclude]]`"
    return [
        (setup.is_bluestore,
         f"`file_system = \"bluestore\"` gives each object daemon a device, but `array` is `{level}`",
         "leave `array` out, or choose a file system such as `ext4` on the array"),
        (count < fewest or (level == "raid10" and count % 2 == 1),
         f"`{level}` requires at least {fewest} devices{even}; `devices` is {count}",
         f"raise `devices`, or {exclude}"),
        (array.failed_members > 0 and not breaks,
         f"`failed_members` is {array.failed_members}, but nothing fails with `array_state = \"{array.state}\"`",
         "set `array_state` to `degraded` or `rebuilding`"),
        (breaks and array.failed_members == 0,
         f"`array_state = \"{array.state}\"` requires a failed member", "set `failed_members` to 1 or more"),
        (array.failed_members > survives,
         f"`{level}` of {count} devices does not survive {array.failed_members} failed "
         f"member{'s' * (array.failed_members != 1)}: at most {survives}",
         f"lower `failed_members`, choose another level, or {exclude}"),
        (array.kind == "btrfs" and setup.file_system != "btrfs",
         f"`array_kind = \"btrfs\"` is an array inside a file system, so `file_system` cannot be `{setup.file_system}`",
         "leave `file_system` out, or choose `array_kind = \"md\"`"),
        (array.kind == "btrfs" and array.chunk != DEFAULT_CHUNK["btrfs"],
         f"btrfs requires chunks of 64 KiB; `chunk` is {format_bytes(array.chunk)}",
         "leave `chunk` out, or choose `array_kind = \"md\"`"),
    ]  # fmt: skip


SIZES = ("chunk",)
EXTENSIONS = (SetupExtension(parameters=ArrayParameters, is_layout=True, resolve=resolve, rules=rules),)


SUPERBLOCK_BYTES = 4096
"""No superblock of md or btrfs is larger."""
NEARLY = 0.99
"""Members within this share of the largest count as equal: disks of one model differ by that."""


def check_members(devices: Sequence[Path], array: ArraySetup) -> list[int]:
    """Return the sizes of the members in bytes; `TargetError` if they are too small for a chunk."""
    sizes = [block_stack.size_bytes(number_of(device)) for device in devices]
    if array.kind == "md" and array.level != "raid1" and array.chunk > min(sizes) // 2:
        raise TargetError(
            f"a chunk of {format_bytes(array.chunk)} is too large for members of {format_bytes(min(sizes))}",
            where="by the parameter `chunk`",
            hint="set a smaller `chunk`, or name larger devices",
        )
    return sizes


def unequal(sizes: Sequence[int]) -> dict[str, Any]:
    """Facts about members of different size: how much of the larger ones is left unused."""
    smallest = min(sizes)
    if smallest >= NEARLY * max(sizes):
        return {}
    return {"unequal": {"smallest_bytes": smallest, "unused_bytes": sum(size - smallest for size in sizes)}}


def failing_members(devices: Sequence[Path], array: ArraySetup) -> list[Path]:
    """The members that are to fail: the last ones; of RAID 10 one of each of the last mirrors."""
    step = 2 if array.level == "raid10" else 1
    return [devices[-1 - step * number] for number in range(array.failed_members)]


def erase_superblocks(device: Path, places: Callable[[int], Sequence[int]]) -> dict[str, Any]:
    """Zero the superblocks of ours on a device -> the step, for the record; `OSError` if it stays in use.

    `places` returns where an open device has them. It reads from the descriptor that is written, which has an exclusive
    claim, so no other device and no other user can get in between. A device without any is left alone.
    """
    began = time.monotonic()
    try:
        patiently(lambda: _zero(device, places))
    except TargetError as error:
        raise OSError(errno.EBUSY, error.what) from None
    return {
        "command": ["erase", "superblock", str(device)],
        "seconds": round(time.monotonic() - began, 3),
        "output": "",
    }


def _zero(device: Path, places: Callable[[int], Sequence[int]]) -> None:
    if not number_of(device):
        return  # It is gone.
    with opened_exclusively(device) as descriptor:
        for place in places(descriptor):
            os.pwrite(descriptor, bytes(SUPERBLOCK_BYTES), place)
        os.fsync(descriptor)
