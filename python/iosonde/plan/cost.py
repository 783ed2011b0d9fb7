"""Cost of runs: time and bytes written."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from iosonde.plan.base import Frozen

ASSUMED_BYTES_PER_SECOND = 500 * 10**6
"""Speed at which layout, and a run that only bytes limit, are assumed to go when a plan estimates time."""


class Cost(Frozen):
    """Time, estimated, and bytes written, an upper bound where the study sets limits."""

    seconds: float
    """Of a run: ramp and measurement, in the time of the drive. Of a plan: everything, in the time of the reader."""
    write_bytes: Annotated[int, Field(ge=0, lt=1 << 64)] | None
    """Bytes written at most; None when only time limits them."""
