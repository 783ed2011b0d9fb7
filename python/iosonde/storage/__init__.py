"""Targets: their properties, whether they may be written, and what iosonde creates on them and removes."""

from iosonde.storage.opening import VirtualTarget, open_target
from iosonde.storage.safety.journal import cleanup
from iosonde.storage.targets.file_target import DirectoryTarget, FileTarget
from iosonde.storage.targets.target import Target
from iosonde.storage.targets.workspace import has_leftovers, prepare, restore

__all__ = [
    "DirectoryTarget",
    "FileTarget",
    "Target",
    "VirtualTarget",
    "cleanup",
    "has_leftovers",
    "open_target",
    "prepare",
    "restore",
]
