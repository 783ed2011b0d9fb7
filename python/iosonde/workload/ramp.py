"""The ramp of a spec: load before the measurement, for a time or until rate and hit ratio are steady."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from iosonde.protocol import spec

INTERVALS = 5
"""Intervals whose means are compared with those of as many before."""
TOLERANCE = 0.05
"""Largest difference of the means."""


def steady_ramp(duration_ns: int, bytes: int | None, *, until: Literal["time", "steady"]) -> spec.Ramp:
    """A ramp that lasts `duration_ns` at most."""
    ramp: spec.Ramp = {"duration_ns": duration_ns, "bytes": bytes}
    if until == "steady":
        ramp["until_steady"] = {"intervals": INTERVALS, "tolerance": TOLERANCE}
    return ramp
