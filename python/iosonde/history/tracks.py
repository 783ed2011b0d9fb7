"""Every series of an index with its change points and what else changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import ResultsError
from iosonde.history.changes import LEVEL, Change, changes
from iosonde.history.events import Event, between, events_of
from iosonde.history.series import Identity, Point, Series, identity_of, series_of
from iosonde.library.indexing import Index
from iosonde.library.summary import Summary


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A change point of a series, with the sessions around it."""

    series: Series
    change: Change
    last_before: Point
    first_after: Point
    events: Sequence[Event]
    """Other changes between these two sessions."""

    @property
    def is_loss(self) -> bool:
        return self.series.is_loss(self.change.change)


@dataclass(frozen=True, kw_only=True)
class Track:
    """The sessions of one identity."""

    identity: Identity
    sessions: Sequence[Summary]
    """In the order of time."""
    series: Sequence[Series]
    shifts: Sequence[Shift]
    events: Sequence[Event]

    def shifts_of(self, series: Series) -> list[Shift]:
        return [each for each in self.shifts if each.series is series]

    @property
    def excluded(self) -> dict[str, int]:
        """Number of sessions with excluded values, by reason."""
        found: dict[str, set[int]] = {}
        for series in self.series:
            for point in series.points:
                if point.excluded:
                    found.setdefault(point.excluded, set()).add(point.session)
        return {reason: len(sessions) for reason, sessions in found.items()}


@dataclass(frozen=True, kw_only=True)
class History:
    """All tracks below a directory."""

    root: Path | str
    tracks: Sequence[Track]
    problems: Sequence[str]

    @property
    def shifts(self) -> list[tuple[Track, Shift]]:
        """Every change point, the latest first."""
        found = [(track, shift) for track in self.tracks for shift in track.shifts]
        return sorted(found, key=lambda each: each[0].sessions[each[1].first_after.session].started_at, reverse=True)

    @property
    def tested(self) -> int:
        return sum(len(track.series) for track in self.tracks)

    @property
    def expected_false(self) -> float:
        """Change points to be expected if nothing changed at all."""
        return LEVEL * self.tested

    def losses(self, sessions: int) -> list[tuple[Track, Shift]]:
        """Return changes for the worse whose new level started within the last `sessions` sessions."""
        return [
            (track, shift)
            for track, shift in self.shifts
            if shift.is_loss and shift.first_after.session >= len(track.sessions) - sessions
        ]


def history(index: Index, *, study: str | None = None, target: str | None = None, metric: str | None = None) -> History:
    """Follow every metric over time.

    `study` is a name, `target` a target, or the model or shortened serial number of a device, `metric` a name of
    docs/metrics.md. `ResultsError` where nothing matches.
    """
    groups: dict[Identity, list[Summary]] = {}
    for each in sorted(index.summaries, key=lambda each: (each.started_at, each.path)):
        identity = identity_of(each)
        if each.started_at and study in (None, identity.study) and (target is None or _names(identity, target)):
            groups.setdefault(identity, []).append(each)
    tracks = [_track(identity, sessions, metric) for identity, sessions in groups.items()]
    kept = [each for each in tracks if each.series]
    if not kept:
        raise ResultsError(
            f"`{index.root}` has no result set to follow",
            where=_asked(study, target, metric),
            hint=f"`iosonde library {index.root}` lists its result sets; metrics are the rate and the p99 latency",
        )
    return History(
        root=index.root,
        tracks=sorted(kept, key=lambda each: (each.identity.study, each.identity.target, each.identity.devices)),
        problems=index.problems,
    )


def _track(identity: Identity, sessions: Sequence[Summary], metric: str | None) -> Track:
    series = list(series_of(sessions, metric))
    events = events_of(sessions)
    return Track(
        identity=identity,
        sessions=sessions,
        series=series,
        events=events,
        shifts=[shift for each in series for shift in _shifts(each, events)],
    )


def _shifts(series: Series, events: Sequence[Event]) -> Iterator[Shift]:
    points = series.usable
    for change in changes([each.mean_log for each in points]):
        before, after = points[change.place - 1], points[change.place]
        yield Shift(
            series=series,
            change=change,
            last_before=before,
            first_after=after,
            events=between(events, before.session, after.session),
        )


def _names(identity: Identity, target: str) -> bool:
    named = {identity.target, *(name for device in identity.devices for name in device if name)}
    return target in named or str(Path(target).absolute()) == identity.target


def _asked(study: str | None, target: str | None, metric: str | None) -> str:
    asked = {"study": study, "target": target, "metric": metric}
    return ", ".join(f"{name} `{value}`" for name, value in asked.items() if value)
