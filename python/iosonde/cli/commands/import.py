"""`iosonde import`: convert another tool's job file or command line to a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from iosonde.cli.messages import messages

if TYPE_CHECKING:
    from iosonde.interop.fio import Imported

CONTEXT = {"ignore_unknown_options": True}
"""Options of fio are a part of its command line."""


def command(
    tool: Annotated[Literal["fio"], typer.Argument(metavar="fio", help="Source tool.")],
    job: Annotated[
        list[str],
        typer.Argument(metavar="JOBFILE", help="Job file, or a command line of fio in quotation marks or not."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="STUDY.toml", help="New file (default: standard output)."),
    ] = None,
) -> None:
    """Convert a fio job file or command line to a study.

    Reports what is not carried over, with its place, the reason and what happens instead; the study has the same list
    in comments. Nothing is run. See what the study would do with `iosonde plan STUDY.toml --target PATH`.
    """
    from iosonde.interop.fio import command_line, import_command_line, import_job_file

    is_command_line = command_line.is_command_line(job)
    imported = import_command_line(job) if is_command_line else import_job_file(job[0])
    output = None if output == Path("-") else output
    if output is None:
        print(imported.text, end="")
    else:
        _write_new(output, imported.text)
    _report(imported, "the command line" if is_command_line else f"`{job[0]}`", output)


def _write_new(path: Path, text: str) -> None:
    from iosonde.errors import StudyError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise StudyError(f"`{path}` already exists", hint="name a new file with `--output`") from None
    except OSError as error:
        raise StudyError(
            f"cannot write `{path}`: {error.strerror}", hint="name another file with `--output`"
        ) from error


def _report(imported: Imported, origin: str, output: Path | None) -> None:
    """Report what was converted; a message, because the study may be on standard output."""
    from iosonde.interop.fio.study import wrapped

    lines = [f"converted {origin} to the study `{imported.name}`" + (f" in `{output}`" if output else "")]
    if imported.notes:
        lines += ["", "not carried over (place, option: reason; what happens instead):"]
        lines += wrapped(imported.notes, width=80, indent="- ", further="  ")
    else:
        lines[0] += "; all options are carried over"
    if output:
        lines += ["", f"next: iosonde plan {output} --target PATH"]
    messages.info("\n".join(lines))
