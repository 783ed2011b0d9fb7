"""Metrics over time: each case of a study on one target, with the points where its level changed.

Summaries of `collections.library` are grouped into series, each with its change points and what else changed between
sessions; `page.py` writes them as text, JSON and HTML.

Change points are sessions at which the mean of a metric changes. Candidates come from PELT (Killick, Fearnhead and
Eckley 2012, "Optimal detection of changepoints with a linear computational cost"), as implemented in `ruptures`
(Truong, Oudre and Vayatis 2020), for changes of the mean of the logarithms: cost `l2`, penalty `PENALTY` x ln n x
variance. The variance is that of differences of consecutive sessions, estimated by their median, which a few changes do
not move.

A candidate is kept if Student's t test of the means of its two segments, with the pooled variance of all segments, is
significant at `LEVEL` after Bonferroni's correction for the n - 1 places where a change could be. The least significant
candidate is removed until all are. Two further steps keep the rate of false alarms where noise is not normal and
independent: outliers are first moved to bounds around the median of their neighbours (Hampel's identifier), and the
variance is inflated by the correlation between consecutive residuals. `bench/change_points.py` measures false alarms
and detection of the whole procedure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from iosonde.collections.library.indexing import Index
from iosonde.collections.library.summary import Summary
from iosonde.errors import IosondeError, ResultsError
from iosonde.findings.regression import better
from iosonde.metrics import wording
from iosonde.metrics.distributions import t_quantile, t_tail

Floats = NDArray[np.float64]

SEGMENT = 3
"""Fewest sessions at one level: a single outlier, or two, is no change."""
PENALTY = 5.0
LEVEL = 0.001
"""Probability of any change point in a series that has none, for independent normal noise."""
FEWEST = 2 * SEGMENT
CONFIDENCE = 0.95
OUTLIER = 3.0
"""Standard deviations from the median of the neighbours beyond which a value is moved to that bound."""
MOST_CORRELATION = 0.9
_TO_DEVIATION = 0.6744897501960817 * math.sqrt(2)
"""Median absolute difference of two normal values, in standard deviations."""

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
    for number, pair in enumerate(pairwise(sessions), 1):
        before, after = (each.facts for each in pair)
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
class Change:
    """The level of a series changed."""

    place: int
    """Position of the first value of the new level."""
    change: float
    """New level over old level, less 1."""
    low: float
    high: float
    """95 % confidence interval of the change, given its place."""
    p_value: float
    """Corrected for the number of places."""


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
        return (self.change.change < 0) == (better(self.series.metric) == "higher")


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
    def exclusions(self) -> list[str]:
        """State which sessions do not count, and why."""
        found: dict[str, set[int]] = {}
        for point in (point for series in self.series for point in series.points if point.excluded):
            found.setdefault(point.excluded, set()).add(point.session)
        return [
            f"{wording.counted(len(sessions), 'session')} excluded in some or all cases: {reason}"
            for reason, sessions in found.items()
        ]


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
    def method(self) -> str:
        """The method with its settings."""
        return (
            f"Change points of the mean by PELT (penalty {PENALTY:g} ln n, at least {SEGMENT} sessions at a level, "
            f"outliers beyond {OUTLIER:g} standard deviations moved to that bound), each confirmed by a t test at "
            f"{100 * LEVEL:g} % per series, corrected for the number of places. If nothing had changed, "
            f"{LEVEL * self.tested:.2g} change points would be expected in {self.tested} series."
        )

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
    tracks = []
    for identity, sessions in groups.items():
        if series := list(series_of(sessions, metric)):
            events = events_of(sessions)
            shifts = [shift for each in series for shift in _shifts(each, events)]
            tracks.append(Track(identity=identity, sessions=sessions, series=series, shifts=shifts, events=events))
    if not tracks:
        asked = {"study": study, "target": target, "metric": metric}
        raise ResultsError(
            f"`{index.root}` has no result set to follow",
            where=", ".join(f"{name} `{value}`" for name, value in asked.items() if value),
            hint=f"`iosonde library {index.root}` lists its result sets; metrics are the rate and the p99 latency",
        )
    return History(
        root=index.root,
        tracks=sorted(tracks, key=lambda each: (each.identity.study, each.identity.target, each.identity.devices)),
        problems=index.problems,
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


def changes(logs: Sequence[float] | Floats) -> list[Change]:
    """Return the change points of a series of logarithms, in their order."""
    if len(logs) < FEWEST:
        return []
    values = _without_outliers(np.asarray(logs, dtype=np.float64))
    kept = _candidates(values)
    while kept:
        found = [_tested(values, kept, number) for number in range(len(kept))]
        weakest = max(range(len(found)), key=lambda number: found[number].p_value)
        if found[weakest].p_value <= LEVEL:
            return found
        kept = [place for number, place in enumerate(kept) if number != weakest]
    return []


def _deviation(values: Floats) -> float:
    return float(np.median(np.abs(np.diff(values)))) / _TO_DEVIATION


def _without_outliers(values: Floats) -> Floats:
    """Move values that are far from the median of their neighbours to the bounds; a new level stays one."""
    width = 2 * SEGMENT - 1
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    places = np.clip(np.arange(len(values)) - width // 2, 0, len(windows) - 1)
    medians = np.median(windows, axis=1)[places]
    reach = OUTLIER * _deviation(values)
    return np.clip(values, medians - reach, medians + reach) if reach else values


def _candidates(values: Floats) -> list[int]:
    try:
        from ruptures import KernelCPD
    except ImportError:
        raise IosondeError(
            "cannot look for change points: the package `ruptures` is not installed",
            hint="install it with `pip install ruptures`; it is available up to Python 3.13",
        ) from None
    deviation = _deviation(values) or float(values.std()) or 1.0
    scaled = (values - values.mean()) / deviation
    ends = KernelCPD(kernel="linear", min_size=SEGMENT).fit(scaled).predict(pen=PENALTY * math.log(len(values)))
    return [int(end) for end in ends[:-1]]


def _inflation(residuals: Floats) -> float:
    """Return by how much correlation between consecutive sessions inflates the variance of a mean: AR(1)."""
    squares = float((residuals**2).sum())
    correlation = float((residuals[1:] * residuals[:-1]).sum()) / squares if squares else 0.0
    bounded = min(max(correlation, 0.0), MOST_CORRELATION)
    return (1 + bounded) / (1 - bounded)


def _tested(values: Floats, places: Sequence[int], number: int) -> Change:
    """Test one of the candidates, given the others."""
    segments = np.split(values, places)
    before, after = segments[number], segments[number + 1]
    degrees = len(values) - len(segments)
    residuals = np.concatenate([each - each.mean() for each in segments])
    pooled = float((residuals**2).sum()) / degrees
    error = math.sqrt(pooled * _inflation(residuals) * (1 / len(before) + 1 / len(after)))
    difference = float(after.mean() - before.mean())
    score = abs(difference) / error if error else math.inf
    margin = error * t_quantile((1 + CONFIDENCE) / 2, degrees)
    return Change(
        place=places[number],
        change=math.expm1(difference),
        low=math.expm1(difference - margin),
        high=math.expm1(difference + margin),
        p_value=min(1.0, 2 * t_tail(score, degrees) * (len(values) - 1)),
    )
