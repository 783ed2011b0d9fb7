"""The device state beside a value: a column of tables."""

from __future__ import annotations

from collections.abc import Iterable

from iosonde.plan import Case
from iosonde.report.content.table import Cell


def has_device_state(cases: Iterable[Case]) -> bool:
    """Return whether any of the cases writes to a device, so that its state affects the values."""
    return any(case.device_state != "not_applicable" for case in cases)


def device_state_cell(cases: Iterable[Case]) -> Cell:
    """Name the device state of the cases of a row; a dash for cases that write nothing."""
    states = dict.fromkeys(case.device_state for case in cases)
    return Cell(text=", ".join("-" if state == "not_applicable" else state for state in states))
