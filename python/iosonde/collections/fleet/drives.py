"""Drives of a fleet with their values, and every comparison that the report makes of them.

A value is that of `regression/check.py`: rate and p99 latency of each case, as logarithms. Drives are compared
within groups of the same model and firmware, firmware groups of a model with the largest of them, and each value with
age and wear. How often a drive stalls is compared over all cases. All comparisons of a report share one error rate.

The tests are robust, and exact for small groups of normally distributed values. A drive is compared with the median of
the others, in units of their scale: the k-th smallest difference of all pairs (Qn, Rousseeuw and Croux 1993), which up
to half of the drives cannot distort. Drives that are tested do not contribute to what they are tested against. Median
and scale of few values vary, so the probability of a deviation is its mean over simulated groups of the same size:
given median and scale of such a group, the tail of the normal distribution is exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from iosonde.collections.library.page import device_text
from iosonde.collections.library.summary import THRESHOLDS_NS, SessionCell, Summary
from iosonde.findings.comparison.sessions import satterthwaite
from iosonde.findings.regression import CellKey, better, percentile_of
from iosonde.metrics.distributions import t_quantile, t_tail
from iosonde.metrics.statistics import CONFIDENCE, MARGIN, SEED
from iosonde.metrics.wording import counted

Floats = NDArray[np.float64]

MINIMUM_OTHERS = 3
MOST_OTHERS = 300
"""A larger group is represented by so many of its drives, chosen at random with a constant seed."""
_PAIRS = 10_000_000
_SMALLEST_SCALE = 1e-6
"""Relative: values that are all equal have a scale of 0."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The drives that one or more others are compared with."""

    count: int
    center: float
    """Median of the logarithms."""
    scale: float
    """Qn without its constant."""

    @property
    def deviation(self) -> float:
        """Standard deviation of one drive, if values are normally distributed."""
        return self.scale / float(_null(self.count)[1].mean())


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """Difference of one or more drives from a reference, of logarithms."""

    difference: float
    p_value: float
    half_width: float | None = None
    """Of the 95 % confidence interval; None where the repeats of a single drive are unknown."""
    center: float = 0.0
    """Median of the others' logarithms."""

    @property
    def ratio(self) -> float:
        return math.exp(self.difference)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the confidence interval of the ratio."""
        if self.half_width is None:
            return None
        return math.exp(self.difference - self.half_width), math.exp(self.difference + self.half_width)


def reference(values: Sequence[float]) -> Reference:
    """Median and scale of the logarithms of drives; at least `MINIMUM_OTHERS`."""
    sample = np.asarray(values, dtype=float)
    if len(sample) > MOST_OTHERS:
        sample = np.random.default_rng(SEED).choice(sample, MOST_OTHERS, replace=False)
    scale = max(float(_scales(sample[np.newaxis, :])[0]), _SMALLEST_SCALE)
    return Reference(count=len(sample), center=float(np.median(sample)), scale=scale)


def drive_deviation(value: float, others: Reference, *, run_variance: float, runs: int) -> Deviation:
    """Compare one drive with the others of its group; the interval has its repeats and the median of the others."""
    return _deviation(value, 1, others, own=(run_variance / runs, runs - 1) if runs > 1 else None)


def group_deviation(values: Sequence[float], others: Reference) -> Deviation:
    """Compare the median of a group of drives with another group, given that both vary alike."""
    own = others.deviation**2 * _median_variance(len(values))
    return _deviation(float(np.median(values)), len(values), others, own=(own, others.count - 1))


def _deviation(value: float, drives: int, others: Reference, *, own: tuple[float, int] | None) -> Deviation:
    """Compare the median of so many drives with others, given its own variance with the degrees of freedom of that."""
    difference, half_width = value - others.center, None
    if own:
        of_median = others.deviation**2 * _median_variance(others.count)
        freedom = satterthwaite(own, (of_median, others.count - 1))
        half_width = t_quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(own[0] + of_median)
    p_value = _tail(difference / others.scale, others.count, drives)
    return Deviation(difference=difference, p_value=p_value, half_width=half_width, center=others.center)


def excess_p_values(counts: Sequence[int], expected: Sequence[float]) -> list[float]:
    """Return, of each drive, the probability of so many events or more, if all drives have the same rate.

    `expected` are the events of each drive at the rate of all together. Given their number, those of one drive are
    binomial, whatever the rate is (Przyborowski and Wilenski 1940). Events that vary more than in a Poisson process, as
    the drives besides the tested one show it, count as fewer.
    """
    from scipy.special import bdtrc

    own, means = np.asarray(counts, dtype=float), np.asarray(expected, dtype=float)
    total = own.sum()
    found = []
    for place in range(len(own)):
        share = means[place] / total if total else 1.0
        others = np.delete(means, place) * ((total - own[place]) / max(total - means[place], 1e-12))
        squares = (np.delete(own, place) - others) ** 2 / np.maximum(others, 1e-12)
        dispersion = max(1.0, float(np.median(squares)) / _MEDIAN_SQUARE)
        several = math.floor(own[place] / dispersion)
        trials = several + math.ceil((total - own[place]) / dispersion)
        found.append(float(bdtrc(several - 1, trials, share)) if several else 1.0)
    return found


_MEDIAN_SQUARE = 0.4549
"""Median of the square of a standard normal value."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that with probability `level` no comparison below `level` is a false one (Holm 1979)."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


@lru_cache(maxsize=512)
def _null(count: int) -> tuple[Floats, Floats]:
    """Medians and scales of simulated groups of normal values with a standard deviation of 1."""
    groups = int(np.clip(_PAIRS / (count * (count - 1) / 2), 1000, 20_000))
    random = np.random.default_rng([SEED, count])
    parts = [random.standard_normal((min(200, groups - start), count)) for start in range(0, groups, 200)]
    medians = [np.median(part, axis=1) for part in parts]
    return np.concatenate(medians), np.concatenate([_scales(part) for part in parts])


def _median_variance(count: int) -> float:
    """Variance of the median of so many normal values."""
    return 1.0 if count == 1 else float(_null(min(count, MOST_OTHERS))[0].var())


def _tail(scaled: float, count: int, drives: int) -> float:
    """Probability that the median of so many drives is as far from that of `count` others, in units of their scale."""
    from scipy.special import ndtr

    (medians, scales), error = _null(count), math.sqrt(_median_variance(drives))
    limits = abs(scaled) * scales
    return float((ndtr((medians - limits) / error) + ndtr((-medians - limits) / error)).mean())


def _scales(groups: Floats) -> Floats:
    """Qn of each row, without its constant."""
    count = groups.shape[1]
    first, second = np.triu_indices(count, k=1)
    half = count // 2 + 1
    rank = half * (half - 1) // 2 - 1
    return np.asarray(np.partition(np.abs(groups[:, first] - groups[:, second]), rank, axis=1)[:, rank])


ERROR_RATE = 0.01
"""Probability that a report of a fleet of equal drives names any."""
STALL_FACTORS = (10, 100)
"""A stall has an I/O of at least this many times the p99 latency of its load; rare ones move no percentile."""
STALLS = "stalls"
"""In place of a metric."""
TREND_DRIVES = 10
"""Fewer drives of a group are not compared with their age and wear."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Drives of the same model and firmware."""

    model: str
    firmware: str

    def __str__(self) -> str:
        return f"{self.model}, firmware {self.firmware}" if self.firmware else self.model


@dataclass(frozen=True, kw_only=True)
class Drive:
    """One target of a fleet: a drive, or several that are measured together."""

    summary: Summary
    group: Group
    values: Mapping[CellKey, SessionCell]

    @property
    def name(self) -> str:
        """Its name in the fleet, with the first digits of the hash of its serial number where it has one."""
        serials = ", ".join(each.serial for each in self.summary.devices if each.serial)
        return f"{self.summary.path} (serial {serials}…)" if serials else self.summary.path


Kind = Literal["drive", "stalls", "firmware", "wear", "age"]


@dataclass(kw_only=True)
class Stalls:
    """Stalls of a drive over all loads."""

    factor: int
    count: int = 0
    intervals: int = 0
    largest_ns: int = 0
    expected: float = 0.0
    """If all drives of the group stalled equally often in each case."""
    others_count: int = 0
    others_intervals: int = 0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One test: a drive against the others of its group, a firmware against another, or a trend over age or wear."""

    kind: Kind
    cell: CellKey
    group: Group
    """Of the drive; of the firmware that is compared; of the trend."""
    drive: Drive | None = None
    base: Group | None = None
    """Of a firmware, the group that it is compared with."""
    count: int
    """Number of drives that it is compared with."""
    deviation: Deviation
    """Of a trend, its rank correlation."""
    stalls: Stalls | None = None
    """Of a comparison of these."""
    adjusted: float = 1.0
    """p-value after Holm."""

    @property
    def others(self) -> Group:
        """Compared with these."""
        return self.base or self.group

    @property
    def is_named(self) -> bool:
        """True if it is significant, and large enough to matter."""
        large = self.kind in ("age", "wear") or abs(self.deviation.difference) >= math.log1p(MARGIN)
        return self.adjusted < ERROR_RATE and large

    @property
    def is_worse(self) -> bool:
        if self.stalls:
            return self.deviation.difference > 0
        return (self.deviation.difference < 0) == (better(self.cell[1]) == "higher")


@dataclass(frozen=True, kw_only=True)
class FleetOfStudy:
    """Drives that one study was run on with one profile."""

    study: str
    title: str
    profile: str
    drives: Sequence[Drive]
    excluded: Sequence[str]
    """Reasons for excluded values, each with the number of values."""
    loads: Mapping[str, str]
    """Case to the words for its load."""

    @cached_property
    def cells(self) -> list[CellKey]:
        """Case and metric of every value, in the order of the study."""
        return list(dict.fromkeys(key for drive in self.drives for key in drive.values))

    @cached_property
    def groups(self) -> dict[Group, list[Drive]]:
        """The largest first."""
        found: dict[Group, list[Drive]] = {}
        for drive in self.drives:
            found.setdefault(drive.group, []).append(drive)
        return dict(sorted(found.items(), key=lambda each: (-len(each[1]), str(each[0]))))

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """All of them, with adjusted p-values."""
        found = [*self._of_drives(), *self._of_stalls(), *self._of_firmware(), *self._trends()]
        adjusted = holm([each.deviation.p_value for each in found])
        return [replace(each, adjusted=p_value) for each, p_value in zip(found, adjusted, strict=True)]

    @property
    def named(self) -> list[Comparison]:
        """Those that are stated, the largest deviation of each kind first."""
        return sorted(
            (each for each in self.comparisons if each.is_named),
            key=lambda each: (get_args(Kind).index(each.kind), -abs(each.deviation.difference)),
        )

    def values(self, group: Group, cell: CellKey) -> dict[str, SessionCell]:
        """Return the values of a group, by the path of the drive."""
        return {each.summary.path: each.values[cell] for each in self.groups[group] if cell in each.values}

    def _of_drives(self) -> Iterator[Comparison]:
        for group, drives in self.groups.items():
            for cell in self.cells:
                values = self.values(group, cell)
                if len(values) <= MINIMUM_OTHERS:
                    continue
                logs = [each.mean_log for each in values.values()]
                tested = [each for each in drives if cell in each.values]
                for place, drive in enumerate(tested):
                    others, own = reference(logs[:place] + logs[place + 1 :]), drive.values[cell]
                    deviation = drive_deviation(own.mean_log, others, run_variance=own.run_variance, runs=own.runs)
                    yield Comparison(
                        kind="drive", cell=cell, group=group, drive=drive, count=len(logs) - 1, deviation=deviation
                    )

    def _of_stalls(self) -> Iterator[Comparison]:
        """Compare how often a drive stalls with the others of its group."""
        for group, drives in self.groups.items():
            for factor in STALL_FACTORS if len(drives) > MINIMUM_OTHERS else ():
                found = _stalls(drives, factor)
                counts, expected = [each.count for each in found], [each.expected for each in found]
                if not sum(counts) or (max(expected) / sum(counts)) ** sum(counts) >= ERROR_RATE:
                    continue  # Too few to name any drive: such a test costs the others power (Tarone 1990).
                for drive, stalls, p_value in zip(drives, found, excess_p_values(counts, expected), strict=True):
                    difference = math.log((stalls.count + 0.5) / (stalls.expected + 0.5))
                    yield Comparison(
                        kind="stalls",
                        cell=("", STALLS),
                        group=group,
                        drive=drive,
                        count=len(drives) - 1,
                        deviation=Deviation(difference=difference, p_value=p_value),
                        stalls=stalls,
                    )

    def _of_firmware(self) -> Iterator[Comparison]:
        for base, group in self.firmware_pairs:
            for cell in self.cells:
                known = [each.mean_log for each in self.values(base, cell).values()]
                compared = [each.mean_log for each in self.values(group, cell).values()]
                if len(known) >= MINIMUM_OTHERS and compared:
                    deviation = group_deviation(compared, reference(known))
                    yield Comparison(
                        kind="firmware", cell=cell, group=group, base=base, count=len(known), deviation=deviation
                    )

    @property
    def firmware_pairs(self) -> list[tuple[Group, Group]]:
        """The largest group of each model, with each other firmware of that model."""
        largest: dict[str, Group] = {}
        for group in self.groups:
            largest.setdefault(group.model, group)
        return [(largest[group.model], group) for group in self.groups if group != largest[group.model]]

    def _trends(self) -> Iterator[Comparison]:
        for group, drives in self.groups.items():
            ages: dict[Kind, dict[str, int | None]] = {
                "age": {each.summary.path: each.summary.power_on_hours for each in drives},
                "wear": {each.summary.path: each.summary.percentage_used for each in drives},
            }
            for kind, age in ages.items():
                for cell in self.cells:
                    known = [
                        (float(at), value.mean_log)
                        for path, value in self.values(group, cell).items()
                        if (at := age[path]) is not None
                    ]
                    if len(known) >= TREND_DRIVES and len({each[0] for each in known}) > 2:
                        deviation = rank_correlation(known)
                        yield Comparison(kind=kind, cell=cell, group=group, count=len(known), deviation=deviation)


def _stalls(drives: Sequence[Drive], factor: int) -> list[Stalls]:
    """Count the stalls of each drive of a group."""
    found = [Stalls(factor=factor) for _ in drives]
    for case, place in _thresholds(drives, factor).items():
        known = [
            (stalls, of_case)
            for drive, stalls in zip(drives, found, strict=True)
            if (of_case := drive.summary.stalls.get(case)) and case in _latencies(drive)
        ]
        count, intervals = sum(own.counts[place] for _, own in known), sum(own.intervals for _, own in known)
        for stalls, own in known:
            stalls.count += own.counts[place]
            stalls.intervals += own.intervals
            stalls.largest_ns = max(stalls.largest_ns, own.largest_ns)
            stalls.expected += count * own.intervals / intervals
            stalls.others_count += count - own.counts[place]
            stalls.others_intervals += intervals - own.intervals
    return found


def _thresholds(drives: Sequence[Drive], factor: int) -> dict[str, int]:
    """Place in `THRESHOLDS_NS` of each case: at least so many times the p99 latency of the median drive."""
    known: dict[str, list[float]] = {}
    for drive in drives:
        for case, log in _latencies(drive).items():
            if case in drive.summary.stalls:
                known.setdefault(case, []).append(log)
    least = {case: factor * math.exp(float(np.median(logs))) for case, logs in known.items()}
    return {case: bisect_left(THRESHOLDS_NS, each) for case, each in least.items() if each <= THRESHOLDS_NS[-1]}


def _latencies(drive: Drive) -> dict[str, float]:
    """Logarithm of the p99 latency of each case, where a usable one is known; the highest of several streams."""
    found: dict[str, float] = {}
    for (name, metric), value in drive.values.items():
        if percentile_of(metric):
            case = name if name in drive.summary.stalls else name.rpartition(" (")[0]
            found[case] = max(value.mean_log, found.get(case, -math.inf))
    return found


def rank_correlation(points: Sequence[tuple[float, float]]) -> Deviation:
    """Spearman's rank correlation with its p-value by Student's t, in place of a difference; without an interval."""
    x, y = (_ranks([point[axis] for point in points]) for axis in (0, 1))
    if len(set(y)) < 2:
        return Deviation(difference=0.0, p_value=1.0)
    correlation = float(np.corrcoef(x, y)[0, 1])
    freedom = len(points) - 2
    statistic = abs(correlation) * math.sqrt(freedom / max(1e-12, 1 - correlation**2))
    return Deviation(difference=correlation, p_value=min(1.0, 2 * t_tail(statistic, freedom)))


def _ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value; the mean rank of equal ones."""
    ordered = np.sort(values)
    first, last = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return [float(each) for each in (first + last - 1) / 2]


def fleets(summaries: Sequence[Summary]) -> list[FleetOfStudy]:
    """Group summaries by study and profile; of several sessions of one drive the newest counts."""
    by_study: dict[tuple[str, str], list[Summary]] = {}
    for each in sorted(summaries, key=lambda each: each.path):
        by_study.setdefault((each.study, each.profile), []).append(each)
    return [_fleet(newest(found)) for _, found in sorted(by_study.items())]


def newest(summaries: Sequence[Summary]) -> list[Summary]:
    """Keep the newest session of each drive, which its model and serial number identify, or else its path."""
    found: dict[object, Summary] = {}
    for each in sorted(summaries, key=lambda each: each.started_at):
        serials = tuple((device.model, device.serial) for device in each.devices if device.serial)
        found[serials or each.path] = each
    return sorted(found.values(), key=lambda each: each.path)


def _fleet(summaries: Sequence[Summary]) -> FleetOfStudy:
    common: dict[str, Counter[str]] = {}
    for each in summaries:
        for case, parameters in each.parameters.items():
            common.setdefault(case, Counter())[parameters] += 1
    usual = {case: counts.most_common(1)[0][0] for case, counts in common.items()}
    excluded: Counter[str] = Counter()
    drives = []
    for each in summaries:
        values = {}
        for cell in each.cells:
            if reason := each.exclusion(cell, usual, "on most drives"):
                excluded[reason] += 1
            else:
                values[cell.case_id, cell.metric] = cell
        firmware = ", ".join(dict.fromkeys(device.firmware for device in each.devices if device.firmware))
        drives.append(Drive(summary=each, group=Group(model=device_text(each), firmware=firmware), values=values))
    return FleetOfStudy(
        study=summaries[0].study,
        title=summaries[0].title,
        profile=summaries[0].profile,
        drives=drives,
        excluded=[f"{counted(count, 'value')} excluded: {reason}" for reason, count in sorted(excluded.items())],
        loads={case: words for each in summaries for case, words in each.loads.items()},
    )
