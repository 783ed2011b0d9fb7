"""`iosonde man`: the manual page, generated from the command line itself."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def command(
    format: Annotated[
        Literal["roff", "md"], typer.Option("--format", help="`roff` for `man`, or Markdown for the documentation.")
    ] = "roff",
) -> None:
    """Print the manual page.

    Read it with `iosonde man | man -l -`, or install it with `iosonde man > /usr/local/share/man/man1/iosonde.1`.
    """
    from iosonde.cli import manual

    print(manual.roff() if format == "roff" else manual.markdown(), end="")
