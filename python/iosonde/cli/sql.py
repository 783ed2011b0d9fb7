"""`iosonde sql`: ask a result set anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    import polars as pl


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A result set, as `iosonde run` printed.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT, in DuckDB's SQL.")],
    format: Annotated[
        Literal["table", "csv", "json"] | None,
        typer.Option("--format", help="How to print; a table on a terminal and CSV elsewhere if not given."),
    ] = None,
) -> None:
    """Query a result set with SQL.

    Tables: cases, runs, jobs, intervals, histograms, usage, warnings. Their columns: `DESCRIBE runs`. The functions
    bucket_lower_ns, bucket_width_ns and bucket_midpoint_ns turn a histogram's bucket into nanoseconds.
    """
    from rich.console import Console

    from iosonde.cli.session import say_problems
    from iosonde.results import ResultSet

    result_set = ResultSet.open(directory)
    say_problems(result_set, Console(stderr=True, highlight=False))
    answer = result_set.sql(query)
    match format or ("table" if sys.stdout.isatty() else "csv"):
        case "table":
            _print_table(answer)
        case "csv":
            typer.echo(answer.write_csv(), nl=False)
        case "json":
            typer.echo(answer.write_json())


def _print_table(answer: pl.DataFrame) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, dtype in answer.schema.items():
        table.add_column(Text(name), justify="right" if dtype.is_numeric() else "left")
    for row in answer.iter_rows():
        table.add_row(*(Text("-" if value is None else str(value)) for value in row))
    Console().print(table)
