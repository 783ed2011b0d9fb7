"""Facts about objects in a record: what was loaded, compared and deleted, and the recovery of a stopped daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.objects_columns import COUNTS, SECONDS
from iosonde.results.schema import Record


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about objects."""
    objects: Mapping[str, Any] = (record.result or {}).get("objects") or {}
    outage: Mapping[str, Any] = (record.server or {}).get("osd_outage") or {}
    return {
        **{name: objects.get(name.removeprefix("objects_")) for name in COUNTS},
        **{name: outage.get(name.removeprefix("osd_")) for name in SECONDS},
    }
