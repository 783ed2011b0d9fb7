"""The history as one HTML page with static figures; it needs no script."""

from __future__ import annotations

from importlib import resources
from typing import Any

from iosonde.history import sentences
from iosonde.history.figure import figure
from iosonde.history.tracks import History, Track
from iosonde.library.page import shown
from iosonde.report.writers.document import policy, stylesheet, template_of


def render(history: History) -> str:
    """Return the page."""
    files = resources.files("iosonde.history") / "page_files"
    return str(
        template_of((files / "history.html").read_text(encoding="utf-8")).render(
            policy=policy(),
            style=stylesheet() + (files / "history.css").read_text(encoding="utf-8"),
            name=shown(str(history.root)),
            overview=sentences.overview(history),
            changes=[(shift, sentences.sentence(track, shift), track) for track, shift in history.shifts],
            association=sentences.ASSOCIATION,
            tracks=[_track(each) for each in history.tracks],
            problems=[shown(each) for each in history.problems],
            method=sentences.method(history),
        )
    )


def _track(track: Track) -> dict[str, Any]:
    drawn = [(series, figure(track, series), bool(track.shifts_of(series))) for series in track.series]
    return {
        "track": track,
        "heading": sentences.heading(track),
        "exclusions": sentences.exclusions(track),
        "changed": [(series, drawing) for series, drawing, changed in drawn if changed],
        "unchanged": [(series, drawing) for series, drawing, changed in drawn if not changed],
        "events": [(sentences.day(track.sessions[each.session]), each) for each in track.events],
    }
