"""`iosonde history`: metrics over time, with change points."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from iosonde.cli import options, reference
from iosonde.cli.messages import errors_exit, messages
from iosonde.cli.tables import print_json, wrapped


def command(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory with result sets, at any depth, or `s3://BUCKET/PREFIX`.")
    ] = "iosonde-results",
    study: Annotated[str | None, typer.Option("--study", metavar="NAME", help="Only this study.")] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="Only this target, device model or shortened serial number."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="NAME", help="Only this metric, such as `iops`.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Page to write (default `history.html` in DIR).",
            callback=options.page,
        ),
    ] = None,
    fail_on_loss: Annotated[
        int | None,
        typer.Option(
            "--fail-on-loss", metavar="N", min=1, help="Exit with 1 if a metric got worse within the last N sessions."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, write nothing.")] = False,
) -> None:
    """Show every metric over time and where its level changed.

    Sessions are grouped by study, profile, target and devices; changes of firmware, kernel, iosonde and configuration
    are marked. Exit codes: 0 history shown; with `--fail-on-loss` 1 a loss, 2 an error.
    """
    # 1 would be read as a loss.
    with nullcontext() if fail_on_loss is None else errors_exit(reference.EXIT_USAGE):
        lost = _show(directory, study, target, metric, output, fail_on_loss, as_json=as_json)
    if lost:
        raise typer.Exit(reference.EXIT_ERROR)


def _show(
    directory: str,
    study: str | None,
    target: str | None,
    metric: str | None,
    output: Path | None,
    fail_on_loss: int | None,
    *,
    as_json: bool,
) -> bool:
    """Show the history; returns whether a metric got worse within the last sessions requested."""
    from iosonde.history import history, page
    from iosonde.history.page import render
    from iosonde.library import index
    from iosonde.library.page import page_path, write_page

    path = None if as_json else page_path(output, directory, "history.html")
    found = history(index(directory), study=study, target=target, metric=metric)
    for problem in found.problems:
        messages.warning(f"warning: {problem}")
    if path is None:
        print_json(page.document(found))
    else:
        print("\n".join(wrapped(page.lines(found))))
        write_page(path, render(found), about=directory)
        messages.info(str(path))
    return bool(fail_on_loss and found.losses(fail_on_loss))
