"""Writes a page about the result sets in a directory."""

from __future__ import annotations

import os
from pathlib import Path

from iosonde.errors import ResultsError
from iosonde.foreign_text import printable
from iosonde.library.find import MARK
from iosonde.object_storage import is_address
from iosonde.results.files import write_output
from iosonde.text_files import open_regular

GENERATOR = b'<meta name="generator" content="iosonde">'
_HEAD_BYTES = 4096


def require_replaceable(path: Path) -> None:
    """Refuse to replace a file under the default name of a page that is no page of iosonde: `ResultsError`."""
    try:
        with os.fdopen(open_regular(path, follow_links=False), "rb") as file:
            is_page = GENERATOR in file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError:
        is_page = False
    if not is_page:
        raise ResultsError(
            f"`{path}` already exists and was not written by iosonde",
            hint="it was not changed; name another file with `--output FILE`",
        )


def page_path(output: Path | None, about: Path | str, name: str) -> Path:
    """Return where to write a page: what the user named, or its default name in the directory that it is about."""
    if output is None and is_address(about):
        raise ResultsError(f"a page about `{about}` requires `--output`", hint="name a file with `--output FILE`")
    path = output or Path(about) / name
    require_outside(path)
    if output is None:
        require_replaceable(path)
    return path


def require_outside(path: Path) -> None:
    """Refuse to write into a result set: `ResultsError`."""
    for each in path.absolute().parents:
        if (each / MARK).is_file():
            raise ResultsError(
                f"cannot write `{path}` inside the result set `{each}`",
                hint="name a file elsewhere with `--output FILE`",
            )


def write_page(path: Path, text: str, *, about: Path | str) -> None:
    """Write a page; missing directories are created. `ResultsError` where that fails.

    Others may have written the directory that it is `about`, so no link in there is followed.
    """
    try:
        write_output(path, printable(text).encode(errors="replace"), within=[] if is_address(about) else [Path(about)])
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResultsError(f"cannot write `{path}`: {reason}", hint="name another place with `--output`") from error
