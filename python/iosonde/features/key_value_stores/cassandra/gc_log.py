"""The unified log of a Java virtual machine (`-Xlog:gc,safepoint`): pauses of its garbage collector, and safepoints.

All threads of the server wait in a pause, so each request in flight takes at least as long. Lines are decorated with
the monotonic clock in nanoseconds and with tags: `[81530123456789ns][gc] GC(3) Pause Young ... 24M->5M(512M) 3.456ms`.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPTIONS = "-Xlog:gc=info,safepoint=info:file={path}:timenanos,tags:filecount=0"
"""Option of the virtual machine that writes this log; `filecount=0` keeps one file."""

_PAUSE = re.compile(
    r"\[(?P<at>[0-9]+)ns\]\[gc\s*\] GC\([0-9]+\) Pause (?P<kind>.*?)"
    r"(?: (?P<before>[0-9]+)M->(?P<after>[0-9]+)M\((?P<heap>[0-9]+)M\))? (?P<ms>[0-9]+\.[0-9]+)ms$"
)
_SAFEPOINT = re.compile(r"\[(?P<at>[0-9]+)ns\]\[safepoint\s*\] Safepoint \"[^\"]+\".*Total: +(?P<total>[0-9]+) ns$")

MIB = 1 << 20

LONGEST = 20
"""Pauses that a record lists."""

Span = tuple[int, int]
"""From start to end, on the monotonic clock of the machine in nanoseconds."""


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


def safepoints(text: str) -> Iterator[Span]:
    """All safepoints, those of garbage collections included."""
    for line in text.splitlines():
        found = _SAFEPOINT.search(line)
        if found:
            yield int(found["at"]) - int(found["total"]), int(found["at"])


def time_until(spans: Sequence[Span], instants: Sequence[int]) -> list[int]:
    """Total time in spans until each instant; spans follow each other."""
    ends, total = [end for _, end in spans], [0]
    for start, end in spans:
        total.append(total[-1] + end - start)
    found = []
    for instant in instants:
        over = bisect_right(ends, instant)
        present = max(0, instant - spans[over][0]) if over < len(spans) else 0
        found.append(total[over] + present)
    return found


class GcLog:
    """Totals of a log that grows: each call reads what was appended since the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._totals = {"gc_pauses": 0, "gc_pause_ns": 0}
        self._latest: dict[str, int] = {}
        self._all: list[Pause] = []
        self._safepoints: list[Span] = []

    def totals(self) -> dict[str, int]:
        """Pauses since the server started, their length, and the heap after the last one.

        `gc_pause_longest_ns` is the longest pause that was logged since the call before.
        """
        text = self._appended()
        found = list(pauses(text))
        self._all += found
        self._totals["gc_pauses"] += len(found)
        self._totals["gc_pause_ns"] += sum(each.length_ns for each in found)
        self._safepoints += safepoints(text)
        known = [each.heap_after_bytes for each in found if each.heap_after_bytes is not None]
        if known:
            self._latest["heap_after_gc_bytes"] = known[-1]
        longest = max((each.length_ns for each in found), default=0)
        return {**self._totals, **self._latest, "gc_pause_longest_ns": longest}

    def times_until(self, instants: Sequence[int]) -> list[dict[str, int]]:
        """Time in pauses and in safepoints since the server started, until each instant of the monotonic clock.

        A pause is logged when it ends, so these are known after the last instant, and not from `totals` at each.
        """
        self.totals()
        paused = time_until([(each.end_ns - each.length_ns, each.end_ns) for each in self._all], instants)
        stopped = time_until(self._safepoints, instants)
        pairs = zip(paused, stopped, strict=True)
        return [{"gc_paused_ns": pause_ns, "safepoint_ns": safepoint_ns} for pause_ns, safepoint_ns in pairs]

    def facts(self) -> dict[str, Any]:
        """The longest pauses, with their ends on the clock of the machine's time, in nanoseconds since 1970."""
        shift_ns = time.time_ns() - time.monotonic_ns()
        chosen = sorted(self._all, key=lambda each: each.length_ns)[-LONGEST:]
        found = [
            {"end_unix_ns": each.end_ns + shift_ns, "length_ns": each.length_ns, "kind": each.kind}
            for each in sorted(chosen, key=lambda each: each.end_ns)
        ]
        return {"longest_gc_pauses": found}

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
