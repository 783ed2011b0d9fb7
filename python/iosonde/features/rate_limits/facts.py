"""Facts about rate limits in the table `runs`."""

from __future__ import annotations

from iosonde.features.rate_limits.record import RateLimits
from iosonde.results.column import NUMBER, TEXT, facts

COLUMNS = facts(
    lambda record: record.of(RateLimits),
    ("cloud", TEXT, "Cloud of the machine, by DMI; null if it names none", "context.cloud"),
    ("volume_kind", TEXT,
        "Network volume, virtual disk or local drive of a cloud, by the device's model; null of other devices",
        "context.volume_kind"),
    ("suspected_limit_iops", NUMBER,
        "Rate that is more constant than devices are: a suspected rate limit; null without one", "suspected_iops"),
    ("suspected_limit_before_iops", NUMBER, "Rate before it dropped to the suspected limit; null without a drop",
        "before_iops"),
)  # fmt: skip
"""Columns of `runs`."""
