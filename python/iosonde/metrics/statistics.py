"""Confidence intervals: how precise a value is, by its repeats or by the intervals of one run.

The methods were chosen by simulation (`bench/intervals.py`); docs/statistics.md has the table of their coverage, their
sources, and what they cannot show. Everything is deterministic: the same results always give the same report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iosonde.metrics.distributions import RAISED, ROUNDING, Prior, correlation_between, t_quantile

CONFIDENCE = 0.95
RESAMPLES = 4000
MINIMUM_REPEATS = 3
"""With fewer there is no interval."""
ORDER_STATISTICS_FROM = 6
"""From this many repeats on, the range of a sample covers its median with 95 % confidence, for any distribution."""
MINIMUM_INTERVALS = 6
"""A run with fewer intervals has no interval of its mean."""
MARGIN = 0.05
"""Two values within 5 % of each other are the same for anyone who chooses storage by them."""
WIDE = 10
"""An interval that spans more than this factor is reported as such, without its ends, and decides nothing."""
WIDE_TEXT = f"wider than a factor of {WIDE}"
SEED = 20251

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "same", "unclear"]

T_LOG = "Student's t on logarithms"
T_MODERATED = "Student's t on logarithms with moderated variance"
T_PLAIN = "Student's t"
ORDER = "order statistics"
CUT_OFF = ", cut off at 0"
"""Added to the name of a method whose lower limit was negative for a quantity that cannot be."""
CORRECTED = ", AR(1) correction"
"""Added to the name of a method whose interval is widened because consecutive repeats may be correlated."""
AUTOREGRESSIVE = T_PLAIN + CORRECTED
WELCH = "Welch's t on logarithms"
WELCH_PLAIN = "Welch's t"
PAIRED = "Student's t on logarithms of paired ratios"
POOLED = "Welch's t on logarithms, pooled over cells"
SIMULTANEOUS = "simultaneous t over all candidates"
BOOTSTRAP = "percentile bootstrap"
SIMULATED = "simulated medians"


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval; `low` and `high` are None where nothing supports one."""

    value: float
    low: float | None = None
    high: float | None = None
    method: str = field(default="", compare=False)
    """Name of the method, as docs/statistics.md explains it; empty without an interval."""
    n: int = field(default=0, compare=False)
    """Number of values it is based on: repeats, intervals, or cells."""

    @property
    def is_wide(self) -> bool:
        """True if the interval spans more than a factor of `WIDE`: its ends are not informative."""
        return is_wide(self.low, self.high)

    @property
    def certain(self) -> bool:
        """True if the estimate has an interval."""
        return self.low is not None and self.high is not None

    @property
    def is_noise(self) -> bool:
        """True if the interval of a ratio contains 1, so that the direction of the change is unknown."""
        return self.certain and not self.above(1) and not self.below(1)

    def above(self, limit: float) -> bool:
        """Return True if the whole interval is above the limit; False without an interval."""
        return self.low is not None and self.low > limit

    def below(self, limit: float) -> bool:
        """Return True if the whole interval is below the limit; False without an interval."""
        return self.high is not None and self.high < limit


def is_wide(low: float | None, high: float | None) -> bool:
    """Return whether an interval spans more than a factor of `WIDE`."""
    return low is not None and high is not None and low > 0 and high / low > WIDE


@dataclass(frozen=True, kw_only=True)
class RepeatNoise:
    """Noise of the repeats of each case, estimated from all cases of a result set."""

    correlation: float = 0.0
    """Of consecutive repeats."""
    priors: Mapping[bytes, Prior] = field(default_factory=dict)
    """Of the metric of each sample, by `sample_key`. Samples of other values, such as sums of metrics, have none."""
    of_metrics: Mapping[str, Prior] = field(default_factory=dict)
    """Of whole loads, by metric: for samples that are not complete yet."""

    def prior(self, values: ArrayLike) -> Prior | None:
        """The prior of a sample."""
        return self.priors.get(sample_key(values)) if self.priors else None


def sample_key(values: ArrayLike) -> bytes:
    """Identify a sample by its values, in any order."""
    return np.sort(np.asarray(values, dtype=np.float64)).tobytes()


UNKNOWN_NOISE = RepeatNoise()
_NOISE: ContextVar[RepeatNoise] = ContextVar("noise", default=UNKNOWN_NOISE)


@contextmanager
def known_noise(noise: RepeatNoise) -> Iterator[None]:
    """Compute all intervals of repeats in this context with what the result set shows about its noise.

    It belongs to the result set, not to a value, so it is set once for all that is computed from it.
    """
    token = _NOISE.set(noise)
    try:
        yield
    finally:
        _NOISE.reset(token)


def repeats_interval(
    values: ArrayLike, *, noise: RepeatNoise | None = None, metric: str = "", least: float = 0.0
) -> Estimate:
    """Return the median of repeats with its interval.

    `noise` is that of the result set; by default that of the context (`known_noise`). Without any, the interval is that
    of the sample alone, and wider. `metric` names that of a sample which is not one of the result set. `least` is the
    smallest possible value: rates, latencies and shares cannot be negative.
    """
    noise = noise or _NOISE.get()
    sample = np.asarray(values, dtype=np.float64)
    prior = noise.of_metrics.get(metric) if metric else noise.prior(sample)
    low, high, [method] = bounded_median_intervals(
        sample[np.newaxis, :], correlation=noise.correlation, priors=[prior], least=least
    )
    if np.isnan(low[0]):
        return Estimate(float(np.median(sample)), n=len(sample))
    return Estimate(float(np.median(sample)), float(low[0]), float(high[0]), method, len(sample))


Priors = Sequence[Prior | None]


def bounded_median_intervals(
    rows: Floats, *, correlation: float, priors: Priors = (), least: Floats | float
) -> tuple[Floats, Floats, list[str]]:
    """Return the interval of the median of each row, cut off at its smallest possible value, and the method.

    The median is never below `least`, so the remaining interval contains it exactly as often. A row with a value below
    `least` shows that there is no such limit, and nothing is cut off.
    """
    low, high, methods = median_intervals(rows, correlation=correlation, priors=priors)
    is_cut = (low < least) & (rows.min(axis=1) >= least)
    names = [name + (CUT_OFF if cut else "") for name, cut in zip(methods, is_cut, strict=True)]
    return np.where(is_cut, least, low), high, names


def median_intervals(
    rows: Floats, *, correlation: float = 0.0, priors: Priors = ()
) -> tuple[Floats, Floats, list[str]]:
    """Return the interval of the median of each row of repeats, and the method; NaN with fewer than `MINIMUM_REPEATS`.

    Up to five repeats Student's t on logarithms (on the values, where one is not positive), with moderated variances
    where there are `priors`, one of each row. Then order statistics, which hold for every distribution. A `correlation`
    of consecutive repeats widens both.
    """
    count = rows.shape[1]
    if count < MINIMUM_REPEATS:
        nothing = np.full(rows.shape[0], np.nan)
        return nothing, nothing, [""] * len(rows)
    corrected = CORRECTED if correlation > 0 else ""
    medians = np.median(rows, axis=1)
    positive = rows.min(axis=1) > 0
    if count >= ORDER_STATISTICS_FROM:
        low, high = _order_statistics(np.sort(rows, axis=1), positive, _widening(count, correlation))
        return low, high, [ORDER + corrected] * len(rows)
    noise = _noise_of(rows, priors)
    low, high = (np.exp(bound) for bound in _t_bounds(_logs(rows), noise, correlation))
    plain_low, plain_high = _t_bounds(rows, _own_noise(rows), correlation)
    low, high = np.where(positive, low, plain_low), np.where(positive, high, plain_high)
    names = np.where(noise.degrees > count - 1, T_MODERATED, np.where(positive, T_LOG, T_PLAIN))
    return np.minimum(low, medians), np.maximum(high, medians), [f"{name}{corrected}" for name in names]


@dataclass(frozen=True)
class _Noise:
    """Variance of each sample, its degrees of freedom for independent values, and the confidence of its interval."""

    variances: Floats
    degrees: Floats
    confidence: Floats


def _own_noise(rows: Floats) -> _Noise:
    """Return the noise as the samples alone show it."""
    one = np.ones(len(rows))
    confidence = SMALL_SAMPLES.get(rows.shape[1], CONFIDENCE)
    return _Noise(rows.var(axis=1, ddof=1), one * (rows.shape[1] - 1), one * confidence)


def _noise_of(rows: Floats, priors: Priors) -> _Noise:
    """Return the noise of the logarithms, moderated in small samples that have a prior."""
    own = _own_noise(_logs(rows))
    if rows.shape[1] >= ORDER_STATISTICS_FROM:
        return own
    is_positive = rows.min(axis=1) > 0
    for prior in dict.fromkeys(each for each in priors if each):
        chosen = np.flatnonzero(is_positive & [each is prior for each in priors])
        variances, degrees = prior.moderated(own.variances[chosen], rows.shape[1] - 1)
        is_moderated = degrees > rows.shape[1] - 1
        own.variances[chosen], own.degrees[chosen] = variances, degrees
        own.confidence[chosen[is_moderated]] = MODERATED if prior.cases >= ENOUGH_CASES else MODERATED_OF_FEW
    return own


def _logs(rows: Floats) -> Floats:
    """Return the logarithms of rows of positive values, and zeros for the others."""
    logs: Floats = np.log(np.where(rows.min(axis=1, keepdims=True) > 0, rows, 1.0))
    return logs


def _t_bounds(rows: Floats, noise: _Noise, correlation: float) -> tuple[Floats, Floats]:
    from scipy.special import stdtrit

    count = rows.shape[1]
    factor, freedom = mean_moments(count, correlation)
    degrees = noise.degrees * (freedom / (count - 1))
    half = stdtrit(degrees, (1 + noise.confidence) / 2) * np.sqrt(noise.variances * factor)
    means = rows.mean(axis=1)
    return means - half, means + half


def _order_statistics(ordered: Floats, positive: NDArray[np.bool_], widening: float) -> tuple[Floats, Floats]:
    """Return the innermost pair of ranks whose range covers the median with at least the confidence (David 1981).

    Its distances from the median are widened, on logarithms where all values are positive.
    """
    rank = _rank(ordered.shape[1])
    low, high = ordered[:, rank], ordered[:, ordered.shape[1] - 1 - rank]
    if widening == 1:
        return low, high
    medians = np.median(ordered, axis=1)
    one = np.ones(len(ordered))
    ends = []
    for end in (low, high):
        factors = np.divide(end, medians, out=one.copy(), where=positive) ** widening
        ends.append(np.where(positive, medians * factors, medians + widening * (end - medians)))
    return ends[0], ends[1]


def _widening(count: int, correlation: float) -> float:
    """Return the half-width of Student's t for correlated repeats over that for independent ones."""
    factor, freedom = mean_moments(count, correlation)
    return math.sqrt(count * factor) * _t_quantile(freedom) / _t_quantile(count - 1) if correlation else 1.0


@lru_cache(maxsize=256)
def _rank(count: int) -> int:
    """Return the outer rank, from 0: the range from rank k to n - 1 - k misses by at most two binomial tails."""
    from scipy.special import bdtr

    tails = bdtr(np.arange(count // 2 + 1), count, 0.5)
    return int(np.flatnonzero(1 - 2 * tails >= CONFIDENCE)[-1])


def distant_modes_coverage(count: int) -> float:
    """Return the largest coverage that any interval of `count` repeats can have if there are two distant modes.

    With equally frequent modes all repeats fall into one of them with probability 2^(1-n). Such a sample shows neither
    the other mode nor its distance, so no interval that scales with the values reaches the median between the modes.
    The range of the sample reaches it in all other samples.
    """
    return 1 - 2.0 ** (1 - count)


SMALL_SAMPLES = {3: 0.977, 4: 0.973, 5: 0.971}
"""Confidence of t for so few repeats, which covers 95 % also where samples have two near modes: by simulation."""
MODERATED = 0.97
"""The same with moderated variances, which covers 95 % also where cases are unequally noisy."""
MODERATED_OF_FEW = 0.98
"""The same with fewer than `ENOUGH_CASES` cases."""
ENOUGH_CASES = 8


def _t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    return t_quantile((1 + confidence) / 2, freedom)


CORRELATIONS = np.concatenate([np.arange(0, 0.9, 0.05), np.arange(0.9, 0.985, 0.01)])
"""Lag-1 correlations for which moments are computed; others are interpolated."""
LARGEST_EXACT = 200
"""Longer series use the moments' limits."""


@lru_cache(maxsize=4096)
def mean_moments(count: int, correlation: float) -> tuple[float, float]:
    """Return variance of the mean over expected sample variance, and Satterthwaite's degrees of freedom, for AR(1).

    Exact second moments: with C the correlation matrix and D = HCH its centred form, the mean has the variance
    sum(C) / n^2, the sample variance the expectation tr(D) / (n - 1) and the degrees of freedom tr(D)^2 / tr(D^2).
    """
    if count > LARGEST_EXACT:
        inflation = (1 + correlation) / (1 - correlation)
        return inflation / count, max(1.0, count * (1 - correlation**2) / (1 + correlation**2) - 1)
    index = np.arange(count)
    matrix = correlation ** np.abs(index[:, np.newaxis] - index)
    centred = matrix - matrix.mean(axis=0) - matrix.mean(axis=1)[:, np.newaxis] + matrix.mean()
    trace = float(np.trace(centred))
    return float(matrix.sum()) / count**2 / (trace / (count - 1)), trace**2 / float((centred**2).sum())


@lru_cache(maxsize=256)
def _expected_lag_one(count: int) -> Floats:
    """Return the expected lag-1 autocorrelation of samples for each of `CORRELATIONS`: small samples are biased."""
    if count > LARGEST_EXACT:
        return CORRELATIONS - (1 + 3 * CORRELATIONS) / count
    found = []
    index = np.arange(count)
    for correlation in CORRELATIONS:
        matrix = correlation ** np.abs(index[:, np.newaxis] - index)
        centred = matrix - matrix.mean(axis=0) - matrix.mean(axis=1)[:, np.newaxis] + matrix.mean()
        found.append(float(np.trace(centred, offset=1)) / float(np.trace(centred)))
    return np.maximum.accumulate(found)


UPPER = 1.4
"""Standard errors by which an estimated correlation is raised, so that the interval covers: chosen by simulation."""


def series_interval(series: ArrayLike, *, last: int | None = None) -> Estimate:
    """Return the mean of one run's interval series, with an interval that respects its autocorrelation.

    Consecutive intervals resemble each other, so their mean is less precise than that of as many independent values.
    The lag-1 correlation is estimated, corrected for its bias (Kendall 1954), raised by its standard error, and enters
    variance and degrees of freedom. With `last` the mean is that of so many last values, and the variance and the
    correlation are still those of all.
    """
    values = np.asarray(series, dtype=np.float64)
    count = len(values)
    mean = float(values[-(last or count) :].mean()) if count else float("nan")
    if count < MINIMUM_INTERVALS:
        return Estimate(mean, n=count)
    deviation = values - values.mean()
    total = float((deviation**2).sum())
    if total == 0:
        return Estimate(mean, mean, mean, AUTOREGRESSIVE, count)
    lag_one = float((deviation[1:] * deviation[:-1]).sum()) / total
    error = math.sqrt(max(1 - lag_one**2, 0.05) / count)
    correlation = float(np.interp(lag_one + UPPER * error, _expected_lag_one(count), CORRELATIONS))
    factor, freedom = mean_moments(count, round(correlation, 3))
    if last is not None:
        factor *= _variance_of_mean(last, correlation) / _variance_of_mean(count, correlation)
    half = _t_quantile(freedom) * math.sqrt(total / (count - 1) * factor)
    low, is_cut = mean - half, mean - half < 0 <= values.min()
    method = AUTOREGRESSIVE + (CUT_OFF if is_cut else "")
    return Estimate(mean, 0.0 if is_cut else low, mean + half, method, count)


def _variance_of_mean(count: int, correlation: float) -> float:
    """Return the variance of the mean of consecutive AR(1) values of variance 1."""
    lags = np.arange(1, count)
    return float(1 + 2 * ((1 - lags / count) * correlation**lags).sum()) / count


@lru_cache(maxsize=64)
def _lag_one_of_independent(count: int) -> float:
    """Return the standard deviation of the lag-1 autocorrelation of short samples of independent values."""
    return float(_lag_ones(count, 0.0).std())


@lru_cache(maxsize=64)
def _mean_lag_one(count: int) -> Floats:
    """Return the mean lag-1 autocorrelation of short samples for each of `CORRELATIONS`, by simulation."""
    if count > SHORT:
        return _expected_lag_one(count)
    return np.maximum.accumulate([float(_lag_ones(count, correlation).mean()) for correlation in CORRELATIONS])


def _lag_ones(count: int, correlation: float) -> Floats:
    """Return the lag-1 autocorrelation of 4,000 simulated samples."""
    noise = np.random.default_rng(SEED).standard_normal((4000, count))
    rows = noise.copy()
    for i in range(1, count):
        rows[:, i] = correlation * rows[:, i - 1] + math.sqrt(1 - correlation**2) * noise[:, i]
    rows -= rows.mean(axis=1)[:, np.newaxis]
    found: Floats = (rows[:, 1:] * rows[:, :-1]).sum(axis=1) / (rows**2).sum(axis=1)
    return found


SHORT = 20
"""Repeats of which the bias of an autocorrelation is simulated; that of longer samples is computed."""
MINIMUM_CASES = 4
"""The correlation of repeats is estimated only from at least this many cases, as their variances are moderated."""


def repeat_correlation(cases: Sequence[ArrayLike], *, doubt: float = 1.0) -> float:
    """Return the lag-1 correlation of consecutive repeats that intervals are computed with; 0 for too few cases.

    A few repeats of one case cannot show whether they drift; all cases of a result set together can to some degree.
    `cases` are the repeats of each in the order of execution. Their mean autocorrelation exceeds that of independent
    repeats by d, with the standard error e. Correlations are taken as normal around 0, and d^2 - e^2 estimates their
    variance (James and Stein 1961): the share 1 - (e/d)^2 of d is then expected, and nothing where d is at most e. Too
    small a correlation costs more coverage than too large a one gains, so d is raised by `RAISED` times e and the root
    of that share, the standard deviation that remains. `doubt` multiplies e where correlations are improbable.

    Cases whose repeats are run in turn share what disturbs a round of repeats, and are not independent then: with the
    mean correlation r between cases their autocorrelations have the correlation r^2, which enters the standard error.
    """
    logs = [np.log(found) for each in cases if len(found := np.asarray(each)) >= MINIMUM_REPEATS and (found > 0).all()]
    centred = [each - each.mean() for each in logs if np.ptp(each) > ROUNDING]
    if len(centred) < MINIMUM_CASES:
        return 0.0
    counts = [len(each) for each in centred]
    mean = float(np.mean([(each[1:] * each[:-1]).sum() / (each**2).sum() for each in centred]))
    expected = np.array([_mean_lag_one(count) for count in counts]).mean(axis=0)
    deviations = np.array([_lag_one_of_independent(count) for count in counts])
    shared = 1 + (len(centred) - 1) * correlation_between(centred) ** 2
    error = doubt * math.sqrt((deviations**2).mean() * shared / len(centred))
    excess = mean - float(expected[0])
    if excess <= error:
        return 0.0
    share = 1 - (error / excess) ** 2
    return round(share * float(np.interp(mean + RAISED * error * math.sqrt(share), expected, CORRELATIONS)), 2)


def plausible_medians(values: ArrayLike, *, seed: int) -> Floats:
    """Draw medians that the positive repeats of a case permit: Student's t on logarithms, with moderated variance."""
    sample = np.asarray(values, dtype=np.float64)
    variance, degrees, _ = _mean_noise(sample)
    drawn = np.random.default_rng(seed).standard_t(max(1.0, degrees), RESAMPLES)
    found: Floats = np.exp(np.log(sample).mean() + math.sqrt(variance) * drawn)
    return found


def ratio(numerator: ArrayLike, denominator: ArrayLike, *, paired: bool = False) -> Estimate:
    """Return the ratio of two groups of positive values, with its interval.

    Unpaired: ratio of the medians, Welch's t on logarithms. Paired (runs that were interleaved, one by one): median of
    the ratios, Student's t on their logarithms, so that drift that both members of a pair share cancels.
    """
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if paired:
        assert len(top) == len(bottom), "paired groups are of equal length"
        ratios = top / bottom
        low, high = _t_log(ratios)
        method = PAIRED if low is not None else ""
        return _around(float(np.median(ratios)), low, high, method, len(ratios))
    return _welch(float(np.median(top) / np.median(bottom)), [(top, bottom)], WELCH)


def difference(later: ArrayLike, earlier: ArrayLike) -> Estimate:
    """Return the difference of the medians of two groups, with its interval by Welch's t on the values."""
    sides = [np.asarray(side, dtype=np.float64) for side in (later, earlier)]
    value = float(np.median(sides[0]) - np.median(sides[1]))
    n = min(map(len, sides))
    if n < MINIMUM_REPEATS:
        return Estimate(value, n=n)
    moments = [mean_moments(len(each), _NOISE.get().correlation) for each in sides]
    parts = [float(each.var(ddof=1)) * factor for each, (factor, _) in zip(sides, moments, strict=True)]
    variance = sum(parts)
    if variance == 0:
        return Estimate(value, value, value, WELCH_PLAIN, n)
    freedom = variance**2 / sum(part**2 / each for part, (_, each) in zip(parts, moments, strict=True))
    half = _t_quantile(freedom) * math.sqrt(variance)
    center = float(sides[0].mean() - sides[1].mean())
    return _around(value, center - half, center + half, WELCH_PLAIN, n)


def pooled_ratio(pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Estimate:
    """Return the geometric mean of the ratios of several pairs of groups, with its interval.

    Where every group has repeats, their variances are pooled. Where they have not (published values, a single run per
    case), the interval shows how the ratio varies among the pairs.
    """
    groups = [(np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)) for top, bottom in pairs]
    ratios = np.array([np.median(top) / np.median(bottom) for top, bottom in groups])
    value = float(np.exp(np.mean(np.log(ratios))))
    if all(min(len(top), len(bottom)) >= MINIMUM_REPEATS for top, bottom in groups):
        return _welch(value, groups, POOLED)
    if len(pairs) < MINIMUM_REPEATS:
        return Estimate(value, n=len(pairs))
    low, high = _t_log(ratios, CONFIDENCE)
    return _around(value, low, high, T_LOG, len(pairs))


def _welch(value: float, groups: Sequence[tuple[Floats, Floats]], method: str) -> Estimate:
    """Interval of the mean difference of logarithms; Satterthwaite's degrees of freedom over all groups."""
    sides = [side for pair in groups for side in pair]
    n = min(map(len, sides))
    if n < MINIMUM_REPEATS or any((side <= 0).any() for side in sides):
        return Estimate(value, n=n)
    logs = [np.log(side) for side in sides]
    center = sum((1 if i % 2 == 0 else -1) * float(each.mean()) for i, each in enumerate(logs)) / len(groups)
    parts, degrees, confidence = zip(*map(_mean_noise, sides), strict=True)
    variance = sum(parts)
    if variance == 0:
        return Estimate(value, value, value, method, n)
    freedom = variance**2 / sum(part**2 / each for part, each in zip(parts, degrees, strict=True))
    half = _t_quantile(freedom, max(confidence)) * math.sqrt(variance) / len(groups)
    return _around(value, math.exp(center - half), math.exp(center + half), method, n)


def _mean_noise(sample: Floats) -> tuple[float, float, float]:
    """Return the variance of the mean logarithm of a sample, its degrees of freedom, and the confidence of t."""
    known, count = _NOISE.get(), len(sample)
    noise = _noise_of(sample[np.newaxis, :], [known.prior(sample)])
    factor, freedom = mean_moments(count, known.correlation)
    degrees = float(noise.degrees[0])
    confidence = float(noise.confidence[0]) if degrees > count - 1 else CONFIDENCE
    return float(noise.variances[0]) * factor, degrees * freedom / (count - 1), confidence


def _t_log(values: Floats, confidence: float | None = None) -> tuple[float | None, float | None]:
    if len(values) < MINIMUM_REPEATS or (values <= 0).any():
        return None, None
    rows = np.log(values)[np.newaxis, :]
    noise = _own_noise(rows)
    if confidence:
        noise = _Noise(noise.variances, noise.degrees, np.array([confidence]))
    low, high = _t_bounds(rows, noise, 0.0)
    return float(np.exp(low[0])), float(np.exp(high[0]))


def _around(value: float, low: float | None, high: float | None, method: str, n: int) -> Estimate:
    """Return an estimate whose interval contains its value, which is a median where the bounds are of a mean."""
    if low is None or high is None:
        return Estimate(value, n=n)
    return Estimate(value, min(low, value), max(high, value), method, n)


def maximum_interval(groups: Sequence[ArrayLike]) -> Estimate:
    """Return the largest median of several groups, with an interval that accounts for its selection.

    The winner among many is partly a winner by chance. So the interval is simultaneous: it covers all groups at once
    with 95 % confidence, and therefore the selected one, whichever it is. The variance of logarithms is pooled; the
    quantile is that of the largest of k independent |t| with its degrees of freedom.
    """
    samples = [np.asarray(group, dtype=np.float64) for group in groups]
    best = max(samples, key=lambda sample: float(np.median(sample)))
    value, n = float(np.median(best)), len(best)
    usable = [np.log(sample) for sample in samples if len(sample) >= MINIMUM_REPEATS and (sample > 0).all()]
    if n < MINIMUM_REPEATS or (best <= 0).any():
        return Estimate(value, n=n)
    correlation = _NOISE.get().correlation
    pooled = sum(float(((each - each.mean()) ** 2).sum()) for each in usable) / sum(len(each) - 1 for each in usable)
    freedom = round(sum(mean_moments(len(each), correlation)[1] for each in usable))
    logs = np.log(best)
    spread = math.sqrt(max(pooled, float(logs.var(ddof=1))) * mean_moments(n, correlation)[0])
    half = _largest_t(len(usable), max(1, freedom)) * spread
    return _around(value, math.exp(logs.mean() - half), math.exp(logs.mean() + half), SIMULTANEOUS, n)


@lru_cache(maxsize=256)
def _largest_t(count: int, freedom: int) -> float:
    """Quantile of the largest of `count` independent normal values over one estimated standard deviation."""
    random = np.random.default_rng(SEED)
    largest = np.abs(random.standard_normal((20_000, count))).max(axis=1)
    return float(np.quantile(largest / np.sqrt(random.chisquare(freedom, 20_000) / freedom), CONFIDENCE))


def verdict(ratio: Estimate, *, better: Literal["higher", "lower"]) -> Verdict:
    """Judge a ratio of contender to baseline.

    `same` when the whole interval is within the margin, even if it excludes 1: a real difference too small to
    matter. `better` or `worse` when the whole interval is on one side of 1. Else, without an interval, or with one that
    spans more than a factor of `WIDE`, `unclear`.
    """
    if ratio.low is None or ratio.high is None or ratio.is_wide:
        return "unclear"
    if ratio.low >= 1 / (1 + MARGIN) and ratio.high <= 1 + MARGIN:
        return "same"
    if ratio.low > 1:
        return "better" if better == "higher" else "worse"
    if ratio.high < 1:
        return "worse" if better == "higher" else "better"
    return "unclear"


ESTIMABLE = 10.0
"""Times the present repeats up to which the number needed is estimated: beyond, the noise is too poorly known."""


def runs_needed(ratio: Estimate, repeats: int) -> str:
    """Estimate how many repeats would distinguish a ratio from 1 if the variance stays, where that can be estimated.

    With t the half-width shrinks faster than the root of n, because the quantile shrinks too.
    """
    if ratio.low is None or ratio.high is None or repeats < MINIMUM_REPEATS:
        return f"at least {MINIMUM_REPEATS} repeats are needed"
    half_width, distance = math.log(ratio.high / ratio.low) / 2, abs(math.log(ratio.value))
    error = half_width / _t_quantile(max(1.0, 2.0 * repeats - 2))
    wanted = max(distance, math.log1p(MARGIN))
    for needed in range(repeats + 1, int(repeats * ESTIMABLE) + 1):
        if _t_quantile(2.0 * needed - 2) * error * math.sqrt(repeats / needed) <= wanted:
            return f"about {needed} repeats would decide it"
    return f"more than {int(repeats * ESTIMABLE)} repeats would be needed; reduce the noise first"


def slope(x: ArrayLike, y: ArrayLike) -> Estimate:
    """Return the slope of y over x by Theil and Sen (the median of all pairs' slopes), with a bootstrap interval.

    A single outlier among a handful of control runs does not change it, as it would a least-squares line.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    value = _theil_sen(xs[np.newaxis, :], ys[np.newaxis, :])[0]
    if len(xs) < MINIMUM_REPEATS + 1:
        return Estimate(float(value), n=len(xs))
    resamples = max(100, min(1000, 2_000_000 // len(xs) ** 2))
    drawn = np.random.default_rng(SEED).integers(0, len(xs), size=(resamples, len(xs)), dtype=np.intp)
    slopes = _theil_sen(xs[drawn], ys[drawn])
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(slopes[~np.isnan(slopes)], [tail, 100 - tail])
    return Estimate(float(value), float(low), float(high), BOOTSTRAP, len(xs))


def _theil_sen(xs: Floats, ys: Floats) -> Floats:
    first, second = np.triu_indices(xs.shape[1], k=1)
    run = xs[:, second] - xs[:, first]
    rise = ys[:, second] - ys[:, first]
    slopes = np.divide(rise, run, out=np.full_like(rise, np.nan), where=run != 0)
    enough = ~np.isnan(slopes).all(axis=1)
    medians = np.full(len(xs), np.nan)
    medians[enough] = np.nanmedian(slopes[enough], axis=1)
    return medians
