"""`iosonde import`: another tool's job file becomes a study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from iosonde.interop.fio import Imported


def command(
    tool: Annotated[Literal["fio"], typer.Argument(metavar="fio", help="Whose file it is.")],
    job_file: Annotated[Path, typer.Argument(metavar="JOBFILE", help="A job file.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="STUDY.toml", help="New file; standard output if not given."),
    ] = None,
) -> None:
    """Turn a fio job file into a study.

    What is not carried over is said, with its place, why, and what happens instead; the same stands as comments at the
    top of the study. Nothing is run: see what the study would do with `iosonde plan STUDY.toml --target PATH`.
    """
    from iosonde.interop.fio import import_job_file

    imported = import_job_file(job_file)
    if output is None:
        print(imported.text, end="")
    else:
        _write_new(output, imported.text)
    _say(imported, job_file, output)


def _write_new(path: Path, text: str) -> None:
    from iosonde.errors import StudyError

    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise StudyError(f"`{path}` exists already", hint="name a new file with `--output`") from None
    except OSError as error:
        raise StudyError(
            f"cannot write `{path}`: {error.strerror}", hint="name another file with `--output`"
        ) from error


def _say(imported: Imported, job_file: Path, output: Path | None) -> None:
    """Talk goes to standard error, for the study may be on standard output."""
    from iosonde.interop.fio.notes import wrapped

    lines = [f"`{job_file}` is the study `{imported.name}`" + (f", in `{output}`" if output else "")]
    if imported.notes:
        lines += ["", "not carried over as it stood there (place, option: why; what happens instead):"]
        lines += wrapped(imported.notes, width=100, indent="- ", further="  ")
    else:
        lines[0] += "; everything in it is carried over"
    if output:
        lines += ["", f"next: iosonde plan {output} --target PATH"]
    print("\n".join(lines), file=sys.stderr)
