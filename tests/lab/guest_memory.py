"""Holds stores to a memory limit under control groups of version 2, inside the lab's machine.

Its kernel has both versions, and nothing mounted: so the limit is version 2's, with swap in use.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from guest_md import LAB
from guest_sessions import Session

from iosonde.errors import TargetError
from iosonde.execution import execute
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.control_groups import control_group
from iosonde.storage.safety.journal import entries

STUDY = """
name = "limited"
title = "Limited"
question = "?"
workload = "kv"
repeats = 1

[measurement]
store = "lmdb"
lmdb = {{ MDB_NORDAHEAD = true }}
interval = "100ms"
{measurement}

[[parts]]
name = "only"

[profiles.standard]
"""
READ = 'phase = "readrandom"\nrecords = 16000\nvalue_size = 4000\nmemory_limit = "40MiB"\nlimit_operations = 400'
TOO_LITTLE = 'phase = "readrandom"\nrecords = 1000\nmemory_limit = "1MiB"\nlimit_operations = 10'
LONG = 'phase = "load"\nrecords = "500k"\nvalue_size = 16\nmemory_limit = "40MiB"'

GROUPS = Path("/sys/fs/cgroup")
PLACE = Path("/mnt/limited")


def try_limits(to_kill: Session) -> dict[str, Any]:
    """Results of three runs on the first drive, one of them killed, while the second is swap."""
    drive, swap = (LAB / "8").resolve(), (LAB / "9").resolve()
    _run("mount", "-t", "cgroup2", "none", GROUPS)
    _run("mkswap", swap)
    _run("swapon", swap)
    # Without lazy initialization: it writes zeroes later, which QEMU's drive does not count in its SMART log.
    _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", drive)
    PLACE.mkdir()
    _run("mount", drive, PLACE)
    return {
        "version": control_group.hierarchy().version,
        "killed": killed(to_kill),
        "read": limited("read", READ),
        "too_little": limited("too-little", TOO_LITTLE),
        "swapped_out": _swapped_out(),
        "occupied": occupied(),
    }


def plan(measurement: str) -> Plan:
    return expand(parse(STUDY.format(measurement=measurement)), open_target(str(PLACE)))


def killed(session: Session) -> dict[str, Any]:
    """A load whose iosonde is killed: what it leaves, and what cleanup does about it."""
    directory = Path(tempfile.mkdtemp()) / "set"
    ResultSet.create(directory, plan(LONG))
    session.start(directory)
    was_loading = session.is_measuring() and bool(list(PLACE.glob("iosonde-*/lmdb-*/database/data.mdb")))
    session.kill()
    left = groups()
    deadline = time.monotonic() + 120
    while any((GROUPS / each / "cgroup.procs").read_text() for each in left) and time.monotonic() < deadline:
        time.sleep(0.05)
    journal = sorted({entry.what for entry in entries()})
    cleaned = sorted({each.reason for each in cleanup()})
    return {
        "was_loading": was_loading,
        "left": left,
        "journal": journal,
        "cleaned": cleaned,
        "then": groups(),
        "files": [each.name for each in PLACE.iterdir()],
    }


def limited(name: str, measurement: str) -> dict[str, Any]:
    """The record of a run and which groups are left; the result set goes out under its name."""
    [record] = execute(plan(measurement), name).records()
    return {
        "record": record.model_dump(mode="json"),
        "groups": groups(),
    }


def occupied() -> dict[str, Any]:
    """The error where the only usable control group has processes in it."""
    group = GROUPS / "occupied"
    group.mkdir()
    with subprocess.Popen(["sleep", "60"]) as inside:
        (group / "cgroup.procs").write_text(str(inside.pid))
        try:
            control_group.MemoryGroup.make(40 << 20, within=control_group.Hierarchy(directory=group, version=2))
        except TargetError as error:
            error_text = {"what": error.what, "hint": error.hint}
        inside.kill()
    left = [path.name for path in group.glob("iosonde-*")]
    return {**error_text, "groups": left, "journal": [entry.what for entry in entries()]}


def groups() -> list[str]:
    return [path.name for path in GROUPS.glob("iosonde-*")]


def _swapped_out() -> int:
    """Pages that this machine ever wrote to swap."""
    counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counts["pswpout"])


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
