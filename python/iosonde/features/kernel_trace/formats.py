"""The layout of a tracepoint's event, from its file `format`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_FIELD = re.compile(
    r"field:(?P<type>[^;]*?)(?P<name>\w+)(\[\w*\])?;\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);"
    r"\s*signed:(?P<signed>\d);"
)
_CODES = {(1, False): "B", (2, False): "H", (4, False): "I", (8, False): "Q"}
PID = "common_pid"
"""Thread in whose context an event was recorded; 0 is the idle thread."""
FLAGS = "common_flags"
"""Context of an event: bit 3 a hardware interrupt, bit 4 a software interrupt."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field: whole numbers have a `code` of `struct`, texts have none."""

    name: str
    offset: int
    size: int
    code: str


@dataclass(frozen=True, kw_only=True)
class Format:
    """Fields that are read of one kind of event."""

    id: int
    name: str
    """`SYSTEM/NAME`."""
    fields: tuple[Field, ...]

    def values(self, data: bytes) -> dict[str, int | str]:
        """The values of its fields in the data of an event."""
        return {each.name: _value(each, data) for each in self.fields}


def parse(text: str, event: str, names: Iterable[str]) -> Format:
    """Read a file `format`; fields that this kernel's event lacks are left out."""
    wanted = {PID, FLAGS, *names}
    found = [match for match in _FIELD.finditer(text) if match["name"] in wanted]
    number = re.search(r"^ID:\s*(\d+)", text, re.MULTILINE)
    if number is None:
        raise ValueError(f"the format of `{event}` has no ID")
    return Format(id=int(number[1]), name=event, fields=tuple(map(_field, found)))


def _field(match: re.Match[str]) -> Field:
    size, is_signed = int(match["size"]), match["signed"] == "1"
    code = _CODES.get((size, False), "")
    kind = code.lower() if is_signed else code
    return Field(name=match["name"], offset=int(match["offset"]), size=size, code=kind)


def _value(field: Field, data: bytes) -> int | str:
    if field.code:
        return int(struct.unpack_from("=" + field.code, data, field.offset)[0])
    return data[field.offset : field.offset + field.size].split(b"\0")[0].decode(errors="replace")
