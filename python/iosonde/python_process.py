"""Processes of Python that iosonde starts for parts of itself."""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of iosonde with this interpreter.

    `-P`: without it Python would import from the working directory first, which may belong to another user.
    """
    return [sys.executable, "-P", "-m", module, *arguments]
