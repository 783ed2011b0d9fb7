"""Result sets below a directory. Symbolic links are not followed, and names are never patterns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from iosonde.errors import ResultsError

MARK = "format.json"
"""File that makes a directory a result set."""


def find(root: Path, problems: list[str]) -> Iterator[Path]:
    """Yield result sets below `root`, `root` included, in the order of their names; none within another.

    Directories that cannot be read are added to `problems`. `ResultsError` where `root` is not a directory.
    """
    if not root.is_dir():
        raise ResultsError(
            f"`{root}` is not a directory", hint="name the directory that contains result sets, at any depth"
        )
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            problems.append(f"`{directory}` cannot be read: {error.strerror}")
            continue
        if any(entry.name == MARK and entry.is_file(follow_symlinks=False) for entry in found):
            yield directory
            continue
        waiting += [Path(entry.path) for entry in reversed(found) if entry.is_dir(follow_symlinks=False)]
