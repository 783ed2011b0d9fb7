"""Pages of the kernel's trace ring buffer, as `trace_pipe_raw` returns them.

A page starts with the time of its first event and the length of its data. An event starts with a word of 5 bits for its
type or length and 27 bits for the time since the event before it (kernel `include/linux/ring_buffer.h`). The text of
`trace` has microseconds only, so it is not used.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_FIELD = re.compile(
    r"field:(?P<type>[^;]*?)(?P<name>\w+)(\[\w*\])?;\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);"
    r"\s*signed:(?P<signed>\d);"
)
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
PID = "common_pid"
"""Thread in whose context an event was recorded; 0 is the idle thread."""
FLAGS = "common_flags"
"""Context of an event: bit 3 a hardware interrupt, bit 4 a software interrupt."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """Whole numbers that are read of one kind of event."""

    id: int
    name: str
    """`SYSTEM/NAME`."""
    fields: Mapping[str, tuple[int, str]]
    """Offset of each, and its type as a code of `struct`."""

    def values(self, data: bytes) -> dict[str, int]:
        """The values of its fields in the data of an event; `struct.error` if the data ends before them."""
        return {name: struct.unpack_from(code, data, offset)[0] for name, (offset, code) in self.fields.items()}


def parse(text: str, event: str, names: Iterable[str]) -> Format:
    """Read a file `format`; fields that this kernel's event lacks are left out."""
    number = re.search(r"^ID:\s*(\d+)", text, re.MULTILINE)
    if number is None:
        raise ValueError(f"the format of `{event}` has no ID")
    fields = {}
    for match in _FIELD.finditer(text):
        if match["name"] in (PID, FLAGS, *names):
            code = _CODES[int(match["size"])]
            fields[match["name"]] = (int(match["offset"]), "=" + (code.lower() if match["signed"] == "1" else code))
    return Format(id=int(number[1]), name=event, fields=fields)


_HEAD_BYTES = 16
_LENGTH_MASK = (1 << 27) - 1
_TIME_BITS = 27
_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_STAMP_HIGH = 0xF8 << 56
"""Bits that an absolute time does not have; they are those of the time before."""

_IN_INTERRUPT = 0x18


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One recorded event."""

    time_ns: int
    cpu: int
    pid: int
    """Thread in whose context it was recorded."""
    in_interrupt: bool
    """True if it was recorded in a hardware or software interrupt."""
    name: str
    values: Mapping[str, int]


def events(page: bytes, formats: Mapping[int, Format], *, cpu: int) -> Iterator[Event]:
    """Yield the events of a page whose formats are known; a damaged page ends early."""
    if len(page) < _HEAD_BYTES:
        return
    time_ns, commit = struct.unpack_from("=QQ", page)
    end = min(len(page), _HEAD_BYTES + (commit & _LENGTH_MASK))
    at = _HEAD_BYTES
    while at + 4 <= end:
        kind, delta = _word(page, at)
        at += 4
        if kind == _PADDING and delta == 0:
            return
        time_ns += delta if kind != _TIME_STAMP else 0
        length = 0
        if kind == 0 or kind >= _PADDING:
            if at + 4 > end:
                return
            [extra] = struct.unpack_from("=I", page, at)
            at += 4
            if kind == _TIME_EXTEND:
                time_ns += extra << _TIME_BITS
            elif kind == _TIME_STAMP:
                time_ns = (time_ns & _STAMP_HIGH) | (extra << _TIME_BITS) + delta
            else:  # A long event, or one that was discarded.
                length = max(0, extra - 4) + 3 & ~3
        else:
            length = 4 * kind
        data = page[at : min(at + length, end)]
        at += length
        if kind < _PADDING and len(data) == length:
            yield from _event(data, formats, time_ns, cpu)


def _word(page: bytes, at: int) -> tuple[int, int]:
    [word] = struct.unpack_from("=I", page, at)
    return (word & 31, word >> 5) if sys.byteorder == "little" else (word >> _TIME_BITS, word & _LENGTH_MASK)


def _event(data: bytes, formats: Mapping[int, Format], time_ns: int, cpu: int) -> Iterator[Event]:
    known = formats.get(struct.unpack_from("=H", data)[0]) if len(data) >= 8 else None
    if known is None:
        return
    try:
        values = known.values(data)
    except struct.error:
        return
    pid, in_interrupt = values.pop(PID, 0), bool(values.pop(FLAGS, 0) & _IN_INTERRUPT)
    yield Event(time_ns=time_ns, cpu=cpu, pid=pid, in_interrupt=in_interrupt, name=known.name, values=values)
