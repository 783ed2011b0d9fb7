"""Workloads: the parameters that a study sets, and the engine spec they become.

Each is a package with the interface `interface.Workload`; `named` returns it by the name that studies use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
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
