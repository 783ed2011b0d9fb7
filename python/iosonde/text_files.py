"""Names and text files that a user gives: studies, drive models, job files."""

from __future__ import annotations

import errno
import tomllib
from pathlib import Path
from typing import Any

LIMIT_BYTES = 64 << 20
"""Longer files are refused: `/dev/zero` never ends."""


def read(path: Path) -> str:
    """The text of a file; `OSError` if it cannot be read or is too long, `UnicodeDecodeError` if it is not UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except ValueError:
        raise OSError(errno.EINVAL, "a path cannot contain a null character") from None
    if len(content) > LIMIT_BYTES:
        raise OSError(errno.EFBIG, f"it is longer than {LIMIT_BYTES >> 20} MiB")
    return content.decode("utf-8")


def is_utf8(text: str) -> bool:
    """Whether a name can be stored: file names may be any bytes, which Python passes on as surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def parse_toml(text: str) -> dict[str, Any]:
    """The data of a TOML text; `TOMLDecodeError` also if it is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None
