"""The mark as its record has it."""

from __future__ import annotations

from iosonde.results.schema import RecordPart


class ToyReading(RecordPart):
    """The mark that was found during a run."""

    name = "toy"
    mark: int


PARTS = (ToyReading,)
