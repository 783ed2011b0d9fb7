"""The history as one HTML page with static figures; it needs no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from itertools import pairwise
from typing import Any

from iosonde.collections.history import KINDS, Event, History, Series, Shift, Track, in_words
from iosonde.collections.library.page import moment, page_of, shown
from iosonde.collections.library.summary import Summary
from iosonde.metrics import wording


def render(history: History) -> str:
    """Return the page."""
    sessions = sum(len(track.sessions) for track in history.tracks)
    changes = wording.counted(len(history.shifts), "change")
    return page_of(
        "history",
        name=shown(str(history.root)),
        overview=f"{changes} in {history.tested:,} series over {wording.counted(sessions, 'session')}",
        changes=[(shift, sentence(track, shift), track) for track, shift in history.shifts],
        association=ASSOCIATION,
        tracks=[_drawn_track(each) for each in history.tracks],
        problems=[shown(each) for each in history.problems],
        method=history.method,
    )


def _drawn_track(track: Track) -> dict[str, Any]:
    drawn = [(series, figure(track, series), bool(track.shifts_of(series))) for series in track.series]
    return {
        "track": track,
        "heading": heading(track),
        "changed": [(series, drawing) for series, drawing, changed in drawn if changed],
        "unchanged": [(series, drawing) for series, drawing, changed in drawn if not changed],
        "events": [(day(track.sessions[each.session]), each) for each in track.events],
    }


def lines(history: History) -> Iterator[str]:
    """Yield the history as text."""
    for track in history.tracks:
        yield track.identity.text
        yield f"  {heading(track)}"
        for each in track.exclusions:
            yield f"  {each}"
        for shift in track.shifts:
            yield f"  {'loss' if shift.is_loss else 'gain'}  {sentence(track, shift)}"
        quiet = len(track.series) - len({id(shift.series) for shift in track.shifts})
        if quiet or not track.series:
            yield f"  no change detected in {quiet} of {len(track.series)} series"
        yield ""
    yield history.method
    if history.shifts:
        yield ASSOCIATION


def document(history: History) -> dict[str, Any]:
    """Return the history as JSON."""
    return {
        "directory": str(history.root),
        "method": history.method,
        "tracks": [_track(track) for track in history.tracks],
        "skipped": list(history.problems),
    }


def _track(track: Track) -> dict[str, Any]:
    identity = track.identity
    return {
        "study": identity.study,
        "profile": identity.profile,
        "target": identity.target,
        "devices": [{"model": model, "serial": serial} for model, serial in identity.devices],
        "sessions": [{"path": each.path, "started_at": each.started_at} for each in track.sessions],
        "events": [asdict(each) for each in track.events],
        "changes": [
            {
                "case_id": shift.series.case_id,
                "metric": shift.series.metric,
                **{name: getattr(shift.change, name) for name in ("change", "low", "high", "p_value")},
                "loss": shift.is_loss,
                "last_before": shift.last_before.session,
                "first_after": shift.first_after.session,
                "events": [each.text for each in shift.events],
                "sentence": sentence(track, shift),
            }
            for shift in track.shifts
        ],
        "series": [
            {"case_id": each.case_id, "metric": each.metric, "points": [asdict(point) for point in each.points]}
            for each in track.series
        ],
    }


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


WIDTH, HEIGHT = 720, 190
LEFT, RIGHT, TOP, BOTTOM = 78, 12, 26, 24
DATES = 5
"""At most this many dates on the axis."""
CLOSE = 9
"""Marks of events nearer to each other than this many units share one line."""

Place = Callable[[float], float]


def figure(track: Track, series: Series) -> str:
    """Return the figure of one series."""
    shifts = track.shifts_of(series)
    moments = [moment(each.started_at) for each in track.sessions]
    seconds = [each.timestamp() if each else 0.0 for each in moments]
    x = _scale(min(seconds), max(seconds), LEFT + 8, WIDTH - RIGHT - 8)
    logs = [each.mean_log for each in series.points]
    spread = max(max(logs) - min(logs), 0.02)
    y = _scale(min(logs) - 0.08 * spread, max(logs) + 0.08 * spread, HEIGHT - BOTTOM, TOP)
    at = [x(each) for each in seconds]
    parts = [
        *_value_axis(series, logs, y),
        *_date_axis(track, at),
        *_bands(shifts, at),
        *_marks(track.events, at),
        *_points(series, at, y),
        *_levels(series, shifts, at, y),
    ]
    label = escape(f"{series.title}, {len(series.points)} sessions, {len(shifts)} changes")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _scale(low: float, high: float, start: float, end: float) -> Place:
    length = (high - low) or 1.0
    return lambda value: start + (value - low) / length * (end - start)


def _value_axis(series: Series, logs: Sequence[float], y: Place) -> Iterator[str]:
    low, high = min(logs), max(logs)
    for value in dict.fromkeys((low, (low + high) / 2, high) if high - low > 0.005 else (low,)):
        text = escape(wording.value_text(series.metric, math.exp(value)).removesuffix(" IOPS"))
        yield f'<path class="grid" d="M{LEFT},{y(value):.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{text}</text>'


def _date_axis(track: Track, at: Sequence[float]) -> Iterator[str]:
    count = min(DATES, len(at))
    shown = sorted({round(number * (len(at) - 1) / max(1, count - 1)) for number in range(count)})
    last = -math.inf
    for number in shown:
        if at[number] - last < 90:
            continue
        last = at[number]
        anchor = "start" if number == 0 else "end" if number == len(at) - 1 else "middle"
        yield (
            f'<text class="tick" x="{at[number]:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
            f"{escape(day(track.sessions[number]))}</text>"
        )


def _bands(shifts: Sequence[Shift], at: Sequence[float]) -> Iterator[str]:
    """Shade the time between the last session before a change and the first after it."""
    for shift in shifts:
        left, right = at[shift.last_before.session], at[shift.first_after.session]
        width = max(right - left, 3)
        kind = "loss" if shift.is_loss else "gain"
        yield (
            f'<rect class="band {kind}" x="{(left + right - width) / 2:.1f}" y="{TOP}" width="{width:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"/>'
        )


def _marks(events: Sequence[Event], at: Sequence[float]) -> Iterator[str]:
    """Draw a line for each session that brought changes, and the letters of their kinds above it."""
    sessions = sorted({each.session for each in events})
    last = -math.inf
    for session in sessions:
        own = [each for each in events if each.session == session]
        line, listed = f"M{at[session]:.1f},{TOP - 4}V{HEIGHT - BOTTOM}", escape("; ".join(each.text for each in own))
        yield f'<path class="event" d="{line}"><title>{listed}</title></path>'
        letters = "".join(kind[0].upper() for kind in KINDS if any(each.kind == kind for each in own))
        if at[session] - last >= CLOSE * max(1, len(letters)):
            last = at[session]
            yield f'<text class="mark" x="{at[session]:.1f}" y="{TOP - 8}" text-anchor="middle">{letters}</text>'


def _points(series: Series, at: Sequence[float], y: Place) -> Iterator[str]:
    """Draw a dot for each value, a cross for an excluded one."""
    dots = [f"M{at[each.session]:.1f},{y(each.mean_log):.1f}h0" for each in series.usable]
    excluded = [(at[each.session] - 3, y(each.mean_log) - 3) for each in series.points if each.excluded]
    crosses = [f"M{left:.1f},{top:.1f}l6,6m0,-6l-6,6" for left, top in excluded]
    for kind, path in (("dot", dots), ("cross", crosses)):
        if path:
            yield f'<path class="{kind}" d="{"".join(path)}"/>'


def _levels(series: Series, shifts: Sequence[Shift], at: Sequence[float], y: Place) -> Iterator[str]:
    """Draw the mean of each segment."""
    points = series.usable
    ends = [0, *(each.change.place for each in shifts), len(points)]
    for first, last in pairwise(ends):
        segment = points[first:last]
        if segment:
            height = y(sum(each.mean_log for each in segment) / len(segment))
            left, right = at[segment[0].session], at[segment[-1].session]
            yield f'<path class="level" d="M{left:.1f},{height:.1f}H{max(right, left + 1):.1f}"/>'
