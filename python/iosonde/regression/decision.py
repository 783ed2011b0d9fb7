"""Decide for each cell whether it is slower than its baselines.

A cell regresses when two conditions hold: the one-sided 95 % bound of its loss exceeds the allowance, and its loss
differs from zero at a false discovery rate of `false_alarms` over all cells (Benjamini and Hochberg 1995). Otherwise it
passes, unless the check had too little power to say so: it is undecided when a loss of `detect` would have been missed
with a probability above 10 %, or when the measured loss exceeds the allowance without proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.stats import false_discovery_control
from scipy.stats import t as student

from iosonde.comparison.variance import SessionVariance, session_variances
from iosonde.regression.sessions import CellKey, Session, SessionValue, better

CONFIDENCE = 0.95
POWER = 0.9
COMPARABLE = ("", "device-limited", "harness-limited")
"""Verdicts of runs whose rate belongs to the system; disturbed and cache-served runs decide nothing."""

Outcome = Literal["pass", "regression", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What counts as a regression."""

    allow: float = 0.05
    """Loss of rate that is accepted, as a share."""
    allow_latency: float = 0.10
    """Increase of p99 latency that is accepted, as a share."""
    detect: float = 0.10
    """A cell passes only if a loss of this share (twice as much for latency) would have been found."""
    false_alarms: float = 0.01
    """Expected share of false ones among the regressions found."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The decision on one case and metric. Changes are candidate over baseline, less 1; a loss is positive."""

    case_id: str
    metric: str
    outcome: Outcome
    reason: str = ""
    """Why it is undecided."""
    baseline: float | None = None
    """Geometric mean over baseline sessions, in the metric's unit."""
    candidate: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    """90 % interval of the change: each end is a one-sided 95 % bound."""
    p_value: float | None = None
    """Of the hypothesis that nothing was lost; adjusted for the number of cells."""
    detectable: float | None = None
    """Loss that would be found with 90 % probability."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """The outcome over all cells."""

    cells: Sequence[Cell]
    settings: Settings
    baselines: Sequence[str]
    candidates: Sequence[str]
    notes: Sequence[str] = field(default=())

    @property
    def regressions(self) -> list[Cell]:
        """Cells that regressed, the largest loss first."""
        found = [cell for cell in self.cells if cell.outcome == "regression"]
        return sorted(found, key=lambda cell: -loss_of(cell))

    @property
    def undecided(self) -> list[Cell]:
        """Cells that could not be decided."""
        return [cell for cell in self.cells if cell.outcome == "undecided"]

    @property
    def exit_code(self) -> int:
        """0: no regression; 1: regression; 2: cannot tell."""
        if self.regressions:
            return 1
        return 2 if self.undecided or not self.cells else 0


def loss_of(cell: Cell) -> float:
    """Return the loss as a share: of the rate, or the increase of the latency."""
    assert cell.change is not None, "a decided cell has a change"
    return -cell.change if better(cell.metric) == "higher" else cell.change


@dataclass(frozen=True, kw_only=True)
class _Difference:
    """The loss in natural logarithms, with its standard error."""

    key: CellKey
    baseline: float
    candidate: float
    loss: float
    error: float
    degrees: float


def decide(baselines: Sequence[Session], candidates: Sequence[Session], settings: Settings) -> list[Cell]:
    """Decide every cell that a baseline has."""
    keys = list(dict.fromkeys(key for session in baselines for key in session.values))
    reasons = {key: reason for key in keys if (reason := _excluded(key, baselines, candidates))}
    kept = [key for key in keys if key not in reasons]
    differences = [
        each
        for metric in dict.fromkeys(metric for _, metric in kept)
        for each in _differences([key for key in kept if key[1] == metric], baselines, candidates)
    ]
    decided = {cell_key: cell for cell_key, cell in _decided(differences, settings)}
    excluded = {
        key: Cell(case_id=key[0], metric=key[1], outcome="undecided", reason=reason) for key, reason in reasons.items()
    }
    return [(decided | excluded)[key] for key in keys]


def _excluded(key: CellKey, baselines: Sequence[Session], candidates: Sequence[Session]) -> str:
    """Return why a cell cannot be compared; empty where it can."""
    case_id = key[0]
    if any(key not in session.values for session in candidates):
        return "no result in the candidate"
    if any(key not in session.values for session in baselines):
        return "no result in every baseline"
    parameters = [session.parameters.get(case_id, {}) for session in (*baselines, *candidates)]
    names = dict.fromkeys(name for each in parameters for name in each)
    differing = sorted(name for name in names if any(each.get(name) != parameters[0].get(name) for each in parameters))
    if differing:
        return f"different parameters: {', '.join(differing)}"
    verdicts = {session.values[key].verdict for session in (*baselines, *candidates)}
    unusable = sorted(verdicts - set(COMPARABLE))
    if unusable:
        return f"runs are {', '.join(unusable)}"
    if len(verdicts) > 1:
        return f"limited differently: {', '.join(sorted(verdicts))}"
    return ""


def _differences(keys: list[CellKey], baselines: Sequence[Session], candidates: Sequence[Session]) -> list[_Difference]:
    """Compare the session means of cells that share a metric."""
    before = np.array([[session.values[key].mean_log for session in baselines] for key in keys])
    after = np.array([[session.values[key].mean_log for session in candidates] for key in keys])
    found = []
    for row, (key, variance) in enumerate(zip(keys, session_variances(before), strict=True)):
        values = [session.values[key] for session in candidates]
        reference = [session.values[key] for session in baselines]
        change = float(after[row].mean() - before[row].mean())
        found.append(
            _Difference(
                key=key,
                baseline=math.exp(before[row].mean()),
                candidate=math.exp(after[row].mean()),
                loss=-change if better(key[1]) == "higher" else change,
                error=_standard_error(variance, reference, values),
                degrees=variance.degrees,
            )
        )
    return found


def _standard_error(
    variance: SessionVariance, reference: Sequence[SessionValue], values: Sequence[SessionValue]
) -> float:
    """Return the standard error of the difference of two means of session means.

    The variance of a session mean holds for as many runs as the baselines have; runs that the candidate has fewer, or
    whose spread is larger than theirs, add to it. With one baseline the prior is for the session alone, and the runs'
    own variance comes on top.
    """
    of_runs = [float(np.mean([each.run_variance / each.runs for each in group])) for group in (reference, values)]
    added = of_runs if len(reference) == 1 else [0.0, max(0.0, of_runs[1] - of_runs[0])]
    return math.sqrt((variance.variance + added[0]) / len(reference) + (variance.variance + added[1]) / len(values))


def _decided(differences: Sequence[_Difference], settings: Settings) -> list[tuple[CellKey, Cell]]:
    if not differences:
        return []
    scores = [_score(each) for each in differences]
    p_values = student.sf(scores, [each.degrees for each in differences])
    adjusted = false_discovery_control(p_values, method="bh")
    return [
        (each.key, _cell(each, float(p_value), settings, len(differences)))
        for each, p_value in zip(differences, adjusted, strict=True)
    ]


@lru_cache(maxsize=64)
def _quantile(probability: float, degrees: float) -> float:
    """Return a quantile of Student's t distribution; cells of one metric share their degrees of freedom."""
    return float(student.ppf(probability, degrees))


def _score(each: _Difference) -> float:
    """Return the loss in standard errors; without any variance every difference is certain."""
    if each.error:
        return each.loss / each.error
    return math.copysign(math.inf, each.loss) if each.loss else 0.0


def _cell(each: _Difference, p_value: float, settings: Settings, cells: int) -> Cell:
    allowed = _allowed(each.key[1], settings)
    margin = each.error * _quantile(CONFIDENCE, each.degrees)
    regressed = each.loss - margin > allowed and p_value <= settings.false_alarms
    detectable = _detectable(each, allowed, settings, cells)
    reason = "" if regressed else _undecided(each, detectable, allowed, settings)
    outcome: Outcome = "regression" if regressed else "undecided" if reason else "pass"
    sign = -1 if better(each.key[1]) == "higher" else 1
    ends = sorted((math.expm1(sign * (each.loss - margin)), math.expm1(sign * (each.loss + margin))))
    return Cell(
        case_id=each.key[0],
        metric=each.key[1],
        outcome=outcome,
        reason=reason,
        baseline=each.baseline,
        candidate=each.candidate,
        change=math.expm1(sign * each.loss),
        low=ends[0],
        high=ends[1],
        p_value=p_value,
        detectable=detectable,
    )


def _undecided(each: _Difference, detectable: float, allowed: float, settings: Settings) -> str:
    """Return why the absence of a regression is not shown; empty where it is."""
    what = "loss" if better(each.key[1]) == "higher" else "increase"
    wanted = settings.detect if what == "loss" else 2 * settings.detect
    if 0 < allowed < each.loss:
        return f"the {what} exceeds the allowance, but not with 95 % confidence"
    if detectable > wanted:
        return f"{what}s below {100 * detectable:.0f} % would be missed; repeat the runs or add baselines"
    return ""


def _allowed(metric: str, settings: Settings) -> float:
    """Return the allowance in natural logarithms: a loss of rate, or an increase of latency."""
    return -math.log1p(-settings.allow) if better(metric) == "higher" else math.log1p(settings.allow_latency)


def _detectable(each: _Difference, allowed: float, settings: Settings, cells: int) -> float:
    """Return the loss that this cell alone would show with 90 % probability, both conditions taken together."""
    power = _quantile(POWER, each.degrees)
    by_bound = allowed + each.error * (_quantile(CONFIDENCE, each.degrees) + power)
    by_rate = each.error * (_quantile(1 - settings.false_alarms / cells, each.degrees) + power)
    loss = max(by_bound, by_rate)
    return -math.expm1(-loss) if better(each.key[1]) == "higher" else math.expm1(loss)
