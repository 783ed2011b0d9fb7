"""Files of what iosonde can compute or measure again."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/iosonde`, or `~/.cache/iosonde`."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "iosonde"


def remember(path: Path, content: bytes) -> None:
    """Write a file of the cache in one step; what cannot be written is computed or measured again next time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tmp-", delete=False) as file:
            file.write(content)
        Path(file.name).replace(path)
