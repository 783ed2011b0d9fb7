"""Series: one metric of one case over the sessions of a study on one target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from iosonde.library.summary import Summary
from iosonde.metrics import wording
from iosonde.regression.decision import COMPARABLE
from iosonde.regression.sessions import better


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


def identity_of(summary: Summary) -> Identity:
    """Return what a session belongs to."""
    return Identity(
        study=summary.study,
        profile=summary.profile,
        target=summary.target,
        devices=tuple(dict.fromkeys((each.model or each.name, each.serial) for each in summary.devices)),
        simulated=summary.simulated,
    )


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
            is_other = session.parameters.get(cell.case_id) != parameters.get(cell.case_id)
            point = Point(
                session=number,
                mean_log=cell.mean_log,
                runs=cell.runs,
                verdict=cell.verdict,
                excluded=_excluded(cell.verdict, is_other=is_other),
            )
            points.setdefault((cell.case_id, cell.metric), []).append(point)
    loads = {case_id: text for each in sessions for case_id, text in each.loads.items()}
    for (case_id, name), found in points.items():
        yield Series(case_id=case_id, metric=name, load=loads.get(case_id, case_id), points=found)


def _excluded(verdict: str, *, is_other: bool) -> str:
    """Return why a session does not count; the parameters of the newest session are the ones that are followed."""
    if verdict not in COMPARABLE:
        return f"runs are {verdict}"
    return "other parameters than in the newest session" if is_other else ""
