"""Comparisons that other work on the machine does not decide: pairs of runs, interleaved, and ratios within pairs.

What disturbs a minute disturbs both members of a pair alike and cancels in their ratio; which of the two goes first
alternates, so that a slow drift cancels as well.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from statistics import median
from typing import Any, TypeVar

from iosonde.metrics.statistics import Estimate, ratio, repeats_interval

T = TypeVar("T")


def interleaved(ours: Callable[[], T], theirs: Callable[[], T], *, pairs: int) -> list[tuple[T, T]]:
    """Run both `pairs` times, as ours-theirs, theirs-ours, ours-theirs and so on."""
    found = []
    for number in range(pairs):
        if number % 2 == 0:
            first = ours()
            found.append((first, theirs()))
        else:
            first = theirs()
            found.append((ours(), first))
    return found


def ratio_of(pairs: Sequence[tuple[T, T]], figure: Callable[[T], float | None]) -> Estimate | None:
    """The median over the pairs of ours to theirs, with its 95 % interval; None where a pair lacks a figure."""
    figures = [(figure(ours), figure(theirs)) for ours, theirs in pairs]
    complete = [(ours, theirs) for ours, theirs in figures if ours is not None and theirs is not None]
    if len(complete) < len(pairs):
        return None
    return ratio([ours for ours, _ in complete], [theirs for _, theirs in complete], paired=True)


def median_ratio_of(pairs: Sequence[tuple[T, T]], figure: Callable[[T], float]) -> Estimate:
    """The median over the pairs of ours to theirs, with the interval of the sign test, at least 95 %.

    It assumes nothing about the distribution: single pairs in which other work disturbed one member do not widen it.
    """
    ratios = sorted(figure(ours) / figure(theirs) for ours, theirs in pairs)
    count, below = len(ratios), 0
    tail = 0.5**count
    while tail <= 0.025:
        below += 1
        tail += math.comb(count, below) * 0.5**count
    if not below:
        return Estimate(median(ratios))
    return Estimate(median(ratios), ratios[below - 1], ratios[count - below])


def difference_of(pairs: Sequence[tuple[T, T]], figure: Callable[[T], float]) -> Estimate:
    """The median over the pairs of ours less theirs, in the figure's unit, with its 95 % interval."""
    return repeats_interval([figure(ours) - figure(theirs) for ours, theirs in pairs], least=-math.inf)


def shown(estimate: Estimate | None) -> str:
    """As `1.38 (1.35..1.41)`; without an interval where there are too few pairs for one."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f}..{estimate.high:.2f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = [head, ["---:"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def provenance(environment: dict[str, Any], *others: str) -> str:
    """Now and here, for figures that are about to be taken, and how busy the machine is with other work."""
    cpu, kernel, software = environment["cpu"], environment["kernel"], environment["software"]
    facts = [
        f"{datetime.now().astimezone():%Y-%m-%d %H:%M}",
        f"{cpu['model']}, {cpu['threads']} CPUs, {environment['machine']['virtualization'] or 'no virtualization'}",
        f"Linux {kernel['release']}",
        str(software["engine"]),
        *others,
        f"load average {os.getloadavg()[0]:.1f}",
    ]
    return "Taken " + " · ".join(facts)
