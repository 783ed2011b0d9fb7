"""A histogram in HdrHistogram's compressed V2 encoding, as every one of its libraries reads it.

Three significant digits: values below 2,048 ns are exact, and each power of two above has 1,024 parts, twice as many as
our buckets have. So nothing is lost but what the buckets had lost already. The header, then the counts of all its
slots from 0 up to the last that is occupied, each as a ZigZag LEB128 number, where a negative one means this many
empty slots; all of it deflated, in base64.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping

SIGNIFICANT_DIGITS = 3
HIGHEST_NS = (1 << 45) - 1
"""Nearly ten hours; what takes longer is counted there."""

_HALF = 1024
_HALF_BITS = 10
_PAYLOAD, _COMPRESSED = 0x1C849313, 0x1C849314
"""Cookies of V2 with words of eight bytes."""


def encode(counts: Mapping[int, int]) -> str:
    """Counts by value in ns -> the text of a log line."""
    body = b"".join(map(_zigzag, _runs(_slots(counts))))
    header = struct.pack(">iiiiqqd", _PAYLOAD, len(body), 0, SIGNIFICANT_DIGITS, 1, HIGHEST_NS, 1.0)
    compressed = zlib.compress(header + body)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED, len(compressed)) + compressed).decode("ascii")


def slot_of(value_ns: int) -> int:
    """Position of a value in HdrHistogram's array of counts."""
    value = min(value_ns, HIGHEST_NS)
    shift = max(value.bit_length() - _HALF_BITS - 1, 0)
    return _HALF * shift + (value >> shift)


def _slots(counts: Mapping[int, int]) -> dict[int, int]:
    slots: dict[int, int] = {}
    for value_ns, count in counts.items():
        slot = slot_of(value_ns)
        slots[slot] = slots.get(slot, 0) + count
    return slots


def _runs(slots: Mapping[int, int]) -> Iterable[int]:
    """Counts in ascending order; a run of empty slots as its negative length, a single one as 0."""
    reached = 0
    for slot in sorted(slots):
        if slot > reached:
            yield -(slot - reached) if slot - reached > 1 else 0
        yield slots[slot]
        reached = slot + 1


def _zigzag(number: int) -> bytes:
    """Small numbers of either sign in few bytes; nine at most, the ninth without a flag for more."""
    left = (number << 1) ^ (number >> 63)
    coded = bytearray()
    while left >= 0x80 and len(coded) < 8:
        coded.append(left & 0x7F | 0x80)
        left >>= 7
    coded.append(left)
    return bytes(coded)
