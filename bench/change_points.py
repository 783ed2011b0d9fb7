"""False alarms and detection of change points, by simulation.

    python bench/change_points.py [--series 2000] [--seed 1]

Sessions vary by 1 % (standard deviation of the logarithm). A change of 5 % is planted at half time, or five sessions
before the end. A planted change counts as found if a change point lies within two sessions of it; every other one, and
any in a flat series, is false. Where `otava` can be imported (`pip install --no-deps apache-otava`, with its own
settings), its E-divisive is measured on the same series. Printed as Markdown for docs/history.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from shared import options, table

from iosonde.collections.history import LEVEL, PENALTY, SEGMENT, changes

NEAR = 2
"""A change point so many sessions from a planted change is that change."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Series of one kind."""

    sessions: int
    noise: str = "normal"
    loss: float = 0.0
    before_end: int = 0
    """Sessions after the planted change; 0: half of them."""

    @property
    def place(self) -> int:
        """Index of the first session after the change."""
        return self.sessions - (self.before_end or self.sessions // 2)

    @property
    def text(self) -> str:
        """The row's label."""
        where = f"{self.before_end} before the end" if self.before_end else "half time"
        planted = f"{100 * self.loss:g} %, {where}" if self.loss else "none"
        return f"{self.sessions} | {self.noise} | {planted}"


def series(random: np.random.Generator, scenario: Scenario, deviation: float = 0.01) -> np.ndarray:
    """Draw the logarithms of a series."""
    count = scenario.sessions
    match scenario.noise:
        case "Student's t, 4 degrees":
            noise = random.standard_t(4, count) / math.sqrt(2)
        case "AR(1), 0.3":
            noise = random.normal(0, 1, count)
            for place in range(1, count):
                noise[place] = 0.3 * noise[place - 1] + math.sqrt(1 - 0.3**2) * noise[place]
        case _:
            noise = random.normal(0, 1, count)
    level = np.where(np.arange(count) >= scenario.place, math.log1p(-scenario.loss), 0.0)
    return level + deviation * noise


def by_pelt(values: np.ndarray) -> list[int]:
    """Places found by iosonde."""
    return [each.place for each in changes(values)]


def by_otava(values: np.ndarray) -> list[int]:
    """Places found by E-divisive with Otava's defaults."""
    from otava.analysis import compute_change_points

    found, _ = compute_change_points(np.exp(values).tolist(), window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    return [each.index for each in found]


SCENARIOS = [
    *(Scenario(sessions=sessions) for sessions in (10, 30, 100, 365, 1000)),
    *(Scenario(sessions=sessions, noise="Student's t, 4 degrees") for sessions in (30, 100, 365)),
    *(Scenario(sessions=sessions, noise="AR(1), 0.3") for sessions in (30, 100, 365)),
    *(Scenario(sessions=sessions, loss=0.05) for sessions in (10, 30, 100, 365)),
    *(Scenario(sessions=sessions, loss=0.05, before_end=5) for sessions in (30, 100, 365)),
    *(Scenario(sessions=sessions, loss=0.05, before_end=3) for sessions in (30, 100, 365)),
    Scenario(sessions=100, loss=0.05, noise="Student's t, 4 degrees"),
    Scenario(sessions=100, loss=0.05, noise="AR(1), 0.3"),
    Scenario(sessions=100, loss=0.03),
    Scenario(sessions=100, loss=0.02),
]


def row(scenario: Scenario, count: int, seed: int, method: Callable[[np.ndarray], list[int]]) -> tuple[int, int, int]:
    """Return in how many series the change was found, found at its very place, and in how many others were."""
    random = np.random.default_rng(seed)
    found = exact = false = 0
    for _ in range(count):
        places = method(series(random, scenario))
        near = [place for place in places if scenario.loss and abs(place - scenario.place) <= NEAR]
        found += bool(near)
        exact += scenario.place in near
        false += len(places) > bool(near)
    return found, exact, false


def main() -> None:
    """Print the table."""
    given = options(__doc__, series=2000, seed=1, otava=False)
    method, name = by_pelt, f"PELT, penalty {PENALTY:g} ln n, t test at {LEVEL:g}"
    if given.otava:
        method, name = by_otava, "E-divisive of apache-otava"
    print(f"{name}; segments of {SEGMENT} or more; {given.series} series per row, seed {given.seed}.\n")
    rows = []
    for scenario in SCENARIOS:
        *found, false = (count / given.series for count in row(scenario, given.series, given.seed, method))
        rows.append(
            [scenario.text, *(f"{100 * each:.1f} %" if scenario.loss else "" for each in found), f"{100 * false:.2f} %"]
        )
    head = ("sessions | noise of 1 % | change", "found", "at its very session", "false change points")
    print(table(head, rows))


if __name__ == "__main__":
    main()
