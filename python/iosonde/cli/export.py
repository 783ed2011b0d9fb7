"""`iosonde export`: a result set as plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A result set, as `iosonde run` printed.")],
    format: Annotated[
        Literal["csv", "parquet", "json", "fio-json", "hdr"], typer.Option("--format", help="Format of the files.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="New directory; the result set's name and the format if not given."
        ),
    ] = None,
) -> None:
    """Write every table of a result set as one file, and what the columns mean; or every run in a format of others.

    `fio-json` is fio's json+ and `hdr` are HdrHistogram logs, one file a run.

    What was written is printed, one path a line.
    """
    from rich.console import Console

    from iosonde.cli.session import say_problems
    from iosonde.results import ResultSet

    result_set = ResultSet.open(directory)
    say_problems(result_set, Console(stderr=True, highlight=False))
    for path in result_set.export(format, output or Path(f"{result_set.directory.name}-{format}")):
        typer.echo(path)
