"""`iosonde sql`: query a result set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from iosonde.cli.messages import messages

if TYPE_CHECKING:
    import polars as pl

_ROWS_AT_ONCE = 10_000


def command(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="Result set, directory with result sets, or a library at `s3://BUCKET/PREFIX`."
        ),
    ],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT statement in DuckDB's SQL.")],
    format: Annotated[
        Literal["table", "csv", "json"] | None,
        typer.Option("--format", help="Output format (default: a table on a terminal, CSV elsewhere)."),
    ] = None,
) -> None:
    """Query result sets with SQL.

    Tables of a directory with result sets, at any depth: result_sets, metrics. Tables of one result set: cases, runs,
    metrics, case_metrics, jobs, intervals, histograms, usage, store_statistics, named_values, warnings, evidence,
    faults. `DESCRIBE runs` lists the columns. A metric of the whole load is also a column of runs and cases: `SELECT
    case_id, iops FROM runs`. The functions bucket_lower_ns, bucket_width_ns and bucket_midpoint_ns convert a histogram
    bucket to nanoseconds. With `--hosts` these are totals; hosts.runs and so on have a column host.
    """
    from iosonde.object_storage import is_address
    from iosonde.results.files import MARK
    from iosonde.results.frames import as_csv

    place = Path(directory)
    if is_address(directory) or (place.is_dir() and not (place / MARK).exists()):
        from iosonde.library import indexing

        answered = indexing.answer(directory, query)
    else:
        from iosonde.results import query_process

        answered = query_process.answer(place, query)
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

    from iosonde.cli.tables import stdout

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, dtype in answer.schema.items():
        table.add_column(Text(name), justify="right" if dtype.is_numeric() else "left")
    for row in answer.iter_rows():
        table.add_row(*(Text("-" if value is None else str(value)) for value in row))
    stdout(at_least=stdout().measure(table).minimum).print(table)
