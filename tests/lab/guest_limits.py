"""The study `limits` under `io.max` of control groups of version 2, and `io.cost`, which only the lab's machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guest_md import LAB
from guest_memory import GROUPS, PLACE

from iosonde.execution import execute
from iosonde.features.rate_limits.exports import Sustained, cost_model, cost_qos
from iosonde.planning import expand, load
from iosonde.storage import open_target
from iosonde.storage.block_layer import cgroup_limits
from iosonde.storage.block_layer.block_nodes import number_of

IOPS, BANDWIDTH = 200, 9_000_000
"""Low, so that the I/Os in flight last longer than the emulated engine waits for a CPU."""
SETTINGS = {
    "span": "16MiB",
    "procedure.probe": "2s",
    "procedure.drain": "4s",
    "procedure.total": "150s",
    "procedure.largest": "64KiB",
}
"""The time bound includes the time between runs, most of which Python takes where it is emulated."""


def try_io_max() -> dict[str, Any]:
    """Identify the limits of this process's control group and of its parent; the result set goes out as `io-max`.

    The file system and the hierarchy are those of `guest_memory`.
    """
    drive = (LAB / "8").resolve()
    with limited_by_control_groups(drive):
        plan = expand(load("limits"), open_target(str(PLACE)), profile="quick", settings=SETTINGS)
        execute(plan, "io-max")
    return {"device": drive.name, "iops": IOPS, "bandwidth": BANDWIDTH, "costs": exported_costs(number_of(drive))}


def exported_costs(device: str) -> dict[str, list[str]]:
    """Exported lines of `io.cost.model` and `io.cost.qos`, and the settings read after the kernel took them."""
    rates = Sustained(iops=300, bytes_per_second=300 << 18), Sustained(iops=200, bytes_per_second=200 << 18)
    lines = {"io.cost.model": cost_model(device, *rates), "io.cost.qos": cost_qos(device)}
    for file, line in lines.items():
        (GROUPS / file).write_text(line)
    read = cgroup_limits.controls(device)
    (GROUPS / "io.cost.qos").write_text(f"{device} enable=0")
    return {"exported": [f"{file} {line.partition(' ')[2].strip()}" for file, line in lines.items()], "read": read}


@contextmanager
def limited_by_control_groups(drive: Path) -> Iterator[None]:
    """Limit the operations of the parent and the bytes of this process's own group, and more than that in the other."""
    outer, inner = GROUPS / "outer", GROUPS / "outer" / "inner"
    number = drive.stat().st_rdev
    device = f"{os.major(number)}:{os.minor(number)}"
    for group, limits in (
        (outer, f"riops={IOPS} rbps={2 * BANDWIDTH}"),
        (inner, f"riops={2 * IOPS} rbps={BANDWIDTH}"),
    ):
        (group.parent / "cgroup.subtree_control").write_text("+io")
        group.mkdir()
        (group / "io.max").write_text(f"{device} {limits}")
    (inner / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        inner.rmdir()
        outer.rmdir()
