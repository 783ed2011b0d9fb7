"""Types of the parts of a record that iosonde itself writes as objects: the target, the server, counters of devices.

Fields may be missing, because not every target and workload has them. What is not named here may have any value:
readers show it as text, and compute nothing with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired

from pydantic import ValidationError
from typing_extensions import TypedDict

from iosonde.core.features import contributed
from iosonde.protocol.validation import mismatch as mismatch_of
from iosonde.results.schema import RecordPart

Number = int | float


class Device(TypedDict):
    """A block device under the target."""

    device: NotRequired[str]
    name: NotRequired[str]
    kind: NotRequired[str]
    model: NotRequired[str]
    firmware: NotRequired[str]
    size_bytes: NotRequired[int]
    under: NotRequired[list[str]]


class FileSystem(TypedDict):
    """The file system of the target."""

    kind: NotRequired[str]
    size_bytes: NotRequired[int]
    source: NotRequired[str]


class Target(TypedDict):
    """The target of a run; `log` is a second one."""

    name: NotRequired[str]
    kind: NotRequired[str]
    size_bytes: NotRequired[int | None]
    file_system: NotRequired[FileSystem]
    devices: NotRequired[list[Device]]
    array: NotRequired[dict[str, Any] | None]
    log: NotRequired[dict[str, Any]]
    simulated: NotRequired[bool]


class Statistics(TypedDict):
    """The account of a database server."""

    kind: NotRequired[str]
    title: NotRequired[str]
    version: NotRequired[str]
    statistics_at_start: NotRequired[dict[str, int]]
    statistics_at_end: NotRequired[dict[str, int]]
    statistics_mean: NotRequired[dict[str, Number]]
    durability: NotRequired[dict[str, Any]]
    template: NotRequired[dict[str, Any] | None]
    restored: NotRequired[dict[str, Any] | None]


class Bytes(TypedDict):
    """Bytes of a device, and the engine's own of them."""

    device: str
    read_bytes: int
    write_bytes: int
    own_read_bytes: int
    own_write_bytes: int


class Others(TypedDict):
    """I/O of other processes, and their open files on the devices."""

    are_present: bool
    write_bytes: int
    unreadable: bool | int


class OwnIo(TypedDict):
    """Bytes of the devices over a run and over its measurement."""

    version: int | None
    run: list[Bytes]
    measure: list[Bytes]
    others: Others
    dirtied_bytes: int


SHAPES: Mapping[str, Any] = {
    "target": Target,
    "target_after": Target,
    "server": Statistics | None,
    "own_io": OwnIo | None,
}
"""Parts of a record and their types."""


def mismatch(record: Any) -> str:
    """Return the name of the first part of a record that is not of its type; empty if there is none."""
    wrong = (
        f"`{name}` is not as iosonde writes it"
        for name, kind in SHAPES.items()
        if mismatch_of(getattr(record, name), kind)
    )
    found = next(wrong, "") or _mismatch_of_parts(record.parts)
    log = record.target.get("log")
    return found or ("" if log is None or not mismatch_of(log, Target) else "`target.log` is not as iosonde writes it")


def _mismatch_of_parts(parts: Mapping[str, Any]) -> str:
    known: tuple[type[RecordPart], ...] = contributed("record", "PARTS")
    kinds = {kind.name: kind for kind in known}
    for name, part in parts.items():
        if name not in kinds:
            return f"`parts.{name[:40]}` is of no feature of this iosonde"
        try:
            kinds[name].model_validate(part)
        except ValidationError:
            return f"`parts.{name}` is not as iosonde writes it"
    return ""
