"""Processes of Python that iosonde starts for parts of itself: their command, and the requests that they read."""

from __future__ import annotations

import json
import math
import queue
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of iosonde with this interpreter.

    `-P`: without it Python would import from the working directory first, which may belong to another user.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def installed_version(package: str) -> str | None:
    """Return the version of an installed Python package; None of one that runs from a checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Requests:
    """Requests of the parent, each a line of JSON on standard input, read in a thread: work occupies the main thread.

    At the end of input, also because the parent was killed, there will be no more. Nor after `lease_s` without a line,
    of which an empty one is enough: the connection to the parent is lost.
    """

    def __init__(self, lease_s: float = math.inf) -> None:
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._heard, self._lease_s = time.monotonic(), lease_s
        threading.Thread(target=self._read, daemon=True).start()
        if lease_s < math.inf:
            threading.Thread(target=self._watch, daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        while (request := self._waiting.get()) is not None:
            yield request

    def take(self, request: Any) -> None:
        """Handle a request that has arrived, in the thread that reads."""
        self._waiting.put(request)

    def end(self) -> None:
        """Handle the end of the parent, in another thread than the main one."""
        self._waiting.put(None)

    def _read(self) -> None:
        for line in sys.stdin:
            self._heard = time.monotonic()
            if line.strip():
                self.take(json.loads(line))
        self.end()

    def _watch(self) -> None:
        while (left_s := self._heard + self._lease_s - time.monotonic()) > 0:
            time.sleep(left_s)
        self.end()
