"""`iosonde collect`, `library` and `history`: many result sets."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import typer

from iosonde.cli import reference
from iosonde.cli.options import AS_JSON, argument, option, output_option, page_option, switch
from iosonde.cli.terminal import errors_exit, messages, print_json, wrapped


def collect_command(
    directories: list[str] = argument("DIR...", "Directories with result sets, at any depth, or `s3://BUCKET/PREFIX`."),
    output: str = output_option(
        "LIBRARY", "Directory to copy them to, created if missing, or `s3://BUCKET/PREFIX`.", default=...
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Copy result sets of several machines into one library.

    The directories are not changed. A result set that the library has already is copied once; one with further records
    completes its copy. Damaged and foreign files are named and skipped.
    """
    from iosonde.collections.library.collect import collect

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


def history_command(
    directory: str = argument(
        "DIR", "Directory with result sets, at any depth, or `s3://BUCKET/PREFIX`.", default="iosonde-results"
    ),
    study: str | None = option("NAME", "Only this study."),
    target: str | None = option("NAME", "Only this target, device model or shortened serial number."),
    metric: str | None = option("NAME", "Only this metric, such as `iops`."),
    output: Path | None = output_option("FILE", "Page to write (default `history.html` in DIR).", callback=page_option),
    fail_on_loss: int | None = option("N", "Exit with 1 if a metric got worse within the last N sessions.", min=1),
    as_json: bool = switch("--json", "Print JSON, write nothing."),
) -> None:
    """Show every metric over time and where its level changed.

    Sessions are grouped by study, profile, target and devices; changes of firmware, kernel, iosonde and configuration
    are marked. Exit codes: 0 history shown; with `--fail-on-loss` 1 a loss, 2 an error.
    """
    from iosonde.collections.history import history, page
    from iosonde.collections.library.indexing import index
    from iosonde.collections.library.page import page_path, write_page

    # 1 would be read as a loss.
    with nullcontext() if fail_on_loss is None else errors_exit(reference.EXIT_USAGE):
        path = None if as_json else page_path(output, directory, "history.html")
        found = history(index(directory), study=study, target=target, metric=metric)
        for problem in found.problems:
            messages.warning(f"warning: {problem}")
        if path is None:
            print_json(page.document(found))
        else:
            print("\n".join(wrapped(page.lines(found))))
            write_page(path, page.render(found), about=directory)
            messages.info(str(path))
    if fail_on_loss and found.losses(fail_on_loss):
        raise typer.Exit(reference.EXIT_ERROR)


def library_command(
    directory: str = argument("DIR", "Directory with result sets, at any depth, or `s3://BUCKET/PREFIX`."),
    output: Path | None = output_option("FILE", "Page to write (default `library.html` in DIR).", callback=page_option),
    as_json: bool = switch("--json", "Print the index as JSON, write nothing."),
) -> None:
    """Write an index of all result sets in a directory.

    One HTML page with search, sorting, filters and links to reports; it loads nothing. Result sets that cannot be read
    are named and skipped. Symbolic links are not followed, and no result set is changed.
    """
    from iosonde.collections.library.indexing import index
    from iosonde.collections.library.page import page_path, render, write_page

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
