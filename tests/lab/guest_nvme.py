"""Purges an NVMe drive by its own means inside the lab's machine; what it held before and after goes to `nvme.json`."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from iosonde.run import execute
from iosonde.study import expand, parse
from iosonde.target import nvme, open_target
from iosonde.target.consent import Consent

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
most = 1

[profiles.standard]
"""

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()  # Not the host's journal.
drive = Path(os.environ["IOSONDE_LAB_DEVICES"].split(",")[0]).resolve()
beyond = 8 * MIB
"""Behind everything that the study writes."""


def held() -> str:
    """What the drive holds there, past the page cache."""
    with drive.open("rb", buffering=0) as device:
        os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(device.fileno(), 4096, beyond)[:8].hex()


with drive.open("r+b", buffering=0) as device:
    os.pwrite(device.fileno(), b"\xab" * 4096, beyond)
    os.fsync(device.fileno())
before = held()
plan = expand(parse(STUDY), open_target(str(drive)))
results = execute(plan, Path(tempfile.mkdtemp()) / "set", consent=Consent(destroy=(str(drive),)))
records = results.records()
said = {
    "can_format": nvme.can_format(drive),
    "before": before,
    "after": held(),
    "destroys": [each.what for each in plan.destroys],
    "purges": [record.parameters.get("purge") for record in records],
    "failures": [record.failure and record.failure.message for record in records],
}
Path("nvme.json").write_text(json.dumps(said))
