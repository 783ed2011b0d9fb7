"""Workloads: the parameters that a study sets, and the engine spec they become.

Each is an object of a subclass of `workload.Workload`, here or in a feature (`WORKLOADS` in its `workload.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from iosonde.base.features import contributed

if TYPE_CHECKING:
    from iosonde.study.workload.workload import Workload


@cache
def workloads() -> Mapping[str, Workload]:
    """All workloads by the names that studies use."""
    from iosonde.study.workload.block import BLOCK

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
