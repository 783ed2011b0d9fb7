"""`iosonde compare`: two result sets, case by case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosonde.cli import options
from iosonde.cli.messages import messages
from iosonde.cli.tables import AsJson, print_json, print_table, stdout
from iosonde.errors import ResultsError

if TYPE_CHECKING:
    import polars as pl

    from iosonde.report.content.table import Table
    from iosonde.report.material.result_sets import Material
    from iosonde.results import ResultSet

STYLES = {"better": "green", "worse": "red", "unclear": "dim"}


def command(
    baseline: Annotated[Path, typer.Argument(metavar="BASELINE", help="Result set to compare with.")],
    contender: Annotated[Path, typer.Argument(metavar="CONTENDER", help="Result set to judge.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a report of both result sets.")
    ] = None,
    mix_simulated: options.MixSimulated = False,
    as_json: AsJson = False,
) -> None:
    """Compare two result sets of one study, case by case.

    Cases are matched by their levels. Each row has the ratio contender / baseline with its 95 % interval and a verdict:
    better, worse, same (within 5 %) or unclear. Recommendations per workload follow.
    """
    from iosonde.report import write
    from iosonde.report.content import comparison
    from iosonde.report.material.result_sets import gather
    from iosonde.results import ResultSet

    result_sets = [ResultSet.open(directory) for directory in (baseline, contender)]
    materials = gather(result_sets, mix_simulated=mix_simulated)
    if len(materials) != 1:
        raise _different(result_sets)
    pairs = comparison.pairs(materials[0])
    summary = [
        *comparison.recommendations(materials[0]),
        *comparison.method(pairs, materials[0]),
        *comparison.summary(pairs, materials[0]),
        *comparison.differing(pairs),
    ]
    if as_json:
        print_json(_document(materials[0], pairs, summary))
    else:
        _print(comparison.as_table(pairs, materials[0]), summary)
    if html:
        for path in write(result_sets, html, mix_simulated=mix_simulated):
            messages.info(str(path))


def _document(material: Material, pairs: pl.DataFrame, summary: list[str]) -> dict[str, Any]:
    baseline, contender = material.sources
    return {
        "study": material.study.name,
        "baseline": str(baseline.directory),
        "contender": str(contender.directory),
        "cells": pairs.to_dicts(),
        "summary": summary,
    }


def _print(table: Table, summary: list[str]) -> None:
    rows = [[f"{cell.text} [{cell.interval}]" if cell.interval else cell.text for cell in row] for row in table.rows]
    numbers = range(table.labels, len(table.heads) - 1)
    print_table(rows, heads=table.heads, right=list(numbers), styles=STYLES)
    print()
    console = stdout()
    for line in summary:
        console.print(line, markup=False)


def _different(result_sets: list[ResultSet]) -> ResultsError:
    baseline, contender = (result_set.plan.study_name for result_set in result_sets)
    return ResultsError(
        f"cannot compare `{result_sets[0].directory}` with `{result_sets[1].directory}`",
        where=f"the first is of the study `{baseline}`, the second of `{contender}`",
        hint="run the same study on both targets, or report both side by side with `iosonde report DIR DIR`",
    )
