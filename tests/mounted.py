"""File system for a test that requests one of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class LoopFileSystem(NamedTuple):
    device: str
    directory: Path
    image: Path


@contextmanager
def overlay(place: Path, *, on: Path) -> Iterator[Path]:
    """Mount an overlay that keeps its files in a directory; needs root."""
    place.mkdir()
    layers = [on / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir()
    options = "lowerdir={},upperdir={},workdir={}".format(*layers)
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
