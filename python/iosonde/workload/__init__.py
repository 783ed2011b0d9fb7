"""Workloads: the parameters that a study sets, and the engine spec they become.

Each is a package with the interface `interface.Workload`; `named` returns it by the name that studies use.
What packages ask that read plans and records is in its `description.Description`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from iosonde.workload.description import Description
    from iosonde.workload.interface import Workload

Name = Literal["block", "kv", "tpcc", "commit", "paging", "graph", "objects", "command"]


def named(name: Name) -> Workload:
    """The workload of that name."""
    from iosonde.workload import block, command, commit, graph, kv, objects, paging, tpcc

    known: dict[Name, Workload] = {
        "block": block,
        "kv": kv,
        "tpcc": tpcc,
        "commit": commit,
        "paging": paging,
        "graph": graph,
        "objects": objects,
        "command": command,
    }
    return known[name]


def described(workload: Mapping[str, Any]) -> Description:
    """The description of the workload of an engine's spec."""
    return named(workload["kind"]).DESCRIPTION


def descriptions() -> dict[Name, Description]:
    """The descriptions of all workloads by name."""
    names: Sequence[Name] = get_args(Name)
    return {name: named(name).DESCRIPTION for name in names}


def names_where(holds: Callable[[Description], bool]) -> tuple[Name, ...]:
    """Names of the workloads whose description has a property."""
    return tuple(name for name, description in descriptions().items() if holds(description))


def streams_of(workload: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The streams of a load, each with name, jobs and arrival at least."""
    return described(workload).streams(workload)
