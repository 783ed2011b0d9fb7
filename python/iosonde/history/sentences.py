"""Sentences about change points, and the history as text and JSON. Each sentence is association in time, not cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from iosonde.history.changes import LEVEL, OUTLIER, PENALTY, SEGMENT
from iosonde.history.tracks import History, Shift, Track, in_words
from iosonde.library.page import moment
from iosonde.library.summary import Summary
from iosonde.metrics import wording

ASSOCIATION = "What changed in between is stated because it coincides; it need not be the cause."


def sentence(track: Track, shift: Shift) -> str:
    """Return the change, its interval, when, and what else changed in between."""
    change = shift.change
    verb = "fell" if change.change < 0 else "rose"
    low, high = (
        sorted((abs(change.low), abs(change.high))) if change.low * change.high > 0 else (change.low, change.high)
    )
    interval = f"95 % CI {wording.percent_range(low, high)}"
    first, last = _dates(track.sessions[shift.last_before.session], track.sessions[shift.first_after.session])
    others = in_words(shift.events) or "no recorded setting changed"
    return (
        f"{shift.series.title} {verb} {wording.percent_text(abs(change.change))} ({interval}) "
        f"between {first} and {last}; {others} in between"
    )


def heading(track: Track) -> str:
    """Return the sessions of a track in one line."""
    dates = [day(each) for each in track.sessions]
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"{wording.counted(len(track.sessions), 'session')}, {span}"


def exclusions(track: Track) -> list[str]:
    """Return which sessions do not count, and why."""
    return [
        f"{wording.counted(count, 'session')} excluded in some or all cases: {reason}"
        for reason, count in track.excluded.items()
    ]


def overview(history: History) -> str:
    """Return how much was followed and found."""
    sessions = sum(len(track.sessions) for track in history.tracks)
    changes = wording.counted(len(history.shifts), "change")
    return f"{changes} in {history.tested:,} series over {wording.counted(sessions, 'session')}"


def method(history: History) -> str:
    """Return the method with its settings."""
    return (
        f"Change points of the mean by PELT (penalty {PENALTY:g} ln n, at least {SEGMENT} sessions at a level, "
        f"outliers beyond {OUTLIER:g} standard deviations moved to that bound), each confirmed by a t test at "
        f"{100 * LEVEL:g} % per series, corrected for the number of places. If nothing had changed, "
        f"{history.expected_false:.2g} change points would be expected in {history.tested} series."
    )


def lines(history: History) -> Iterator[str]:
    """Yield the history as text."""
    for track in history.tracks:
        yield track.identity.text
        yield f"  {heading(track)}"
        for each in exclusions(track):
            yield f"  {each}"
        for shift in track.shifts:
            yield f"  {'loss' if shift.is_loss else 'gain'}  {sentence(track, shift)}"
        quiet = len(track.series) - len({id(shift.series) for shift in track.shifts})
        yield f"  no change detected in {quiet} of {len(track.series)} series"
        yield ""
    yield method(history)
    if history.shifts:
        yield ASSOCIATION


def document(history: History) -> dict[str, Any]:
    """Return the history as JSON."""
    return {
        "directory": str(history.root),
        "method": method(history),
        "tracks": [_track(track) for track in history.tracks],
        "skipped": list(history.problems),
    }


def _track(track: Track) -> dict[str, Any]:
    return {
        "study": track.identity.study,
        "profile": track.identity.profile,
        "target": track.identity.target,
        "devices": [{"model": model, "serial": serial} for model, serial in track.identity.devices],
        "sessions": [{"path": each.path, "started_at": each.started_at} for each in track.sessions],
        "events": [
            {"session": each.session, "kind": each.kind, "name": each.name, "before": each.before, "after": each.after}
            for each in track.events
        ],
        "changes": [_shift(track, shift) for shift in track.shifts],
        "series": [
            {
                "case_id": each.case_id,
                "metric": each.metric,
                "points": [
                    {
                        "session": point.session,
                        "mean_log": point.mean_log,
                        "runs": point.runs,
                        "verdict": point.verdict,
                        "excluded": point.excluded,
                    }
                    for point in each.points
                ],
            }
            for each in track.series
        ],
    }


def _shift(track: Track, shift: Shift) -> dict[str, Any]:
    return {
        "case_id": shift.series.case_id,
        "metric": shift.series.metric,
        "change": shift.change.change,
        "low": shift.change.low,
        "high": shift.change.high,
        "p_value": shift.change.p_value,
        "loss": shift.is_loss,
        "last_before": shift.last_before.session,
        "first_after": shift.first_after.session,
        "events": [each.text for each in shift.events],
        "sentence": sentence(track, shift),
    }


def day(session: Summary) -> str:
    """Return the date of a session."""
    begin = moment(session.started_at)
    return f"{begin:%Y-%m-%d}" if begin else session.started_at


def _dates(first: Summary, last: Summary) -> Sequence[str]:
    """Return two dates, with times if both are on the same day."""
    if day(first) != day(last):
        return day(first), day(last)
    moments = [moment(each.started_at) for each in (first, last)]
    return [f"{each:%Y-%m-%d %H:%M}" if each else "" for each in moments]
