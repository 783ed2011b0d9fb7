"""The unified log of a Java virtual machine (`-Xlog:gc,safepoint`): pauses of its garbage collector, and safepoints.

All threads of the server wait in a pause, so each request in flight takes at least as long. Lines are decorated with
the monotonic clock in nanoseconds and with tags: `[81530123456789ns][gc] GC(3) Pause Young ... 24M->5M(512M) 3.456ms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OPTIONS = "-Xlog:gc=info,safepoint=info:file={path}:timenanos,tags:filecount=0"
"""Option of the virtual machine that writes this log; `filecount=0` keeps one file."""

_PAUSE = re.compile(
    r"\[(?P<at>[0-9]+)ns\]\[gc\s*\] GC\([0-9]+\) Pause (?P<kind>.*?)"
    r"(?: (?P<before>[0-9]+)M->(?P<after>[0-9]+)M\((?P<heap>[0-9]+)M\))? (?P<ms>[0-9]+\.[0-9]+)ms$"
)
_SAFEPOINT = re.compile(r"\[[0-9]+ns\]\[safepoint\s*\] Safepoint \"(?P<kind>[^\"]+)\".*Total: +(?P<total>[0-9]+) ns$")

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Pause:
    """One pause of the garbage collector."""

    end_ns: int
    """On the monotonic clock of the machine."""
    length_ns: int
    kind: str
    """`Young (Normal) (G1 Evacuation Pause)`."""
    heap_after_bytes: int | None


def pauses(text: str) -> Iterator[Pause]:
    """The pauses of the garbage collector in complete lines of a log; other lines are skipped."""
    for line in text.splitlines():
        found = _PAUSE.search(line)
        if found:
            after = found["after"]
            yield Pause(
                end_ns=int(found["at"]),
                length_ns=round(float(found["ms"]) * 1e6),
                kind=found["kind"],
                heap_after_bytes=int(after) * MIB if after else None,
            )


def safepoints(text: str) -> Iterator[int]:
    """Lengths of all safepoints in nanoseconds, those of garbage collections included."""
    for line in text.splitlines():
        found = _SAFEPOINT.search(line)
        if found:
            yield int(found["total"])


class GcLog:
    """Totals of a log that grows: each call reads what was appended since the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._totals = {"gc_pauses": 0, "gc_pause_ns": 0, "safepoint_ns": 0}
        self._latest: dict[str, int] = {}
        self._all: list[Pause] = []

    def totals(self) -> dict[str, int]:
        """Pauses since the server started, their length, that of all safepoints, and the heap after the last one.

        `gc_pause_longest_ns` is the longest pause that was logged since the call before.
        """
        text = self._appended()
        found = list(pauses(text))
        self._all += found
        self._totals["gc_pauses"] += len(found)
        self._totals["gc_pause_ns"] += sum(each.length_ns for each in found)
        self._totals["safepoint_ns"] += sum(safepoints(text))
        known = [each.heap_after_bytes for each in found if each.heap_after_bytes is not None]
        if known:
            self._latest["heap_after_gc_bytes"] = known[-1]
        longest = max((each.length_ns for each in found), default=0)
        return {**self._totals, **self._latest, "gc_pause_longest_ns": longest}

    def longest(self, number: int) -> list[Pause]:
        """The longest pauses so far, in the order of time."""
        chosen = sorted(self._all, key=lambda each: each.length_ns)[-number:]
        return sorted(chosen, key=lambda each: each.end_ns)

    def _appended(self) -> str:
        """Return appended text up to the last complete line; a restarted server has a shorter log."""
        with suppress(OSError), self._path.open("rb") as file:
            if file.seek(0, 2) < self._read:
                self._read = 0
            file.seek(self._read)
            complete, newline, _ = file.read().rpartition(b"\n")
            self._read += len(complete) + len(newline)
            return complete.decode(errors="replace")
        return ""
