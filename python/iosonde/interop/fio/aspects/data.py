"""Contents of writes and of laid-out files, durability, and verification."""

from __future__ import annotations

from typing import Any

from iosonde.interop.fio import units
from iosonde.interop.fio.aspects.direction import Direction
from iosonde.interop.fio.aspects.mix import sizes_together
from iosonde.interop.fio.given import Given
from iosonde.units import compact_size, format_bytes
from iosonde.workload.block.parameters import MOST_DUPLICATED

MOST_COMPRESSIBLE = 32
"""The highest `compression_ratio`."""


def durability(given: Given, direction: Direction) -> dict[str, Any]:
    """When writes are durable."""
    if "write" not in direction.operations:
        return {}
    kind = given.text("sync", "none").lower()
    flush = {name: given.number(name, 0) for name in ("fsync", "fdatasync")}
    if kind not in ("0", "none"):
        for name in (name for name, every in flush.items() if every):
            given.note(
                name, why="there is one kind of durability in a stream", instead="each write is durable (`sync`)"
            )
        if kind != "dsync":
            given.note("sync", why="`O_SYNC` is not used", instead="`O_DSYNC` is: data and its size are durable")
        return {"durability": "dsync"}
    name = "fsync" if flush["fsync"] else "fdatasync"
    if not flush[name]:
        return {}
    if flush["fsync"]:
        given.note("fsync", why="`fsync` is not used", instead="`fdatasync` is, as often")
    return {"durability": f"flush:{flush[name]}"}


def payload(given: Given, direction: Direction) -> dict[str, Any]:
    """Contents of writes, and of the file that is laid out for reads."""
    if direction.operations == ("trim",):
        return {}
    compressed, duplicated = (
        given.read(name, units.share) if name in given else 0
        for name in ("buffer_compress_percentage", "dedupe_percentage")
    )
    # fio ignores the flag beside the percentages, and has zeros for fully compressible data without duplicates.
    is_zeros = compressed >= 100 or (given.flag("zero_buffers") and not compressed)
    if is_zeros and not duplicated:
        return {"payload": "zeros"}
    return {**_compression(given, compressed % 100), **_duplicates(given, direction, duplicated)}


def _compression(given: Given, percent: float) -> dict[str, Any]:
    if not percent:
        return {}
    ratio = 100 / (100 - percent)
    if ratio > MOST_COMPRESSIBLE:
        given.note(
            "buffer_compress_percentage",
            why=f"`compression_ratio` goes up to {MOST_COMPRESSIBLE}",
            instead="it is that",
        )
    return {"compression_ratio": round(min(ratio, MOST_COMPRESSIBLE), 3)}


def _duplicates(given: Given, direction: Direction, percent: float) -> dict[str, Any]:
    """In fio an I/O is a copy as a whole."""
    if not percent:
        return {}
    sizes = [size for size, _ in sizes_together(given, direction)]
    if any(size % 4096 for size in sizes):
        given.note(
            "dedupe_percentage",
            why="duplicates are multiples of 4 KiB, and not every I/O is one",
            instead="no block is a duplicate on purpose",
        )
        return {}
    if max(sizes) > MOST_DUPLICATED:
        given.note(
            "dedupe_percentage",
            why=f"a duplicate has at most {format_bytes(MOST_DUPLICATED)}, and I/Os are larger",
            instead="parts of that size are duplicates",
        )
    return {"duplicate_fraction": percent / 100, "duplicate_size": compact_size(min(max(sizes), MOST_DUPLICATED))}


def why_unverifiable(given: Given, direction: Direction, stream: dict[str, Any]) -> str:
    """Reason for which written data cannot be verified, as a clause; empty where it can."""
    if "trim" in direction.operations:
        return "the contents of trimmed blocks are undefined"
    if stream.get("payload") == "zeros" or stream.get("duplicate_fraction"):
        return "every sector contains its own address, so there are no zeros and no duplicates"
    if any(size % 512 for size, _ in sizes_together(given, direction)):
        return "whole sectors of 512 B are verified, and not every I/O is a multiple of that"
    return ""


def verification(given: Given, direction: Direction, unverifiable: str) -> dict[str, Any]:
    """Return the `verify` parameter of the whole run."""
    if given.raw("verify") in ("", "0", "null"):
        return {}
    if not given.flag("do_verify", default=True):
        given.note(
            "do_verify",
            why="fio then writes data that a later job can verify",
            instead='nothing is verified; with `verify = "after"` iosonde does it after this very load',
        )
        return {}
    if unverifiable:
        given.note("verify", why=unverifiable, instead="the load is the same without the check")
        return {}
    return {"verify": "during" if direction.operations == ("read",) else "after"}
