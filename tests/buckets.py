"""The bucket of a histogram that a latency is counted in: results of tests are made of latencies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iosonde.results.column import EXACT, PER_OCTAVE, Buckets


def bucket_of(values_ns: npt.ArrayLike) -> Buckets:
    value = np.asarray(values_ns, dtype=np.uint64)
    # frexp rounds a value just below 2**53 and up to the next power of two; the comparison takes that back.
    exponent = np.frexp(np.maximum(value, np.uint64(1)).astype(np.float64))[1].astype(np.uint64) - np.uint64(1)
    exponent = np.minimum(exponent, np.uint64(63))
    exponent -= (np.uint64(1) << exponent > np.maximum(value, np.uint64(1))).astype(np.uint64)
    octave = np.maximum(exponent, np.uint64(10)) - np.uint64(10)
    above = np.uint64(EXACT - PER_OCTAVE) + np.uint64(PER_OCTAVE) * octave + (value >> (octave + np.uint64(1)))
    return np.where(value < EXACT, value, above)
