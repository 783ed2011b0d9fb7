"""False alarms and power of comparing two result sets, by simulation.

    python bench/comparison_error_rates.py [--comparisons 400] [--seed 1]

Each comparison draws two systems of 20 cases with log-normal run noise of 1 %, and session effects that are independent
between cells. Printed as Markdown for docs/comparison.md: the share of comparisons of equal systems in which any of the
20 cases is called different, the share of single cases called different, and the share of cases found whose true ratio
is 1.1. The last table has the coverage of the interval of equal systems whose consecutive repeats are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product

import numpy as np
from intervals import autocorrelated
from shared import options, table

from iosonde.findings.comparison.cases import judge
from iosonde.findings.comparison.sessions import (
    OF_PAIRS,
    Floats,
    Ratio,
    log_ratio,
    paired_spreads,
    run_correlation,
    session_effects,
    spread,
)
from iosonde.metrics.distributions import adjusted_for_discovery

CASES = 20
SHARES = ("any false alarm", "false alarms per case", "true ratio 1.1 found")
RUN_NOISE = 0.01


def system(
    random: np.random.Generator, *, sessions: int, repeats: int, noise: float, shift: float
) -> list[list[Floats]]:
    """Draw the logarithms of every case, session by session."""
    return [
        [shift + random.normal(0, noise) + random.normal(0, RUN_NOISE, repeats) for _ in range(sessions)]
        for _ in range(CASES)
    ]


def verdicts(random: np.random.Generator, shift: float, *, sessions: int, repeats: int, noise: float) -> list[str]:
    """Compare two systems."""
    baseline = system(random, sessions=sessions, repeats=repeats, noise=noise, shift=0)
    contender = system(random, sessions=sessions, repeats=repeats, noise=noise, shift=shift)
    effects = session_effects(list(map(list, zip(baseline, contender, strict=True))))
    return judged(
        spread([before, after], effect).ratio(log_ratio(before, after))
        for before, after, effect in zip(baseline, contender, effects, strict=True)
    )


def paired_verdicts(random: np.random.Generator, shift: float, *, repeats: int, noise: Floats) -> list[str]:
    """Compare two systems measured alternately in one session; `noise` is that of a run of each case."""
    rows = shift + math.sqrt(2) * random.normal(0, noise[:, np.newaxis], (CASES, repeats))
    pairs = zip(paired_spreads(list(rows)), rows, strict=True)
    return judged(each.ratio(float(row.mean())) for each, row in pairs)


def judged(ratios: Iterable[Ratio]) -> list[str]:
    """The verdict on every case."""
    found = list(ratios)
    adjusted = adjusted_for_discovery([ratio.p_value for ratio in found])
    return [judge(ratio, p, better="higher") for ratio, p in zip(found, adjusted, strict=True)]


def shares(compare: Callable[[np.random.Generator, float], list[str]], comparisons: int, seed: int) -> list[str]:
    """Return any false alarm, false alarms per case, and cases found of a true ratio of 1.1."""
    random = np.random.default_rng(seed)
    equal = [compare(random, 0.0) for _ in range(comparisons)]
    faster = [compare(random, math.log(1.1)) for _ in range(comparisons)]
    wrong = [[each in ("better", "worse") for each in verdicts] for verdicts in equal]
    found = np.mean([[each == "better" for each in verdicts] for verdicts in faster])
    return [f"{100 * share:.1f} %" for share in (np.mean([any(each) for each in wrong]), np.mean(wrong), found)]


NOISES = {
    "1 %": np.full(CASES, 0.01),
    "2 %": np.full(CASES, 0.02),
    "1 %, one case 10 %": np.where(np.arange(CASES) == 0, 0.1, 0.01),
    "0.5 to 8 %": np.geomspace(0.005, 0.08, CASES),
}
"""Noise of a run, by case."""


def coverage(
    random: np.random.Generator,
    *,
    correlation: float,
    repeats: int,
    sets: int,
    paired: bool = False,
    corrected: bool = True,
) -> float:
    """Return how often the interval of the ratio of equal systems contains 1, without session effects."""
    covered = []
    for _ in range(sets):
        ours, theirs = (autocorrelated(random, (CASES, repeats), correlation) / 100 for _ in range(2))
        keys = [(f"case-{case}", "iops") for case in range(CASES)]
        if paired:
            cells = [(key, [row]) for key, row in zip(keys, theirs - ours, strict=True)]
            found = run_correlation(cells, doubt=OF_PAIRS) if corrected else 0.0
            spreads = paired_spreads(list(theirs - ours), correlation=found)
        else:
            found = run_correlation(zip(keys, zip(ours, theirs, strict=True), strict=True)) if corrected else 0.0
            spreads = [spread([[a], [b]], None, correlation=found) for a, b in zip(ours, theirs, strict=True)]
        ratios = [each.ratio(float(row.mean())) for each, row in zip(spreads, theirs - ours, strict=True)]
        covered.append(np.mean([low <= 1 <= high for low, high in (each.interval for each in ratios)]))  # type: ignore[operator]
    return float(np.mean(covered))


def correlation_rows(sets: int, seed: int) -> Iterator[list[str]]:
    """Yield coverage by the correlation of consecutive repeats."""
    for paired, corrected, correlation in product((False, True), (True, False), (0.0, 0.3, 0.6, 0.9)):
        random, settings = np.random.default_rng(seed), {"paired": paired, "corrected": corrected, "sets": sets}
        covered = [coverage(random, correlation=correlation, repeats=count, **settings) for count in REPEATS]
        name = f"{'pairs' if paired else 'two sessions'}, correlation {correlation:g}"
        name += "" if corrected else ", without correction"
        yield [name, *(f"{100 * share:.1f}" for share in covered)]


REPEATS = (3, 5, 10)


def main() -> None:
    """Print the tables."""
    given = options(__doc__, comparisons=400, seed=1)
    rows = []
    for sessions, repeats, noise in product((1, 2, 3, 5), (3, 5), (0.0, 0.01, 0.02)):
        compare = partial(verdicts, sessions=sessions, repeats=repeats, noise=noise)
        cells = shares(compare, given.comparisons, given.seed)
        rows.append([str(sessions), str(repeats), f"{100 * noise:g} %", *cells])
    print(table(("sessions each", "repeats", "sessions vary by", *SHARES), rows), end="\n\n")
    rows = []
    for (name, noises), repeats in product(NOISES.items(), REPEATS):
        compare = partial(paired_verdicts, repeats=repeats, noise=noises)
        rows.append([name, str(repeats), *shares(compare, given.comparisons, given.seed)])
    print(table(("run-to-run noise", "pairs", *SHARES), rows), end="\n\n")
    head = ("coverage, %", *(f"{count} repeats" for count in REPEATS))
    print(table(head, list(correlation_rows(given.comparisons // 4, given.seed))))


if __name__ == "__main__":
    main()
