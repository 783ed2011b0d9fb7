"""Block I/O under another name: a workload of the toy."""

from __future__ import annotations

from iosonde.study.workload.block import BlockWorkload


class ToyLoad(BlockWorkload):
    """Block I/O, which the engine carries out."""

    name = "toy_load"
    title = "toy loads"


WORKLOADS = (ToyLoad(),)
