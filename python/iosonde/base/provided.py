"""Higher layers for lower ones: what a result set shows of itself is computed by packages that import results.

The application provides them when it is imported (`iosonde/__init__.py`), and each is loaded when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_loaders: dict[str, Callable[[], Any]] = {}


def provide(**loaders: Callable[[], Any]) -> None:
    """Add modules by the names that lower layers use, each with the function that imports it."""
    _loaders.update(loaders)


def provided(name: str) -> Any:
    """Return a module that the application provides."""
    return _loaders[name]()
