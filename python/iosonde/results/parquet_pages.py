"""What decoding a Parquet file would take, from its footer and the headers of its pages, without decoding anything.

A page of a few bytes may decompress to 2 GiB, and a run of equal values takes a few bytes however long it is. The
footer may lie about both, so the header of every page is read: readers allocate what that states. The formats are those
of `parquet.thrift`, encoded by Thrift's compact protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAGIC = b"PAR1"
_CODECS = {0, 6}
"""Uncompressed and zstd, which iosonde writes. A snappy block has a length of its own besides that of its page."""
_ENCODINGS = {0, 2, 3, 5, 6, 8}
"""Plain, dictionaries, run lengths, differences of numbers, lengths of texts. Others can hold longer texts."""
_DICTIONARY = 2
_FACTS = {0: (5, 2), _DICTIONARY: (7, 2), 3: (8, 4)}
"""Kind of a page -> field of its facts, and field of the encoding in them."""
_SIZES = {1: 0, 2: 0, 3: 1, 7: 8}
"""Bytes of values of a fixed size, by type."""
_DEEPEST = 16
"""Nesting of structures; Parquet's own have 6."""


def _pattern(text: bytes) -> re.Pattern[bytes]:
    """Compile a pattern in which N is a number that is needed, n one that is not, and S are statistics of numbers."""
    statistics = rb"(?:\x1c(?:\x36n)?(?:\x28\x08.{8}\x18\x08.{8}|\x28\x04.{4}\x18\x04.{4})?\x00)?"
    number = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
    text = text.replace(b"S", statistics).replace(b"N", b"(%b)" % number).replace(b"n", b"(?:%b)" % number)
    return re.compile(text, re.DOTALL)


_USUAL_PAGE = _pattern(rb"\x15N\x15N\x15N(?:\x2c\x15N\x15N\x15n\x15nS|\x4c\x15N\x15N)\x00\x00")
_USUAL_COLUMN = _pattern(rb"\x26n\x1c\x15n\x19(?:\x15n|\x25nn|\x35nnn|\x45nnnn)\x19\x18([\x00-\x7f])")
_USUAL_PLACE = _pattern(rb"\x15N\x16n\x16n\x16N\x26N(?:\x26N)?S\x00(?:\x16n)?(?:\x15n)?(?:\x16n)?(?:\x15n)?\x00")
"""The header of a page, and the facts of a column before and after its name, as writers usually encode them.

A pattern takes a third of the time; what none matches is parsed by `_struct`.
"""

Struct = Mapping[int, Any]
Shape = Mapping[int, Any]
"""Fields that are read: None for a number, a shape for a structure or a list of structures. All others are skipped."""

_PAGE_FACTS: Shape = {1: None, 2: None, 4: None}
_PAGE: Shape = {1: None, 2: None, 3: None, 5: _PAGE_FACTS, 7: _PAGE_FACTS, 8: _PAGE_FACTS}
_CHUNK: Shape = {1: None, 3: dict.fromkeys((4, 7, 9, 11))}
_FILE: Shape = {3: None, 4: {1: _CHUNK, 3: None}}


@dataclass(frozen=True, kw_only=True)
class Pages:
    """A file, summed over its pages."""

    rows: int
    columns: int
    bytes: int
    """Uncompressed."""


def pages_of(content: bytes) -> Pages:
    """Return what the pages of a file amount to; `ValueError` for a file that iosonde cannot have written."""
    try:
        return _pages_of(content)
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError("its metadata are malformed") from error


def _pages_of(content: bytes) -> Pages:
    if len(content) < 12 or content[:4] != _MAGIC or content[-4:] != _MAGIC:
        raise ValueError("it is not a Parquet file")
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if footer < 4:
        raise ValueError("its footer is longer than the file")
    metadata, _ = _struct(content, footer, _FILE, 0)
    groups: Sequence[Struct] = metadata[4]
    rows: int = metadata[3]
    if rows < 0 or rows != sum(group[3] for group in groups) or any(group[3] < 0 for group in groups):
        raise ValueError("its row groups have other numbers of rows than the file")
    total = sum(_chunk_bytes(content, footer, chunk, group[3]) for group in groups for chunk in group[1])
    return Pages(rows=rows, columns=len(groups[0][1]) if groups else 0, bytes=total)


def _chunk_bytes(content: bytes, end: int, chunk: Struct, rows: int) -> int:
    """Return the uncompressed bytes of the pages of a column in a row group."""
    facts: Struct = chunk[3]
    if 1 in chunk:
        raise ValueError("a column is in another file")
    if facts[4] not in _CODECS:
        raise ValueError("a column is compressed in another way than zstd")
    place: int = min(facts[9], facts.get(11, end))
    stop = place + facts[7]
    if not 4 <= place <= stop <= end:
        raise ValueError("a column is outside of the file")
    values = total = 0
    while place < stop:
        header, place = _page_header(content, place)
        if header[2] < 0 or header[3] < 0:
            raise ValueError("a page has a negative size")
        total += header[2]
        values += _values(header)
        place += header[3]
    if place > stop or values != rows:
        raise ValueError(f"the pages of a column have {values} values in {rows} rows")
    return total


def _page_header(content: bytes, place: int) -> tuple[Struct, int]:
    """Return what is needed of the header of a page, and the place behind it."""
    usual = _USUAL_PAGE.match(content, place)
    if not usual:
        return _struct(content, place, _PAGE, 0)
    kind, uncompressed, compressed, values, encoding, entries, dictionary = usual.groups()
    sizes = {1: _decoded(kind), 2: _decoded(uncompressed), 3: _decoded(compressed)}
    if values:
        return sizes | {5: {1: _decoded(values), 2: _decoded(encoding)}}, usual.end()
    return sizes | {7: {1: _decoded(entries), 2: _decoded(dictionary)}}, usual.end()


def _decoded(number: bytes) -> int:
    value = number[0] if len(number) == 1 else _varint(number, 0)[0]
    return (value >> 1) ^ -(value & 1)


def _values(header: Struct) -> int:
    """Return the number of values of a page; those of a dictionary are not rows."""
    place, encoding = _FACTS.get(header[1], (0, 0))
    facts: Struct = header[place]
    if facts[encoding] not in _ENCODINGS:
        raise ValueError("a page is encoded in a way that iosonde does not write")
    values: int = 0 if header[1] == _DICTIONARY else facts[1]
    if values < 0:
        raise ValueError("a page has a negative number of values")
    return values


# Thrift's compact protocol. Functions with positions, not a class: a result set has tens of thousands of headers, and
# what is not needed of them, such as statistics, is skipped.


def _struct(content: bytes, place: int, shape: Shape, depth: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a structure that are in `shape`, and the place behind it."""
    found: dict[int, Any] = {}
    field = last = 0
    while head := content[place]:
        place += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            number, place = _varint(content, place)
            field = (number >> 1) ^ -(number & 1)
        if (
            field <= last
        ):  # Writers write them in order; of a field that occurs twice, readers differ in which one they take.
            raise ValueError("its metadata have a field twice or out of order")
        last = field
        if field not in shape:
            place = _skipped(content, place, kind, depth)
        elif 4 <= kind <= 6:
            number = content[place]
            place += 1
            if number > 127:
                number, place = _varint(content, place - 1)
            found[field] = (number >> 1) ^ -(number & 1)
        elif kind == 12:
            found[field], place = _struct(content, place, shape[field], depth + 1)
        elif kind in (9, 10):
            found[field], place = _structs(content, place, shape[field], depth + 1)
        else:
            found[field] = None
            place = _skipped(content, place, kind, depth)
    return found, place + 1


def _structs(content: bytes, place: int, shape: Shape, depth: int) -> tuple[list[dict[int, Any]], int]:
    """Return a list of structures, and the place behind it."""
    size, kind, place = _list_head(content, place)
    if kind != 12:
        raise ValueError("its metadata are malformed")
    found = []
    read = _column if shape is _CHUNK else _struct
    for _ in range(size):
        each, place = read(content, place, shape, depth)
        found.append(each)
    return found, place


def _column(content: bytes, place: int, shape: Shape, depth: int) -> tuple[dict[int, Any], int]:
    """Return the facts of a column in a row group, and the place behind them."""
    first = _USUAL_COLUMN.match(content, place)
    rest = _USUAL_PLACE.match(content, first.end() + first[1][0]) if first else None
    if not rest:
        return _struct(content, place, shape, depth)
    codec, compressed, data, dictionary = rest.groups()
    facts = {4: _decoded(codec), 7: _decoded(compressed), 9: _decoded(data)}
    return {3: facts | ({11: _decoded(dictionary)} if dictionary else {})}, rest.end()


def _skipped(content: bytes, place: int, kind: int, depth: int) -> int:
    """Return the place behind a value."""
    if 4 <= kind <= 6:
        while content[place] > 127:
            place += 1
        return place + 1
    if kind == 8:
        number, place = _varint(content, place)
        return place + number
    if kind in _SIZES:
        return place + _SIZES[kind]
    if depth >= _DEEPEST:
        raise ValueError("its metadata are nested too deeply")
    if kind == 12:
        return _skipped_struct(content, place, depth + 1)
    if kind in (9, 10):
        size, kind, place = _list_head(content, place)
        if kind in (1, 2):  # A boolean in a list has a byte, in a structure none.
            return place + size
        for _ in range(size):
            place = _skipped(content, place, kind, depth + 1)
        return place
    raise ValueError("its metadata are malformed")


def _skipped_struct(content: bytes, place: int, depth: int) -> int:
    """Return the place behind a structure. Short numbers and texts are most of its fields."""
    while head := content[place]:
        place += 1
        if head < 16:
            _, place = _varint(content, place)
        kind = head & 15
        if kind == 8 and content[place] < 128:
            place += content[place] + 1
        elif 4 <= kind <= 6 and content[place] < 128:
            place += 1
        else:
            place = _skipped(content, place, kind, depth)
    return place + 1


def _list_head(content: bytes, place: int) -> tuple[int, int, int]:
    """Return size and type of a list, and the place of its first element."""
    size, kind = content[place] >> 4, content[place] & 15
    place += 1
    if size == 15:
        size, place = _varint(content, place)
    if size > len(content) - place:
        raise ValueError("its metadata are malformed")
    return size, kind, place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    byte = content[place]
    if byte < 128:
        return byte, place + 1
    value = shift = 0
    while True:
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("its metadata are malformed")
        byte = content[place]
