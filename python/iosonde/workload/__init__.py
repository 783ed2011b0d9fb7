"""Workloads: the parameters that a study sets, and the engine spec they become.

Each is an object of a subclass of `workload.Workload`, here or in a feature (`WORKLOADS` in its `workload.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from iosonde.core.features import contributed
from iosonde.units import format_bytes

if TYPE_CHECKING:
    from iosonde.workload.workload import Workload


@cache
def workloads() -> Mapping[str, Workload]:
    """All workloads by the names that studies use."""
    from iosonde.workload.block import BLOCK

    of_features: tuple[Workload, ...] = contributed("workload", "WORKLOADS")
    found: tuple[Workload, ...] = (BLOCK, *of_features)
    return {each.name: each for each in found}


def named(name: str) -> Workload:
    """The workload of that name."""
    return workloads()[name]


def described(workload: Mapping[str, Any]) -> Workload:
    """The workload of an engine's spec."""
    return named(workload["kind"])


def names_where(holds: Callable[[Workload], bool]) -> tuple[str, ...]:
    """Names of the workloads that have a property."""
    return tuple(name for name, each in workloads().items() if holds(each))


def streams_of(workload: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The streams of a load, each with name, jobs and arrival at least."""
    return described(workload).streams(workload)


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
