"""`iosonde report`, `compare`, `check`, `sql` and `export`: what result sets say."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

import iosonde
from iosonde.base.object_storage import is_address
from iosonde.cli import session
from iosonde.cli.options import AS_JSON, MIX_SIMULATED, argument, option, output_option, page_option, switch
from iosonde.cli.terminal import least_width, messages, print_json, print_table, stdout, write_file
from iosonde.errors import ResultsError

if TYPE_CHECKING:
    import polars as pl

    from iosonde.report.material import Material
    from iosonde.report.table import Table
    from iosonde.results import ResultSet


def report_command(
    directories: list[Path] = argument("DIR", "Result sets, one suite, or one fleet."),
    output: Path | None = output_option(
        "FILE", "File to write (default `report.html` in the first DIR).", callback=page_option
    ),
    format: Literal["html", "md"] = typer.Option("html", help="One HTML file, or Markdown with SVG figures."),
    figures: Literal["svg", "pdf", "png"] | None = typer.Option(None, help="Write only the figures, in this format."),
    of_drives: bool = switch("--fleet", "Compare the drives of all result sets below DIR, at any depth."),
    mix_simulated: bool = MIX_SIMULATED,
    as_json: bool = switch("--json", "Print findings and metrics as JSON, write nothing."),
) -> None:
    """Write a report of one or more result sets.

    Result sets of the same study share their figures. The HTML file needs no other files. Prints the path of every file
    written.
    """
    from iosonde.collections.library.directory import kind_of
    from iosonde.report import save_figures, write

    kind = kind_of(directories[0]) if len(directories) == 1 else None
    if of_drives or kind == "fleet":
        from iosonde.cli.commands import fleet

        if len(directories) > 1 or figures:
            raise typer.BadParameter("the report of a fleet is of one directory, without `--figures`")
        fleet.write_report(directories[0], as_json=as_json, output=output, format=format)
        return
    if kind == "suite":
        from iosonde.cli.commands import suite
        from iosonde.collections.suite.directory import SuiteDirectory

        if format != "html" or figures:
            raise typer.BadParameter("the report of a suite is one HTML page; name the result sets in it instead")
        suite.write_report(SuiteDirectory.open(directories[0]), as_json=as_json, output=output)
        return
    result_sets = [iosonde.load(directory) for directory in directories]
    if as_json:
        print_json(session.documents(result_sets, mix_simulated=mix_simulated))
        return
    if figures:
        written = save_figures(
            result_sets, output or directories[0] / "figures", format=figures, mix_simulated=mix_simulated
        )
    else:
        path = output or directories[0] / f"report.{format}"
        written = write(result_sets, path, format=format, mix_simulated=mix_simulated)[:1]
    for path in written:
        print(path)


STYLES = {"better": "green", "worse": "red", "unclear": "dim"}


def compare_command(
    baseline: Path = argument("BASELINE", "Result set to compare with, or one of an A/B run."),
    contender: Path | None = argument("CONTENDER", "Result set to judge; omit it for an A/B run.", default=None),
    more_baselines: list[Path] | None = option("DIR", "Further session of the baseline (repeatable).", "--baseline"),
    more_contenders: list[Path] | None = option("DIR", "Further session of the contender (repeatable).", "--contender"),
    html: Path | None = option("FILE", "Also write a report of both result sets."),
    mix_simulated: bool = MIX_SIMULATED,
    as_json: bool = AS_JSON,
) -> None:
    """Compare two systems of one study, case by case.

    Systems are two result sets, or the arms of an A/B run. Cases are matched by their levels. Each row has the
    ratio contender / baseline with its 95 % interval and a verdict: better, worse, same (within 5 %) or unclear.
    Recommendations per workload follow.
    """
    from iosonde.report import comparison, write
    from iosonde.results.shapes import interpreting

    ours = [iosonde.load(each) for each in (baseline, *(more_baselines or []))]
    theirs = [iosonde.load(each) for each in (*([contender] if contender else []), *(more_contenders or []))]
    with interpreting(each.directory for each in (*ours, *theirs)):
        material = _material(ours, theirs, mix_simulated=mix_simulated)
        pairs = comparison.pairs(material)
        summary = comparison.lines(pairs, material)
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
    from iosonde.results.result_set import require_others

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
    require_others(ours, theirs, called="contender")
    materials = gather([*ours, *theirs], mix_simulated=mix_simulated)
    if len(materials) != 1:
        study = ours[0].plan.study_name
        other = next(each for each in (*ours, *theirs) if each.plan.study_name != study)
        raise ResultsError(
            f"cannot compare `{ours[0].directory}` with `{other.directory}`",
            where=f"the first is of the study `{study}`, the second of `{other.plan.study_name}`",
            hint="run the same study on both targets, or report both side by side with `iosonde report DIR DIR`",
        )
    if paired:
        return materials[0]
    labels = [source.label for source in materials[0].sources]
    return replace(materials[0], groups=[labels[: len(ours)], labels[len(ours) :]])


def _document(material: Material, pairs: pl.DataFrame, summary: list[str]) -> dict[str, Any]:
    sessions = [[str(source.results.directory) for source in system.sources] for system in material.systems]
    return {
        "study": material.study.name,
        "baseline": sessions[0][0],
        "contender": sessions[1][0],
        "sessions": sessions,
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


def check_command(
    results: list[Path] = argument("RESULTS", "Result sets to check."),
    baseline: list[Path] = option("DIR", "Result set of a known good system (repeatable; five or more).", default=...),
    allow: str = option("PERCENT", "Accepted loss of IOPS or operations per second.", default="5%"),
    allow_latency: str = option("PERCENT", "Accepted increase of latency.", default="10%"),
    margin: str = option(
        "PERCENT",
        "Exit with 3 unless a loss of this size (twice as much for latency) is excluded with 95 % confidence.",
        default="10%",
    ),
    metric: list[str] | None = option("PERCENTILE", "Let a tail of latency decide too, such as `p99` (repeatable)."),
    as_json: bool = AS_JSON,
    junit: Path | None = option("FILE", "Also write JUnit XML."),
    markdown: Path | None = option("FILE", "Also write Markdown for a pull request."),
) -> None:
    """Check result sets for regressions.

    Exit codes: 0 no regression, 1 regression, 2 error, 3 undetermined, 4 wrong data in a result set.

    Each result set is one session of the same study. The variance between baseline sessions decides what counts as a
    loss. Rates and median latencies decide; p99 is listed, unless `--metric p99` lets it decide.
    """
    from iosonde.findings import regression

    settings = regression.Settings(
        allow=_share("--allow", allow),
        allow_latency=_share("--allow-latency", allow_latency),
        margin=_share("--margin", margin),
        percentiles=[_percentile(each) for each in metric or ()],
    )
    opened = [[iosonde.load(each) for each in group] for group in (results, baseline)]
    outcome = regression.check(opened[0], opened[1], settings)
    if junit:
        write_file(junit, regression.junit(outcome))
    if markdown:
        write_file(markdown, regression.markdown(outcome))
    if as_json:
        print(regression.to_json(outcome))
    else:
        print("\n".join(regression.lines(outcome)))
    session.exit_for_wrong_data([*opened[0], *opened[1]])
    raise typer.Exit(outcome.exit_code)


def _percentile(text: str) -> str:
    from iosonde.metrics.scopes import PERCENTILES

    if text not in PERCENTILES:
        raise typer.BadParameter(
            f"`--metric` must be one of {', '.join(f'`{name}`' for name in PERCENTILES)}; got `{text}`",
            param_hint="--metric",
        )
    return text


def _share(option: str, text: str) -> float:
    """Read a percentage such as `5%` or `5` as a share."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise typer.BadParameter(
            f"`{option}` must be a percentage from 0 to below 100, such as `5%`; got `{text}`", param_hint=option
        )
    return share


_ROWS_AT_ONCE = 10_000


def sql_command(
    directory: str = argument("DIR", "Result set, directory with result sets, or a library at `s3://BUCKET/PREFIX`."),
    query: str = argument("QUERY", "One SELECT statement in DuckDB's SQL."),
    format: Literal["table", "csv", "json"] | None = typer.Option(
        None, help="Output format (default: a table on a terminal, CSV elsewhere); `csv` and `json` have all digits."
    ),
) -> None:
    """Query result sets with SQL.

    Tables of a directory with result sets, at any depth: result_sets, metrics. Tables of one result set: cases, runs,
    metrics, case_metrics, jobs, intervals, histograms, usage, store_statistics, named_values, warnings, evidence,
    faults. `DESCRIBE runs` lists the columns. A metric of the whole load is also a column of runs and cases: `SELECT
    case_id, iops FROM runs`. The functions bucket_lower_ns, bucket_width_ns and bucket_midpoint_ns convert a histogram
    bucket to nanoseconds. With `--hosts` these are totals; hosts.runs and so on have a column host.
    """
    from iosonde.results.files import MARK
    from iosonde.results.frames import as_csv

    place = Path(directory)
    if is_address(directory) or (place.is_dir() and not (place / MARK).exists()):
        from iosonde.collections.library import indexing

        answered = indexing.answer(directory, query)
    else:
        from iosonde.results import query_process

        answered = query_process.answer(query, directory=place)
    for problem in answered.problems:
        messages.warning(f"warning: {problem}; skipped")
    answer = answered.rows
    match format or ("table" if sys.stdout.isatty() else "csv"):
        case "table":
            _print_table(answer)
        case "csv":
            for number, part in enumerate(answer.iter_slices(_ROWS_AT_ONCE) if len(answer) else [answer]):
                print(as_csv(part, with_heads=number == 0), end="")
        case "json":
            print(answer.write_json())


def _print_table(answer: pl.DataFrame) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, dtype in answer.schema.items():
        table.add_column(Text(name), justify="right" if dtype.is_numeric() else "left")
    for row in answer.iter_rows():
        table.add_row(*(Text(_shown(value)) for value in row))
    stdout(at_least=stdout().measure(table).minimum).print(table)


def _shown(value: Any) -> str:
    """A value for people: a fraction with six significant digits, and never less than its whole part."""
    if isinstance(value, float):
        return f"{value:.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.6g}"
    return "-" if value is None else str(value)


def export_command(
    directory: Path = argument("DIR", "Result set."),
    format: Literal["csv", "parquet", "json", "fio-json", "hdr", "limits"] = typer.Option(..., help="File format."),
    output: Path | None = output_option("DIR", "New directory (default: result set's name and format)."),
) -> None:
    """Export a result set to files.

    `csv`, `parquet` and `json` write one file per table and a description of the columns. `fio-json` (fio's json+) and
    `hdr` (HdrHistogram logs) write one file per run. `limits` writes identified rate limits for other tools:
    `io.cost.model` and `io.cost.qos`, ScyllaDB's `io_properties.yaml`, and a simulated drive. Prints the path of every
    file written.
    """

    result_set = iosonde.load(directory)
    session.warn_of_problems(result_set)
    for path in result_set.export(format, output or Path(f"{result_set.directory.name}-{format}")):
        print(path)
