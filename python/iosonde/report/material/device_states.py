"""The device state next to a value, in tables and captions."""

from __future__ import annotations

from collections.abc import Iterable

from iosonde.plan import Case, DeviceState
from iosonde.report.material.result_sets import Material, Source
from iosonde.report.material.subjects import subjects
from iosonde.study.model import View

NOT_APPLICABLE = "not_applicable"


def states_of(material: Material, cases: Iterable[tuple[Source, Case]]) -> list[DeviceState]:
    """Return the states that cases measured, each once; without cases that have no result."""
    known = material.device_states
    return list(dict.fromkeys(state for source, case in cases for state in known[source.label].of_case(case.case_id)))


def has_device_state(material: Material, cases: Iterable[tuple[Source, Case]]) -> bool:
    """Return whether any of the cases writes to a device, so that its state affects the values."""
    return any(state != NOT_APPLICABLE for state in states_of(material, cases))


def state_text(material: Material, cases: Iterable[tuple[Source, Case]]) -> str:
    """Name the device state of the cases of a row; a dash if none of them writes and has a result."""
    return ", ".join(state for state in states_of(material, cases) if state != NOT_APPLICABLE) or "-"


def caption(view: View, material: Material) -> str:
    """Name the device state of the cases of a view that write; empty if none does."""
    found = [(each.source, each.case) for each in subjects(view, material)] if view.part else list(material.cases())
    named = [state for state in states_of(material, found) if state != NOT_APPLICABLE]
    parts = [f"Device state: {', '.join(named)}." if named else "", not_steady(view, material, found)]
    return " ".join(filter(None, parts))


def not_steady(view: View, material: Material, cases: Iterable[tuple[Source, Case]]) -> str:
    """State that values are not for steady state, where a view is named after it and no case reached it."""
    is_named = view.y in ASSUME_STEADY or "steady" in view.title.lower()
    states = [state for state in states_of(material, cases) if state != NOT_APPLICABLE]
    return "Values are not for steady state." if is_named and states and "steady" not in states else ""


ASSUME_STEADY = ("steady_iops", "steady_bandwidth", "steady_fraction", "seconds_to_steady_state")
"""Metrics that are named after steady state, and have a value wherever the rate was stable."""
