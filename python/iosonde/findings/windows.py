"""Results of a requirement that each run must meet: every run is a window of the watched time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from iosonde.findings.outcome import Outcome, Result, Window
from iosonde.findings.usable import is_usable
from iosonde.metrics.wording import counted
from iosonde.units import format_count

if TYPE_CHECKING:
    from iosonde.results.schema import Record

OBSERVED = (
    *("other_io", "device_stalled", "hot_device", "throttled_device"),
    *("steal_time", "cpu_contention", "cpus_shared", "engine_stalled", "foreign_interrupts", "late_counters"),
)
"""Codes of warnings about what happened in a run; the others are about its load and its target."""
USABLE = 0.9
"""Share of the planned windows that must be usable for a pass."""


def combined(windows: Sequence[tuple[Record, Result]], planned: int, *, passes_together: bool) -> Result:
    """Return the result of all windows, with the value of the one that decides; `windows` are the worst first.

    A window that fails is a failure. A disturbed window can pass or fail (`findings.usable`). Windows that are
    undecided do not prevent a pass if their values are within the limit, all usable windows pass together, and nearly
    all are usable.
    """
    outcomes = Counter(result.outcome for _, result in windows)
    outcome = _outcome(windows, planned, outcomes, passes_together=passes_together)
    counted_by_margin = sorted(
        (each for _, each in windows if outcome == "pass" or each.outcome == outcome),
        key=lambda each: float("inf") if each.margin is None else each.margin,
    )
    decisive = next(iter(counted_by_margin), windows[0][1])
    counts = [f"{format_count(outcomes['pass'])} of {counted(planned, 'window')} passed"]
    slowed = sum(result.outcome == "pass" and not is_usable(record) for record, result in windows)
    counts += [f"{format_count(slowed)} of these in spite of a disturbance"] * bool(slowed)
    counts += [f"{format_count(outcomes[each])} {_WORDS[each]}" for each in _WORDS if outcomes[each]]
    counts += [f"{format_count(planned - len(windows))} missing"] * (planned > len(windows))
    reason = f"; {decisive.reason}" if outcome != "pass" and decisive.reason else ""
    return replace(
        decisive,
        outcome=outcome,
        reason=", ".join(counts) + reason,
        windows=[_window(record, result) for record, result in windows],
    )


_WORDS: dict[Outcome, str] = {"fail": "failed", "undecided": "undecided"}


def _outcome(
    windows: Sequence[tuple[Record, Result]], planned: int, outcomes: Counter[Outcome], *, passes_together: bool
) -> Outcome:
    if outcomes["fail"]:
        return "fail"
    usable = sum(is_usable(record) or result.outcome == "pass" for record, result in windows)
    is_beyond = any(each.margin is not None and each.margin < 0 for _, each in windows)
    is_complete = usable >= USABLE * planned
    passes = is_complete and not is_beyond and (passes_together or outcomes["pass"] == planned)
    return "pass" if passes else "undecided"


def _window(record: Record, result: Result) -> Window:
    return Window(
        run_id=record.run_id,
        started_at=record.started_at,
        outcome=result.outcome,
        value=result.value,
        margin=result.margin,
        reason=result.reason,
        observed=observed(record),
    )


def observed(record: Record) -> list[str]:
    """State what else happened in a run, as far as its record has it."""
    found = [each.message for each in record.warnings if each.code in OBSERVED]
    celsius = record.verdict.evidence.get("temperature_celsius") if record.verdict else None
    is_named = any(each.code == "hot_device" for each in record.warnings)
    return found if celsius is None or is_named else [*found, f"device at {celsius:.0f} °C"]
