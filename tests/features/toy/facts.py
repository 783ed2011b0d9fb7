"""The mark as a column of `runs`."""

from __future__ import annotations

from iosonde.results.column import U64, Column
from toy.record import ToyReading

COLUMNS = (
    Column(
        "toy_mark_found",
        U64,
        "Mark that was found during the run",
        lambda run: found.mark if (found := run.record.of(ToyReading)) else None,
    ),
)
