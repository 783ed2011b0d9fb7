"""The machine's memory, and how much of it iosonde lets a run take."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SHARE = 0.75
"""Most of the memory that I/O buffers, or the tables of a simulated drive, may take."""


def available_bytes() -> int:
    """Memory that can be used without swapping, by the kernel's estimate."""
    with Path("/proc/meminfo").open(encoding="utf-8") as meminfo:
        line = next(line for line in meminfo if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def swap_traffic() -> dict[str, int]:
    """Return the bytes that the machine has read from swap and written to it since it started; empty without swap."""
    words = [line.split() for line in Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()]
    pages = {name: int(count) for name, count in words}
    if "pswpin" not in pages or "pswpout" not in pages:
        return {}
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return {"swap_in_bytes": pages["pswpin"] * page_bytes, "swap_out_bytes": pages["pswpout"] * page_bytes}


def total_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 after its exit."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
