"""Pairs of a published and a simulated figure, and how far they are apart."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from iosonde.data import data_folder

REFERENCE = data_folder("reference")
HEAD = ("points", "number", "bias", "median error", "90th percentile", "worst", "where the worst is")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One figure of a paper, and the same on a simulated drive, in one unit."""

    where: str
    published: float
    simulated: float

    @property
    def error(self) -> float:
        """Relative: 0.1 where the simulation is a tenth higher."""
        return self.simulated / self.published - 1


def rows(name: str) -> list[dict[str, str]]:
    """A file of published values."""
    with (REFERENCE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def summary(label: str, points: Sequence[Point]) -> list[str]:
    """One line of a table with `HEAD`; the bias is the median with its sign, the others are of absolute errors."""
    worst = max(points, key=lambda point: abs(point.error))
    sizes = sorted(abs(point.error) for point in points)
    ninth = sizes[min(len(sizes) - 1, round(0.9 * (len(sizes) - 1)))]
    return [
        label,
        f"{len(points):,}",
        f"{median(point.error for point in points):+.0%}",
        f"{median(sizes):.0%}",
        f"{ninth:.0%}",
        f"{worst.error:+.0%}",
        f"{worst.where}: {worst.published:,.4g} published, {worst.simulated:,.4g} simulated",
    ]


def part(points: Sequence[Point], choose: Callable[[Point], bool]) -> list[Point]:
    """Those that are chosen."""
    return [point for point in points if choose(point)]


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))
