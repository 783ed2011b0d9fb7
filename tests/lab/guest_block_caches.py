"""Block caches inside the lab's machine: a slow drive cached by a fast one, in each state, and after a kill."""

from __future__ import annotations

import json
import tempfile
import traceback
from pathlib import Path
from typing import Any

from guest_arrays import Session, is_free

from iosonde.execution import execute
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, journal, open_target
from iosonde.storage.block_caches import kernel_support, superblock
from iosonde.storage.consent import Consent

LAB = Path("/dev/lab")
BACKING, CACHE = (LAB / number for number in ("6", "8"))
"""A drive with a limit, and one without."""
OTHER = tuple(LAB / str(number) for number in range(12) if number not in (6, 8))
"""All other drives, which nothing may write."""
TARGET = f"{BACKING.resolve()},{CACHE.resolve()}"
CONSENT = Consent(destroy=(str(BACKING), str(CACHE)))
STUDY = """
name = "caches"
title = "caches"
question = "?"
repeats = 1

[measurement]
span = "16MiB"
block_size = "16KiB"
access = "random"
queue_depth = 4
ramp = 0
duration = "2s"
interval = "500ms"
cache_sequential_cutoff = 0

{measurement}

[[parts]]
[parts.factors]
state = [{levels}]

[profiles.standard]
"""

STATES = {
    "none": {"cache": "none", "read_fraction": 1.0},
    "bcache": {"cache": "bcache", "cache_mode": "writeback", "cache_state": "kept", "read_fraction": 0.5},
}


def try_caches(to_kill: Session, out: Path) -> None:
    """Write the results of runs, and what a killed session leaves; an error is printed, and nothing written."""
    before = written_sectors()
    try:
        found = {
            "runs": measured(STATES),
            "left": left(),
            "killed": after_a_kill(to_kill),
            "support": {each.kind: each.state for each in kernel_support.every()},
        }
    except Exception:
        traceback.print_exc()
        return
    out.write_text(json.dumps(found | {"written_to_neighbours": written_sectors() - before}))


def measured(states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One run for each state, with its facts and metrics."""
    results = execute(planned(states), Path(tempfile.mkdtemp()) / "set", consent=CONSENT)
    metrics = run_metrics(results)
    values = {
        (row["run_id"], row["metric"]): row["value"]
        for row in metrics.filter(metrics["operation"] == "all").iter_rows(named=True)
    }
    return {
        str(record.levels["state"]): {
            "outcome": record.outcome,
            "failure": record.failure.message if record.failure else "",
            "cache": record.cache,
            "setup": record.setup,
            "warnings": [warning.code for warning in record.warnings],
            "iops": values.get((record.run_id, "iops")),
            "hit_ratio": values.get((record.run_id, "cache_read_hit_ratio")),
        }
        for record in results.records()
        if not record.control
    }


def after_a_kill(session: Session) -> dict[str, Any]:
    """State when a session was killed during a run, what cleanup printed, and what remains after it."""
    directory = Path(tempfile.mkdtemp()) / "set"
    ResultSet.create(directory, planned({"long": STATES["bcache"]}, duration="60s"))
    session.begin(directory)
    was_measuring = session.kill_while_measuring(registered)
    at_kill = left()
    cleaned = [each.reason for each in cleanup()]
    return {"was_measuring": was_measuring, "at_kill": at_kill, "cleaned": cleaned, "left": left()}


def planned(states: dict[str, dict[str, Any]], **measurement: str) -> Plan:
    levels = ", ".join(f"{{ label = {json.dumps(name)}, set = {toml(values)} }}" for name, values in states.items())
    text = STUDY.replace("{levels}", levels)
    for name, value in measurement.items():
        text = text.replace(f'{name} = "2s"', f"{name} = {json.dumps(value)}")
    return expand(parse(text.replace("{measurement}", "")), open_target(TARGET))


def toml(values: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items()) + " }"


def left() -> dict[str, Any]:
    """What there is of any cache."""
    return {
        "registered": registered(),
        "superblocks": [superblock.read(device) is not None for device in (BACKING, CACHE)],
        "mapped": [path.name for path in Path("/dev/mapper").glob("iosonde-*")],
        "journal": [entry.what for entry in journal.entries()],
        "free": [is_free(device) for device in (BACKING, CACHE)],
    }


def registered() -> list[str]:
    """Devices and sets that bcache knows."""
    sets = [path.name for path in Path("/sys/fs/bcache").glob("*-*-*")]
    return sorted([*sets, *(path.parent.name for path in Path("/sys/block").glob("*/bcache"))])


def written_sectors() -> int:
    """Sectors that the kernel has written to the neighbours."""
    stats = [Path("/sys/class/block", device.resolve().name, "stat").read_text().split() for device in OTHER]
    return sum(int(fields[6]) for fields in stats)
