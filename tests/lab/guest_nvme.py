"""Purges an NVMe drive by its own means inside the lab's machine, asks it for its media, and tries all I/O backends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guest_sessions import LAB, study_of

from iosonde.execution.session import execute
from iosonde.features.nvme_driver import handover
from iosonde.features.rate_limits.exports import Sustained, cost_model, cost_qos
from iosonde.planning import expand, load
from iosonde.storage import nvme, open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.nvme import can_format, can_sanitize
from iosonde.storage.safety.guard import Consent

MIB = 1 << 20
PURGED = {
    **{"access": "random", "read_fraction": 0, "block_size": "64KiB", "span": "4MiB", "purge": "strongest"},
    **{"ramp": 0, "duration": "200ms", "interval": "100ms"},
}
DRIVE = (LAB / "8").resolve()
CONSENT = Consent(destroy=(str(DRIVE),), confirm=("IOSONDE-LAB-8",))
"""Earlier steps leave data between the edges of drives."""
BEYOND = 8 * MIB
"""Behind everything that the study writes."""


def try_drive() -> dict[str, Any]:
    """Contents of a purged drive before and after, and its media report; the result set goes out as `purged`."""
    with DRIVE.open("r+b", buffering=0) as device:
        os.pwrite(device.fileno(), b"\xab" * 4096, BEYOND)
        os.fsync(device.fileno())
    before = held(DRIVE)
    part = {"measurement": PURGED, "rounds": {"max_rounds": 1}}
    plan = expand(study_of(part), open_target(str(DRIVE)))
    records = execute(plan, "purged", consent=CONSENT).records()
    return {
        "can_format": can_format(DRIVE.name),
        "can_sanitize": can_sanitize(DRIVE.name),
        "before": before,
        "after": held(DRIVE),
        "destroys": [each.what for each in plan.destroys],
        "purges": [record.parameters.get("purge") for record in records],
        "failures": [record.failure and record.failure.message for record in records],
        "now": nvme.now(DRIVE.name),
        "handover": handover.refusals(handover.controller_of(number_of(DRIVE))),
    }


def held(drive: Path) -> str:
    """First 8 bytes at `BEYOND`, read past the page cache."""
    with drive.open("rb", buffering=0) as device:
        os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(device.fileno(), 4096, BEYOND)[:8].hex()


KERNEL_TAX = {"operation": "write", "kernel_trace": "true", "span": "4MiB", "duration": "5s"}
"""Settings of the shipped study: every backend once, traced.

With one emulated processor, which the measured thread occupies, the filters of tracepoints take half a second to set,
or longer on a busy host.
"""


@contextmanager
def one_processor() -> Iterator[None]:
    """Keep the second virtual processor offline.

    Enabling a tracepoint changes code of the running kernel, by way of a breakpoint. Where another processor executes that
    code, the emulated machine sometimes froze: by their registers, one processor was at an address, and the other one in
    the handler of a breakpoint at the same address.
    """
    second = Path("/sys/devices/system/cpu/cpu1/online")
    second.write_text("0")
    try:
        yield
    finally:
        second.write_text("1")


def try_backends() -> dict[str, Any]:
    """Traced runs of each backend on a whole namespace; the result set goes out as `kernel-tax`."""
    plan = expand(load("kernel-tax"), open_target(str(DRIVE)), profile="quick", repeats=1, settings=KERNEL_TAX)
    with one_processor():
        records = execute(plan, "kernel-tax", consent=CONSENT).records()
    return {
        str(record.levels["interface"]): {
            "failure": record.failure and record.failure.message,
            "in_effect": (record.result or {}).get("backend"),
            "trace": record.parts.get("kernel_trace"),
        }
        for record in records
    }


def try_costs() -> dict[str, list[str]]:
    """Exported lines of `io.cost.model` and `io.cost.qos`, and the settings read after the kernel took them."""
    groups, device = Path("/sys/fs/cgroup"), number_of(DRIVE)
    subprocess.run(["mount", "-t", "cgroup2", "none", groups], check=True)
    rates = Sustained(iops=300, bytes_per_second=300 << 18), Sustained(iops=200, bytes_per_second=200 << 18)
    lines = {"io.cost.model": cost_model(device, *rates), "io.cost.qos": cost_qos(device)}
    for file, line in lines.items():
        (groups / file).write_text(line)
    read = block_stack.controls(device)
    (groups / "io.cost.qos").write_text(f"{device} enable=0")
    subprocess.run(["umount", groups], check=True)
    return {"exported": [f"{file} {line.partition(' ')[2].strip()}" for file, line in lines.items()], "read": read}
