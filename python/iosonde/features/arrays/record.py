"""The state of an array before and after a run, as its record has it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from iosonde.results.schema import RecordPart


class MemberFailed(BaseModel):
    """The first interval after a member failed."""

    at: float
    """Seconds since 1970."""
    phase: str
    interval: int


class ArrayReading(RecordPart):
    """States are those that the kernel reports for the kind of array (`md.py`, `btrfs.py`)."""

    name = "array"

    before: dict[str, Any]
    after: dict[str, Any]
    member_failed: MemberFailed | None = None


PARTS = (ArrayReading,)
