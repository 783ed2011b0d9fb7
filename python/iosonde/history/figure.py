"""A series as a static SVG figure: values, levels, change points, excluded sessions and events.

Colours are classes of the page's style sheet, so the figure follows the reader's colour scheme and needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise

from iosonde.history.sentences import day
from iosonde.history.tracks import KINDS, Event, Kind, Point, Series, Shift, Track
from iosonde.library.page import moment
from iosonde.metrics import wording

WIDTH, HEIGHT = 720, 190
LEFT, RIGHT, TOP, BOTTOM = 78, 12, 26, 24
LETTERS: dict[Kind, str] = {"firmware": "F", "kernel": "K", "iosonde": "I", "configuration": "C"}
"""Marks of events at the top of a figure."""
DATES = 5
"""At most this many dates on the axis."""
CLOSE = 9
"""Marks of events nearer to each other than this many units share one line."""

Place = Callable[[float], float]


def figure(track: Track, series: Series) -> str:
    """Return the figure of one series."""
    shifts = track.shifts_of(series)
    seconds = [_seconds(track, number) for number in range(len(track.sessions))]
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
        _dots("dot", [each for each in series.points if not each.excluded], at, y),
        _crosses([each for each in series.points if each.excluded], at, y),
        *_levels(series, shifts, at, y),
    ]
    label = escape(f"{series.title}, {len(series.points)} sessions, {len(shifts)} changes")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _seconds(track: Track, number: int) -> float:
    begin = moment(track.sessions[number].started_at)
    return begin.timestamp() if begin else 0.0


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
        line = f"M{at[session]:.1f},{TOP - 4}V{HEIGHT - BOTTOM}"
        yield f'<path class="event" d="{line}"><title>{_listed(own)}</title></path>'
        letters = "".join(LETTERS[kind] for kind in KINDS if any(each.kind == kind for each in own))
        if at[session] - last >= CLOSE * max(1, len(letters)):
            last = at[session]
            yield f'<text class="mark" x="{at[session]:.1f}" y="{TOP - 8}" text-anchor="middle">{letters}</text>'


def _listed(events: Sequence[Event]) -> str:
    return escape("; ".join(each.text for each in events))


def _dots(kind: str, points: Sequence[Point], at: Sequence[float], y: Place) -> str:
    path = "".join(f"M{at[each.session]:.1f},{y(each.mean_log):.1f}h0" for each in points)
    return f'<path class="{kind}" d="{path}"/>' if path else ""


def _crosses(points: Sequence[Point], at: Sequence[float], y: Place) -> str:
    path = "".join(f"M{at[each.session] - 3:.1f},{y(each.mean_log) - 3:.1f}l6,6m0,-6l-6,6" for each in points)
    return f'<path class="cross" d="{path}"/>' if path else ""


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
