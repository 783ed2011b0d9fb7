"""Failure of a run, and the first lines of output that explain it."""

from __future__ import annotations

SHOWN_BYTES = 1000
SHOWN_LINES = 10


class FailedError(Exception):
    """A run that failed; it becomes the event `error`."""

    def __init__(self, code: str, message: str, *, context: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.context = context
        self.hint = hint


class StoppedError(Exception):
    """iosonde asked to stop, or has ended."""


def first_lines(output: bytes) -> str:
    """The first lines of some output, for a reader: printable, and not many."""
    lines = output[:SHOWN_BYTES].decode(errors="backslashreplace").splitlines()[:SHOWN_LINES]
    return "\n".join("".join(each if each.isprintable() else "?" for each in line) for line in lines).strip()
