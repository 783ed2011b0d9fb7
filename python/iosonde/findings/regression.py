"""Check result sets against baselines of the same study: decide for each cell whether it is slower.

The unit of observation is the session (one result set), because repeats within a session share whatever was particular
to that session. The outcome is text, Markdown, JSON or JUnit XML, with exit codes for continuous integration.

Rates and median latencies decide the check. Tails of latency vary several times as much from session to session, so one
of many would leave nearly every check undetermined: they are decided by themselves and listed, unless the user lets
them decide too.

A session shifts all its cells by a common amount, and each cell by an amount of its own. The common shift is known from
as few values as there are sessions; the cells' own shifts are known from all of them. So a loss is looked for in two
ways, each with half of the false alarms:

- in the *common shift* (median over the cells of a metric), tested once for each metric. A cell regresses if that test
  is significant and the one-sided 95 % bound of the cell's whole loss exceeds the allowance;
- in a cell *against the others* (its loss less the common shift), tested for all cells at a false discovery rate
  (Benjamini and Hochberg 1995). A cell regresses if that test is significant, the one-sided 95 % bound of this excess
  exceeds the allowance, and so does its whole loss as measured.

Where the baselines show no common shift (or fewer than three baselines or five cells), only the whole loss is tested.
Every other cell passes if a loss of the margin is excluded: if the one-sided 95 % upper bound of its whole loss is
below it. A check passes only if all cells do, so a loss of the margin in any cell passes with a probability of at most
5 %, however many cells there are (intersection-union test, Berger 1982). Otherwise the cell is undecided.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal
from xml.etree import ElementTree

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from iosonde.base.foreign_text import markdown as escape
from iosonde.base.foreign_text import markdown_code, printable
from iosonde.errors import ResultsError
from iosonde.findings.comparison import sessions
from iosonde.metrics.distributions import Prior, adjusted_for_discovery, chi2_quantile, prior_of, t_quantile, t_tail
from iosonde.metrics.metrics import repeat_correlations, run_metrics
from iosonde.metrics.registry import RATES, find, named_among
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.scopes import each_load, of_same_repeats
from iosonde.metrics.wording import counted, listing
from iosonde.results import ResultSet
from iosonde.results.result_set import require_others
from iosonde.results.shapes import interpreting
from iosonde.units import format_count, format_latency

LATENCIES = ("response_latency_ns_", "completion_latency_ns_")
"""The first that a case has is compared: response latency exists only in open loop."""
TAIL = ("p99",)
COMPARABLE = (
    *("", "device-limited", "harness-limited", "network-limited", "server-limited"),
    *("server-CPU-limited", "lock-limited"),
)
"""Verdicts of runs whose rate belongs to the system; disturbed and cache-served runs decide nothing."""

Better = Literal["higher", "lower"]
CellKey = tuple[str, str]
"""Case, with its stream where it has several, and metric."""


class SessionValue(BaseModel):
    """Value of one session in a cell."""

    model_config = ConfigDict(frozen=True)
    mean_log: float
    """Mean of the natural logarithms over its runs."""
    runs: int
    run_variance: float
    """Variance of a single run's logarithm within the session, moderated over the cells of its metric; 0 with one run.
    """
    verdict: str
    """The most frequent verdict of its runs; empty where there is none (simulated devices)."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """One result set."""

    name: str
    values: Mapping[CellKey, SessionValue]
    parameters: Mapping[str, Mapping[str, object]]
    """Of each case."""
    correlation: float = 0.0
    """Of consecutive repeats, pooled over the cases."""


def better(metric: str) -> Better:
    """Return `higher` or `lower`, whichever is better for a metric."""
    return "lower" if metric.startswith(LATENCIES) or metric_of(metric).better == "lower" else "higher"


def percentile_of(metric: str) -> str:
    """Return the percentile that a latency is, such as `p99`; empty of other metrics."""
    return metric.partition("_ns_")[2] if metric.startswith(LATENCIES) else ""


def session_of(result_set: ResultSet, name: str, *, percentiles: Sequence[str] = TAIL) -> Session:
    """Reduce a result set to its session values."""
    verdicts = {record.run_id: record.verdict.kind if record.verdict else "" for record in result_set.records()}
    runs = run_metrics(result_set)
    parameters = {case.case_id: case.parameters for case in result_set.known_cases() if not case.control}
    loads = named_loads(runs).filter(~pl.col("control")).select("case_id", "load").unique()
    return Session(
        name=name,
        values=session_values(runs, verdicts, percentiles=percentiles),
        parameters={**parameters, **{load: parameters[case_id] for case_id, load in loads.iter_rows()}},
        correlation=max(repeat_correlations(runs).values(), default=0.0),
    )


def named_loads(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of each load with its name, `load`: the case, and its stream where the case has several."""
    loads = each_load(runs)
    several = pl.col("stream").n_unique().over("case_id") > 1
    name = pl.when(several).then(pl.format("{} ({})", "case_id", "stream")).otherwise("case_id")
    return loads.with_columns(load=name)


def session_values(
    runs: pl.DataFrame, verdicts: Mapping[str, str], *, percentiles: Sequence[str] = TAIL
) -> dict[CellKey, SessionValue]:
    """Return the value of each cell from run metrics, control runs excluded.

    Cases of several result sets start with the name of theirs and a line break.
    """
    comparable = named_loads(of_same_repeats(runs.filter(~pl.col("control"))))
    chosen = comparable.filter(pl.col("value") > 0)
    present = set(chosen["metric"])
    of_commands = chosen.filter(pl.col("metric").is_in(named_among(present) if present.isdisjoint(RATES) else []))
    latencies = [
        _first_of(chosen, [f"{latency}{each}" for latency in LATENCIES]) for each in dict.fromkeys(percentiles)
    ]
    compared = pl.concat([_first_of(chosen, RATES), *latencies, of_commands])
    grouped = compared.group_by("load", "metric", maintain_order=True).agg(
        pl.col("value").sort_by("order").log().alias("logs"), pl.col("run_id")
    )
    load = pl.col("load")
    of_set = pl.when(load.str.contains("\n")).then(load.str.split("\n").list.first()).otherwise(pl.lit(""))
    grouped = grouped.with_columns(result_set=of_set)
    priors = {
        key: prior_of([each.to_numpy() for each in group["logs"]])
        for key, group in grouped.group_by("result_set", "metric")
    }
    return {
        (row["load"], row["metric"]): _session_value(
            row["logs"], row["run_id"], verdicts, priors[row["result_set"], row["metric"]]
        )
        for row in grouped.iter_rows(named=True)
    }


def _first_of(runs: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """Keep, of each case, the rows of the first of the metrics that it has."""
    rank = pl.col("metric").replace_strict({metric: place for place, metric in enumerate(metrics)}, default=None)
    return runs.filter(rank.is_not_null()).filter(rank == rank.min().over("load"))


def _session_value(
    logs: Sequence[float], run_ids: Iterable[str], verdicts: Mapping[str, str], prior: Prior | None
) -> SessionValue:
    sample = np.asarray(logs)
    counted = Counter(verdicts.get(run_id, "") for run_id in run_ids)
    variance = np.array([sample.var(ddof=1) if len(sample) > 1 else 0.0])
    if prior and len(sample) > 1:
        variance, _ = prior.moderated(variance, len(sample) - 1)
    return SessionValue(
        mean_log=float(sample.mean()),
        runs=len(sample),
        run_variance=float(variance[0]),
        verdict=counted.most_common(1)[0][0],
    )


CONFIDENCE = 0.95
MEDIAN = "p50"
SEPARABLE_SESSIONS = 3
SEPARABLE_CELLS = 5
"""From this many baseline sessions and cells on, the common shift of a session is separated from the cells' own."""
ASSUMED = 0.2
"""Share of the false alarms with fewer baselines than that: their variance is mostly assumed."""

Outcome = Literal["pass", "regression", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the check."""

    allow: float = 0.05
    """Loss of rate that is accepted, as a share."""
    allow_latency: float = 0.10
    """Increase of latency that is accepted, as a share."""
    margin: float = 0.10
    """A cell passes only if a loss of this share (twice as much for latency) is excluded."""
    false_alarms: float = 0.05
    """Expected share of false ones among the regressions found; of losses that also exceed the allowance."""
    percentiles: Sequence[str] = ()
    """Percentiles of latency that decide as well, such as `p99`."""

    def decides(self, metric: str) -> bool:
        """Return True if cells of a metric decide the check."""
        percentile = percentile_of(metric)
        return not percentile or percentile in (MEDIAN, *self.percentiles)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The decision on one case and metric. Changes are candidate over baseline, less 1; a loss is positive."""

    case_id: str
    metric: str
    outcome: Outcome
    decides: bool = True
    """False of a tail that is only listed."""
    reason: str = ""
    """Reason for an undecided outcome."""
    baseline: float | None = None
    """Geometric mean over baseline sessions, in the metric's unit."""
    candidate: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    """90 % interval of the change: each end is a one-sided 95 % bound."""
    p_value: float | None = None
    """Of the hypothesis that nothing was lost; adjusted for the number of cells."""
    excluded: float | None = None
    """Loss that is excluded: its one-sided 95 % upper bound, 0 if negative."""


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
        """Deciding cells that regressed, the largest loss first."""
        found = [cell for cell in self.deciding if cell.outcome == "regression"]
        return sorted(found, key=lambda cell: -loss_of(cell))

    @property
    def undecided(self) -> list[Cell]:
        return [cell for cell in self.deciding if cell.outcome == "undecided"]

    @property
    def deciding(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.decides]

    @property
    def listed(self) -> list[Cell]:
        """Tails that regressed or are undecided, and do not decide."""
        return [cell for cell in self.cells if not cell.decides and cell.outcome != "pass"]

    @property
    def exit_code(self) -> int:
        """0: no regression; 1: regression; 3: undetermined. 2 is an error, which no check has."""
        if self.regressions:
            return 1
        return 3 if self.undecided or not self.deciding else 0


def check(candidates: Sequence[ResultSet], baselines: Sequence[ResultSet], settings: Settings | None = None) -> Check:
    """Decide for every case and metric whether the candidates are slower than the baselines.

    Each result set is one session. `ResultsError` where the result sets are not of one study, where a result set is
    among both, or where measured and simulated result sets are mixed.
    """
    _check_comparable(candidates, baselines)
    chosen = settings or Settings()
    with interpreting(each.directory for each in (*candidates, *baselines)):
        percentiles = (MEDIAN, *TAIL, *chosen.percentiles)
        before, after = (
            [session_of(each, str(each.directory), percentiles=percentiles) for each in group]
            for group in (baselines, candidates)
        )
        cells = decide(before, after, chosen)
    return Check(
        cells=cells,
        settings=chosen,
        baselines=[each.name for each in before],
        candidates=[each.name for each in after],
        notes=[*_different_drives(candidates, baselines), *_notes(len(baselines))],
    )


def loss_of(cell: Cell) -> float:
    """Return the loss as a share: of the rate, or the increase of the latency."""
    assert cell.change is not None, "a decided cell has a change"
    return -cell.change if better(cell.metric) == "higher" else cell.change


def _different_drives(candidates: Sequence[ResultSet], baselines: Sequence[ResultSet]) -> Iterator[str]:
    """Name the simulated drives where candidates and baselines have different ones: paths of real ones may change."""
    of_candidates, of_baselines = (
        list(dict.fromkeys(f"`{each.plan.target}`" for each in group if each.simulated))
        for group in (candidates, baselines)
    )
    if set(of_candidates) != set(of_baselines):
        yield f"different simulated drives: {listing(of_candidates)} against {listing(of_baselines)} in the baselines"


def _notes(baselines: int) -> list[str]:
    degrees = sessions.prior_degrees(baselines)
    if not degrees:
        return []
    known = "is unknown with one baseline" if baselines == 1 else f"is poorly known with {baselines} baselines"
    assumed = f"{100 * sessions.PRIOR_STANDARD_DEVIATION:g} %"
    return [
        f"the variance between sessions {known}: a standard deviation of {assumed} is assumed "
        f"({counted(round(degrees), 'degree')} of freedom); five or more baselines measure it"
    ]


def _check_comparable(candidates: Sequence[ResultSet], baselines: Sequence[ResultSet]) -> None:
    everyone = [*candidates, *baselines]
    studies = list(dict.fromkeys(each.plan.study_name for each in everyone))
    if len(studies) > 1:
        raise ResultsError(
            "cannot check result sets of different studies",
            where=f"studies {', '.join(f'`{study}`' for study in studies)}",
            hint="give result sets of one study",
        )
    profiles = list(dict.fromkeys(each.plan.profile for each in everyone))
    if len(profiles) > 1:
        raise ResultsError(
            "cannot check result sets of different profiles",
            where=f"profiles {', '.join(f'`{profile}`' for profile in profiles)} of the study `{studies[0]}`",
            hint="run baselines and candidate with the same `--profile`",
        )
    if len({each.simulated for each in everyone}) > 1:
        raise ResultsError(
            "cannot check a measured result set against a simulated one",
            hint="give baselines of the same kind as the candidate",
        )
    require_others(baselines, candidates, called="candidate")


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
    if len(baselines) < SEPARABLE_SESSIONS:
        settings = replace(settings, false_alarms=ASSUMED * settings.false_alarms)
    decided = {
        key: cell
        for decides in (True, False)  # Tails that are only listed cost the others no power.
        for key, cell in _decided([each for each in differences if settings.decides(each.key[1]) is decides], settings)
    }
    excluded = {
        key: Cell(case_id=key[0], metric=key[1], outcome="undecided", reason=reason) for key, reason in reasons.items()
    }
    return [replace((decided | excluded)[key], decides=settings.decides(key[1])) for key in keys]


@dataclass(frozen=True, kw_only=True)
class _Loss:
    """A loss in natural logarithms, with its standard error and the degrees of freedom of that."""

    loss: float
    error: float
    degrees: float

    @property
    def p_value(self) -> float:
        """One-sided, of the hypothesis that nothing was lost; without any variance every difference is certain."""
        score = self.loss / self.error if self.error else math.copysign(math.inf, self.loss) if self.loss else 0.0
        return t_tail(score, self.degrees)

    def exceeds(self, allowed: float) -> bool:
        """Return True if the one-sided 95 % bound exceeds the allowance."""
        return self.loss - self.error * t_quantile(CONFIDENCE, self.degrees) > allowed

    @property
    def upper(self) -> float:
        """The one-sided 95 % upper bound."""
        return self.loss + self.error * t_quantile(CONFIDENCE, self.degrees)


@dataclass(frozen=True, kw_only=True)
class _Difference:
    """The loss of a cell: the whole, and its parts where they are separated."""

    key: CellKey
    baseline: float
    candidate: float
    whole: _Loss
    own: _Loss
    """Against the other cells; the whole where it is not separated."""
    common: _Loss | None
    """Of all cells of the metric."""


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


def _differences(
    keys: list[CellKey], baselines: Sequence[Session], candidates: Sequence[Session]
) -> Iterator[_Difference]:
    """Compare the session means of cells that share a metric."""
    before = np.array([[session.values[key].mean_log for session in baselines] for key in keys])
    after = np.array([[session.values[key].mean_log for session in candidates] for key in keys])
    sign = -1 if better(keys[0][1]) == "higher" else 1
    losses = sign * (after.mean(axis=1) - before.mean(axis=1))
    shifts = _common_shifts(before)
    common = _common_loss(shifts, float(np.median(losses)), len(candidates)) if shifts.any() else None
    for row, (key, variance) in enumerate(zip(keys, sessions.session_variances(before - shifts), strict=True)):
        loss, error = float(losses[row]), _own_error(key, variance.variance, baselines, candidates)
        own = _Loss(loss=loss - (common.loss if common else 0.0), error=error, degrees=variance.degrees)
        yield _Difference(
            key=key,
            baseline=math.exp(before[row].mean()),
            candidate=math.exp(after[row].mean()),
            whole=_whole(loss, own, common),
            own=own,
            common=common,
        )


def _common_shifts(before: sessions.Floats) -> sessions.Floats:
    """Return the shift of each baseline session that all its cells share; zeros where the baselines show none.

    The median over independent cells varies too, with pi / 2 times the variance of their mean. Shifts are separated
    only where they vary significantly more than that.
    """
    cells, count = before.shape
    nothing: sessions.Floats = np.zeros(count)
    if count < SEPARABLE_SESSIONS or cells < SEPARABLE_CELLS:
        return nothing
    centered = before - before.mean(axis=1, keepdims=True)
    shifts: sessions.Floats = np.median(centered, axis=0)
    by_chance = math.pi / 2 * float((centered - shifts).var(axis=1, ddof=1).mean()) / cells
    most = by_chance * chi2_quantile(CONFIDENCE, count - 1) / (count - 1)
    return shifts if float(shifts.var(ddof=1)) > most else nothing


def _common_loss(shifts: sessions.Floats, loss: float, candidates: int) -> _Loss:
    """Return the loss that all cells share; `shifts` are those of the baseline sessions."""
    count = len(shifts)
    found = sessions.with_prior(float(shifts.var(ddof=1)), degrees=count - 1, sessions=count)
    error = math.sqrt(found.variance * (1 / count + 1 / candidates))
    return _Loss(loss=loss, error=error, degrees=found.degrees)


def _own_error(key: CellKey, variance: float, baselines: Sequence[Session], candidates: Sequence[Session]) -> float:
    """Return the standard error of the difference of two means of session means.

    The variance of a session mean holds for as many runs as the baselines have; runs that the candidate has fewer, or
    whose spread is larger than theirs, add to it. With one baseline the prior is for the session alone, and the runs'
    own variance comes on top.
    """
    groups = (baselines, candidates)
    of_runs = [float(np.mean([_run_noise(session, key) for session in group])) for group in groups]
    added = of_runs if len(baselines) == 1 else [0.0, max(0.0, of_runs[1] - of_runs[0])]
    return math.sqrt(sum((variance + more) / len(group) for more, group in zip(added, groups, strict=True)))


def _run_noise(session: Session, key: CellKey) -> float:
    """Return the variance that its runs give to a session mean: consecutive runs may be correlated."""
    value = session.values[key]
    return value.run_variance * sessions.run_moments(value.runs, session.correlation)[0]


def _whole(loss: float, own: _Loss, common: _Loss | None) -> _Loss:
    """Return the whole loss: the variances of both parts add up (Satterthwaite 1946)."""
    if common is None:
        return own
    degrees = sessions.satterthwaite(*((part.error**2, part.degrees) for part in (own, common)))
    return _Loss(loss=loss, error=math.sqrt(own.error**2 + common.error**2), degrees=degrees)


def _decided(differences: Sequence[_Difference], settings: Settings) -> list[tuple[CellKey, Cell]]:
    if not differences:
        return []
    adjusted = adjusted_for_discovery([each.own.p_value for each in differences])
    shifts = {each.key[1]: each.common for each in differences if each.common}
    p_shifts = adjusted_for_discovery([each.p_value for each in shifts.values()])
    p_common = dict(zip(shifts, map(float, p_shifts), strict=True))
    ways = 2 if shifts else 1  # Losses are looked for in the common shift too.
    return [
        (each.key, _cell(each, float(p_value), p_common.get(each.key[1], 1.0), settings, ways))
        for each, p_value in zip(differences, adjusted, strict=True)
    ]


def _cell(each: _Difference, p_own: float, p_common: float, settings: Settings, ways: int) -> Cell:
    allowed = _allowed(each.key[1], settings)
    p_own = min(1.0, ways * p_own)
    p_common = min(1.0, ways * p_common)
    by_own = p_own <= settings.false_alarms and each.own.exceeds(allowed) and each.whole.loss > allowed
    by_common = p_common <= settings.false_alarms and each.whole.exceeds(allowed)
    regressed = by_own or by_common
    excluded = _excluded_loss(each)
    reason = "" if regressed else _undecided(each.key[1], excluded, settings)
    outcome: Outcome = "regression" if regressed else "undecided" if reason else "pass"
    sign = -1 if better(each.key[1]) == "higher" else 1
    margin = each.whole.error * t_quantile(CONFIDENCE, each.whole.degrees)
    ends = sorted((math.expm1(sign * (each.whole.loss - margin)), math.expm1(sign * (each.whole.loss + margin))))
    return Cell(
        case_id=each.key[0],
        metric=each.key[1],
        outcome=outcome,
        reason=reason,
        baseline=each.baseline,
        candidate=each.candidate,
        change=math.expm1(sign * each.whole.loss),
        low=ends[0],
        high=ends[1],
        p_value=min(p_own, p_common),
        excluded=excluded,
    )


def _undecided(metric: str, excluded: float, settings: Settings) -> str:
    """Return why the absence of a regression is not shown; empty where it is."""
    what = "loss" if better(metric) == "higher" else "increase"
    margin = settings.margin if what == "loss" else 2 * settings.margin
    if excluded < margin:
        return ""
    return (
        f"{'a' if what == 'loss' else 'an'} {what} of {100 * margin:.3g} % is not excluded, only one of "
        f"{100 * excluded:.0f} %; repeat the runs, add baselines, or accept more with `--margin`"
    )


def _allowed(metric: str, settings: Settings) -> float:
    """Return the allowance in natural logarithms: a loss of rate, or an increase of latency."""
    return -math.log1p(-settings.allow) if better(metric) == "higher" else math.log1p(settings.allow_latency)


def _excluded_loss(each: _Difference) -> float:
    """Return the loss that is excluded with 95 % confidence, as a share."""
    loss = max(0.0, each.whole.upper)
    return -math.expm1(-loss) if better(each.key[1]) == "higher" else math.expm1(loss)


def lines(check: Check) -> Iterator[str]:
    """Yield the summary, one line per cell that regressed or is undecided, and the notes."""
    yield summary(check)
    for cell in check.regressions:
        yield f"regression  {describe(cell)}"
    for cell in check.undecided:
        yield f"undecided   {describe(cell)}"
    for cell in check.listed:
        yield f"tail {cell.outcome}, does not decide  {describe(cell)}"
    for note in check.notes:
        yield f"note: {note}"


def summary(check: Check) -> str:
    """Return the outcome in one sentence."""
    against = f"{len(check.baselines)} baseline{'s' if len(check.baselines) != 1 else ''}"
    compared = f"{len(check.deciding)} cells against {against}"
    if not check.deciding:
        return f"Undetermined: no case of {against} has a rate or a latency."
    if found := check.regressions:
        worst = found[0]
        return f"Regression in {len(found)} of {compared}; largest: {_loss_text(worst)} in {worst.case_id}."
    if check.undecided:
        return f"Undetermined: {len(check.undecided)} of {compared} are undecided; no regression in the others."
    return f"No regression in {compared}; {_excluded_text(check)}"


def describe(cell: Cell) -> str:
    """Return one line about a cell: values, change with its interval, and why it is undecided."""
    known = find(cell.metric)
    parts = [f"{cell.case_id}  {known.title if known else cell.metric}"]
    if cell.change is not None and cell.low is not None and cell.high is not None:
        assert cell.baseline is not None and cell.candidate is not None, "a change has two values"
        values = f"{_value(cell.metric, cell.baseline)} to {_value(cell.metric, cell.candidate)}"
        parts.append(f"{values} ({cell.change:+.1%}, 90 % CI {cell.low:+.1%} to {cell.high:+.1%})")
    if cell.reason:
        parts.append(cell.reason)
    return ": ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else parts[0]


def markdown(check: Check) -> str:
    """Return a comment for a pull request: the summary and a table of the cells that did not pass."""
    shown = [*check.regressions, *check.undecided, *check.listed]
    rows = [
        "| outcome | case | metric | baseline | candidate | change | 90 % CI | reason |",
        "|---|---|---|---:|---:|---:|---:|---|",
        *(_row(cell) for cell in shown),
    ]
    notes = [f"- {escape(note)}" for note in check.notes]
    blocks = [f"**{escape(summary(check))}**", "\n".join(rows) if shown else "", "\n".join(notes), _method(check)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def to_json(check: Check) -> str:
    """Return everything about the check, values in the units of the metrics, changes as shares."""
    return json.dumps(
        {"summary": summary(check), "exit_code": check.exit_code, "method": _method(check), **asdict(check)}, indent=2
    )


def junit(check: Check) -> str:
    """Return JUnit XML: one test case per cell, a regression as a failure; undecided cells and listed tails skipped."""
    suite = ElementTree.Element(
        "testsuite",
        name="iosonde check",
        tests=str(len(check.cells)),
        failures=str(len(check.regressions)),
        skipped=str(len(check.undecided) + len(check.listed)),
    )
    for cell in check.cells:
        case = ElementTree.SubElement(suite, "testcase", classname=cell.case_id, name=cell.metric)
        if cell.outcome == "regression" and cell.decides:
            ElementTree.SubElement(case, "failure", message=describe(cell))
        elif cell.outcome != "pass":
            ElementTree.SubElement(case, "skipped", message=describe(cell))
    ElementTree.indent(suite)
    # Control characters are not allowed in XML, not even escaped.
    return printable(ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)) + "\n"


def _method(check: Check) -> str:
    settings = check.settings
    return (
        f"Sessions as units, moderated variances, one-sided 95 % bounds; allowance {100 * settings.allow:.3g} % of the "
        f"rate and {100 * settings.allow_latency:.3g} % of latency; false discovery rate "
        f"{100 * settings.false_alarms:.3g} % over {len(check.deciding)} cells."
    )


def _excluded_text(check: Check) -> str:
    """State the loss that every cell excludes."""
    excluded = [(better(cell.metric), cell.excluded) for cell in check.deciding if cell.excluded is not None]
    parts = [
        f"{what} of {100 * max(each):.1f} %"
        for what, side in (("a rate loss", "higher"), ("a latency increase", "lower"))
        if (each := [loss for of_side, loss in excluded if of_side == side])
    ]
    return f"{' and '.join(parts)} or more {'are' if len(parts) > 1 else 'is'} excluded with 95 % confidence."


def _loss_text(cell: Cell) -> str:
    if percentile := percentile_of(cell.metric):
        return f"{percentile.replace('_', '.')} latency +{100 * loss_of(cell):.1f} %"
    what = "rate" if better(cell.metric) == "higher" else cell.metric
    return f"{what} {'-' if what == 'rate' else '+'}{100 * loss_of(cell):.1f} %"


def _row(cell: Cell) -> str:
    values = ["", "", "", ""]
    if cell.change is not None and cell.baseline is not None and cell.candidate is not None:
        values = [
            _value(cell.metric, cell.baseline),
            _value(cell.metric, cell.candidate),
            f"{cell.change:+.1%}",
            f"{cell.low:+.1%} to {cell.high:+.1%}",
        ]
    fields = [cell.outcome, markdown_code(cell.case_id), *map(escape, (cell.metric, *values, cell.reason))]
    return f"| {' | '.join(fields)} |"


def _value(metric: str, value: float) -> str:
    return format_latency(value) if better(metric) == "lower" else format_count(value)
