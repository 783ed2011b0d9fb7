"""fio's histogram, held against fio's own definition, against fio, and against our buckets."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from buckets import bucket_of
from hypothesis import given
from hypothesis import strategies as st

from iosonde.interop.fio import bins
from iosonde.results.histogram import lower_ns, width_ns

LAST_NS = 1 << 34


def defined(value: int) -> int:
    """As fio groups: by the highest bit, then the six bits below it."""
    group = max(value.bit_length() - 7, 0)
    return min((group << 6) + (value >> group), 29 * 64 - 1)


@given(st.integers(0, (1 << 64) - 1))
def test_every_latency_is_in_the_bin_that_fio_has_for_it(value: int) -> None:
    assert int(bins.bin_of([value])[0]) == defined(value)


@given(st.integers(0, LAST_NS - 1))
def test_the_midpoint_is_within_one_part_in_128(value: int) -> None:
    midpoint = bins.midpoint_ns(defined(value))
    assert abs(midpoint - value) * 128 <= value
    assert defined(midpoint) == defined(value)


def test_known_values() -> None:
    assert [bins.midpoint_ns(number) for number in (0, 127, 128, 1855)] == [0, 127, 129, 17_112_760_320]
    assert bins.bin_of([127, 128, 129, 130, LAST_NS, 1 << 62]).tolist() == [127, 128, 128, 129, 1855, 1855]


def test_no_bucket_of_iosonde_is_in_two_bins_of_fio() -> None:
    buckets = np.arange(int(bucket_of([LAST_NS])[0]), dtype=np.uint64)
    first = lower_ns(buckets)
    last = first + width_ns(buckets) - np.uint64(1)
    assert (bins.bin_of(first) == bins.bin_of(last)).all()


@given(st.lists(st.integers(0, LAST_NS), min_size=1, max_size=200))
def test_counts_from_buckets_are_those_from_the_latencies_themselves(values: list[int]) -> None:
    buckets, counts = np.unique(bucket_of(values), return_counts=True)
    assert bins.of_buckets(buckets, counts).tolist() == np.bincount(bins.bin_of(values), minlength=bins.COUNT).tolist()


@pytest.mark.system
@pytest.mark.needs("fio")
def test_bins_are_those_that_fio_writes(tmp_path: Path) -> None:
    options = ["--ioengine=null", "--rw=randrw", "--size=64m", "--name=x"]
    output = tmp_path / "fio.json"
    subprocess.run(
        ["fio", "--output-format=json+", f"--output={output}", *options],
        cwd=tmp_path, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    latency = json.loads(output.read_text())["jobs"][0]["read"]["clat_ns"]
    numbers = {bins.midpoint_ns(number): number for number in range(bins.COUNT)}
    counts = np.zeros(bins.COUNT, dtype=np.int64)
    for midpoint, count in latency["bins"].items():
        counts[numbers[int(midpoint)]] = count
    assert bins.occupied(counts) == latency["bins"]
