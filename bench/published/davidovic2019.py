"""Davidovic et al. 2019: all 1,020 points of bandwidth over block size and queue depth, on 1, 2 and 3 drives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from simulated import Load, measure

from published.points import HEAD, Point, markdown, rows, summary

TARGETS = {
    1: "sim:sp900,capacity=16GB",
    2: "sim:sp900*2,chunk=16KiB,capacity=8GB,bandwidth=1250MB/s",
    3: "sim:sp900*3,chunk=16KiB,capacity=6GB,bandwidth=1250MB/s",
}
"""The stripe unit is the paper's; 1,250 MB/s is the most that its board ever moved, whatever the drives."""
DRIVE_BYTES_PER_SECOND = 500e6


@dataclass(frozen=True, kw_only=True)
class GridPoint(Point):
    """With its place in the grid."""

    drives: int
    operation: str
    queue_depth: int
    block_bytes: int


def points(engine: Path) -> Iterator[GridPoint]:
    """The whole grid, in the order of the table."""
    for row in rows("davidovic2019_raid0.csv"):
        drives, depth, block = int(row["drives"]), int(row["queue_depth"]), int(row["block_bytes"])
        yield GridPoint(
            where=f"{drives} drive{'s' if drives > 1 else ''}, {row['op']}, {_size(block)} at queue depth {depth}",
            published=float(row["bandwidth_mb_s"]),
            simulated=bandwidth(engine, drives, row["op"], depth, block) / 1e6,
            drives=drives,
            operation=row["op"],
            queue_depth=depth,
            block_bytes=block,
        )


def bandwidth(engine: Path, drives: int, operation: str, queue_depth: int, block_bytes: int) -> float:
    """Bytes per second of sequential I/O over all that fits, as ATTO does it."""
    load = Load(
        block_bytes=block_bytes,
        queue_depth=queue_depth,
        read_fraction=1.0 if operation == "read" else 0.0,
        access="sequential",
    )
    # Every place in the queue is used a few times, and the write buffer is full before it counts.
    turn = max(0.04, queue_depth * block_bytes / (DRIVE_BYTES_PER_SECOND * drives))
    return measure(engine, TARGETS[drives], load, seconds=6 * turn, ramp_seconds=turn).bandwidth


def report(found: list[GridPoint]) -> str:
    """Errors by drives and operation, and by region of the grid."""
    groups = [
        (f"{drives} drive{'s' if drives > 1 else ''}, {operation}s", _of(found, drives, operation))
        for drives in TARGETS
        for operation in ("read", "write")
    ]
    groups += [
        ("queue depth 1", [point for point in found if point.queue_depth == 1]),
        ("queue depth 2", [point for point in found if point.queue_depth == 2]),
        ("queue depths 4 to 10", [point for point in found if 4 <= point.queue_depth <= 10]),
        ("queue depths 16 and above", [point for point in found if point.queue_depth >= 16]),
        ("blocks up to 4 KiB", [point for point in found if point.block_bytes <= 4096]),
        ("blocks of 8 to 64 KiB", [point for point in found if 4096 < point.block_bytes <= 65536]),
        ("blocks of 128 KiB and above", [point for point in found if point.block_bytes > 65536]),
        ("**all**", found),
        ("half of the queue depth in flight", list(halved(found))),
    ]
    return markdown(HEAD, [summary(label, group) for label, group in groups]) + "\n\n" + _peaks(found)


def _of(found: list[GridPoint], drives: int, operation: str) -> list[GridPoint]:
    return [point for point in found if (point.drives, point.operation) == (drives, operation)]


def halved(found: list[GridPoint]) -> Iterator[GridPoint]:
    """Each published point with the simulated one at half its queue depth, where there is one."""
    simulated = {(p.drives, p.operation, p.queue_depth, p.block_bytes): p.simulated for p in found}
    for point in found:
        half = simulated.get((point.drives, point.operation, point.queue_depth // 2, point.block_bytes))
        if half is not None and point.queue_depth % 2 == 0:
            yield replace(point, simulated=half)


def _peaks(found: list[GridPoint]) -> str:
    """The most that each array reaches, and how often one drive that is."""
    lines = []
    for operation in ("read", "write"):
        most = {drives: _of(found, drives, operation) for drives in TARGETS}
        published = {drives: max(point.published for point in group) for drives, group in most.items()}
        simulated = {drives: max(point.simulated for point in group) for drives, group in most.items()}
        lines += [
            [
                f"{operation}, {drives} drive{'s' if drives > 1 else ''}",
                f"{published[drives]:,.0f} ({published[drives] / published[1]:.2f}x)",
                f"{simulated[drives]:,.0f} ({simulated[drives] / simulated[1]:.2f}x)",
            ]
            for drives in TARGETS
        ]
    return markdown(("most MB/s (times one drive)", "published", "simulated"), lines)


def _size(block_bytes: int) -> str:
    if block_bytes < 1024:
        return f"{block_bytes} B"
    return f"{block_bytes >> 10} KiB" if block_bytes < 1 << 20 else f"{block_bytes >> 20} MiB"
