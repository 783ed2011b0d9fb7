"""Sizes, times and rates as people write and read them; inside, bytes and nanoseconds are integers.

Sizes: an `i` makes a unit binary (`4KiB` = 4096), without it the unit is decimal (`4KB` = 4000), and a bare number is
bytes. A single letter is binary, as in fio (`4k` = 4096). Times need a unit, because a bare number would be seconds in
one tool and milliseconds in the next. Counts and rates are decimal (`10k` = 10,000).

Formatting is for readers: three significant digits, a space before the unit. Bandwidth is decimal (MB/s), as data
sheets and the published studies print it.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

SIZES = {
    "B": 1,
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", start=1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGTP", start=1)},
    **{prefix: 1024**power for power, prefix in enumerate("kmgtp", start=1)},
}
"""Unit of a size -> bytes."""

DURATIONS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
"""Unit of a time -> nanoseconds."""

MIB = 1 << 20

RATES = {"k": 10**3, "M": 10**6, "G": 10**9, "/s": 1, "k/s": 10**3, "M/s": 10**6, "G/s": 10**9}
"""Unit of a rate -> operations per second."""

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(.*?)\s*", re.ASCII)


def parse_size(value: str | int) -> int:
    """Bytes of `4KiB`, `1.5GiB`, `4k`, `10MB` or `4096`."""
    return _whole_units(value, SIZES, what="size", bare=1, example="4KiB")


def parse_duration(value: str | int) -> int:
    """Nanoseconds of `1.5s`, `100ms`, `20us`, `2min` or `1h`; a bare number only if it is 0."""
    return _whole_units(value, DURATIONS, what="time", bare=None, example="10s")


def parse_rate(value: str | int | float) -> float:
    """Operations per second of `2000`, `10k` or `1.5M/s`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return parse_number(value)
    return float(_quantity(value, RATES, what="rate", bare=1, example="10k"))


def parse_number(value: Any) -> float:
    """A finite number such as `0.99`, as `float` reads it."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{value}` is not a finite number")
    return number


def format_bytes(size_bytes: float) -> str:
    """`4 KiB`, `1.5 GiB`, `977 KiB`."""
    return _scaled(size_bytes, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024)


def format_bandwidth(bytes_per_second: float) -> str:
    """`123 MB/s`, `1.5 GB/s`: decimal, as data sheets have it."""
    return _scaled(bytes_per_second, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], 1000)


def format_count(count: float) -> str:
    """`9,999`, `12.3 k`, `1.5 M`."""
    if abs(count) < 10_000:
        return f"{count:,.0f}" if float(count).is_integer() or abs(count) >= 999.5 else _three_digits(count)
    return _scaled(count / 1000, ["k", "M", "G", "T"], 1000)


def format_latency(nanoseconds: float) -> str:
    """`87.2 µs`, `1.25 ms`, `10 s`."""
    return _scaled(nanoseconds, ["ns", "µs", "ms", "s"], 1000)


def format_duration(nanoseconds: float) -> str:
    """`250 ms`, `1.5 s`, `2 min 5 s`, `1 h 40 min`: how long to wait."""
    seconds = nanoseconds / 10**9
    if seconds < 59.5:
        return format_latency(nanoseconds)
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def format_estimate(seconds: float) -> str:
    """`650 ms`, `9.8 s`, `2.1 min`, `1.7 h`: a time that is not known exactly, with two significant digits."""
    for unit, length, least, most in (("ms", 0.001, 0, 1000), ("s", 1, 1, 60), ("min", 60, 1, 60)):
        value = float(f"{seconds / length:.2g}")
        if value < most:
            return f"{max(value, least):g} {unit}"
    return f"{max(float(f'{seconds / 3600:.2g}'), 1):,g} h"


def compact_size(size_bytes: int) -> str:
    """The shortest text that `parse_size` turns into exactly this size: `4KiB`, `1500B`."""
    return _exact(size_bytes, {unit: size for unit, size in SIZES.items() if unit == "B" or unit.endswith("iB")})


def compact_duration(nanoseconds: int) -> str:
    """The shortest text that `parse_duration` turns into exactly this time: `10s`, `100ms`."""
    return _exact(nanoseconds, {unit: DURATIONS[unit] for unit in ("ns", "us", "ms", "s", "min", "h")})


def _exact(value: int, units: Mapping[str, int]) -> str:
    unit = max((unit for unit in units if value % units[unit] == 0), key=units.__getitem__) if value else min(units)
    return f"{value // units[unit]}{unit}" if value else "0"


def _whole_units(value: str | int, units: Mapping[str, int], *, what: str, bare: int | None, example: str) -> int:
    quantity = _quantity(value, units, what=what, bare=bare, example=example)
    if quantity.denominator != 1:
        smallest = min(units, key=units.__getitem__)
        raise ValueError(f"`{value}` is not a whole number of {smallest}")
    return quantity.numerator


def _quantity(value: object, units: Mapping[str, int], *, what: str, bare: int | None, example: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"`{value}` is not a {what}; write it like `{example}`")
    parts = _number_and_unit(str(value))
    if not parts:
        raise ValueError(f"`{value}` is not a {what}; write it like `{example}`")
    number, unit = parts
    if not unit:
        if bare is None and number:
            raise ValueError(f"`{value}` has no unit; write it like `{example}`")
        return number * (bare or 1)
    return number * _unit_size(unit, units, what, example)


@functools.lru_cache(maxsize=1024)
def _number_and_unit(text: str) -> tuple[Fraction, str] | None:
    matched = _QUANTITY.fullmatch(text)
    return (Fraction(matched[1]), matched[2]) if matched else None


def _unit_size(unit: str, units: Mapping[str, int], what: str, example: str) -> int:
    if unit in units:
        return units[unit]
    folded = {name.casefold(): size for name, size in units.items()}
    if unit.casefold() in folded:
        return folded[unit.casefold()]
    near = difflib.get_close_matches(unit, units, n=1, cutoff=0.5)
    advice = f"did you mean `{near[0]}`?" if near else f"write it like `{example}`"
    raise ValueError(f"`{unit}` is not a unit of {what}; {advice}")


def _scaled(value: float, units: list[str], step: int) -> str:
    position = 0
    while position + 1 < len(units) and round(abs(value)) >= step:
        value /= step
        position += 1
    return f"{_three_digits(value)} {units[position]}"


def _three_digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
