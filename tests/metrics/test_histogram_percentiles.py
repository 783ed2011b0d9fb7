"""Percentiles from buckets against exact sorted samples, for any samples."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from buckets import bucket_of
from hypothesis import given, settings
from hypothesis import strategies as st

from iosonde.metrics.histogram import MILLION, PERCENTILES, SAMPLES_BEYOND, percentiles

latencies = st.lists(st.integers(min_value=0, max_value=3600 * 10**9), min_size=1, max_size=400)


def histogram(groups: dict[str, list[int]]) -> pl.DataFrame:
    rows = [(name, int(bucket), 1) for name, values in groups.items() for bucket in bucket_of(values)]
    return pl.DataFrame(rows, schema={"group": pl.String, "bucket": pl.UInt32, "count": pl.Int64}, orient="row")


@given(latencies, latencies)
@settings(max_examples=60)
def test_each_group_has_its_own_percentiles_within_a_bucket_of_the_exact_ones(one: list[int], other: list[int]) -> None:
    groups = {"one": one, "other": other}
    found = {row["group"]: row for row in percentiles(histogram(groups), by=["group"]).iter_rows(named=True)}
    for name, values in groups.items():
        ordered = sorted(values)
        for percentile, part in PERCENTILES.items():
            rank = -(-len(values) * part // MILLION)
            if len(values) - rank < SAMPLES_BEYOND:
                assert found[name][percentile] is None
            else:
                assert found[name][percentile] == pytest.approx(ordered[rank - 1], rel=0.001, abs=0.5)


def test_rounding_takes_no_sample_away() -> None:
    """100 x (1 - 0.9) is 9.999999999999998 in floating point: ten samples beyond p90 would count as nine."""
    row = percentiles(histogram({"x": list(range(1, 101))}), by=["group"]).row(0, named=True)
    assert (row["p90"], row["p95"]) == (90, None)


def test_buckets_may_come_in_any_order_and_in_pieces() -> None:
    values = np.random.default_rng(5).integers(1, 10**7, 5000).tolist()
    whole = percentiles(histogram({"x": values}), by=["group"])
    pieces = pl.concat([histogram({"x": values[3000:]}), histogram({"x": values[:3000]})]).sample(
        fraction=1, shuffle=True, seed=1
    )
    assert percentiles(pieces, by=["group"]).equals(whole)
