"""`iosonde compare`: two systems, case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosonde.cli import options
from iosonde.cli.messages import messages
from iosonde.cli.tables import AsJson, least_width, print_json, print_table, stdout
from iosonde.errors import ResultsError

if TYPE_CHECKING:
    import polars as pl

    from iosonde.report.material import Material
    from iosonde.report.table import Table
    from iosonde.results import ResultSet

STYLES = {"better": "green", "worse": "red", "unclear": "dim"}


def command(
    baseline: Annotated[
        Path, typer.Argument(metavar="BASELINE", help="Result set to compare with, or one of an A/B run.")
    ],
    contender: Annotated[
        Path | None, typer.Argument(metavar="CONTENDER", help="Result set to judge; omit it for an A/B run.")
    ] = None,
    more_baselines: Annotated[
        list[Path] | None,
        typer.Option("--baseline", metavar="DIR", help="Further session of the baseline (repeatable)."),
    ] = None,
    more_contenders: Annotated[
        list[Path] | None,
        typer.Option("--contender", metavar="DIR", help="Further session of the contender (repeatable)."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a report of both result sets.")
    ] = None,
    mix_simulated: options.MixSimulated = False,
    as_json: AsJson = False,
) -> None:
    """Compare two systems of one study, case by case.

    Systems are two result sets, or the arms of an A/B run. Cases are matched by their levels. Each row has the
    ratio contender / baseline with its 95 % interval and a verdict: better, worse, same (within 5 %) or unclear.
    Recommendations per workload follow.
    """
    from iosonde.report import comparison, write
    from iosonde.results import ResultSet
    from iosonde.results.shapes import interpreting

    ours = [ResultSet.open(each) for each in (baseline, *(more_baselines or []))]
    theirs = [ResultSet.open(each) for each in (*([contender] if contender else []), *(more_contenders or []))]
    with interpreting(each.directory for each in (*ours, *theirs)):
        material = _material(ours, theirs, mix_simulated=mix_simulated)
        pairs = comparison.pairs(material)
        summary = [
            *comparison.recommendations(material),
            *comparison.method(pairs, material),
            *comparison.summary(pairs, material),
            *comparison.differing(pairs),
        ]
        table = comparison.as_table(pairs, material)
    if as_json:
        print_json(_document(material, pairs, summary))
    else:
        _print(table, summary)
    if html:
        for path in write([*ours, *theirs], html, mix_simulated=mix_simulated):
            messages.info(str(path))


def _material(ours: list[ResultSet], theirs: list[ResultSet], *, mix_simulated: bool) -> Material:
    """The two systems: arms of one result set, or sessions of both."""
    from iosonde.report.material import gather

    paired = [each for each in (*ours, *theirs) if each.plan.arms]
    if paired and len(ours) + len(theirs) > 1:
        raise ResultsError(
            f"`{paired[0].directory}` is an A/B run and cannot be compared with another result set",
            hint=f"compare its arms with `iosonde compare {paired[0].directory}`",
        )
    if not paired and not theirs:
        raise ResultsError(
            f"a comparison requires two systems; `{ours[0].directory}` has one",
            hint="name a second result set, or measure both in one session with `iosonde run --against`",
        )
    materials = gather([*ours, *theirs], mix_simulated=mix_simulated)
    if len(materials) != 1:
        everyone = [*ours, *theirs]
        raise _different([ours[0], next(each for each in everyone if each.plan.study_name != ours[0].plan.study_name)])
    if paired:
        return materials[0]
    labels = [source.label for source in materials[0].sources]
    return replace(materials[0], groups=[labels[: len(ours)], labels[len(ours) :]])


def _document(material: Material, pairs: pl.DataFrame, summary: list[str]) -> dict[str, Any]:
    baseline, contender = material.systems
    return {
        "study": material.study.name,
        "baseline": str(baseline[0].directory),
        "contender": str(contender[0].directory),
        "sessions": [[str(source.directory) for source in system] for system in material.systems],
        "paired": material.paired,
        "cells": pairs.to_dicts(),
        "summary": summary,
    }


def _print(table: Table, summary: list[str]) -> None:
    rows = [[f"{cell.text} [{cell.interval}]" if cell.interval else cell.text for cell in row] for row in table.rows]
    numbers = list(range(table.labels, len(table.heads) - 1))
    console = stdout()
    if console.is_terminal and least_width([table.heads, *rows], len(table.heads)) > console.width:
        rows = [[*row[: table.labels], *row[numbers[-1] :]] for row in rows]
        _print_by_case(rows, labels=table.labels - 1)
    else:
        print_table(rows, heads=table.heads, right=numbers, styles=STYLES)
    print()
    for line in summary:
        console.print(line, markup=False)


def _print_by_case(rows: Sequence[list[str]], *, labels: int) -> None:
    """Print ratios in a narrow terminal: a heading for each case, and no values, which `--json` and `--html` have."""
    for case, of_case in groupby(rows, key=lambda row: row[:labels]):
        print(", ".join(case))
        print_table([[f"  {row[labels]}", *row[labels + 1 :]] for row in of_case], right=[1], styles=STYLES)


def _different(result_sets: list[ResultSet]) -> ResultsError:
    baseline, contender = (result_set.plan.study_name for result_set in result_sets)
    return ResultsError(
        f"cannot compare `{result_sets[0].directory}` with `{result_sets[1].directory}`",
        where=f"the first is of the study `{baseline}`, the second of `{contender}`",
        hint="run the same study on both targets, or report both side by side with `iosonde report DIR DIR`",
    )
