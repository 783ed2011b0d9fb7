"""Output of a command: bounded, with the time at which each line arrived."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator

_READ_BYTES = 1 << 16


class Output:
    """Output of a command on a pipe, up to a limit; `total` counts all of it."""

    def __init__(self, descriptor: int, *, limit: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.data = bytearray()
        self.total = 0
        self._limit = limit
        self._arrived: list[tuple[int, int]] = []

    @property
    def is_beyond_limit(self) -> bool:
        """True if the command wrote more than is kept."""
        return self.total > self._limit

    def read(self, now_ns: int) -> bool:
        """Take what has arrived; False at the end of the pipe."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return True
        self.total += len(data)
        kept = data[: max(0, self._limit - len(self.data))]
        if kept:
            self.data += kept
            self._arrived.append((len(self.data), now_ns))
        return bool(data)

    def drain(self, now_ns: int) -> None:
        """Take what has arrived so far, although another process may hold the pipe open."""
        before = -1
        while self.total != before and not self.is_beyond_limit:
            before = self.total
            self.read(now_ns)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Each line with the time at which its end arrived."""
        ends = [end for end, _ in self._arrived]
        begin = 0
        for line in bytes(self.data).split(b"\n"):
            end = min(begin + len(line) + 1, len(self.data))
            if line:
                yield self._arrived[bisect.bisect_left(ends, end)][1], line.decode(errors="replace").rstrip("\r")
            begin = end
