"""Sizes and times are read as people write them, and a wrong unit is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from iosonde import units


@pytest.mark.parametrize(
    ("parse", "texts", "value"),
    [
        (units.parse_size, ("4KiB", "4 KiB", "4kib", "4k", "4K"), 4096),
        (units.parse_size, ("1.5GiB",), 3 << 29),
        (units.parse_size, ("4KB",), 4000),
        (units.parse_size, ("512B", "512", 512), 512),
        (units.parse_duration, ("1.5s",), 1_500_000_000),
        (units.parse_duration, ("20us", "20µs"), 20_000),
        (units.parse_duration, ("2min",), 12 * 10**10),
        (units.parse_rate, ("10k",), 10_000),
        (units.parse_rate, ("1.5M/s",), 1_500_000),
    ],
)
def test_sizes_are_binary_with_an_i_or_a_single_letter_and_times_nanoseconds_and_rates_decimal(
    parse: Callable[[object], float], texts: tuple[object, ...], value: float
) -> None:
    assert {parse(text) for text in texts} == {value}
    assert parse("0") == 0


@pytest.mark.parametrize(
    ("parse", "value", "problem"),
    [
        (units.parse_size, "4KiBs", "`KiBs` is not a unit of size; did you mean `KiB`?"),
        (units.parse_size, "-4KiB", "`-4KiB` is not a size; write it like `4KiB`"),
        (units.parse_size, "0.3B", "`0.3B` is not a whole number of B"),
        (units.parse_duration, 10, "`10` has no unit; write it like `10s`"),
        (units.parse_duration, "fast", "`fast` is not a time; write it like `10s`"),
        (units.parse_rate, "10 MB", "`MB` is not a unit of rate; did you mean `M`?"),
    ],
)
def test_what_is_not_a_quantity_is_refused_with_what_would_be(
    parse: Callable[[object], float], value: object, problem: str
) -> None:
    with pytest.raises(ValueError) as caught:
        parse(value)
    assert str(caught.value) == problem


@given(st.integers(min_value=0, max_value=1 << 60))
def test_compact_text_is_read_back_exactly(value: int) -> None:
    assert units.parse_size(units.compact_size(value)) == value
    assert units.parse_duration(units.compact_duration(value)) == value


def test_readers_see_three_digits_and_a_unit() -> None:
    assert [units.format_bytes(size) for size in (0, 512, 4096, 1000, 10**6, 3 << 29, 1023, 1048575)] == snapshot(
        ["0 B", "512 B", "4 KiB", "1000 B", "977 KiB", "1.5 GiB", "1023 B", "1 MiB"]
    )
    assert [units.format_bandwidth(rate) for rate in (0, 999, 1.5e6, 123_456_789, 999_999_999)] == snapshot(
        ["0 B/s", "999 B/s", "1.5 MB/s", "123 MB/s", "1 GB/s"]
    )
    assert [units.format_count(count) for count in (0, 1.234, 999.6, 9999, 12_345, 1_500_000)] == snapshot(
        ["0", "1.23", "1,000", "9,999", "12.3 k", "1.5 M"]
    )
    assert [units.format_latency(time) for time in (0, 850, 87_234, 1.25e6, 999_999, 1e10)] == snapshot(
        ["0 ns", "850 ns", "87.2 µs", "1.25 ms", "1 ms", "10 s"]
    )
    seconds = (0.25, 1.5, 59.9, 60, 125, 3599.9, 6000, 90_000)
    assert [units.format_duration(each * 1e9) for each in seconds] == snapshot(
        ["250 ms", "1.5 s", "1 min", "1 min", "2 min 5 s", "1 h", "1 h 40 min", "25 h"]
    )
    seconds = (0, 0.6549, 0.9996, 9.78, 59.4, 59.6, 125, 3570, 6000, 90_000, 9_000_000)
    assert [units.format_estimate(each) for each in seconds] == snapshot(
        ["0 ms", "650 ms", "1 s", "9.8 s", "59 s", "1 min", "2.1 min", "1 h", "1.7 h", "25 h", "2,500 h"]
    )
