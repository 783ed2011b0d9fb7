"""Coverage of the confidence intervals by simulation: the tables of docs/statistics.md.

    python bench/intervals.py [--samples 4000] [--seed 1]

For each method, distribution and number of values: how often an interval that claims 95 % contains the true value.
Deterministic for a seed. The standard error of a percentage from 4,000 samples is 0.34 points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from shared import options

from iosonde.metrics.distributions import prior_of
from iosonde.metrics.statistics import (
    Floats,
    distant_modes_coverage,
    maximum_interval,
    median_intervals,
    pooled_ratio,
    ratio,
    repeat_correlation,
    repeats_interval,
    series_interval,
)

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

MODES = 1.5
"""Distance of the two modes from their middle, in standard deviations of each."""
FAR_MODES = 6.0

DISTRIBUTIONS: dict[str, Draw] = {
    "normal, 2 %": lambda random, shape: 100 * (1 + 0.02 * random.standard_normal(shape)),
    "log-normal, 2 %": lambda random, shape: 100 * np.exp(0.02 * random.standard_normal(shape)),
    "log-normal, 30 %": lambda random, shape: 100 * np.exp(0.3 * random.standard_normal(shape)),
    "bimodal, near": lambda random, shape: _bimodal(random, shape, MODES),
    "bimodal, far": lambda random, shape: _bimodal(random, shape, FAR_MODES),
}
"""Independent samples whose median is 100."""


def _bimodal(random: np.random.Generator, shape: tuple[int, ...], modes: float) -> Floats:
    side = random.choice([-1.0, 1.0], size=shape)
    return np.asarray(100 * (1 + 0.01 * (side * modes + random.standard_normal(shape))))


def autocorrelated(random: np.random.Generator, shape: tuple[int, int], correlation: float) -> Floats:
    """Return rows of an AR(1) process with mean 100 and a standard deviation of 2 %."""
    rows = random.standard_normal(shape)
    for i in range(1, shape[1]):
        rows[:, i] = correlation * rows[:, i - 1] + np.sqrt(1 - correlation**2) * rows[:, i]
    return np.asarray(100 * (1 + 0.02 * rows))


def repeats(random: np.random.Generator, draw: Draw, count: int, samples: int) -> float:
    """Coverage of the median of independent repeats."""
    return _covers(draw(random, (samples, count)))


DISTANCES = (3.0, 6.0, 12.0, 24.0, 100.0)
"""Distances of two modes, in standard deviations of each."""


def needed_half_width(random: np.random.Generator, distance: float, count: int, samples: int) -> float:
    """Half-width of an interval of t's form that covers 95 %, over that of t for normal values.

    Half-widths are a multiple of the standard deviation of the sample; the multiple is chosen for this distance.
    """
    rows = np.log(_bimodal(random, (samples, count), distance / 2) / 100)
    multiples = np.abs(rows.mean(axis=1)) / rows.std(axis=1, ddof=1)
    one = np.random.default_rng(0).standard_normal((1, count))
    low, high, _ = median_intervals(np.exp(0.001 * one))
    usual = np.log(high[0] / low[0]) / 2 / (0.001 * one.std(ddof=1))
    return float(np.quantile(multiples, 0.95) / usual)


def distant_rows(random: np.random.Generator, samples: int) -> Iterator[tuple[str, list[float]]]:
    """Yield coverage by the number of repeats: the largest possible, and that of the method."""
    yield "largest possible, any method", [distant_modes_coverage(n) for n in FEW]
    for distance in DISTANCES:
        rows = [_bimodal(random, (samples, n), distance / 2) for n in FEW]
        yield f"{distance:g} standard deviations apart", [_covers(each) for each in rows]


def _covers(rows: Floats) -> float:
    low, high, _ = median_intervals(rows)
    return float(((low <= 100) & (high >= 100)).mean())


FEW = (3, 4, 5, 6)

NOISES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "equal noise": lambda random, cases: np.full(cases, 0.02),
    "unequal noise": lambda random, cases: 0.02 * np.exp(0.7 * random.standard_normal(cases)),
    "one case in ten is ten times noisier": lambda random, cases: np.where(random.random(cases) < 0.1, 0.2, 0.02),
    "two near modes": lambda random, cases: np.full(cases, 0.01),
    "two distant modes in one case of four": lambda random, cases: np.full(cases, 0.01),
    "two distant modes": lambda random, cases: np.full(cases, 0.01),
}
"""Standard deviation of the repeats of each case of a result set, in its modes."""
SHARED_NOISE = "90 % of the noise in common"


def cases_of_a_set(random: np.random.Generator, name: str, cases: int, count: int) -> tuple[Floats, Floats]:
    """Draw the repeats of all cases of a result set, whose medians are 100, and the noise of each."""
    rows = random.standard_normal((cases, count))
    if name == SHARED_NOISE:
        rows = np.sqrt(0.1) * rows + np.sqrt(0.9) * random.standard_normal((1, count))
        return np.asarray(100 * np.exp(0.02 * rows)), np.full(cases, 0.02)
    noise, distance = NOISES[name](random, cases), np.zeros(cases)
    if "modes" in name:
        distance = np.full(cases, MODES if "near" in name else FAR_MODES)
    if "one case of four" in name:
        distance *= random.random(cases) < 0.25
    rows += distance[:, np.newaxis] * random.choice([-1.0, 1.0], size=rows.shape)
    return np.asarray(100 * np.exp(noise[:, np.newaxis] * rows)), noise * (1 + distance)


def moderated(
    random: np.random.Generator, name: str, cases: int, count: int, sets: int
) -> tuple[float, float, float, float]:
    """Coverage of whole result sets: of each case alone, moderated, of the noisiest cases; and the ratio of widths.

    The noisiest cases have at least three times the median noise. Widths are medians over the cases of a set.
    """
    alone, together, noisiest, widths = [], [], [], []
    for _ in range(sets):
        rows, noise = cases_of_a_set(random, name, cases, count)
        priors = [prior_of(list(np.log(rows)))] * cases
        ends = (
            median_intervals(rows),
            median_intervals(rows, correlation=repeat_correlation(list(rows)), priors=priors),
        )
        covers = [(low <= 100) & (high >= 100) for low, high, _ in ends]
        alone.append(covers[0].mean())
        together.append(covers[1].mean())
        noisiest += list(covers[1][noise >= 3 * np.median(noise)])
        own, narrow = (np.median(np.log(high / low)) for low, high, _ in ends)
        widths.append(narrow / own)
    found = [float(np.mean(each)) if each else np.nan for each in (alone, together, noisiest)]
    return found[0], found[1], found[2], float(np.median(widths))


SET_SIZES = (4, 13, 40)


def moderated_rows(random: np.random.Generator, samples: int) -> Iterator[tuple[str, list[float]]]:
    """Yield coverage and relative width of moderated intervals by noise, number of cases and number of repeats."""
    for name in (*NOISES, SHARED_NOISE):
        for cases in SET_SIZES:
            found = [moderated(random, name, cases, n, max(20, samples // cases)) for n in FEW[:3]]
            columns = zip(*found, strict=True)
            yield f"{name}, {cases} cases", [value for column in columns for value in column]


def correlated_repeats(random: np.random.Generator, correlation: float, count: int, samples: int) -> float:
    """Coverage over whole result sets of 24 cases whose repeats are correlated: their correlation is estimated."""
    return whole_sets(random, correlation, count, samples // 24)[0]


def whole_sets(
    random: np.random.Generator, correlation: float, count: int, sets: int, *, cases: int = 24, shared: float = 0.0
) -> tuple[float, float]:
    """Coverage over whole result sets, and the mean width of intervals over that of the same without correlation.

    `shared` is the share of the variance between repeats that all cases of a set have in common.
    """
    covered, widths = [], []
    for _ in range(max(1, sets)):
        own, common = (autocorrelated(random, (rows, count), correlation) - 100 for rows in (cases, 1))
        rows = 100 + np.sqrt(1 - shared) * own + np.sqrt(shared) * common
        priors = [prior_of(list(np.log(rows)))] * cases
        low, high, _ = median_intervals(rows, correlation=repeat_correlation(list(rows)), priors=priors)
        narrow, wide, _ = median_intervals(rows, priors=priors)
        covered.append(((low <= 100) & (high >= 100)).mean())
        widths.append(np.median(np.log(high / low) / np.log(wide / narrow)))
    return float(np.mean(covered)), float(np.mean(widths))


SHARED = 0.5


def set_rows(random: np.random.Generator, sets: int, *, which: int) -> Iterator[tuple[str, list[float]]]:
    """Yield coverage (`which` 0), or the widening by the correlation (1), by the number of repeats."""
    for cases, shared in ((12, 0.0), (24, 0.0), (24, SHARED)):
        text = f"{cases} cases" + (f" with {100 * shared:.0f} % in common" if shared else "")
        for correlation in CORRELATIONS:
            found = [whole_sets(random, correlation, n, sets, cases=cases, shared=shared)[which] for n in REPEATS]
            yield f"{text}, correlated {correlation:g}", found


def series(
    random: np.random.Generator, correlation: float, count: int, samples: int, *, is_quarter: bool = False
) -> float:
    """Coverage of the mean of one run's intervals, or of its last quarter."""
    last = count // 4 if is_quarter else None
    found = [series_interval(row, last=last) for row in autocorrelated(random, (samples, count), correlation)]
    return float(np.mean([each.low <= 100 <= each.high for each in found]))  # type: ignore[operator]


def largest(random: np.random.Generator, cases: int, count: int, samples: int, *, selected: bool = True) -> float:
    """Coverage of the true value of the winner among equal cases; without `selected`, of its ordinary interval."""
    covered = []
    for _ in range(samples):
        rows = DISTRIBUTIONS["log-normal, 2 %"](random, (cases, count))
        winner = rows[np.argmax(np.median(rows, axis=1))]
        found = maximum_interval(list(rows)) if selected else repeats_interval(winner)
        covered.append(found.low <= 100 <= found.high)  # type: ignore[operator]
    return float(np.mean(covered))


def ratios(random: np.random.Generator, draw: Draw, count: int, samples: int, *, paired: bool = False) -> float:
    """Coverage of the ratio of two equal groups; 1 minus it is the rate of false alarms."""
    pairs = zip(draw(random, (samples, count)), draw(random, (samples, count)), strict=True)
    found = [ratio(top, bottom, paired=paired) for top, bottom in pairs]
    return float(np.mean([each.low <= 1 <= each.high for each in found]))  # type: ignore[operator]


def stopped(
    random: np.random.Generator, draw: Draw, minimum: int, samples: int, *, width: float = 0.03, in_a_row: int = 2
) -> tuple[float, float]:
    """Coverage, and mean number of repeats, where a case is repeated until its interval is narrow (30 at most)."""
    rows = draw(random, (samples, MAXIMUM))
    is_open, was_narrow = np.ones(samples, dtype=bool), np.zeros(samples, dtype=int)
    covered, count = np.zeros(samples, dtype=bool), np.zeros(samples)
    for repeat in range(max(3, minimum - in_a_row + 1), MAXIMUM + 1):
        low, high, _ = median_intervals(rows[:, :repeat])
        is_narrow = (high - low) / 2 <= width * np.median(rows[:, :repeat], axis=1)
        was_narrow = np.where(is_narrow, was_narrow + 1, 0)
        ends = is_open & (repeat >= minimum) & ((was_narrow >= in_a_row) | (repeat == MAXIMUM))
        covered[ends] = ((low <= 100) & (high >= 100))[ends]
        count[ends] = repeat
        is_open &= ~ends
    return float(covered.mean()), float(count.mean())


def stopped_sets(
    random: np.random.Generator, noise: float, minimum: int, sets: int, *, width: float = 0.03, cases: int = 13
) -> tuple[float, float]:
    """Coverage, and mean number of repeats, of result sets with moderated variances whose cases end one by one.

    As `procedure.until` decides: from all repeats of all cases so far, after two precise repeats in a row.
    """
    covered, counts = [], []
    for _ in range(max(1, sets)):
        rows = 100 * np.exp(noise * random.standard_normal((cases, MAXIMUM)))
        done = np.full(cases, minimum)
        while True:
            present = [row[:count] for row, count in zip(rows, done, strict=True)]
            prior, correlation = prior_of([np.log(each) for each in present]), repeat_correlation(present)
            ends, before = (
                [
                    median_intervals(each[np.newaxis, : len(each) - less], correlation=correlation, priors=[prior])
                    for each in present
                ]
                for less in (0, 1)
            )
            narrow = [
                all((high - low)[0] / 2 <= width * np.median(row[:n]) for low, high, _ in both)
                for row, n, *both in zip(rows, done, ends, before, strict=True)
            ]
            is_open = ~np.array(narrow) & (done < MAXIMUM)
            if not is_open.any():
                break
            done[is_open] += 1
        covered.append(np.mean([(low <= 100) & (high >= 100) for low, high, _ in ends]))
        counts.append(done.mean())
    return float(np.mean(covered)), float(np.mean(counts))


MAXIMUM = 30
NOISE = (0.01, 0.02, 0.03, 0.05, 0.1)


def stopping_rows(random: np.random.Generator, samples: int) -> Iterator[tuple[str, list[float]]]:
    """Yield coverage by run-to-run noise, and the mean number of repeats (as if a percentage)."""
    draws: list[Draw] = [
        lambda random, shape, noise=noise: 100 * np.exp(noise * random.standard_normal(shape))  # type: ignore[misc]
        for noise in NOISE
    ]
    for minimum, in_a_row in ((3, 2), (5, 2), (3, 1), (5, 1)):
        found = [stopped(random, draw, minimum, samples, in_a_row=in_a_row) for draw in draws]
        rule = "two narrow in a row" if in_a_row == 2 else "the first narrow one (not used)"
        yield f"minimum {minimum}, {rule}", [coverage for coverage, _ in found]
        if in_a_row == 2:
            yield f"minimum {minimum}, mean repeats", [repeats / 100 for _, repeats in found]
    for minimum in (3, 5):
        found = [stopped_sets(random, noise, minimum, samples // 20) for noise in NOISE]
        yield f"minimum {minimum}, 13 cases with moderated variances", [coverage for coverage, _ in found]
        yield f"minimum {minimum}, 13 cases, mean repeats", [repeats / 100 for _, repeats in found]


def pooled(random: np.random.Generator, cells: int, count: int, samples: int) -> float:
    """Coverage of the ratio pooled over cells."""
    draw = DISTRIBUTIONS["log-normal, 2 %"]
    covered = []
    for _ in range(samples):
        found = pooled_ratio([(draw(random, (count,)), draw(random, (count,))) for _ in range(cells)])
        covered.append(found.low <= 1 <= found.high)  # type: ignore[operator]
    return float(np.mean(covered))


REPEATS = (3, 4, 5, 6, 7, 8, 9, 10)
INTERVALS = (6, 10, 20, 40, 100, 300)
CORRELATIONS = (0.0, 0.3, 0.6, 0.9)


def tables(seed: int, samples: int) -> Iterator[str]:
    """Yield the tables as Markdown."""
    random, few = np.random.default_rng(seed), samples // 4
    rows = [(name, [repeats(random, draw, n, samples) for n in REPEATS]) for name, draw in DISTRIBUTIONS.items()]
    yield from _table("Median of repeats", "repeats", REPEATS, rows)
    columns = [f"{what}, n = {n}" for what in ("alone", "moderated", "noisiest", "width") for n in FEW[:3]]
    rows = list(moderated_rows(random, samples))
    yield from _table("Moderated variances", "", columns, rows, unit_of_values="%")
    yield from _table("Median of correlated repeats", "repeats", REPEATS, list(set_rows(random, few // 10, which=0)))
    sets = list(set_rows(random, few // 10, which=1))
    yield from _table("Widening by the correlation", "repeats", REPEATS, sets, unit_of_values="factor", scale=1)
    noise = tuple(f"{100 * each:g} %" for each in NOISE)
    yield from _table("Repeats until precise (3 %)", "noise", noise, list(stopping_rows(random, samples)))
    rows = [(f"correlation {rho:g}", [series(random, rho, n, samples) for n in INTERVALS]) for rho in CORRELATIONS]
    yield from _table("Mean of one run's intervals", "intervals", INTERVALS, rows)
    rows = [
        (f"correlation {rho:g}", [series(random, rho, n, samples, is_quarter=True) for n in INTERVALS[2:]])
        for rho in CORRELATIONS
    ]
    yield from _table("Mean of the last quarter", "intervals", INTERVALS[2:], rows)
    some = REPEATS[::2]
    rows = [(f"best of {cases}", [largest(random, cases, n, few) for n in some]) for cases in (5, 20, 50)]
    rows += [("best of 20, ignoring the selection", [largest(random, 20, n, few, selected=False) for n in some])]
    yield from _table("Maximum over cases", "repeats", some, rows)
    rows = [(name, [ratios(random, draw, n, few) for n in some]) for name, draw in DISTRIBUTIONS.items()]
    rows += [
        ("log-normal, paired", [ratios(random, DISTRIBUTIONS["log-normal, 2 %"], n, few, paired=True) for n in some])
    ]
    rows += [("log-normal, pooled over 10 cells", [pooled(random, 10, n, few) for n in some])]
    yield from _table("Ratio of two groups", "repeats", some, rows)
    yield from _table("Two distant modes", "repeats", FEW, list(distant_rows(random, samples)))
    factors = [
        (f"{each:g} standard deviations apart", [needed_half_width(random, each, n, samples) for n in FEW])
        for each in DISTANCES
    ]
    yield from _table(
        "Two distant modes: widening that 95 % coverage would need",
        "repeats",
        FEW,
        factors,
        unit_of_values="factor",
        scale=1,
    )


def _table(
    title: str,
    unit: str,
    counts: Sequence[int | str],
    rows: Sequence[tuple[str, list[float]]],
    *,
    unit_of_values: str = "coverage, %",
    scale: int = 100,
) -> Iterator[str]:
    yield from (f"### {title}", "")
    heads = (f"{count} {unit}".rstrip() if count == counts[0] else str(count) for count in counts)
    yield f"| {unit_of_values} | {' | '.join(heads)} |"
    yield "|---|" + "---|" * len(counts)
    yield from (
        f"| {name} | {' | '.join('' if np.isnan(share) else f'{scale * share:.1f}' for share in shares)} |"
        for name, shares in rows
    )
    yield ""


def main() -> None:
    """Print the tables."""
    given = options(__doc__, samples=4000, seed=1)
    for line in tables(given.seed, given.samples):
        print(line, flush=True)


if __name__ == "__main__":
    main()
