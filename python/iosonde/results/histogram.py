"""Bucket numbers and the latencies they represent.

The definition is the protocol's (`crates/protocol/src/event.rs`, `Histogram`): bucket `i` below 1024 holds exactly `i`
ns; above, each power of two is divided into 512 equal buckets, so a bucket's midpoint is within 0.1 % of every value in
it. Here it is written twice, as NumPy for Python and as DuckDB macros for SQL; a test compares the two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EXACT = 1024
"""Buckets below this number hold one value each."""
PER_OCTAVE = 512
"""Buckets in each power of two above."""
BUCKETS = EXACT + PER_OCTAVE * (64 - 10)
"""Number of buckets: latencies have 64 bits."""

Buckets = npt.NDArray[np.uint64]

MACROS = (
    f"CREATE MACRO bucket_width_ns(bucket) AS CASE WHEN bucket < {EXACT} THEN 1::UBIGINT"
    f" ELSE 1::UBIGINT << ((bucket - {EXACT}) // {PER_OCTAVE} + 1)::UBIGINT END",
    f"CREATE MACRO bucket_lower_ns(bucket) AS CASE WHEN bucket < {EXACT} THEN bucket::UBIGINT"
    f" ELSE ({PER_OCTAVE} + (bucket - {EXACT}) % {PER_OCTAVE})::UBIGINT"
    f" << ((bucket - {EXACT}) // {PER_OCTAVE} + 1)::UBIGINT END",
    "CREATE MACRO bucket_midpoint_ns(bucket) AS bucket_lower_ns(bucket) + bucket_width_ns(bucket) // 2",
)
"""The same three functions in DuckDB's SQL."""


def lower_ns(buckets: npt.ArrayLike) -> Buckets:
    """Smallest value of each bucket."""
    number = np.asarray(buckets, dtype=np.uint64)
    octave, part = _octave(number), (number - np.uint64(EXACT)) % np.uint64(PER_OCTAVE)
    return np.where(number < EXACT, number, (np.uint64(PER_OCTAVE) + part) << (octave + np.uint64(1)))


def width_ns(buckets: npt.ArrayLike) -> Buckets:
    """Number of values in each bucket."""
    number = np.asarray(buckets, dtype=np.uint64)
    return np.where(number < EXACT, np.uint64(1), np.uint64(1) << (_octave(number) + np.uint64(1)))


def midpoint_ns(buckets: npt.ArrayLike) -> Buckets:
    """The value that represents each bucket."""
    return lower_ns(buckets) + width_ns(buckets) // np.uint64(2)


def _octave(number: Buckets) -> Buckets:
    """Octave of a bucket: power of two above `EXACT`, counted from 0; 0 for the exact buckets, too."""
    return (np.maximum(number, np.uint64(EXACT)) - np.uint64(EXACT)) // np.uint64(PER_OCTAVE)
