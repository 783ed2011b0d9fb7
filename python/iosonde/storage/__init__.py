"""Targets: their properties, whether they may be written, and what iosonde creates on them and removes."""

from iosonde.storage.file_target import DirectoryTarget, FileTarget
from iosonde.storage.journal import Cleaned, cleanup, created, removed
from iosonde.storage.opening import open_target
from iosonde.storage.target import Target
from iosonde.storage.virtual_target import VirtualTarget
from iosonde.storage.workspace import has_leftovers, prepare, restore

__all__ = [
    "Cleaned",
    "DirectoryTarget",
    "FileTarget",
    "Target",
    "VirtualTarget",
    "cleanup",
    "created",
    "has_leftovers",
    "open_target",
    "prepare",
    "removed",
    "restore",
]
