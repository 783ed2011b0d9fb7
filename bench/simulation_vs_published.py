"""Values of simulated drives compared with those of five papers, and the errors.

    python bench/simulation_vs_published.py [davidovic2019 han2021 jo2024 master2010] [--output FILE.csv]

Prints Markdown (docs/simulation.md holds it); the file gets every pair of figures. Needs nothing but the engine, and no
quiet machine: time is the drives' own. All four papers take about ten minutes and 2 GB of memory.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from types import ModuleType

from published import davidovic2019, han2021, jo2024, master2010
from published.points import Point
from simulated import SimulationError

from iosonde.execution.engine import find_engine

PAPERS: dict[str, ModuleType] = {
    "davidovic2019": davidovic2019,
    "han2021": han2021,
    "jo2024": jo2024,
    "master2010": master2010,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulated drives beside published figures.")
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(PAPERS)}; all of them unless named")
    parser.add_argument("--output", type=Path, help="CSV file for every pair of figures")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.papers if name not in PAPERS]
    if unknown:
        parser.error(f"there is no paper `{unknown[0]}`; there are {', '.join(PAPERS)}")
    engine, kept = find_engine(), []
    for name in chosen.papers or PAPERS:
        found = list(PAPERS[name].points(engine))
        print(f"### {name}\n\n{PAPERS[name].report(found)}\n", flush=True)
        kept += [(name, point) for point in found]
    if chosen.output:
        write(chosen.output, kept)


def write(path: Path, kept: list[tuple[str, Point]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("paper", "where", "published", "simulated", "relative_error"))
        lines.writerows(
            (name, point.where, point.published, f"{point.simulated:.5g}", f"{point.error:.4f}") for name, point in kept
        )


if __name__ == "__main__":
    try:
        main()
    except SimulationError as error:
        sys.exit(f"error: {error}")
