"""What the lab's tests need of the machine, and patience with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

NOT_RUN = "THE LAB WAS NOT RUN: "


def needs_tool(name: str, package: str) -> None:
    if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/lib/qemu:/usr/libexec") is None:
        pytest.skip(f"{NOT_RUN}needs `{name}`: install the package `{package}`")


def eventually(what: Callable[[], None], *, attempts: int = 3) -> None:
    """A figure of a busy machine may be off once; what is wrong is wrong every time.

    On a machine that has no processor to spare nothing is proven either way, which is said loudly.
    """
    for attempt in range(1, attempts + 1):
        stolen = _stolen_s()
        try:
            return what()
        except AssertionError as error:
            print(f"attempt {attempt}: {error}")
            if attempt == attempts:
                excuse(_stolen_s() - stolen, str(error))
                raise
    return None


def excuse(stolen_s: float, what: str) -> None:
    """Skip when others use the processors, of this machine or of the one that it is a guest of."""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > 1.5 * cpus or stolen_s > 0.5:
        pytest.skip(f"{NOT_RUN}this machine is too busy (load {load:.1f}, {stolen_s:.1f} s stolen): {what}")


def _stolen_s() -> float:
    """Processor time that the hypervisor gave to others, so far (proc(5), `/proc/stat`)."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
