"""Shares of reads, writes and trims, and the block sizes of all together; rates decide where each has one."""

from __future__ import annotations

from typing import Any

from iosonde.interop.fio import units
from iosonde.interop.fio.aspects.direction import PLACES, Direction
from iosonde.interop.fio.aspects.sizes import mean_size, sizes_of
from iosonde.interop.fio.given import Given
from iosonde.units import compact_size


def mix(given: Given, direction: Direction) -> dict[str, Any]:
    """Shares of reads and trims."""
    operations = direction.operations
    if operations == ("trim", "write"):
        given.note(
            "rw",
            why="fio writes each block that it has trimmed",
            instead="trims and writes alternate at random, with offsets of their own",
        )
    shares = _shares(given, direction)
    return {
        "read_fraction": round(shares.get("read", 0.0), 6),
        **({"trim_fraction": shares["trim"]} if "trim" in operations else {}),
    }


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
    return _mixed(each, _shares(given, direction))


def rates(given: Given, direction: Direction) -> dict[str, float]:
    """I/Os per second and job of each operation; 0 where it has no rate."""
    name = rate_option(given)
    if name is None:
        return {}
    texts = given.triple(name)
    found = {}
    for operation in direction.operations:
        text = texts[PLACES.index(operation)]
        rate = float(given.read(name, lambda _: units.size(text, kb_base=given.kb_base)) if text else 0)  # noqa: B023
        found[operation] = rate if name == "rate_iops" else rate / mean_size(sizes_of(given, operation))
    return found


def rate_option(given: Given) -> str | None:
    """The option that paces the job."""
    return given.last_of("rate_iops") or given.last_of("rate")


def _shares(given: Given, direction: Direction) -> dict[str, float]:
    """Share of each operation in the I/Os."""
    operations = direction.operations
    if operations != ("read", "write"):
        return dict.fromkeys(operations, 1 / len(operations))
    name = given.last_of("rwmixread", "rwmixwrite")
    percent = given.read(name, units.share) if name else 50.0
    read = (100 - percent if name == "rwmixwrite" else percent) / 100
    paced = rates(given, direction)
    if not (paced and all(paced.values())):
        return {"read": read, "write": 1 - read}
    by_rate = paced["read"] / sum(paced.values())
    if abs(by_rate - read) > 1e-6:
        given.note(
            name or str(rate_option(given)),
            why="where reads and writes have rates, these determine the mix, in fio too",
            instead=f"`read_fraction` is {by_rate:.4g}",
        )
    return {"read": by_rate, "write": 1 - by_rate}


def _mixed(each: dict[str, list[tuple[int, float]]], shares: dict[str, float]) -> list[tuple[int, float]]:
    weights: dict[int, float] = {}
    for operation, sizes in each.items():
        total = sum(weight for _, weight in sizes)
        for size, weight in sizes:
            weights[size] = weights.get(size, 0.0) + shares[operation] * weight / total
    return [(size, 100 * weight) for size, weight in sorted(weights.items()) if weight > 0]
