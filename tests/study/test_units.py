"""Sizes and times are read as people write them, and a wrong unit is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from iosonde import units


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4KiB", 4096),
        ("4 KiB", 4096),
        ("4kib", 4096),
        ("4k", 4096),
        ("4K", 4096),
        ("1m", 1 << 20),
        ("1.5GiB", 3 << 29),
        ("4KB", 4000),
        ("10mb", 10_000_000),
        ("512B", 512),
        ("512", 512),
        (512, 512),
        ("0", 0),
    ],
)
def test_a_size_is_binary_with_an_i_or_a_single_letter_and_decimal_without(text: str | int, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("1.5s", 1_500_000_000), ("100ms", 10**8), ("20us", 20_000), ("20µs", 20_000), ("2min", 12 * 10**10), ("0", 0)],
)
def test_a_time_is_nanoseconds(text: str, nanoseconds: int) -> None:
    assert units.parse_duration(text) == nanoseconds


def test_a_rate_is_decimal() -> None:
    assert [units.parse_rate(text) for text in ("2000", "10k", "1.5M/s", 100)] == [2000, 10_000, 1_500_000, 100]


def _problem(parse: object, value: object) -> str:
    with pytest.raises(ValueError) as caught:
        parse(value)  # type: ignore[operator]
    return str(caught.value)


def test_what_is_not_a_quantity_is_refused_with_what_would_be() -> None:
    assert [
        _problem(units.parse_size, "4KiBs"),
        _problem(units.parse_size, "-4KiB"),
        _problem(units.parse_size, True),
        _problem(units.parse_size, "0.3B"),
        _problem(units.parse_duration, 10),
        _problem(units.parse_duration, "10 sec"),
        _problem(units.parse_duration, "fast"),
        _problem(units.parse_rate, "10 MB"),
    ] == snapshot(
        [
            "`KiBs` is not a unit of size; did you mean `KiB`?",
            "`-4KiB` is not a size; write it like `4KiB`",
            "`True` is not a size; write it like `4KiB`",
            "`0.3B` is not a whole number of B",
            "`10` has no unit; write it like `10s`",
            "`sec` is not a unit of time; did you mean `s`?",
            "`fast` is not a time; write it like `10s`",
            "`MB` is not a unit of rate; did you mean `M`?",
        ]
    )


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
    assert [
        units.format_duration(seconds * 1e9) for seconds in (0.25, 1.5, 59.9, 60, 125, 3599.9, 6000, 90_000)
    ] == snapshot(["250 ms", "1.5 s", "1 min", "1 min", "2 min 5 s", "1 h", "1 h 40 min", "25 h"])
