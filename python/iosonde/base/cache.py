"""Files of what iosonde can compute or measure again."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/iosonde`, or `~/.cache/iosonde`."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(cache), "iosonde")  # noqa: PTH111  # `Path.expanduser` raises `RuntimeError`.


def temporary_file() -> Any:
    """A new file to write and rename within the cache; `abandoned` finds it if this process is killed.

    It is at the top of the cache: builds below it can have tens of thousands of files. The lab's machine sees this
    cache, and `virtiofsd` keeps a descriptor for each file that was looked at.
    """
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    return tempfile.NamedTemporaryFile(dir=directory, prefix=f"{TEMPORARY}{os.getpid()}-", delete=False)


def abandoned() -> list[Path]:
    """Temporary files of this user in the cache, whose writers no longer run."""
    found = []
    for path in cache_directory().glob(f"{TEMPORARY}*"):
        writer = path.name.removeprefix(TEMPORARY).partition("-")[0]
        with suppress(OSError):
            status = path.lstat()
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if is_own and not (writer.isdecimal() and Path("/proc", writer).exists()):
                found.append(path)
    return found


def remember(path: Path, content: bytes, *, most: int | None = None) -> None:
    """Write a file of the cache in one step; what cannot be written is computed or measured again next time.

    The oldest files of its directory are removed beyond `most`.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file() as file:
            file.write(content)
        Path(file.name).replace(path)
        by_age = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime_ns) if most else []
        for old in by_age[: -(most or 0)]:
            old.unlink()
