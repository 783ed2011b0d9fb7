"""`iosonde report`: a report of one or more result sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Result sets, as `iosonde run` printed.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; `report.html` in the first result set if not given."),
    ] = None,
    format: Annotated[
        Literal["html", "md"], typer.Option("--format", help="One HTML file, or Markdown with its figures beside it.")
    ] = "html",
    figures: Annotated[
        Literal["svg", "pdf", "png"] | None, typer.Option("--figures", help="Write only the figures, in this format.")
    ] = None,
    mix_simulated: Annotated[
        bool, typer.Option("--mix-simulated", help="Allow simulated result sets beside measured ones; each is marked.")
    ] = False,
) -> None:
    """Write a report of one or more result sets.

    Several of the same study are drawn over one another. The HTML file holds everything and opens offline. What was
    written is printed, one path a line.
    """
    from iosonde.report import save_figures, write
    from iosonde.results import ResultSet

    result_sets = [ResultSet.open(directory) for directory in directories]
    if figures:
        written = save_figures(
            result_sets, output or directories[0] / "figures", format=figures, mix_simulated=mix_simulated
        )
    else:
        path = output or directories[0] / f"report.{format}"
        written = write(result_sets, path, format=format, mix_simulated=mix_simulated)[:1]
    for path in written:
        typer.echo(path)
