"""Control groups that this process created, as the interpreter reports it: without those of parallel tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_made: list[Path] = []


def created(within: Path) -> list[Path]:
    return [path for path in _made if path.parent == within and path.name.startswith("iosonde-")]


def remaining(within: Path) -> list[Path]:
    return [path for path in created(within) if path.exists()]


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.mkdir" and isinstance(arguments[0], str | os.PathLike):
        _made.append(Path(os.fspath(arguments[0])))


sys.addaudithook(_hear)
