"""Words for levels of parameters that several workloads share, as in `4 KiB random reads` and `RocksDB loads`."""

from __future__ import annotations

import math
from typing import Any

from iosonde.units import format_bytes
from iosonde.workload import workloads


def store_name(store: str) -> str:
    """Write the name of a store or server: `LMDB`, `RocksDB`, `MariaDB InnoDB`."""
    return next((each.products[store].title for each in workloads().values() if store in each.products), store)


def size_words(level: Any) -> str:
    """Write a size: `4 KiB`; the label of a compound level as it is."""
    is_number = isinstance(level, (int, float)) and not isinstance(level, bool)
    return format_bytes(level) if is_number else str(level)


def operation_words(read_fraction: float | str, trim_fraction: float | str = 0.0) -> str:
    """Name a mix: `reads`, `writes`, `70/30 reads and writes`; the label of a compound level as it is."""
    share = number_of(read_fraction)
    if share is None:
        return str(read_fraction)
    if number_of(trim_fraction) == 1:
        return "trims"
    if share in (0, 1):
        return "reads" if share else "writes"
    return f"{100 * share:.0f}/{100 * (1 - share):.0f} reads and writes"


def number_of(level: Any) -> float | None:
    """Return a level as a number; None for the label of a compound level, whose factor may have a parameter's name.

    A column with such labels has numbers as text.
    """
    try:
        number = float(level)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
