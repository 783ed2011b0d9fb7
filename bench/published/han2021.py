"""Han et al. 2021: bandwidth of Optane 900P drives in RAID 0, 1, 10, 5 and 6, figures 1 to 5, and alone, Table 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulated import Load, measure

from published.points import HEAD, Point, markdown, rows, summary

JOBS = 64
BLOCK_BYTES = 512 << 10
PARITY = {"5": "340MB/s", "6": "270MB/s"}
"""Approximate write throughput of the paper's host with parity, for any number of drives."""
LIMITED = ", host limited"
FILE_BYTES = 1 << 30
"""A quarter of the paper's: in place, the size of a file decides nothing."""


def points(engine: Path) -> Iterator[Point]:
    """One drive, then the arrays; those with direct I/O, since a simulated drive has no page cache above it."""
    for row in rows("han2021_table1_single_device.csv"):
        if "900P" in row["device"] and row["io_path"] == "direct":
            simulated = bandwidth(engine, "sim:p900", row["op"], row["pattern"])
            where = f"one drive, {row['pattern']} {row['op']}"
            yield Point(where=where, published=float(row["bandwidth_mb_s"]) / 1000, simulated=simulated)
    for row in rows("han2021_fig1to5_raid.csv"):
        if row["io_path"] == "direct":
            level = row["raid_level"].removeprefix("raid")
            target = f"sim:p900*{row['devices']},raid={level},chunk=512KiB"
            simulated = bandwidth(engine, target, row["op"], "sequential")
            where = f"RAID {level} of {row['devices']}, {row['op']}"
            yield Point(where=where, published=float(row["bandwidth_gb_s"]), simulated=simulated)
            if row["op"] == "write" and level in PARITY:
                limited = bandwidth(engine, f"{target},parity={PARITY[level]}", row["op"], "sequential")
                where += LIMITED
                yield Point(where=where, published=float(row["bandwidth_gb_s"]), simulated=limited)


def bandwidth(engine: Path, target: str, operation: str, pattern: str) -> float:
    """GB/s of 64 threads, each with a part of its own, 512 KiB at a time."""
    load = Load(
        block_bytes=BLOCK_BYTES,
        queue_depth=1,
        jobs=JOBS,
        read_fraction=1.0 if operation == "read" else 0.0,
        access=pattern,
        span_bytes=JOBS * FILE_BYTES,
        split=True,
    )
    return measure(engine, target, load, seconds=0.5, ramp_seconds=0.2).bandwidth / 1e9


def report(found: list[Point]) -> str:
    """Errors by kind of array, and every point."""
    limited = [point for point in found if point.where.endswith(LIMITED)]
    alone = [point for point in found if point not in limited]
    groups = [
        ("one drive", [point for point in found if point.where.startswith("one")]),
        ("reads of arrays", [point for point in found if point.where.startswith("RAID") and "read" in point.where]),
        (
            "writes of RAID 0, 1, 10",
            [point for point in found if point.where.startswith(("RAID 0", "RAID 1")) and "write" in point.where],
        ),
        (
            "writes of RAID 5, 6",
            [point for point in alone if point.where.startswith(("RAID 5", "RAID 6")) and "write" in point.where],
        ),
        ("**all**", alone),
        ("writes of RAID 5, 6 with the host's limit", limited),
    ]
    lines = [
        [point.where, f"{point.published:.2f}", f"{point.simulated:.2f}", f"{point.error:+.0%}"] for point in found
    ]
    return "\n\n".join(
        [
            markdown(HEAD, [summary(label, group) for label, group in groups]),
            markdown(("GB/s", "published", "simulated", "error"), lines),
        ]
    )
