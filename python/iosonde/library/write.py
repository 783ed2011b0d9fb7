"""Writes a page about the result sets in a directory."""

from __future__ import annotations

from pathlib import Path

from iosonde.errors import ResultsError
from iosonde.foreign_text import printable
from iosonde.results.files import write_output


def write_page(path: Path, text: str, *, about: Path) -> None:
    """Write a page; missing directories are created. `ResultsError` where that fails.

    Others may have written the directory that it is `about`, so no link in there is followed.
    """
    try:
        write_output(path, printable(text).encode(errors="replace"), within=[about])
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResultsError(f"cannot write `{path}`: {reason}", hint="name another place with `--output`") from error
