"""fio's latency histogram: 64 bins to each power of two, exact below 128 ns, everything from 17.2 s on in the last.

Our buckets are finer and never cross one of its bins, so counts in bins are what fio itself would have counted from
the same latencies. What is lost is resolution: a bin's midpoint is within 0.78 % of its values, a bucket's within
0.1 %.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iosonde.results.column import lower_ns

_BITS = 6
_PER_OCTAVE = 1 << _BITS
COUNT = 29 * _PER_OCTAVE
"""Number of bins; the last is open."""

Counts = npt.NDArray[np.int64]


def of_buckets(buckets: npt.ArrayLike, counts: npt.ArrayLike) -> Counts:
    """Counts of all bins from counts of our buckets."""
    found = np.zeros(COUNT, dtype=np.int64)
    np.add.at(found, bin_of(lower_ns(buckets)), np.asarray(counts, dtype=np.int64))
    return found


def bin_of(values_ns: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The bin that each latency falls into."""
    values = np.asarray(values_ns, dtype=np.uint64)
    # Exact: a float holds 53 bits, and only the position of the highest counts. Above 2**53 all are in the last bin.
    shift = np.maximum(np.frexp(np.minimum(values, np.uint64(1 << 53)).astype(np.float64))[1] - 1 - _BITS, 0)
    within = (values >> shift.astype(np.uint64)).astype(np.int64)
    numbers: npt.NDArray[np.intp] = np.minimum(shift * _PER_OCTAVE + within, COUNT - 1).astype(np.intp)
    return numbers


def midpoint_ns(number: int) -> int:
    """The latency that represents a bin."""
    if number < 2 * _PER_OCTAVE:
        return number
    shift = number // _PER_OCTAVE - 1
    return ((number - shift * _PER_OCTAVE) << shift) + (1 << shift >> 1)


def occupied(counts: Counts) -> dict[str, int]:
    """Bins as json+ has them: midpoint in ns to count."""
    return {str(midpoint_ns(int(number))): int(counts[number]) for number in np.flatnonzero(counts)}
