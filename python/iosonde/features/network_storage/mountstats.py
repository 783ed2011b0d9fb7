"""Counters of an NFS mount, from `/proc/self/mountstats` (kernel `fs/nfs/super.c`, `net/sunrpc/stats.c`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from iosonde.storage.block_layer.mounts import unescape

TABLE = Path("/proc/self/mountstats")

PER_OPERATION = (
    "operations",
    "transmissions",
    "timeouts",
    "bytes_sent",
    "bytes_received",
    "queue_ms",
    "round_trip_ms",
    "execute_ms",
)
"""Columns of an operation; later ones (errors) are not in every kernel."""
COUNTED_BYTES = ("normal_read", "normal_write", "direct_read", "direct_write", "server_read", "server_write")
SEPARATE = ("READ", "WRITE", "COMMIT")
"""Operations that are counted apart; the others are `other`: metadata, sessions, locks."""


@dataclass(kw_only=True)
class MountStatistics:
    """Options and counters of one mount."""

    options: list[str] = field(default_factory=list)
    connections: int = 0
    counters: dict[str, int] = field(default_factory=dict)


def read(point: str) -> MountStatistics | None:
    """The counters of the mount at `point`; None if it is not one of NFS."""
    try:
        return parse(TABLE.read_text(encoding="utf-8", errors="surrogateescape"), point)
    except OSError:
        return None


def parse(text: str, point: str) -> MountStatistics | None:
    """The same from the text of the table."""
    found = None
    for heading, lines in _sections(text):
        words = heading.split(" ")
        if len(words) > 7 and words[6] == "fstype" and words[7].startswith("nfs") and unescape(words[4]) == point:
            found = _statistics(lines)  # A later mount hides an earlier one at the same point.
    return found


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    heading, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("device "):
            if heading:
                yield heading, lines
            heading, lines = line, []
        else:
            lines.append(line)
    if heading:
        yield heading, lines


def _statistics(lines: list[str]) -> MountStatistics:
    found = MountStatistics()
    is_operation = False
    for line in lines:
        name, _, rest = line.strip().partition(":")
        if is_operation and rest:
            _add(found.counters, name.strip(), rest.split())
        elif name == "opts":
            found.options = rest.strip().split(",")
        elif name == "bytes":
            numbers = zip(COUNTED_BYTES, rest.split(), strict=False)
            found.counters |= {f"{each}_bytes": int(value) for each, value in numbers}
        elif name == "xprt":
            found.connections += 1
        is_operation = is_operation or name == "per-op statistics"
    return found


def _add(counters: dict[str, int], operation: str, values: list[str]) -> None:
    kind = operation.lower() if operation in SEPARATE else "other"
    for name, value in zip(PER_OPERATION, values, strict=False):
        counters[f"{kind}_{name}"] = counters.get(f"{kind}_{name}", 0) + int(value)
