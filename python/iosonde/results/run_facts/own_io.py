"""Shares of a device's bytes that may not have been the engine's, from a record's `own_io`.

    exactly attributed    device - engine's own
    else, others present  the lesser of that, and what they wrote plus what the engine did not dirty
    else                  none

Reads are attributed exactly; writes if they are direct and without flushes: the kernel writes back pages and journals
for all processes. Others are present if they had files open for writing on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iosonde.workload import described

Json = Mapping[str, Any]

MOST = 0.05
"""Largest share with which a device's bytes count as the engine's."""
LEAST_BYTES = 1 << 20
"""Fewer foreign bytes are ignored: a file system writes some by itself."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Bytes of other processes on the devices of a run; None where that is not known."""

    read_bytes: int | None = None
    write_bytes: int | None = None
    read_share: float | None = None
    write_share: float | None = None
    share: float | None = None
    """Of all bytes of the devices; at least, where either of both is not known."""


UNKNOWN = Foreign()


def foreign(own_io: Json | None, workload: Json) -> Foreign:
    """The foreign bytes of a measurement; of the whole run with key-value stores, whose writes count until durable."""
    if not own_io:
        return UNKNOWN
    rows = _rows(own_io, workload)
    is_counted = own_io.get("version") is not None
    read = _unattributed(rows, "read") if is_counted else None
    written = _unattributed(rows, "write") if is_counted and _is_plain(workload) else _bound(own_io, rows)
    return Foreign(
        read_bytes=read,
        write_bytes=written,
        read_share=_share(read, rows, "read"),
        write_share=_share(written, rows, "write"),
        share=_share_of_all(read, written, rows),
    )


def own_bytes(own_io: Json | None, workload: Json, what: str) -> tuple[int, int] | None:
    """The engine's own bytes, at most, and all bytes of the devices, in the same account; None where not counted."""
    rows = _rows(own_io, workload) if own_io and own_io.get("version") is not None else []
    return (sum(row[f"own_{what}_bytes"] for row in rows), sum(row[f"{what}_bytes"] for row in rows)) if rows else None


def _rows(own_io: Json, workload: Json) -> list[Json]:
    """The account by device; empty if a counter was reset in between, so that less was counted than before."""
    rows: list[Json] = own_io["run" if described(workload).io == "store" else "measure"]
    is_reset = any(value < 0 for row in rows for name, value in row.items() if name != "device")
    return [] if is_reset else rows


def _unattributed(rows: list[Json], what: str) -> int | None:
    """Bytes that are not those of the engine's control group."""
    if not rows:
        return None
    return int(sum(max(0, row[f"{what}_bytes"] - row[f"own_{what}_bytes"]) for row in rows))


def _bound(own_io: Json, rows: list[Json]) -> int | None:
    """Most bytes that others can have written."""
    unattributed, others = _unattributed(rows, "write"), own_io["others"]
    if unattributed is None or (others["unreadable"] and own_io.get("version") is None):
        return None  # Without privileges neither the group nor the processes of others are visible.
    if not others["are_present"]:
        return 0
    unexplained = max(0, unattributed - own_io["dirtied_bytes"])
    return int(min(unattributed, others["write_bytes"] + unexplained))


def _share(foreign_bytes: int | None, rows: list[Json], what: str) -> float | None:
    if foreign_bytes is None:
        return None
    if foreign_bytes < LEAST_BYTES:
        return 0.0
    return float(foreign_bytes / sum(row[f"{what}_bytes"] for row in rows))


def _share_of_all(read: int | None, written: int | None, rows: list[Json]) -> float | None:
    moved = sum(row["read_bytes"] + row["write_bytes"] for row in rows)
    return ((read or 0) + (written or 0)) / moved if moved else None


def _is_plain(workload: Json) -> bool:
    """Return True if all writes are direct and without flushes."""
    return described(workload).io == "blocks" and all(
        stream["io_mode"] == "direct" and stream["durability"]["kind"] == "none" for stream in workload["streams"]
    )
