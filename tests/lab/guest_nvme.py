"""Purges an NVMe drive by its own means inside the lab's machine, asks it for its media, and tries all I/O backends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iosonde.errors import StudyError
from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.storage.block_nodes import number_of
from iosonde.storage.consent import Consent
from iosonde.storage.nvme import counters, handover
from iosonde.storage.nvme.format import can_format
from iosonde.storage.nvme.sanitize import can_sanitize

MIB = 1 << 20
STUDY = """
name = "purged"
title = "Purged"
question = "?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0
block_size = "64KiB"
span = "4MiB"
purge = "strongest"
ramp = 0
duration = "200ms"
interval = "100ms"

[[parts]]
[parts.rounds]
max_rounds = 1

[[views]]
kind = "accounts"
title = "Media"
metrics = ["media_write_amplification"]

[profiles.standard]
"""

BEYOND = 8 * MIB
"""Behind everything that the study writes."""


def try_drive() -> dict[str, Any]:
    """What a purged drive held before and after, and what it reports of its media; the result set goes out as `purged`."""
    drive = Path(os.environ["IOSONDE_LAB_DEVICES"].split(",")[0]).resolve()
    with drive.open("r+b", buffering=0) as device:
        os.pwrite(device.fileno(), b"\xab" * 4096, BEYOND)
        os.fsync(device.fileno())
    before = held(drive)
    plan = expand(parse(STUDY), open_target(str(drive)))
    records = execute(plan, "purged", consent=Consent(destroy=(str(drive),))).records()
    return {
        "can_format": can_format(drive.name),
        "can_sanitize": can_sanitize(drive.name),
        "refused": refused(drive),
        "before": before,
        "after": held(drive),
        "destroys": [each.what for each in plan.destroys],
        "purges": [record.parameters.get("purge") for record in records],
        "failures": [record.failure and record.failure.message for record in records],
        "drives": [record.drives for record in records],
        "now": counters.now(drive.name),
        "handover": handover.refusals(handover.controller_of(number_of(drive))),
    }


def refused(drive: Path) -> dict[str, str]:
    """What is said of a sanitize that the drive does not offer."""
    try:
        expand(parse(STUDY), open_target(str(drive)), settings={"purge": "sanitize"})
    except StudyError as error:
        return {"what": error.what, "hint": error.hint}
    return {}


def held(drive: Path) -> str:
    """What the drive holds there, past the page cache."""
    with drive.open("rb", buffering=0) as device:
        os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(device.fileno(), 4096, BEYOND)[:8].hex()


BACKENDS = """
name = "backends"
title = "Backends"
question = "?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.5
block_size = "4KiB"
span = "4MiB"
verify = "after"
fallback = "refuse"
kernel_trace = true
ramp = "300ms"
duration = "1s"
interval = "100ms"

[[parts]]
[parts.factors]
interface = [
  { label = "sync", set = { backend = "sync" } },
  { label = "libaio", set = { backend = "libaio" } },
  { label = "uring", set = { backend = "uring" } },
  { label = "uring iopoll", set = { backend = "uring", completion_polling = true } },
  { label = "uring_nvme", set = { backend = "uring_nvme" } },
  { label = "uring_nvme iopoll", set = { backend = "uring_nvme", completion_polling = true } },
]

[profiles.standard]
"""


def try_backends() -> dict[str, Any]:
    """Verified and traced runs of each backend on a whole namespace; the result set goes out as `backends`."""
    drive = Path(os.environ["IOSONDE_LAB_DEVICES"].split(",")[0]).resolve()
    plan = expand(parse(BACKENDS), open_target(str(drive)))
    records = execute(plan, "backends", consent=Consent(destroy=(str(drive),))).records()
    return {
        str(record.levels["interface"]): {
            "failure": record.failure and record.failure.message,
            "in_effect": (record.result or {}).get("backend"),
            "verification": (record.result or {}).get("verification"),
            "trace": record.kernel_trace,
        }
        for record in records
    }
