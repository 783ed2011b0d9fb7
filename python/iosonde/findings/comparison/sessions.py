"""Sessions of one or two systems: how much they differ, the ratio of two systems, and what a study can detect.

A session is a result set. Logarithms of the repeats are compared by Student's t with two components of variance: that
of a run within its session, and that of a session, which repeats within one session cannot show, since they share the
state of the machine and the device at that time. Their degrees of freedom are combined by Satterthwaite (1946). Pairs
measured in one session, run by run, need no second component.

Each cell has few sessions, so its own variance is poorly known. The variances of all cells of a metric are moderated:
shrunk towards their common value by the empirical-Bayes method of Smyth (2004, "Linear models and empirical Bayes
methods for assessing differential expression in microarray experiments", sections 4 and 6.2), which estimates from the
data how far they may be pooled. The degrees of freedom gained by pooling are limited by the effective number of
independent cells, (sum of eigenvalues)^2 / (sum of squared eigenvalues) of the correlation between cells' session
effects (Bretherton 1999): a disturbance that shifts all cells of a session together is one observation, not many.

With fewer than five baseline sessions the variance is poorly known: a stated prior enters, the more the fewer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.errors import IosondeError
from iosonde.metrics.distributions import chi2_quantile, chi2_tail, fitted, t_quantile, t_tail
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.registry import RATES, named_among
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.scopes import each_load, of_same_repeats
from iosonde.metrics.statistics import CONFIDENCE, MARGIN, mean_moments, repeat_correlation
from iosonde.plan import Plan
from iosonde.results import ResultSet

Floats = NDArray[np.float64]

PRIOR_STANDARD_DEVIATION = 0.02
"""Assumed relative standard deviation of a session mean where baselines cannot show it: 2 %."""
PRIOR_DEGREES = 4.0
"""Degrees of freedom of that assumption with one session; a quarter less with each further one."""


@dataclass(frozen=True, kw_only=True)
class SessionVariance:
    """Variance of a cell's session mean (natural logarithms), and the degrees of freedom behind it."""

    variance: float
    degrees: float


def session_variances(means: Floats) -> list[SessionVariance]:
    """Return the variance of each cell from its session means; `means` has one row per cell, one column per session."""
    cells, sessions = means.shape
    if sessions == 1:
        return [with_prior(0.0, degrees=0.0, sessions=1)] * cells
    own = means.var(axis=1, ddof=1)
    moderated, degrees = _moderated(own, sessions - 1, limit=(sessions - 1) * _independent_cells(means))
    return [with_prior(float(each), degrees=degrees, sessions=sessions) for each in moderated]


def prior_degrees(sessions: int) -> float:
    """Return the degrees of freedom of the assumed variance beside that of some sessions."""
    return PRIOR_DEGREES * max(0, 5 - sessions) / 4


def with_prior(variance: float, *, degrees: float, sessions: int) -> SessionVariance:
    """Return a variance of sessions, blended with the assumed one by their degrees of freedom."""
    prior = prior_degrees(sessions)
    blended = (prior * PRIOR_STANDARD_DEVIATION**2 + degrees * variance) / (prior + degrees)
    return SessionVariance(variance=blended, degrees=prior + degrees)


OUTLYING = 0.01
"""Probability below which a cell's variance does not belong to the common distribution."""


def pair_variances(differences: Floats) -> list[SessionVariance]:
    """Return the variance of a pair's difference for each cell, from one row per cell with one column per pair.

    Run noise of different cells is independent, so all cells count. Cells that are much noisier than the others keep
    their own variance and degrees of freedom, as in the robust method of Phipson et al. (2016).
    """
    cells, pairs = differences.shape
    if pairs < 2:
        return [SessionVariance(variance=0.0, degrees=0.0)] * cells
    degrees = pairs - 1
    own = differences.var(axis=1, ddof=1)
    typical = float(np.median(own)) / (chi2_quantile(0.5, degrees) / degrees)
    is_usual = chi2_tail(own * degrees / typical, degrees) >= OUTLYING if typical > 0 else own == 0
    # The common distribution is fitted to all cells: without the noisy ones it would seem narrower than it is.
    moderated, gained = _moderated(own, degrees, limit=float(cells * degrees))
    return [
        SessionVariance(variance=float(shrunk), degrees=gained)
        if is_common
        else SessionVariance(variance=float(each), degrees=float(degrees))
        for each, shrunk, is_common in zip(own, moderated, is_usual, strict=True)
    ]


def _moderated(variances: Floats, degrees: int, *, limit: float) -> tuple[Floats, float]:
    """Return variances shrunk towards their common value, and their degrees of freedom, at most `limit`."""
    positive = variances[variances > 0]
    if len(positive) < 2:
        return variances, float(degrees)
    common, prior_degrees = fitted(positive, np.full(len(positive), float(degrees)))
    gained = min(prior_degrees, max(0.0, limit - degrees))
    # Where the limit cuts the degrees of freedom, the weight of the common value stays what the data support.
    weight = prior_degrees / (prior_degrees + degrees) if np.isfinite(prior_degrees) else 1.0
    return weight * common + (1 - weight) * variances, degrees + gained


def _independent_cells(means: Floats) -> float:
    """Return the effective number of independent cells, between 1 and the number of sessions less one."""
    centered = means - means.mean(axis=1, keepdims=True)
    scale = np.sqrt((centered**2).sum(axis=1))
    rows = centered[scale > 0] / scale[scale > 0][:, np.newaxis]
    if not len(rows):
        return 1.0
    # The non-zero eigenvalues of the cells' correlation matrix are those of this sessions x sessions matrix.
    eigenvalues = np.linalg.eigvalsh(rows.T @ rows)
    return float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


OF_PAIRS = 2.0
"""Doubt of a correlation of paired differences: what both runs of a pair share cancels, and wider intervals would cost
the power that pairs are for."""


def run_correlation(cells: Iterable[tuple[tuple[str, ...], Sequence[Floats]]], *, doubt: float = 1.0) -> float:
    """Return the correlation of consecutive repeats, pooled over sessions and cases (`repeat_correlation`).

    `cells` are keys (first the case, last the metric) with the logarithms of the repeats of each session. A case counts
    once, by its rate. `doubt` is that of `repeat_correlation`.
    """
    rates: dict[str, Sequence[Floats]] = {}
    for keys, sessions in cells:
        if keys[-1] in ("iops", "ops_per_sec"):
            rates.setdefault(keys[0], sessions)
    repeats = [np.exp(each) for sessions in rates.values() for each in sessions]
    return repeat_correlation(repeats, doubt=doubt)


def session_effects(cells: Sequence[Sequence[Sequence[Floats]]], *, correlation: float = 0.0) -> list[SessionVariance]:
    """Return the variance of session effects of each cell, without the noise of its runs.

    `cells` holds, per cell, the systems; per system, its sessions; per session, the logarithms of its runs. Cells
    whose systems have several sessions show the variance; it is moderated as in `session_variances`, less what run
    noise contributes, and never below zero. With one session per system the prior is all there is. `correlation` is
    that of consecutive runs.
    """
    sessions = min((sum(len(system) - 1 for system in cell) for cell in cells), default=0)
    if sessions == 0:
        return [SessionVariance(variance=PRIOR_STANDARD_DEVIATION**2, degrees=PRIOR_DEGREES)] * len(cells)
    of_cells = [_session_residuals(cell) for cell in cells]
    residuals = np.array([each[: min(map(len, of_cells))] for each in of_cells])
    own = (residuals**2).sum(axis=1) / sessions
    moderated, degrees = _moderated(own, sessions, limit=sessions * _independent_cells(residuals))
    prior = PRIOR_DEGREES * max(0, 2 - sessions) / 2
    total = prior + degrees
    noise = np.array([_runs_variance(cell, correlation) for cell in cells])
    effect = np.maximum(moderated - noise, 0)
    blended = (prior * PRIOR_STANDARD_DEVIATION**2 + degrees * effect) / total
    return [SessionVariance(variance=float(each), degrees=total) for each in blended]


def _session_residuals(cell: Sequence[Sequence[Floats]]) -> list[float]:
    """Return the deviation of each session mean from the mean of its system."""
    found = []
    for system in cell:
        means = [float(each.mean()) for each in system]
        found += [mean - sum(means) / len(means) for mean in means]
    return found


def _runs_variance(cell: Sequence[Sequence[Floats]], correlation: float) -> float:
    """Return the variance that run noise gives to a session mean, averaged over sessions."""
    shares = [
        each.var(ddof=1) * mean_moments(len(each), correlation)[0]
        for system in cell
        for each in system
        if len(each) > 1
    ]
    return float(np.mean(shares)) if shares else 0.0


Sessions = Sequence[Floats]
"""Natural logarithms of the repeats of each session."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Contender over baseline: the logarithm of the ratio, its standard error and the degrees of freedom of that."""

    log: float
    error: float | None
    """None where neither repeats nor an assumption support one."""
    degrees: float = math.inf

    @property
    def value(self) -> float:
        """The ratio of the geometric means."""
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the ratio."""
        if self.error is None:
            return None, None
        margin = self.error * t_quantile(0.5 + CONFIDENCE / 2, self.degrees)
        return math.exp(self.log - margin), math.exp(self.log + margin)

    @property
    def p_value(self) -> float:
        """Two-sided, of the hypothesis that the ratio is 1."""
        if self.error is None:
            return 1.0
        if self.error == 0:
            return 0.0 if self.log else 1.0
        return 2 * t_tail(abs(self.log) / self.error, self.degrees)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Components of the variance of a cell, as they enter its ratio."""

    runs: float
    run_degrees: float
    sessions: float
    session_degrees: float

    def ratio(self, log: float) -> Ratio:
        """Return the ratio with the standard error of both components."""
        if self.run_degrees <= 0:
            return Ratio(log=log, error=None)
        degrees = satterthwaite((self.runs, self.run_degrees), (self.sessions, self.session_degrees))
        return Ratio(log=log, error=math.sqrt(self.runs + self.sessions), degrees=degrees)


def log_ratio(baseline: Sessions, contender: Sessions) -> float:
    """Return the difference of the means over sessions of the means over runs."""
    return float(np.mean([each.mean() for each in contender]) - np.mean([each.mean() for each in baseline]))


def spread(
    groups: Sequence[Sessions],
    session: SessionVariance | None,
    *,
    drift: float = 0.0,
    correlation: float = 0.0,
) -> Spread:
    """Return the components of variance of the mean of one group of sessions, or of the difference of two.

    `session` is the variance of a session's own effect, without that of its runs; None leaves it out. `drift` is the
    variance of the difference that comes from drift within the sessions, `correlation` that of consecutive repeats.
    """
    everyone = [each for group in groups for each in group]
    degrees = sum(len(each) - 1 for each in everyone)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in everyone) / degrees if degrees else 0.0
    weights = [sum(run_moments(len(each), correlation)[0] for each in group) / len(group) ** 2 for group in groups]
    return Spread(
        runs=within * sum(weights),
        run_degrees=sum(run_moments(len(each), correlation)[1] for each in everyone),
        sessions=drift + (session.variance * sum(1 / len(group) for group in groups) if session else 0.0),
        session_degrees=session.degrees if session else math.inf,
    )


def run_moments(count: int, correlation: float) -> tuple[float, float]:
    """Return the variance of a mean of repeats over the variance of the sample, and the degrees of freedom of that.

    1/n and n - 1 for independent ones.
    """
    return mean_moments(count, correlation) if correlation and count > 1 else (1 / count, count - 1)


def paired_spreads(differences: Sequence[Floats], *, correlation: float = 0.0) -> list[Spread]:
    """Return the variance of the mean difference of each cell whose runs were measured in pairs within one session.

    `differences` has, per cell, contender less baseline of each pair, in logarithms. What both runs of a pair share
    cancels, so there is no component of sessions. A few pairs know their own variance badly: it is moderated over the
    cells of the metric (Smyth 2004). `correlation` is that of consecutive differences.
    """
    by_count: dict[int, list[int]] = {}
    for place, each in enumerate(differences):
        by_count.setdefault(len(each), []).append(place)
    found: dict[int, Spread] = {}
    for count, places in by_count.items():
        rows = np.array([differences[place] for place in places])
        for place, moderated in zip(places, pair_variances(rows), strict=True):
            weight, degrees = run_moments(count, correlation)
            found[place] = Spread(
                runs=moderated.variance * weight,
                run_degrees=moderated.degrees * (degrees / (count - 1) if count > 1 else 1.0),
                sessions=0.0,
                session_degrees=math.inf,
            )
    return [found[place] for place in range(len(differences))]


def pooled_over_cells(spreads: Sequence[Spread], logs: Sequence[float]) -> Ratio:
    """Return the geometric mean over cells.

    Run noise of different cells is independent and averages out. A session may shift all its cells together, so its
    component does not become smaller with the number of cells.
    """
    count = len(spreads)
    runs = sum(each.runs for each in spreads) / count**2
    sessions = float(np.mean([each.sessions for each in spreads]))
    whole = Spread(
        runs=runs,
        run_degrees=sum(each.run_degrees for each in spreads),
        sessions=sessions,
        session_degrees=min(each.session_degrees for each in spreads),
    )
    return whole.ratio(float(np.mean(logs)))


def satterthwaite(*components: tuple[float, float]) -> float:
    """Return the degrees of freedom of a sum of independent variances, each given with its own."""
    whole = sum(variance for variance, _ in components)
    squares = sum(variance**2 / degrees for variance, degrees in components if variance)
    return whole**2 / squares if squares else math.inf


KEYS = ("case_id", "part", "stream", "operation", "metric")


SCHEMA = pl.Schema(
    {
        **dict.fromkeys(KEYS, pl.String()),
        **dict.fromkeys(("value", "low", "high", "session_deviation"), pl.Float64()),
        **dict.fromkeys(("sessions", "repeats"), pl.Int64()),
    }
)
"""Columns of the result."""


def pooled(runs: pl.DataFrame) -> pl.DataFrame:
    """Pool run metrics; each `result_set` is a session of one system."""
    count = runs["result_set"].n_unique()
    metrics = [name for name in runs["metric"].unique(maintain_order=True) if metric_of(name).better != "neither"]
    cells = {keys: each for keys, each in sessions_by_cell(runs, metrics).items() if len(each) == count > 1}
    rows = []
    correlation = run_correlation(cells.items())
    for metric in dict.fromkeys(keys[-1] for keys in cells):
        of_metric = [keys for keys in cells if keys[-1] == metric]
        effects = session_effects([[cells[keys]] for keys in of_metric], correlation=correlation)
        for keys, effect in zip(of_metric, effects, strict=True):
            rows.append({**dict(zip(KEYS, keys, strict=True)), **_row(cells[keys], effect, correlation)})
    return pl.DataFrame(rows, schema=SCHEMA)


def _row(sessions: Sessions, effect: SessionVariance, correlation: float) -> dict[str, float | int | None]:
    of_one = spread([sessions], effect, correlation=correlation)
    estimate = of_one.ratio(float(np.mean([each.mean() for each in sessions])))
    low, high = estimate.interval
    return {
        "value": estimate.value,
        "low": low,
        "high": high,
        "session_deviation": math.sqrt(effect.variance),
        "sessions": len(sessions),
        "repeats": sum(map(len, sessions)),
    }


def sessions_by_cell(runs: pl.DataFrame, metrics: Sequence[str]) -> dict[tuple[str, ...], Sessions]:
    """Return the logarithms of each cell's repeats, by session; values of zero have no ratio."""
    comparable = of_same_repeats(runs.filter(~pl.col("control")), across_result_sets=True)
    chosen = comparable.filter(pl.col("metric").is_in(metrics), pl.col("value") > 0)
    values = pl.col("value").sort_by("repeat").log()
    grouped = chosen.group_by(*KEYS, "result_set", maintain_order=True).agg(values)
    found: dict[tuple[str, ...], list[np.ndarray[Any, np.dtype[np.float64]]]] = {}
    for row in grouped.iter_rows(named=True):
        found.setdefault(tuple(row[key] for key in KEYS), []).append(np.asarray(row["value"]))
    return dict(found)


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
    noise, source = _noise_of_earlier(plan, earlier) if earlier else (None, "")
    chosen = ASSUMED_NOISE if noise is None else noise
    cases = sum(not case.control and case.arm != "b" for case in plan.cases)
    return Power(
        repeats=plan.repeats,
        noise=chosen,
        source=source,
        within=_within(plan.repeats, chosen, cases) if plan.repeats > 1 else None,
        between=_between(plan.repeats, chosen) if plan.repeats > 1 else None,
        is_paired=bool(plan.arms),
    )


def _within(repeats: int, noise: float, cases: int) -> float:
    """Of pairs: the variance of a difference is pooled over cases where they agree, as in `paired_spreads`."""
    return _share(noise * math.sqrt(2 / repeats), cases * (repeats - 1))


def _between(repeats: int, noise: float) -> float:
    runs, sessions = 2 * noise**2 / repeats, 2 * PRIOR_STANDARD_DEVIATION**2
    degrees = satterthwaite((runs, 2 * repeats - 2), (sessions, PRIOR_DEGREES))
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


def _noise_of_earlier(plan: Plan, earlier: Path) -> tuple[float | None, str]:
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
