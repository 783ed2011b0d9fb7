"""`iosonde export`: a result set as plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Result set.")],
    format: Annotated[
        Literal["csv", "parquet", "json", "fio-json", "hdr", "limits"], typer.Option("--format", help="File format.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="New directory (default: result set's name and format)."),
    ] = None,
) -> None:
    """Export a result set to files.

    `csv`, `parquet` and `json` write one file per table and a description of the columns. `fio-json` (fio's json+) and
    `hdr` (HdrHistogram logs) write one file per run. `limits` writes identified rate limits for other tools:
    `io.cost.model` and `io.cost.qos`, ScyllaDB's `io_properties.yaml`, and a simulated drive. Prints the path of every
    file written.
    """
    from iosonde.cli.session import warn_of_problems
    from iosonde.results import ResultSet

    result_set = ResultSet.open(directory)
    warn_of_problems(result_set)
    for path in result_set.export(format, output or Path(f"{result_set.directory.name}-{format}")):
        print(path)
