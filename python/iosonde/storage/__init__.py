"""Targets: what they are, whether they may be written, what was made on them and must be removed."""

from iosonde.storage.journal import Cleaned, cleanup, created, removed
from iosonde.storage.target import DirectoryTarget, FileTarget, Target, VirtualTarget, open_target
from iosonde.storage.workspace import has_leftovers, prepare, put_back

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
    "put_back",
    "removed",
]
