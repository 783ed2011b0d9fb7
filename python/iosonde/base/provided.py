"""Higher layers for lower ones: what a result set shows of itself is computed by packages that import results.

The application provides them when it is imported (`iosonde/__init__.py`), and each is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_modules: dict[str, str] = {}


def provide(**modules: str) -> None:
    """Add paths of modules by the names that lower layers use."""
    _modules.update(modules)


def provided(name: str) -> Any:
    """Return a module that the application provides."""
    return import_module(_modules[name])
