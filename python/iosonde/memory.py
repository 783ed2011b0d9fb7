"""The machine's memory, and how much of it iosonde lets a run take."""

from __future__ import annotations

import os

SHARE = 0.75
"""Most of the memory that I/O buffers, or the tables of a simulated drive, may take."""


def total_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
