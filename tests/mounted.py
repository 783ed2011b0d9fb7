"""What a test gets that asks for a file system of its own."""

from __future__ import annotations

from pathlib import Path


class LoopFileSystem:
    """A file system in a file, mounted through a loop device."""

    def __init__(self, device: str, directory: Path, image: Path) -> None:
        self.device = device
        self.directory = directory
        self.image = image
