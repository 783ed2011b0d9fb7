"""Writes a page to the path that the user named."""

from __future__ import annotations

from pathlib import Path

from iosonde.errors import ResultsError
from iosonde.foreign_text import printable
from iosonde.results.files import write_output


def write_page(path: Path, text: str) -> None:
    """Write a page; missing directories are created. `ResultsError` where that fails."""
    try:
        write_output(path, printable(text).encode(errors="replace"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResultsError(f"cannot write `{path}`: {reason}", hint="name another place with `--output`") from error
