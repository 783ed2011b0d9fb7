"""Which blocks of the range are visited: in order, strided, or at random with what distribution."""

from __future__ import annotations

from typing import Any

from iosonde.interop.fio import units
from iosonde.interop.fio.aspects.direction import Direction
from iosonde.interop.fio.aspects.mix import sizes_together
from iosonde.interop.fio.aspects.place import Place
from iosonde.interop.fio.given import Given
from iosonde.units import compact_size


def access(given: Given, direction: Direction, jobs: int, place: Place) -> dict[str, Any]:
    """Blocks and the order in which they are visited."""
    if direction.access == "random":
        return {"access": "random", **_random(given, direction)}
    if jobs > 1 and place.files and not place.split:
        given.note(
            "numjobs",
            why="fio's jobs all begin at the same offset",
            instead="jobs that share a range begin evenly spaced in it",
        )
    if direction.access == "strided":
        return {"access": "strided", "stride": compact_size(sizes_together(given, direction)[0][0] + direction.hop)}
    return {"access": "sequential"}


def _random(given: Given, direction: Direction) -> dict[str, Any]:
    distribution = _distribution(given)
    if distribution != "uniform" or given.flag("norandommap"):
        return {"coverage": "with_replacement", **({} if distribution == "uniform" else {"distribution": distribution})}
    if len(sizes_together(given, direction)) > 1:
        given.note_section(
            why="visiting each block once needs a single block size",
            instead="offsets are drawn independently, as with `norandommap`",
        )
        return {"coverage": "with_replacement"}
    return {"coverage": "each_once"}


def _distribution(given: Given) -> str:
    text = given.text("random_distribution", "random").partition(",")[0]
    kind, _, numbers = text.partition(":")
    match kind:
        case "random":
            return "uniform"
        case "zipf":
            return f"zipfian:{numbers.partition(':')[0]}"
        case "zoned":
            zones = given.read("random_distribution", lambda _: _zones(numbers))
            if len(zones) == 2:
                hot = max(zones, key=lambda zone: zone[0] / zone[1])
                return f"hot_cold:{hot[1] / 100:g}:{hot[0] / 100:g}"
    given.note(
        "random_distribution",
        why="`distribution` supports `uniform`, `zipfian` and two zones (`hot_cold`)",
        instead="offsets are uniform",
    )
    return "uniform"


def _zones(text: str) -> list[tuple[float, float]]:
    """Percent of the accesses and of the range."""
    parts = [part.partition("/") for part in text.split(":")]
    accesses = units.shares([units.share(access) for access, _, _ in parts])
    ranges = units.shares([units.share(size) if size else None for _, _, size in parts])
    zones = list(zip(accesses, ranges, strict=True))
    if not all(access > 0 and size > 0 for access, size in zones):
        raise ValueError("each zone has a share of accesses and range")
    return zones
