"""False alarms and power of comparing two result sets, by simulation.

usage: python bench/comparison_error_rates.py [--comparisons 400] [--seed 1]

Each comparison draws two systems of 20 cases with log-normal run noise of 1 %, and session effects that are independent
between cells. Printed as Markdown for docs/comparison.md: the share of comparisons of equal systems in which any of the
20 cases is called different, the share of single cases called different, and the share of cases found whose true ratio
is 1.1. The last table has the coverage of the interval of equal systems whose consecutive repeats are correlated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np

from iosonde.comparison.cases import judge
from iosonde.comparison.sessions import (
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
COLUMNS = (
    *("sessions each", "repeats", "sessions vary by"),
    *("any false alarm", "false alarms per case", "true ratio 1.1 found"),
)
RUN_NOISE = 0.01


def system(
    random: np.random.Generator, *, sessions: int, repeats: int, noise: float, shift: float
) -> list[list[Floats]]:
    """Draw the logarithms of every case, session by session."""
    return [
        [shift + random.normal(0, noise) + random.normal(0, RUN_NOISE, repeats) for _ in range(sessions)]
        for _ in range(CASES)
    ]


def verdicts(random: np.random.Generator, *, sessions: int, repeats: int, noise: float, shift: float) -> list[str]:
    """Compare two systems."""
    baseline = system(random, sessions=sessions, repeats=repeats, noise=noise, shift=0)
    contender = system(random, sessions=sessions, repeats=repeats, noise=noise, shift=shift)
    effects = session_effects(list(map(list, zip(baseline, contender, strict=True))))
    ratios: list[Ratio] = [
        spread([before, after], effect).ratio(log_ratio(before, after))
        for before, after, effect in zip(baseline, contender, effects, strict=True)
    ]
    adjusted = adjusted_for_discovery([ratio.p_value for ratio in ratios])
    return [judge(ratio, p, better="higher") for ratio, p in zip(ratios, adjusted, strict=True)]


def row(sessions: int, repeats: int, noise: float, comparisons: int, seed: int) -> str:
    """Return a row of the table."""
    random = np.random.default_rng(seed)
    settings = {"sessions": sessions, "repeats": repeats, "noise": noise}
    equal = [verdicts(random, **settings, shift=0.0) for _ in range(comparisons)]  # type: ignore[arg-type]
    faster = [verdicts(random, **settings, shift=math.log(1.1)) for _ in range(comparisons)]  # type: ignore[arg-type]
    wrong = [[each in ("better", "worse") for each in found] for found in equal]
    shares = (
        np.mean([any(each) for each in wrong]),
        np.mean(wrong),
        np.mean([[v == "better" for v in f] for f in faster]),
    )
    return (
        f"| {sessions} | {repeats} | {100 * noise:g} % | "
        + " | ".join(f"{100 * share:.1f} %" for share in shares)
        + " |"
    )


def paired_verdicts(random: np.random.Generator, *, repeats: int, noise: Floats, shift: float) -> list[str]:
    """Compare two systems measured alternately in one session; `noise` is that of a run of each case."""
    rows = shift + math.sqrt(2) * random.normal(0, noise[:, np.newaxis], (CASES, repeats))
    pairs = zip(paired_spreads(list(rows)), rows, strict=True)
    ratios = [each.ratio(float(row.mean())) for each, row in pairs]
    adjusted = adjusted_for_discovery([ratio.p_value for ratio in ratios])
    return [judge(ratio, p, better="higher") for ratio, p in zip(ratios, adjusted, strict=True)]


def paired_row(name: str, repeats: int, noise: Floats, comparisons: int, seed: int) -> str:
    """Return a row of the table of A/B runs."""
    random = np.random.default_rng(seed)
    equal = [paired_verdicts(random, repeats=repeats, noise=noise, shift=0.0) for _ in range(comparisons)]
    faster = [paired_verdicts(random, repeats=repeats, noise=noise, shift=math.log(1.1)) for _ in range(comparisons)]
    wrong = [[each in ("better", "worse") for each in found] for found in equal]
    found = np.mean([[each == "better" for each in verdicts] for verdicts in faster])
    shares = (np.mean([any(each) for each in wrong]), np.mean(wrong), found)
    return f"| {name} | {repeats} | " + " | ".join(f"{100 * share:.1f} %" for share in shares) + " |"


NOISES = {
    "1 %": np.full(CASES, 0.01),
    "2 %": np.full(CASES, 0.02),
    "1 %, one case 10 %": np.where(np.arange(CASES) == 0, 0.1, 0.01),
    "0.5 to 8 %": np.geomspace(0.005, 0.08, CASES),
}
"""Noise of a run, by case."""


def correlated(random: np.random.Generator, shape: tuple[int, int], correlation: float) -> Floats:
    """Draw rows of an AR(1) process with a standard deviation of 2 %: consecutive repeats resemble each other."""
    rows = random.standard_normal(shape)
    for i in range(1, shape[1]):
        rows[:, i] = correlation * rows[:, i - 1] + math.sqrt(1 - correlation**2) * rows[:, i]
    return np.asarray(0.02 * rows)


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
        ours, theirs = (correlated(random, (CASES, repeats), correlation) for _ in range(2))
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


def correlation_rows(sets: int, seed: int) -> Iterator[str]:
    """Yield the table of coverage by the correlation of consecutive repeats."""
    yield f"| coverage, % | {' | '.join(f'{count} repeats' for count in REPEATS)} |"
    yield "|---|" + "---:|" * len(REPEATS)
    for paired in (False, True):
        for corrected in (True, False):
            for correlation in (0.0, 0.3, 0.6, 0.9):
                random = np.random.default_rng(seed)
                shares = [
                    coverage(
                        random, correlation=correlation, repeats=count, sets=sets, paired=paired, corrected=corrected
                    )
                    for count in REPEATS
                ]
                name = f"{'pairs' if paired else 'two sessions'}, correlation {correlation:g}"
                name += "" if corrected else ", without correction"
                yield f"| {name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |"


REPEATS = (3, 5, 10)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---:|---:|---:|---:|---:|---:|")
    for sessions in (1, 2, 3, 5):
        for repeats in (3, 5):
            for noise in (0.0, 0.01, 0.02):
                print(row(sessions, repeats, noise, options.comparisons, options.seed), flush=True)
    print(f"\n| run-to-run noise | pairs | {' | '.join(COLUMNS[3:])} |\n|---|---:|---:|---:|---:|")
    for name, noises in NOISES.items():
        for repeats in (3, 5, 10):
            print(paired_row(name, repeats, noises, options.comparisons, options.seed), flush=True)
    print()
    for line in correlation_rows(options.comparisons // 4, options.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
