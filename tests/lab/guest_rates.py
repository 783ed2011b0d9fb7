"""Measured and expected rates of arrays of throttled drives: printed as JSON Lines, judged outside.

`guest_rates.measure_all` runs inside the lab's machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from guest_md import CHUNK_KIB, array, drives, send
from lab_load import SEQUENTIAL, measure

CLOSED_FORM = [
    # level, drives, reads of one drive, writes of one drive
    ("raid0", 4, 4, 4),
    ("raid0", 8, 8, 8),
    ("raid1", 2, 2, 1),
    ("raid10", 4, 4, 2),
]
"""RAID 1 and 10 read from every copy."""

RAMP_S, SECONDS = 0.6, 2.0
"""The throttle's bucket lasts a tenth of a second's worth of I/O."""

READ, WRITTEN = 2, 6

Rates = tuple[float, float]
"""The mean, and that of the best second."""

PARITY = [("raid5", 4, 4, 3), ("raid6", 4, 4, 2)]
"""Parity rotates, so that every drive serves reads; of full stripes, all but the parity is data."""


def measure_all(engine: str, iops: int, bandwidth: int) -> None:
    for level, count, reads, writes in [*CLOSED_FORM, *PARITY]:
        with array(level, drives(count)) as path:
            reading = partial(random_reads, engine, path, count)
            before = counted(drives(count), READ)
            report(f"{level}x{count} reads", reads * iops, reading)
            by_drive = [now - then for now, then in zip(counted(drives(count), READ), before, strict=True)]
            send(name=f"{level}x{count} read bytes", by_drive=by_drive)
            full_stripe = level in ("raid5", "raid6")
            writing = partial(stream, engine, path, count, CHUNK_KIB * 1024 * (writes if full_stripe else 1))
            before = counted([*drives(count), path], WRITTEN)
            report(f"{level}x{count} writes", writes * bandwidth, writing)
            after = counted([*drives(count), path], WRITTEN)
            *by_drive, by_array = [now - then for now, then in zip(after, before, strict=True)]
            send(name=f"{level}x{count} bytes", by_drives=sum(by_drive), by_array=by_array)


def random_reads(engine: str, path: Path, count: int) -> Rates:
    """IOPS. Deep enough that no drive ever runs dry."""
    measured = measure(engine, path, queue_depth=32 * count, ramp_s=RAMP_S, seconds=SECONDS)
    return measured.iops, measured.best_iops


def stream(engine: str, path: Path, count: int, block_bytes: int) -> Rates:
    """Bytes per second of sequential writes."""
    measured = measure(
        engine,
        path,
        access=SEQUENTIAL,
        block_bytes=block_bytes,
        queue_depth=2 * count,
        read_fraction=0.0,
        span_bytes=block_bytes * 128,
        ramp_s=RAMP_S,
        seconds=SECONDS,
    )
    return measured.bandwidth, measured.best_bandwidth


def counted(devices: Iterable[Path], field: int) -> list[int]:
    """Bytes read from or written to each block device since its start (`Documentation/block/stat.rst`)."""
    return [512 * int(Path("/sys/block", each.resolve().name, "stat").read_text().split()[field]) for each in devices]


def report(name: str, expected: float, measurement: Callable[[], Rates]) -> None:
    """Measure once."""
    send(name=name, begins=True)
    mean, best = measurement()
    send(name=name, expected=expected, measured=mean, best=best)
