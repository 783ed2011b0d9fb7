from __future__ import annotations

import duckdb
import numpy as np
from buckets import bucket_of
from hypothesis import given
from hypothesis import strategies as st

from iosonde.results import histogram

LATENCIES = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50)
LAST_BUCKET = 1024 + 512 * 54 - 1


def by_the_book(value: int) -> int:
    """The definition of crates/protocol/src/event.rs, in plain integers."""
    if value < 1024:
        return value
    octave = value.bit_length() - 11
    return 1024 + 512 * octave + ((value >> (octave + 1)) - 512)


@given(LATENCIES)
def test_a_latency_falls_into_the_bucket_of_the_protocol(values: list[int]) -> None:
    assert bucket_of(values).tolist() == [by_the_book(value) for value in values]


@given(LATENCIES)
def test_a_bucket_contains_its_latencies_and_its_midpoint_is_within_a_thousandth(values: list[int]) -> None:
    buckets = bucket_of(values)
    lower, width = histogram.lower_ns(buckets).tolist(), histogram.width_ns(buckets).tolist()
    for value, low, wide, middle in zip(values, lower, width, histogram.midpoint_ns(buckets).tolist(), strict=True):
        assert low <= value < low + wide
        assert abs(middle - value) <= value / 1000


def test_buckets_follow_each_other_without_gap() -> None:
    buckets = np.arange(LAST_BUCKET + 1)
    lower, width = histogram.lower_ns(buckets), histogram.width_ns(buckets)
    assert lower[0] == 0
    assert (lower[:-1] + width[:-1] == lower[1:]).all()
    assert int(lower[-1]) + int(width[-1]) == 2**64


def test_sql_and_numpy_agree_on_every_bucket() -> None:
    with duckdb.connect() as connection:
        for macro in histogram.MACROS:
            connection.execute(macro)
        found = connection.execute(
            "SELECT bucket_lower_ns(b), bucket_width_ns(b), bucket_midpoint_ns(b)"
            f" FROM (SELECT unnest(range({LAST_BUCKET + 1}))::UINTEGER AS b) ORDER BY b"
        ).fetchall()
    buckets = np.arange(LAST_BUCKET + 1)
    expected = zip(
        histogram.lower_ns(buckets).tolist(),
        histogram.width_ns(buckets).tolist(),
        histogram.midpoint_ns(buckets).tolist(),
        strict=True,
    )
    assert found == list(expected)
