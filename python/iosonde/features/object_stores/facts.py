"""Facts about objects in a record: what was loaded, compared and deleted, and the recovery of a stopped daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.column import NUMBER, U64, Column
from iosonde.results.schema import Record


class ObjectFacts:
    """The parts of a record about objects, and about the object daemon that was stopped; empty without them."""

    def __init__(self, record: Record) -> None:
        self.objects: Mapping[str, Any] = (record.result or {}).get("objects") or {}
        self.outage: Mapping[str, Any] = (record.server or {}).get("osd_outage") or {}


def _count(name: str, text: str) -> Column:
    """Return a whole number that the engine reports."""
    return Column(f"objects_{name}", U64, f"Object store: {text}", lambda run: run.of(ObjectFacts).objects.get(name))


def _seconds(name: str, text: str) -> Column:
    """Return a time of the outage of an object daemon."""
    return Column(f"osd_{name}", NUMBER, f"Object store: {text}", lambda run: run.of(ObjectFacts).outage.get(name))


COLUMNS = (
    _count("loaded", "objects written before the load"),
    _count("checked", "reads whose contents were compared in full"),
    _count("wrong", "reads that did not return what was written"),
    _count("deleted", "objects deleted after the measurement"),
    _seconds("stopped_seconds", "time from the measurement's start to the kill of an object daemon, s"),
    _seconds("restarted_seconds", "time from the measurement's start to its restart, s"),
    _seconds("recovery_seconds", "time from its restart until all placement groups were `active+clean`, s"),
)
"""Columns of `runs` about object stores."""
