"""False alarms and power of the regression check, by simulation on synthetic sessions.

    python bench/regression_power.py [--checks 200] [--seed 1]

Each check draws baseline sessions and one candidate session of a study with 40 cells (20 rates, 20 medians), five
runs per case. A run's logarithm is the cell's value plus a session effect plus run noise, both normal. Session effects
are independent between cells, common to all cells of a session, or common to each half of them. The loss is planted in
one case (its rate and its latency), or in all. Printed as Markdown for docs/regression.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from shared import options, table

from iosonde.findings.regression import Cell, Session, SessionValue, Settings, decide

CASES = 20
RUNS = 5
RATE, LATENCY = "iops", "completion_latency_ns_p50"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Parameters of a simulation."""

    baselines: int
    allow: float
    loss: float = 0.0
    everywhere: bool = False
    effects: str = "independent"
    run_noise: float = 0.01
    session_noise: float = 0.01

    @property
    def text(self) -> str:
        """The row's label."""
        where = (
            "no loss" if not self.loss else f"{100 * self.loss:g} % in {'all cases' if self.everywhere else 'one case'}"
        )
        return f"{self.baselines} | {100 * self.allow:g} % | {100 * self.session_noise:g} %, {self.effects} | {where}"


def session(random: np.random.Generator, scenario: Scenario, *, candidate: bool) -> Session:
    """Draw one session."""
    common = random.normal(0, scenario.session_noise, 2)
    values = {}
    for case in range(CASES):
        affected = candidate and (scenario.everywhere or case == 0)
        for metric, sign in ((RATE, 1), (LATENCY, -1)):
            effect = _effect(random, scenario, common, case)
            loss = math.log1p(-scenario.loss) if affected else 0.0
            logs = sign * (effect + loss) + random.normal(0, scenario.run_noise, RUNS)
            values[f"case-{case}", metric] = SessionValue(
                mean_log=float(logs.mean()), runs=RUNS, run_variance=float(logs.var(ddof=1)), verdict=""
            )
    return Session(name="", values=values, parameters={f"case-{case}": {} for case in range(CASES)})


def _effect(random: np.random.Generator, scenario: Scenario, common: Sequence[float], number: int) -> float:
    match scenario.effects:
        case "common":
            return common[0]
        case "common by half":
            return common[number % 2]
        case _:
            return float(random.normal(0, scenario.session_noise))


def checks(scenario: Scenario, count: int, seed: int) -> list[list[Cell]]:
    """Carry out the check `count` times."""
    random = np.random.default_rng(seed)
    settings = Settings(allow=scenario.allow, allow_latency=scenario.allow)
    return [
        decide(
            [session(random, scenario, candidate=False) for _ in range(scenario.baselines)],
            [session(random, scenario, candidate=True)],
            settings,
        )
        for _ in range(count)
    ]


def regressions(cells: list[Cell]) -> list[Cell]:
    """Cells that regressed."""
    return [cell for cell in cells if cell.outcome == "regression"]


SCENARIOS = [
    Scenario(baselines=baselines, allow=allow, loss=loss, everywhere=everywhere, effects=effects)
    for baselines, allow, losses in (
        (1, 0.05, (0.0, 0.10, 0.20)),
        (3, 0.05, (0.0, 0.10)),
        (5, 0.05, (0.0, 0.10)),
        (10, 0.0, (0.0, 0.05)),
    )
    for effects in ("independent", "common", "common by half")
    for loss in losses
    for everywhere in ((False, True) if loss else (False,))
]
HEAD = (
    "baselines | allowance | session effects | planted loss",
    *("regression (exit 1)", "undetermined (exit 3)", "planted cells found"),
)


def row(scenario: Scenario, count: int, seed: int) -> list[str]:
    """Return a row of the table."""
    results = checks(scenario, count, seed)
    alarms = sum(bool(regressions(cells)) for cells in results)
    unclear = sum(not regressions(cells) and any(cell.outcome == "undecided" for cell in cells) for cells in results)
    cells = [cell for cells in results for cell in cells]
    planted = [cell for cell in cells if scenario.loss and (scenario.everywhere or cell.case_id == "case-0")]
    share = f"{100 * len(regressions(planted)) / len(planted):.1f} %" if planted else ""
    return [scenario.text, f"{alarms} of {count}", f"{unclear} of {count}", share]


def main() -> None:
    """Print the table."""
    given = options(__doc__, checks=200, seed=1)
    print(f"{given.checks} checks per row, seed {given.seed}; {2 * CASES} cells, {RUNS} runs per case.\n")
    print(table(HEAD, [row(scenario, given.checks, given.seed) for scenario in SCENARIOS]))


if __name__ == "__main__":
    main()
