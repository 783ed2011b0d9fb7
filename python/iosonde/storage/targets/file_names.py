"""Names from studies that become parts of file names."""

from __future__ import annotations

MOST_BYTES = 128
"""With a suffix this is well below the 255 bytes that file systems allow."""


def is_file_name(name: str) -> bool:
    """Return True if a name can be part of a file name: printable, no directory, not hidden."""
    if not name or not name.isprintable() or "/" in name or name.startswith("."):
        return False
    return len(name.encode()) <= MOST_BYTES
