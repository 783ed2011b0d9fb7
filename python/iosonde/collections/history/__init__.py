"""Metrics over time: each case of a study on one target, with the points where its level changed.

Summaries of `collections.library` are grouped into series, each with its change points (`changes.py`) and what else
changed between sessions; `page.py` writes them as text, JSON and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from iosonde.collections.history.changes import LEVEL as LEVEL
from iosonde.collections.history.changes import Change, changes
from iosonde.collections.library.indexing import Index
from iosonde.collections.library.summary import Summary
from iosonde.errors import ResultsError
from iosonde.findings.regression.check import better
from iosonde.metrics import wording

Kind = Literal["firmware", "kernel", "iosonde", "configuration"]
KINDS: tuple[Kind, ...] = ("firmware", "kernel", "iosonde", "configuration")
NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Event:
    """A fact that changed."""

    session: int
    """Position of the first session with the new value."""
    kind: Kind
    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The change as a clause: `the kernel changed from 6.1 to 6.6`."""
        if self.name == "CPU mitigations":
            return "the CPU mitigations changed"
        named = self.name if self.name in ("iosonde", "SMT") or self.name.startswith("setting ") else f"the {self.name}"
        return f"{named} changed from {self.before} to {self.after}"


def events_of(sessions: Sequence[Summary]) -> list[Event]:
    """Return every change of a recorded fact between consecutive sessions.

    A fact that one of two sessions does not have did not change: another version of iosonde may not record it.
    Settings (`--set`) are an exception; a missing one is the study's default.
    """
    found = []
    for number in range(1, len(sessions)):
        before, after = sessions[number - 1].facts, sessions[number].facts
        for name in dict.fromkeys([*before, *after]):
            is_setting = name.startswith("setting ")
            if before.get(name) == after.get(name) or not (is_setting or (name in before and name in after)):
                continue
            values = (before.get(name, "default") or NONE, after.get(name, "default") or NONE)
            found.append(Event(session=number, kind=_kind(name), name=name, before=values[0], after=values[1]))
    return found


def in_words(events: Sequence[Event]) -> str:
    """List events as clauses, the most telling kinds first; at most four in full."""
    ordered = sorted(events, key=lambda each: KINDS.index(each.kind))
    clauses = [each.text for each in ordered[:4]]
    if len(ordered) > len(clauses):
        clauses.append(wording.counted(len(ordered) - len(clauses), "other setting") + " changed")
    return wording.listing(clauses) if clauses else ""


def _kind(name: str) -> Kind:
    if name.startswith("firmware"):
        return "firmware"
    if name == "kernel":
        return "kernel"
    return "iosonde" if name in ("iosonde", "engine", "engine build") else "configuration"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The constant parts of a history. Firmware, kernel and settings may change; a change of them is an event."""

    study: str
    profile: str
    target: str
    devices: tuple[tuple[str, str], ...]
    """Model and shortened serial number of each."""
    simulated: bool

    @property
    def text(self) -> str:
        devices = ", ".join(f"{model}{f', serial {serial}…' if serial else ''}" for model, serial in self.devices)
        kind = "; simulated" if self.simulated else ""
        return f"{self.study} ({self.profile}) on {self.target}{f' ({devices}{kind})' if devices else ''}"


@dataclass(frozen=True, kw_only=True)
class Point:
    """The value of one session."""

    session: int
    """Position among the sessions of the identity."""
    mean_log: float
    runs: int
    verdict: str
    excluded: str
    """Reason for its exclusion; empty if it counts."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A metric of a case."""

    case_id: str
    metric: str
    load: str
    points: Sequence[Point]

    @cached_property
    def usable(self) -> list[Point]:
        return [each for each in self.points if not each.excluded]

    @property
    def title(self) -> str:
        """Load and metric: `4 KiB random reads, queue depth 16: IOPS`."""
        return f"{self.load}: {wording.metric_words(self.metric)}"

    def is_loss(self, change: float) -> bool:
        return change < 0 if better(self.metric) == "higher" else change > 0


def series_of(sessions: Sequence[Summary], metric: str | None = None) -> Iterator[Series]:
    """Yield every series of sessions in their order of time; with `metric` only its series."""
    points: dict[tuple[str, str], list[Point]] = {}
    parameters = {case_id: text for each in sessions for case_id, text in each.parameters.items()}
    for number, session in enumerate(sessions):
        for cell in session.cells:
            if metric not in (None, cell.metric):
                continue
            point = Point(
                session=number,
                mean_log=cell.mean_log,
                runs=cell.runs,
                verdict=cell.verdict,
                excluded=session.exclusion(cell, parameters, "in the newest session"),
            )
            points.setdefault((cell.case_id, cell.metric), []).append(point)
    loads = {case_id: text for each in sessions for case_id, text in each.loads.items()}
    for (case_id, name), found in points.items():
        yield Series(case_id=case_id, metric=name, load=loads.get(case_id, case_id), points=found)


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
        identity = Identity(
            study=each.study,
            profile=each.profile,
            target=each.target,
            devices=tuple(dict.fromkeys((device.model or device.name, device.serial) for device in each.devices)),
            simulated=each.simulated,
        )
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
            events=[each for each in events if before.session < each.session <= after.session],
        )


def _names(identity: Identity, target: str) -> bool:
    named = {identity.target, *(name for device in identity.devices for name in device if name)}
    return target in named or str(Path(target).absolute()) == identity.target


def _asked(study: str | None, target: str | None, metric: str | None) -> str:
    asked = {"study": study, "target": target, "metric": metric}
    return ", ".join(f"{name} `{value}`" for name, value in asked.items() if value)
