"""Models of simulated drives: TOML with units, read, checked and converted for the engine's spec.

Those that come with iosonde are in `models/`; one of a user's own is named by its path. A model lists the parts of a
drive and the source of each value; the engine simulates its behaviour (`crates/ssd`) and refuses impossible models.
docs/simulation.md explains the fields.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from operator import not_
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from iosonde.base import text_files
from iosonde.base.text_files import expanded
from iosonde.errors import TargetError
from iosonde.units import format_bytes, parse_duration, parse_rate, parse_size

PAGE_BYTES = 4096
BLOCKS_MIN = 256
"""Of each die, before a smaller capacity makes them smaller: what is being written stays a small part of the drive."""


def parse_bandwidth(value: Any) -> int:
    """Bytes per second of `530MB/s`."""
    text = str(value)
    if not text.endswith("/s"):
        raise ValueError(f"`{value}` is not a speed; write it like `530MB/s`")
    return parse_size(text.removesuffix("/s"))


def _amount(value: Any) -> float:
    """Operations (`3000`, `5.4M`) or bytes (`1TiB`), per second with `/s` (`128MiB/s`)."""
    text = str(value).removesuffix("/s")
    return parse_size(text) if text.endswith("B") else parse_rate(value)


def _positive(value: int) -> int:
    if value <= 0:
        raise ValueError("it must be above 0")
    return value


Size = Annotated[int, BeforeValidator(lambda value: _positive(parse_size(value)))]
SizeOrZero = Annotated[int, BeforeValidator(parse_size)]
Time = Annotated[int, BeforeValidator(lambda value: _positive(parse_duration(value)))]
TimeOrZero = Annotated[int, BeforeValidator(parse_duration)]
Bandwidth = Annotated[int, BeforeValidator(lambda value: _positive(parse_bandwidth(value)))]
Share = Annotated[float, Field(ge=0, lt=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Media(_Part):
    """Dies behind channels."""

    channels: int = Field(ge=1)
    """Channels; the dies are spread evenly over them."""
    dies: int = Field(ge=1)
    """Dies of the whole drive."""
    channel_bandwidth: Bandwidth = Field(serialization_alias="channel_bytes_per_second")
    """Speed of one channel."""
    program: Size = Field(serialization_alias="program_bytes")
    """Bytes that one die reads or programs at once: page times planes."""
    read_time: Time = Field(serialization_alias="read_ns")
    """Time to sense any part of that."""
    program_time: Time = Field(serialization_alias="program_ns")
    """Time to program it."""
    time_spread: Share = 0.0
    """Both vary uniformly by up to this fraction."""
    retry_fraction: float = Field(0.0, ge=0, le=1)
    """Fraction of reads (and of writes made in place) that are repeated."""
    retry_time: TimeOrZero = Field(0, serialization_alias="retry_ns")
    """Time that a repetition takes."""
    suspend_time: Time | None = Field(None, serialization_alias="suspend_ns")
    """A read interrupts a program after this time; absent: it waits for its end."""
    erase_suspend_time: Time | None = Field(None, serialization_alias="erase_suspend_ns", exclude_if=not_)
    """The same for an erasure."""


class Slc(_Part):
    """Fast cells for fresh writes."""

    size: Size = Field(serialization_alias="bytes")
    """Room for data in fast cells."""
    program_time: Time = Field(serialization_alias="program_ns")
    """Time to program `media.program` there."""


class Translation(_Part):
    """Mapping of logical pages."""

    kind: Literal["page_mapped", "in_place"]
    """Flash with garbage collection, or media that are overwritten in place (3D XPoint)."""
    over_provisioning: float | None = Field(None, gt=0, lt=10)
    """Spare capacity for garbage collection, as a fraction of the capacity."""
    mapping: Size = Field(PAGE_BYTES, serialization_alias="mapping_bytes", exclude_if=lambda size: size == PAGE_BYTES)
    """Unit of the map. A smaller write also reads and writes the rest of its unit once more units are divided than fit
    into the spare capacity."""
    block: Size | None = Field(None, serialization_alias="block_programs")
    """Bytes of one die's block, all planes: the unit of an erasure."""
    erase_time: Time | None = Field(None, serialization_alias="erase_ns")
    """Time to erase it."""
    collection: Literal["greedy", "least_recently_written"] = "greedy"
    """Block that is collected next: the one with the least valid data, or the oldest."""
    idle_after: Time | None = Field(None, serialization_alias="idle_ns")
    """Idle time after which the drive collects garbage in advance."""
    idle_free_fraction: Share = 0.0
    """Collection while idle stops when this share of the blocks is free."""
    slc: Slc | None = None
    """Fast cells for fresh writes, folded while idle."""


class Buffer(_Part):
    """Memory that acknowledges writes."""

    size: SizeOrZero = Field(0, serialization_alias="bytes")
    """Its size; 0 only for `in_place`, where a write goes to the media."""
    power_loss_protection: bool = False
    """True if it survives a power cut, so that flushes are free."""


class Interface(_Part):
    """Host interface and controller."""

    read_bandwidth: Bandwidth = Field(serialization_alias="read_bytes_per_second")
    """From the drive to the host."""
    write_bandwidth: Bandwidth = Field(serialization_alias="write_bytes_per_second")
    """From the host to the drive."""
    half_duplex: bool = False
    """Both share one link (SATA)."""
    transfer_time: TimeOrZero = Field(0, serialization_alias="transfer_ns")
    """Time each command takes on the link besides its data."""
    read_command_time: TimeOrZero = Field(0, serialization_alias="read_command_ns")
    """Controller time for a read, one after the other."""
    write_command_time: TimeOrZero = Field(0, serialization_alias="write_command_ns")
    """The same for a write or a trim."""
    read_latency: TimeOrZero = Field(0, serialization_alias="read_latency_ns")
    """Further latency of a read: host, driver, firmware."""
    write_latency: TimeOrZero = Field(0, serialization_alias="write_latency_ns")
    """The same for a write, a trim or a flush."""
    queue_depth: int = Field(1024, ge=1)
    """Commands processed concurrently (SATA: 32)."""
    command: Size = Field(128 << 10, serialization_alias="command_bytes")
    """The host divides larger I/Os into commands of this size."""


Amount = Annotated[float, BeforeValidator(lambda value: float(_amount(value)))]
Weight = Annotated[float, Field(ge=0, lt=float("inf"))]


class LimitChange(_Part):
    """A later change of a limit's rate."""

    after: Time = Field(serialization_alias="after_ns")
    """Virtual time since the drive was new."""
    rate: Amount
    """The rate from then on."""


class Limit(_Part):
    """A rate limit with credits, as of a cloud volume. Several limits hold at once."""

    counts: Literal["operations", "bytes"]
    """Unit that is counted."""
    rate: Amount = Field(gt=0)
    """Sustained rate: operations per second, or bytes such as `128MiB/s`."""
    burst_rate: Amount | None = Field(None, gt=0)
    """Highest rate while there are credits; absent: none."""
    bucket: Amount = Field(0.0, ge=0)
    """Credits saved while less than `rate` is used: operations or bytes. Full at first."""
    unit: Size | None = Field(None, serialization_alias="unit_bytes")
    """Operations are counted once for each started unit of this size."""
    merge: bool = False
    """Sequential operations are counted as one, up to `unit`."""
    read_weight: Weight = 1.0
    """Credits of a read; 0: reads are not limited."""
    write_weight: Weight = 1.0
    """Credits of a write; 0: writes are not limited."""
    style: Literal["queue", "paced"] = "queue"
    """Requests wait before the drive, or are completed at fixed intervals."""
    shared_by: Literal["volume", "machine"] = "volume"
    """Each drive of an array has the limit, or all drives share it."""
    change: tuple[LimitChange, ...] = Field((), serialization_alias="changes")
    """Later changes of `rate`."""

    @property
    def most_operations(self) -> float:
        """Operations per second that random access does not exceed; infinite without such a bound."""
        lightest = min(self.read_weight, self.write_weight)
        if self.counts != "operations" or not lightest or (self.bucket and self.burst_rate is None):
            return math.inf
        return max(self.rate, self.burst_rate or 0.0, *(each.rate for each in self.change)) / lightest


class FirstTouch(_Part):
    """Blocks that are fetched on their first access, as of a volume made from a snapshot."""

    time: Time = Field(serialization_alias="time_ns")
    """Time that the first access to a region takes in addition."""
    region: Size = Field(serialization_alias="region_bytes")
    """Size of a region."""


class DriveModel(_Part):
    """A simulated drive."""

    title: str = Field(exclude=True)
    """Text about the drive, for lists."""
    class_: str = Field("", alias="class", exclude=True)
    """The class of devices."""
    firmware: str = Field("", exclude=True)
    """Firmware revision, by which a fleet report groups drives."""
    capacity: Size = Field(serialization_alias="capacity_bytes")
    """Capacity for the host, in bytes."""
    sources: str = Field("", exclude=True)
    """Source of each value."""
    media: Media
    translation: Translation
    buffer: Buffer
    interface: Interface
    limit: tuple[Limit, ...] = Field((), serialization_alias="limits", exclude_if=not_)
    first_touch: FirstTouch | None = Field(None, exclude_if=not_)

    def scaled(self, capacity: int) -> DriveModel:
        """The same drive with another capacity: as many dies, as fast, and the same share of spare capacity.

        First there are fewer blocks; below `BLOCKS_MIN` of them on each die they shrink, down to one program, and the
        time of an erasure with them, so that as much time goes into erasing as before. The buffer stays, since it holds
        what is under way, and not a share.
        """
        translation = self.translation
        if translation.block:
            ratio = capacity / self.capacity
            block, of_die = translation.block, capacity // self.media.dies
            programs = min(block, max(of_die // BLOCKS_MIN, self.media.program)) // self.media.program
            shrunk = programs * self.media.program
            slc = translation.slc and translation.slc.model_copy(update={"size": round(translation.slc.size * ratio)})
            erase_time = max(1, round((translation.erase_time or 0) * shrunk / block))
            translation = translation.model_copy(update={"block": shrunk, "erase_time": erase_time, "slc": slc})
        return self.model_copy(update={"capacity": capacity, "translation": translation})

    def for_engine(self, name: str) -> dict[str, Any]:
        """The spec's `model`, which has values under their serialization aliases."""
        spec = {"name": name, **self.model_dump(mode="json", by_alias=True)}
        spec["capacity_bytes"] = self.capacity // PAGE_BYTES * PAGE_BYTES
        if self.translation.kind == "in_place":
            return {**spec, "translation": {"kind": "in_place"}}
        spec["translation"]["block_programs"] //= self.media.program
        return spec

    def memory_bytes(self) -> int:
        """Bytes of memory once all of it was written: two tables of four bytes a page, eight bytes a unit."""
        if self.translation.kind == "in_place":
            return 0
        units = 8 * self.capacity / self.translation.mapping if self.translation.mapping > PAGE_BYTES else 0
        return round(4 * (self.capacity / PAGE_BYTES) * (2 + (self.translation.over_provisioning or 0)) + units)


def models() -> dict[str, Path]:
    """The models that come with iosonde, by name."""
    return {file.stem: file for file in sorted((Path(__file__).parent / "models").glob("*.toml"))}


def load_model(name: str, *, target: str) -> DriveModel:
    """The model of that name, or in that file; `target` is what the user wrote."""
    is_path = "/" in name or name.endswith(".toml")
    file = expanded(name) if is_path else models().get(name)
    if file is None:
        raise _unknown(name, target)
    try:
        data = text_files.parse_toml(text_files.read(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise TargetError(f"cannot read the model `{name}`: {reason}", where=f"by the target `{target}`") from None
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"the model `{name}` is not TOML: {error}", hint="see docs/simulation.md") from None
    return parse_model(data, name=name)


def parse_model(data: Mapping[str, Any], *, name: str) -> DriveModel:
    """A model from its data; what is wrong is named with its place."""
    try:
        model = DriveModel.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
        given = f" cannot be `{first['input']}`" if isinstance(first["input"], str | int | float) else ""
        raise TargetError(
            f"`{place}`{given or ' is wrong'}: {text}",
            where=f"in the model `{name}`",
            hint="docs/simulation.md lists the fields of a model; those in `models/` are examples",
        ) from None
    _check_flash(model, name)
    return model


def _check_flash(model: DriveModel, name: str) -> None:
    flash = model.translation
    if flash.kind == "in_place":
        return
    for field in ("over_provisioning", "block", "erase_time"):
        if getattr(flash, field) is None:
            raise TargetError(
                f"`translation.{field}` is missing",
                where=f"in the model `{name}`",
                hint='flash needs it; only `kind = "in_place"` does without',
            )
    if (flash.block or 0) % model.media.program:
        raise TargetError(
            f"`translation.block` is {format_bytes(flash.block or 0)}, not a multiple of `media.program`, "
            f"{format_bytes(model.media.program)}",
            where=f"in the model `{name}`",
            hint="a block is erased as a whole, so it consists of whole programs",
        )


def _unknown(name: str, target: str) -> TargetError:
    known = models()
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    guess = f"did you mean `sim:{near[0]}`? " if near else ""
    return TargetError(
        f"there is no simulated drive `{name}`",
        where=f"by the target `{target}`",
        hint=f"{guess}there are {', '.join(f'`{each}`' for each in known)}; name a model of your own by its path",
    )
