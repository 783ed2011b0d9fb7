"""`iosonde report`: a report of one or more result sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from iosonde.cli import options
from iosonde.cli.tables import print_json


def command(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR", help="Result sets, one suite, or one fleet.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write (default `report.html` in the first DIR).",
            callback=options.page,
        ),
    ] = None,
    format: Annotated[
        Literal["html", "md"], typer.Option("--format", help="One HTML file, or Markdown with SVG figures.")
    ] = "html",
    figures: Annotated[
        Literal["svg", "pdf", "png"] | None, typer.Option("--figures", help="Write only the figures, in this format.")
    ] = None,
    of_drives: Annotated[
        bool, typer.Option("--fleet", help="Compare the drives of all result sets below DIR, at any depth.")
    ] = False,
    mix_simulated: options.MixSimulated = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print findings and metrics as JSON, write nothing.")] = False,
) -> None:
    """Write a report of one or more result sets.

    Result sets of the same study share their figures. The HTML file needs no other files. Prints the path of every file
    written.
    """
    from iosonde.cli import documents
    from iosonde.library.directory import kind_of
    from iosonde.report import save_figures, write
    from iosonde.results import ResultSet

    kind = kind_of(directories[0]) if len(directories) == 1 else None
    if of_drives or kind == "fleet":
        from iosonde.cli.commands import fleet

        if len(directories) > 1 or figures:
            raise typer.BadParameter("the report of a fleet is of one directory, without `--figures`")
        fleet.write_report(directories[0], as_json=as_json, output=output, format=format)
        return
    if kind == "suite":
        from iosonde.cli.commands import suite
        from iosonde.suite.directory import open_directory

        if format != "html" or figures:
            raise typer.BadParameter("the report of a suite is one HTML page; name the result sets in it instead")
        suite.write_report(open_directory(directories[0]), as_json=as_json, output=output)
        return
    result_sets = [ResultSet.open(directory) for directory in directories]
    if as_json:
        print_json(documents.of_result_sets(result_sets, mix_simulated=mix_simulated))
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
