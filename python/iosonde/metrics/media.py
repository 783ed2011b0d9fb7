"""From what a drive was handed to what it wrote to its media: the last step of the chain of amplification.

A drive's counters are coarse, and its log pages may be as old as ten minutes (OCP Datacenter NVMe SSD Specification,
SLOG-7), so a ratio of two differences is a number only where much was written, and where the drive's own count of what
the host wrote agrees with the kernel's: otherwise they cover different times, or another process wrote too.
"""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, over

DATA_UNIT_BYTES = 512_000
"""In which a drive counts what the host wrote (`target/nvme/logs.py`)."""

STEPS = 64
"""Of the coarsest counter, that a difference must have: two roundings then are 3 % at most."""

AGREEMENT = 0.05
"""By how much drive and kernel may differ in what the host wrote."""

AMPLIFICATION = Metric(
    name="media_write_amplification",
    title="Device to media",
    unit="",
    formula="bytes the drives wrote to their media / bytes the drives received",
    better="lower",
    kind="device",
    expression=over("media_write_bytes", "media_taken_bytes"),
)

STOOD_STILL = "the drives' counters of their media did not move"
TOO_LITTLE = "too little was written for the drives' counters, which are coarse"
DISAGREE = "drives and kernel disagree on what was written: the drives' counters lag behind, or others wrote as well"


def judged(runs: pl.DataFrame) -> pl.DataFrame:
    """Add `media_write_bytes` and `media_taken_bytes` where their ratio is a number, and else `media_not_reported`.

    `runs` has the columns of `results.drive_facts`; of runs on simulated drives also `simulated_media_write_bytes` and
    `simulated_write_bytes`, which are exact.
    """
    written, taken, units, step = (
        pl.col(name).cast(pl.Int64)
        for name in (
            "run_media_write_bytes",
            "run_drive_write_bytes",
            "run_drive_units_written",
            "run_media_step_bytes",
        )
    )
    reason = (
        pl.when(written.is_null())
        .then("run_media_not_reported")
        .when(taken < STEPS * pl.max_horizontal(step, pl.lit(DATA_UNIT_BYTES)))
        .then(pl.lit(TOO_LITTLE))
        .when((units * DATA_UNIT_BYTES - taken).abs() > AGREEMENT * taken)
        .then(pl.lit(DISAGREE))
        .when(written == 0)
        .then(pl.lit(STOOD_STILL))
    )
    reported = written.is_not_null() & reason.is_null()
    return runs.with_columns(
        media_not_reported=reason,
        media_write_bytes=pl.when(reported).then(written).otherwise("simulated_media_write_bytes"),
        media_taken_bytes=pl.when(reported).then(taken).otherwise("simulated_write_bytes"),
    )
