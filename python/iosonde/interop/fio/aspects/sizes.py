"""Block sizes of a section, of each operation and of all together."""

from __future__ import annotations

from typing import Any

from iosonde.interop.fio import units
from iosonde.interop.fio.aspects.direction import PLACES, Direction, read_percent
from iosonde.interop.fio.given import Given
from iosonde.units import compact_size

MOST_SIZES_OF_A_RANGE = 64
"""A `bsrange` with more multiples than these is thinned out."""


def block_size(given: Given, direction: Direction) -> dict[str, Any]:
    """The size of an I/O, or the mix of sizes."""
    sizes = sizes_together(given, direction)
    if len(sizes) == 1:
        return {"block_size": compact_size(sizes[0][0])}
    return {"block_size": ":".join(f"{compact_size(size)}/{weight:.6g}" for size, weight in sizes)}


def sizes_together(given: Given, direction: Direction) -> list[tuple[int, float]]:
    """Sizes and weights of all operations together."""
    each = {operation: sizes_of(given, operation) for operation in direction.operations}
    first = next(iter(each.values()))
    if all(sizes == first for sizes in each.values()):
        return first
    name = str(given.last_of("bssplit") or given.last_of("bs", "bsrange"))
    given.note(
        name,
        why="reads and writes of one stream have the same block sizes",
        instead="each I/O has one of these sizes, in their proportion",
    )
    return _mixed(each, _shares_of(given, direction))


def sizes_of(given: Given, operation: str) -> list[tuple[int, float]]:
    """Sizes and weights of one operation."""
    position = PLACES.index(operation)
    name = given.last_of("bssplit") or given.last_of("bs", "bsrange")
    if name is None or not (text := given.triple(name)[position]):
        return [(4096, 1.0)]
    match name:
        case "bssplit":
            return given.read(name, lambda _: _split(text, given.kb_base))
        case "bsrange":
            return _range(given, text)
        case _:
            return [(given.read(name, lambda _: units.size(text, kb_base=given.kb_base)), 1.0)]


def _split(text: str, kb_base: int) -> list[tuple[int, float]]:
    """`4k/60:64k/40`; parts without a share divide what remains of 100."""
    parts = [part.split("/") for part in text.split(":")]
    weights = units.shares([units.share(part[1]) if len(part) > 1 and part[1] else None for part in parts])
    sizes = [units.size(part[0], kb_base=kb_base) for part in parts]
    return [(size, weight) for size, weight in zip(sizes, weights, strict=True) if weight > 0]


def _range(given: Given, text: str) -> list[tuple[int, float]]:
    """fio draws a size evenly and rounds it to a multiple of the smallest."""
    low, high = given.read("bsrange", lambda _: units.span(text, kb_base=given.kb_base))
    if not low:
        given.fail("bsrange", f"`{given.setting('bsrange')}` begins at 0", hint="a block has at least 512 bytes")
    multiples = range(low, high + 1, low)
    if len(multiples) <= MOST_SIZES_OF_A_RANGE:
        return [(size, 1.0) for size in multiples]
    given.note(
        "bsrange",
        why=f"it represents {len(multiples)} sizes",
        instead=f"{MOST_SIZES_OF_A_RANGE} of them are used, evenly chosen",
    )
    step = (len(multiples) - 1) / (MOST_SIZES_OF_A_RANGE - 1)
    return [(multiples[round(index * step)], 1.0) for index in range(MOST_SIZES_OF_A_RANGE)]


def _mixed(each: dict[str, list[tuple[int, float]]], shares: dict[str, float]) -> list[tuple[int, float]]:
    weights: dict[int, float] = {}
    for operation, sizes in each.items():
        total = sum(weight for _, weight in sizes)
        for size, weight in sizes:
            weights[size] = weights.get(size, 0.0) + shares[operation] * weight / total
    return [(size, 100 * weight) for size, weight in sorted(weights.items()) if weight > 0]


def _shares_of(given: Given, direction: Direction) -> dict[str, float]:
    """What part of the I/Os each operation is."""
    if direction.operations == ("read", "write"):
        read = read_percent(given) / 100
        return {"read": read, "write": 1 - read}
    return dict.fromkeys(direction.operations, 1 / len(direction.operations))


def mean_size(sizes: list[tuple[int, float]]) -> float:
    """The average of sizes with weights, in bytes."""
    return sum(size * weight for size, weight in sizes) / sum(weight for _, weight in sizes)
