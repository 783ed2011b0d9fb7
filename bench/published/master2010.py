"""Master et al. 2010 (NERSC): peaks of a PCIe card and a SATA drive, and what an hour of random writes leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from simulated import Load, measure

from published.points import HEAD, Point, markdown, summary

CARD, DRIVE = "iodrive", "x25m"
CAPACITY, SHRUNK = 4 * 10**9, 40
"""A fortieth of 160 GB, which a fortieth of an hour degrades as an hour degrades the whole."""
HOUR_SECONDS = 3600 / SHRUNK
FILLS = (0.3, 0.5, 0.7, 0.9)
SETTLED = 5 / 6
"""Of the hour: what is measured is the rest, when the paper's drives were steady."""


def points(engine: Path) -> Iterator[Point]:
    """The paper's figures that concern these two, or the two groups of interfaces that they stand for."""
    card, drive = _Peaks(engine, CARD, 128), _Peaks(engine, DRIVE, 64)
    yield Point(where="ioDrive, random-write IOPS, 8 threads", published=110_000, simulated=card.iops(0.0, 8))
    yield Point(where="X25-M, random-read IOPS, 8 threads", published=20_000, simulated=drive.iops(1.0, 8))
    yield Point(
        where="ioDrive, peak write over peak read", published=0.85, simulated=card.bandwidth(0) / card.bandwidth(1)
    )
    yield Point(
        where="X25-M, peak write over peak read", published=0.5, simulated=drive.bandwidth(0) / drive.bandwidth(1)
    )
    yield Point(where="PCIe over SATA, peak read", published=4, simulated=card.bandwidth(1) / drive.bandwidth(1))
    yield Point(where="PCIe over SATA, peak write", published=6, simulated=card.bandwidth(0) / drive.bandwidth(0))
    yield Point(
        where="PCIe over SATA, random-read IOPS", published=8, simulated=card.iops(1.0, 64) / drive.iops(1.0, 64)
    )
    yield Point(
        where="PCIe over SATA, random-write IOPS", published=80, simulated=card.iops(0.0, 64) / drive.iops(0.0, 64)
    )
    large, small = (128 << 10, 128), (4096, 16)
    after = degraded(engine, CARD, 0.9, *large) / card.bandwidth(0)
    yield Point(where="ioDrive 90 % full, bandwidth of its peak", published=0.15, simulated=after)
    after = degraded(engine, CARD, 0.9, *small) / 4096 / card.iops(0.0, 16)
    yield Point(where="ioDrive 90 % full, IOPS of its peak", published=0.5, simulated=after)
    after = median(degraded(engine, DRIVE, fill, *small) for fill in FILLS) / 4096 / drive.iops(0.0, 16)
    yield Point(where="X25-M at any fill, IOPS of its peak", published=0.2, simulated=after)
    after = median(degraded(engine, DRIVE, fill, 128 << 10, 64) for fill in FILLS) / drive.bandwidth(0)
    yield Point(where="X25-M at any fill, bandwidth of its peak", published=0.075, simulated=after)


class _Peaks:
    """Peak throughput of a drive: fresh for writes, written once for reads."""

    def __init__(self, engine: Path, name: str, jobs: int) -> None:
        self._engine, self._target, self._jobs = engine, f"sim:{name},capacity={CAPACITY}", jobs

    def bandwidth(self, read_fraction: float) -> float:
        """Bytes per second, 128 KiB in order."""
        load = Load(
            block_bytes=128 << 10,
            queue_depth=self._jobs,
            read_fraction=read_fraction,
            access="sequential",
            layout="missing" if read_fraction else "never",
        )
        return measure(self._engine, self._target, load, seconds=1, ramp_seconds=0.5).bandwidth

    def iops(self, read_fraction: float, threads: int) -> float:
        """I/Os per second of 4 KiB at random."""
        load = Load(
            block_bytes=4096,
            queue_depth=1,
            jobs=threads,
            read_fraction=read_fraction,
            layout="missing" if read_fraction else "never",
        )
        return measure(self._engine, self._target, load, seconds=1, ramp_seconds=0.5).iops


def degraded(engine: Path, name: str, fill: float, block_bytes: int, jobs: int) -> float:
    """Bytes per second in the last sixth of the hour of random writes in a file that fills so much.

    The file is written in order first, as `dd` did. The SATA drive has been used before, as the study's other tests use
    it, and never trimmed (no TRIM in 2010).
    """
    target, hour = f"sim:{name},capacity={CAPACITY}", HOUR_SECONDS
    span = round(fill * CAPACITY)
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch) / "state"
        if name == DRIVE:
            use(engine, target, state)
        write_in_order(engine, target, span, state)
        load = Load(block_bytes=block_bytes, queue_depth=1, jobs=jobs, read_fraction=0.0, span_bytes=span)
        settled = SETTLED * hour
        return measure(engine, target, load, seconds=hour - settled, ramp_seconds=settled, state=state).bandwidth


def write_in_order(engine: Path, target: str, span_bytes: int, state: Path) -> None:
    """Write so much of a drive once, as `dd` does."""
    load = Load(block_bytes=128 << 10, queue_depth=32, read_fraction=0.0, access="sequential", span_bytes=span_bytes)
    measure(engine, target, load, seconds=HOUR_SECONDS, operations=span_bytes // load.block_bytes, state=state)


def use(engine: Path, target: str, state: Path) -> None:
    """Write all of a drive in order, then for an hour at random, half of it in large blocks and half in small ones."""
    for block_bytes, access in ((128 << 10, "sequential"), (128 << 10, "random"), (4096, "random")):
        load = Load(block_bytes=block_bytes, queue_depth=32, read_fraction=0.0, access=access)
        measure(engine, target, load, seconds=HOUR_SECONDS / 2, state=state)


def report(found: list[Point]) -> str:
    """Errors, and every point."""
    lines = [
        [point.where, f"{point.published:,.3g}", f"{point.simulated:,.3g}", f"{point.error:+.0%}"] for point in found
    ]
    return "\n\n".join(
        [markdown(HEAD, [summary("**all**", found)]), markdown(("figure", "published", "simulated", "error"), lines)]
    )
