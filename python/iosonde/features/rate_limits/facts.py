"""Facts about rate limits in the table `runs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iosonde.features.rate_limits.record import RateLimits
from iosonde.results.column import NUMBER, TEXT, Column, DType


def _row(name: str, dtype: DType, text: str, value: Callable[[RateLimits], Any]) -> Column:
    return Column(name, dtype, text, lambda run: value(run.record.of(RateLimits) or RateLimits()))


COLUMNS = (
    _row("cloud", TEXT, "Cloud of the machine, by DMI; null if it names none", lambda part: part.context.get("cloud")),
    _row(
        "volume_kind",
        TEXT,
        "Network volume, virtual disk or local drive of a cloud, by the device's model; null of other devices",
        lambda part: part.context.get("volume_kind"),
    ),
    _row(
        "suspected_limit_iops",
        NUMBER,
        "Rate that is more constant than devices are: a suspected rate limit; null without one",
        lambda part: part.suspected_iops,
    ),
    _row(
        "suspected_limit_before_iops",
        NUMBER,
        "Rate before it dropped to the suspected limit; null without a drop",
        lambda part: part.before_iops,
    ),
)
"""Columns of `runs`."""
