"""Limits on memory: of this process by the shell, and of subcommands that read result sets.

A small file from somebody else may decode to any size.
"""

from __future__ import annotations

import functools
import os
import resource
import threading
from collections.abc import Callable
from typing import Any

from iosonde.cli.messages import messages
from iosonde.errors import IosondeError
from iosonde.memory import SHARE, available_bytes, resident_bytes
from iosonde.units import format_bytes

READERS = {"report", "compare", "check", "library", "history", "export"}
"""Queries of `sql` have a process of their own, which is limited."""
_POLL_S = 0.05
_ADDRESS_SPACE, _ADDRESS_SPACE_OF_A_CPU = 768 << 20, 64 << 20
"""Libraries and their threads, one a CPU. With less, libraries in Rust end the process without an exception."""


def require_address_space() -> None:
    """`IosondeError` if `ulimit -v` is lower than what the libraries map."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _ADDRESS_SPACE + _ADDRESS_SPACE_OF_A_CPU * (os.cpu_count() or 1)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise IosondeError(
            f"the limit on address space (`ulimit -v`) is {limit >> 10} KiB, but iosonde needs {needed >> 10} KiB",
            hint=f"raise it with `ulimit -v {needed >> 10}`, or in `/etc/security/limits.conf`",
        )


def limited(command: Callable[..., Any], *, exit_code: int) -> Callable[..., Any]:
    """Let a subcommand end with an error as soon as it needs more than its share of the memory available now."""

    @functools.wraps(command)
    def run(**options: Any) -> Any:
        limit, is_over = int(available_bytes() * SHARE), threading.Event()
        threading.Thread(target=_watch, args=(limit, exit_code, is_over), daemon=True).start()
        try:
            return command(**options)
        finally:
            is_over.set()

    return run


def _watch(limit: int, exit_code: int, is_over: threading.Event) -> None:
    while resident_bytes(os.getpid()) <= limit:
        if is_over.wait(_POLL_S):
            return
    messages.warning(
        f"error: the result sets need more than {format_bytes(limit)} of memory\n\n"
        "hint: read fewer at once, or use a machine with more memory; a small result set that needs this much is "
        "damaged or malicious"
    )
    os._exit(exit_code)
