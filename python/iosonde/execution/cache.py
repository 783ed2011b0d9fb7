"""The directory for what iosonde can measure again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/iosonde`, or `~/.cache/iosonde`."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "iosonde"
