"""`iosonde library`: an index of result sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iosonde.cli import options
from iosonde.cli.messages import messages
from iosonde.cli.tables import print_json


def command(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory with result sets, at any depth, or `s3://BUCKET/PREFIX`.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Page to write (default `library.html` in DIR).",
            callback=options.page,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the index as JSON, write nothing.")] = False,
) -> None:
    """Write an index of all result sets in a directory.

    One HTML page with search, sorting, filters and links to reports; it loads nothing. Result sets that cannot be read
    are named and skipped. Symbolic links are not followed, and no result set is changed.
    """
    from iosonde.library import index
    from iosonde.library.page import page_path, render, write_page

    path = None if as_json else page_path(output, directory, "library.html")
    found = index(directory)
    for problem in found.problems:
        messages.warning(f"warning: {problem}")
    if path is None:
        print_json(
            {
                "directory": str(found.root),
                "result_sets": [each.model_dump(exclude={"cells", "loads", "parameters"}) for each in found.summaries],
                "skipped": list(found.problems),
            }
        )
        return
    write_page(path, render(found, path.absolute().parent), about=directory)
    messages.info(f"{len(found.summaries)} result sets")
    print(path)
