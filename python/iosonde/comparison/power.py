"""Power analysis: the smallest difference between two systems that a study can detect, computed before it runs.

The noise of a run comes from the last result set of the same study and target, or is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from iosonde.comparison.cases import MARGIN
from iosonde.comparison.variance import PRIOR_DEGREES, PRIOR_STANDARD_DEVIATION
from iosonde.errors import IosondeError
from iosonde.metrics.distributions import t_quantile
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.registry import RATES, named_among
from iosonde.metrics.scopes import each_load
from iosonde.plan import Plan
from iosonde.results import ResultSet

CONFIDENCE = 0.95
POWER = 0.9
ASSUMED_NOISE = 0.02
"""Relative standard deviation of a run where no earlier result set shows it."""


@dataclass(frozen=True, kw_only=True)
class Power:
    """The differences that a plan's repeats show with 90 % probability, as shares, if all cases differ."""

    repeats: int
    noise: float
    """Relative standard deviation of a run's rate: the median over cases."""
    source: str
    """The result set that shows the noise; empty where it is assumed."""
    within: float | None
    """Between two systems measured alternately in one session; None with fewer than two repeats."""
    between: float | None
    """Between two systems measured in one session each."""
    is_paired: bool = False
    """True if the plan is an A/B run."""

    @property
    def text(self) -> str:
        noise = f"{100 * self.noise:.2g} %" + (f" as in {self.source}" if self.source else " (assumed)")
        if self.within is None or self.between is None:
            return f"with {self.repeats} repeat no difference between two systems can be shown"
        start = f"with {self.repeats} repeats a difference of"
        end = f"will be found with 90 % probability, if run-to-run noise is {noise}"
        if self.is_paired:
            return f"{start} {100 * self.within:.2g} % {end}"
        return (
            f"{start} {100 * self.between:.2g} % between two sessions ({100 * self.within:.2g} % in an A/B run) {end}"
        )


def power_of(plan: Plan, earlier: Path | None = None) -> Power:
    """Return what the repeats of a plan can show; `earlier` is a directory of result sets."""
    noise, source = _noise(plan, earlier) if earlier else (None, "")
    chosen = ASSUMED_NOISE if noise is None else noise
    cases = sum(not case.control and case.arm != "b" for case in plan.cases)
    return Power(
        repeats=plan.repeats,
        noise=chosen,
        source=source,
        within=_within(plan.repeats, chosen, cases),
        between=_between(plan.repeats, chosen),
        is_paired=bool(plan.arms),
    )


def _within(repeats: int, noise: float, cases: int) -> float | None:
    """Of pairs: the variance of a difference is pooled over cases where they agree, as in `ratio.paired_spreads`."""
    if repeats < 2:
        return None
    return _share(noise * math.sqrt(2 / repeats), cases * (repeats - 1))


def _between(repeats: int, noise: float) -> float | None:
    if repeats < 2:
        return None
    runs, sessions = 2 * noise**2 / repeats, 2 * PRIOR_STANDARD_DEVIATION**2
    degrees = (runs + sessions) ** 2 / (runs**2 / (2 * repeats - 2) + sessions**2 / PRIOR_DEGREES)
    return _share(math.sqrt(runs + sessions), degrees)


def _share(error: float, degrees: float) -> float:
    """Return the difference that is judged `better` with the power wanted.

    Two conditions hold then: the difference is significant (the usual sum of two quantiles of Student's t), and its
    interval reaches beyond the margin within which two systems are the same.
    """
    confidence, power = (t_quantile(each, degrees) for each in (0.5 + CONFIDENCE / 2, POWER))
    significant = error * (confidence + power)
    beyond_margin = math.log1p(MARGIN) - error * (confidence - power)
    return math.expm1(max(significant, beyond_margin))


def _noise(plan: Plan, earlier: Path) -> tuple[float | None, str]:
    """Return the noise of the newest result set of the same study and target, and its name."""
    candidates = sorted(earlier.iterdir(), key=lambda path: path.name, reverse=True) if earlier.is_dir() else []
    for directory in candidates:
        if not directory.name.startswith(f"{plan.study_name}-"):
            continue
        try:
            result_set = ResultSet.open(directory)
            if (result_set.plan.study_name, result_set.plan.target) != (plan.study_name, plan.target):
                continue
            noise = run_noise(run_metrics(result_set))
        except (IosondeError, OSError):
            continue  # another study's directory, or a damaged one: nothing that a plan depends on
        if noise is not None:
            return noise, directory.name
    return None, ""


def run_noise(runs: pl.DataFrame) -> float | None:
    """Return the median over cases of the relative standard deviation of a run's rate; None without repeats."""
    wanted = [*RATES, *named_among(runs["metric"].unique())]
    rates = each_load(runs).filter(~pl.col("control"), pl.col("metric").is_in(wanted), pl.col("value") > 0)
    spreads = rates.group_by("case_id", "stream", "metric").agg(pl.col("value").log().std()).drop_nulls()
    median = spreads["value"].median()
    return float(median) if isinstance(median, float) else None
