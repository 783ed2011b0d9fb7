"""`iosonde collect`: result sets of several directories in one library."""

from __future__ import annotations

from typing import Annotated

import typer

from iosonde.cli.messages import messages
from iosonde.cli.tables import AsJson, print_json


def command(
    directories: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Directories with result sets, at any depth, or `s3://BUCKET/PREFIX`."),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="LIBRARY",
            help="Directory to copy them to, created if missing, or `s3://BUCKET/PREFIX`.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Copy result sets of several machines into one library.

    The directories are not changed. A result set that the library has already is copied once; one with further records
    completes its copy. Damaged and foreign files are named and skipped.
    """
    from iosonde.library.collect import collect

    done = collect(directories, output)
    for problem in done.problems:
        messages.warning(f"warning: {problem}")
    if as_json:
        print_json(
            {
                "copied": [str(each) for each in done.copied],
                "completed": [str(each) for each in done.completed],
                "known": done.known,
                "skipped": done.problems,
            }
        )
        return
    messages.info(f"{len(done.copied)} result sets copied, {len(done.completed)} completed, {done.known} known")
    print(output)
