"""Block sizes of each operation of a section."""

from __future__ import annotations

from iosonde.interop.fio import units
from iosonde.interop.fio.aspects.direction import PLACES
from iosonde.interop.fio.given import Given

MOST_SIZES_OF_A_RANGE = 64
"""A `bsrange` with more multiples than these is thinned out."""


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
    """fio draws a size evenly, rounds it down to a multiple of the smallest, and limits it to the largest."""
    low, high = given.read("bsrange", lambda _: units.span(text, kb_base=given.kb_base))
    if not low:
        given.fail("bsrange", f"`{given.setting('bsrange')}` starts at 0", hint="use blocks of at least 512 bytes")
    multiples = range(low, high + 1, low)
    if len(multiples) <= MOST_SIZES_OF_A_RANGE:
        rest = high % low / low
        return [*((size, 1.0) for size in multiples), *([(high, rest)] if rest else [])]
    given.note(
        "bsrange",
        why=f"it represents {len(multiples)} sizes",
        instead=f"{MOST_SIZES_OF_A_RANGE} of them are used, evenly chosen",
    )
    step = (len(multiples) - 1) / (MOST_SIZES_OF_A_RANGE - 1)
    return [(multiples[round(index * step)], 1.0) for index in range(MOST_SIZES_OF_A_RANGE)]


def mean_size(sizes: list[tuple[int, float]]) -> float:
    """The average of sizes with weights, in bytes."""
    return sum(size * weight for size, weight in sizes) / sum(weight for _, weight in sizes)
