"""Columns of `runs` about object stores: the numbers of `objects_facts.from_record` with their meaning."""

from __future__ import annotations

from collections.abc import Mapping

COUNTS: Mapping[str, str] = {
    "objects_loaded": "objects written before the load",
    "objects_checked": "reads whose contents were compared in full",
    "objects_wrong": "reads that did not return what was written",
    "objects_deleted": "objects deleted after the measurement",
}
"""Whole numbers."""

SECONDS: Mapping[str, str] = {
    "osd_stopped_seconds": "time from the measurement's start to the kill of an object daemon, s",
    "osd_restarted_seconds": "time from the measurement's start to its restart, s",
    "osd_recovery_seconds": "time from its restart until all placement groups were `active+clean`, s",
}
"""Fractions."""
