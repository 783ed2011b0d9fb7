"""Events on standard output, with times in nanoseconds since the start of the run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import time
from typing import Any

from iosonde.protocol.version import VERSION
from iosonde.supervisor import NAME


class Events:
    """Writes events; its time 0 is that of its creation."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._begin_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._begin_ns

    def write(self, event: str, **fields: Any) -> None:
        text = json.dumps({"event": event, **fields}).encode() + b"\n"
        while text:
            text = text[os.write(self._descriptor, text) :]

    def hello(self) -> None:
        self.write(
            "hello",
            engine=NAME,
            version=_version(),
            build="python",
            clock="monotonic",
            clock_read_ns=_clock_read_ns(),
            pid=os.getpid(),
            protocol=VERSION,
            realtime_ns=time.time_ns() - self.now_ns(),
        )

    def phase(self, phase: str, edge: str) -> None:
        self.write("phase", phase=phase, edge=edge, at_ns=self.now_ns(), bytes=0)


def _version() -> str:
    try:
        return importlib.metadata.version("iosonde")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _clock_read_ns() -> float:
    count = 1000
    begin = time.monotonic_ns()
    for _ in range(count):
        time.monotonic_ns()
    return (time.monotonic_ns() - begin) / count
