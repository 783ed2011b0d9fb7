"""`iosonde compare`: two result sets, case by case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosonde.errors import ResultsError

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from iosonde.report.content.table import Table
    from iosonde.results import ResultSet


def command(
    baseline: Annotated[Path, typer.Argument(metavar="BASELINE", help="Result set to compare with.")],
    contender: Annotated[Path, typer.Argument(metavar="CONTENDER", help="Result set to judge.")],
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a report with both, drawn over one another.")
    ] = None,
    mix_simulated: Annotated[
        bool, typer.Option("--mix-simulated", help="Allow simulated result sets beside measured ones; each is marked.")
    ] = False,
) -> None:
    """Compare two result sets of one study, case by case.

    Cases are matched by their levels. Each has the ratio contender / baseline with its 95 % interval, and a verdict:
    better, worse, same (within 5 %, surely) or unclear. Below stands which of the two to choose for which workload.
    """
    import sys

    from rich.console import Console

    from iosonde.report import write
    from iosonde.report.content import comparison
    from iosonde.report.material.result_sets import gather
    from iosonde.results import ResultSet

    result_sets = [ResultSet.open(directory) for directory in (baseline, contender)]
    materials = gather(result_sets, mix_simulated=mix_simulated)
    if len(materials) != 1:
        raise _different(result_sets)
    material = materials[0]
    pairs = comparison.pairs(material)
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(_grid(comparison.as_table(pairs, material)))
    console.print()
    said = [*comparison.recommendations(material), *comparison.method(pairs, material)]
    said += comparison.summary(pairs, material)
    for line in [*said, *comparison.differing(pairs)]:
        console.print(line, markup=False)
    if html:
        for path in write(result_sets, html, mix_simulated=mix_simulated):
            typer.echo(path, err=True)


def _grid(table: Table) -> Grid:
    from rich.table import Table as Grid
    from rich.text import Text

    styles = {"better": "green", "worse": "red", "unclear": "dim"}
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, head in enumerate(table.heads):
        grid.add_column(Text(head), justify="left" if place < table.labels or head == "Verdict" else "right")
    for row in table.rows:
        cells = [f"{cell.text} [{cell.interval}]" if cell.interval else cell.text for cell in row]
        grid.add_row(*(Text(text) for text in cells[:-1]), Text(cells[-1], style=styles.get(cells[-1], "")))
    return grid


def _different(result_sets: list[ResultSet]) -> ResultsError:
    baseline, contender = (result_set.plan.study_name for result_set in result_sets)
    return ResultsError(
        f"cannot compare `{result_sets[0].directory}` with `{result_sets[1].directory}`",
        where=f"the first is of the study `{baseline}`, the second of `{contender}`",
        hint="run the same study on both targets, or show them side by side with `iosonde report DIR DIR`",
    )
