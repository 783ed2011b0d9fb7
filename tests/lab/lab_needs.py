"""What the lab's tests need of the machine, and patience with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

NOT_RUN = "THE LAB WAS NOT RUN: "


def needs_tool(name: str, package: str) -> None:
    if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/lib/qemu:/usr/libexec") is None:
        pytest.skip(f"{NOT_RUN}needs `{name}`: install the package `{package}`")


def eventually(what: Callable[[], None], *, attempts: int = 3) -> None:
    """A figure of a busy machine may be off once; what is wrong is wrong every time."""
    for _ in range(attempts - 1):
        try:
            return what()
        except AssertionError as error:
            print(f"measured again, because {error}")
    return what()
