"""Runs whose figure is the mean of two states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iosonde.findings.finding import Finding, Untyped
from iosonde.findings.lasting_drop import LastingDrop
from iosonde.metrics import wording
from iosonde.units import format_bytes, format_duration

NAMED = 3


def tell(drops: Sequence[LastingDrop], *, measured: int) -> Iterator[Finding]:
    """Say in one sentence how many of the measured runs fell to a lower level for good, and name the deepest drops."""
    if not drops:
        return
    deepest = sorted(drops, key=lambda each: each.fraction)
    runs = "The run falls" if measured == 1 else f"{len(drops)} of {wording.counted(measured, 'run')} fall"
    first = deepest[0]
    yield Untyped(
        kind="steady",
        title=f"{runs} to a lower level for good while measured, so that the figure is a mean of two states: "
        f"`{first.case_id}` after {_when(first)}, to {wording.percent_text(first.fraction)} of what it was",
        note="; ".join(_evidence(each) for each in deepest[:NAMED])
        + (f"; and {len(deepest) - NAMED} more" if len(deepest) > NAMED else "")
        + ". A cache may be full, spare blocks used up, or the device too warm: measure longer, with `round_length`",
        strength="moderate",
        case_ids=tuple(dict.fromkeys(each.case_id for each in deepest)),
        part=first.part,
    )


def _when(drop: LastingDrop) -> str:
    return f"{format_duration(drop.at_s * 1e9)} and {format_bytes(drop.moved_bytes)}"


def _evidence(drop: LastingDrop) -> str:
    return (
        f"`{drop.run_id}` from {wording.value_text('bandwidth', drop.before)} to "
        f"{wording.value_text('bandwidth', drop.after)} after {_when(drop)}"
    )
