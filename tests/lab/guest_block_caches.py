"""Block caches inside the lab's machine: a drive with limits cached by one without, and a session that is killed.

Each mode, state and way to bypass bcache is measured once, then dm-cache and dm-writecache.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest_md import LAB
from guest_sessions import Session, is_free

from iosonde.execution import execute
from iosonde.features.block_caches import bcache, checks, device_mapper, instruments, kernel_support, superblock
from iosonde.features.block_caches.block_cache import BlockCache, announce
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.tools import call

BACKING, CACHE = (LAB / number for number in ("6", "8"))
"""A drive with a limit, and one without."""
OTHER = tuple(LAB / str(number) for number in range(13) if number not in (6, 8))
"""All other drives, which nothing may write."""
TARGET = f"{BACKING.resolve()},{CACHE.resolve()}"
SLOW_CACHE = f"{CACHE.resolve()},{BACKING.resolve()}"
"""The other way round, so that the cache device is the slower one."""
CONSENT = Consent(destroy=(str(BACKING), str(CACHE)), confirm=("IOSONDE-LAB-6", "IOSONDE-LAB-8"))
"""Earlier steps leave data between the edges of drives."""
ENDLESS = 100_000_000
SetUp = Callable[[Path, BlockCacheSetup], list[dict[str, Any]]]
STUDY = """
name = "caches"
title = "caches"
question = "?"
repeats = 1

[measurement]
span = "4MiB"
block_size = "16KiB"
access = "random"
read_fraction = 1.0
queue_depth = 4
ramp = 0
duration = "10min"
interval = "250ms"
limit_operations = 400

[[parts]]
[parts.factors]
state = [{levels}]

[profiles.standard]
"""
"""The number of I/Os and not the time ends a run, so that it does the same at any speed of the machine."""
ALL_CACHED = {"cache": "bcache", "cache_sequential_cutoff": 0}
STATES: dict[str, dict[str, Any]] = {
    "writethrough": {**ALL_CACHED, "cache_state": "warm", "cache_hit_ratio": 0.7, "read_fraction": 0.5},
    "writeback": {
        **ALL_CACHED,
        "cache_mode": "writeback",
        "cache_state": "dirty",
        "cache_dirty_fraction": 0.02,
        "span": "16MiB",
        "limit_operations": 2000,
    },
    "writearound": {**ALL_CACHED, "cache_mode": "writearound", "read_fraction": 0.5},
    "file system": {**ALL_CACHED, "cache_mode": "writeback", "read_fraction": 0.0, "file_system": "ext4"},
    "beyond the cutoff": {
        "cache": "bcache",
        "cache_sequential_cutoff": 64 << 10,
        "access": "sequential",
        "span": "1MiB",
    },
    "dm-cache": {"cache": "dm-cache", "cache_mode": "writeback", "read_fraction": 0.5, "block_size": "64KiB"},
    "dm-cache, warm": {
        "cache": "dm-cache",
        "cache_mode": "writethrough",
        "cache_state": "warm",
        "cache_hit_ratio": 0.5,
        "read_fraction": 0.5,
    },
    "dm-writecache": {"cache": "dm-writecache", "cache_state": "dirty", "cache_dirty_fraction": 0.005},
}
CONGESTED = {"congested": {**ALL_CACHED, "queue_depth": 32, "span": "16MiB", "limit_operations": 1000}}
KILLED = {
    "cache": "bcache",
    "cache_mode": "writeback",
    "cache_state": "kept",
    "file_system": "ext4",
    "limit_operations": ENDLESS,
}


def try_caches(to_kill: Session) -> dict[str, Any]:
    """Measure, and report what `doctor` finds and what sessions leave, also one that is killed."""
    before = written_sectors()
    found = {
        "doctor": {each.name: each.found for checks_of in checks.CHECKS for each in checks_of()},
        "measured": measure(),
        "left": left(),
        "killed": after_a_kill(to_kill),
        "renamed": wiped_under_other_names(),
        "support": {each.kind: each.state for each in kernel_support.every()},
    }
    return found | {"written_to_others": written_sectors() - before}


def measure() -> int:
    """One run for each state; the result sets go out as `caches` and `congested`."""
    settle = bcache.settle

    def settled(built: BlockCache) -> None:
        """Wait for the counters of bcache, which takes up to 13.6 s, in one case only."""
        if built.facts["mode"] == "writearound":
            settle(built)

    instruments.LONG_NS, bcache.settle = 0, settled
    set_up = bcache._set_up
    bcache._set_up = congested_beyond(1, set_up)
    congested = execute(planned(CONGESTED, SLOW_CACHE), "congested", consent=CONSENT)
    bcache._set_up = congested_beyond(0, set_up)
    results = execute(planned(STATES), "caches", consent=CONSENT)
    return len(results.records()) + len(congested.records())


def congested_beyond(threshold_us: int, set_up: SetUp) -> SetUp:
    """Let nothing depend on latencies, which are chance where everything is emulated.

    Each latency makes a cache device count as congested, or with a threshold of 0 none. Dirty data is written back at once,
    and not slowly down to a tenth of the cache.
    """

    def changed(device: Path, setup: BlockCacheSetup) -> list[dict[str, Any]]:
        folder = Path("/sys/class/block", device.name, "bcache")
        for name in ("congested_read_threshold_us", "congested_write_threshold_us"):
            (folder / "cache" / name).write_text(str(threshold_us))
        if setup.state == "dirty":
            for name in ("writeback_percent", "writeback_delay"):
                (folder / name).write_text("0")
        return set_up(device, setup)

    return changed


def after_a_kill(session: Session) -> dict[str, Any]:
    """State when a session was killed during a run, what cleanup printed, and what remains after it."""
    directory = Path(tempfile.mkdtemp()) / "set"
    ResultSet.create(directory, planned({"long": KILLED}))
    session.start(directory)
    was_measuring = session.is_measuring()
    session.kill()
    at_kill = left()
    cleaned = [each.reason for each in cleanup()]
    return {"was_measuring": was_measuring, "at_kill": at_kill, "cleaned": cleaned, "left": left()}


def wiped_under_other_names() -> dict[str, Any]:
    """Remains on the devices of a cache whose journaled names now lead to other drives."""
    name = "iosonde-89abcdef"
    asked = BlockCacheSetup(kind="dm-writecache", mode="writeback")
    built = device_mapper.build(BACKING.resolve(), CACHE.resolve(), asked, name)
    with Path("/dev/mapper", f"{name}-cached").open("r+b", buffering=0) as cached:
        cached.write(b"\xa5" * 4096)
    call("dmsetup", "message", f"{name}-cached", "0", "flush")
    journal.removed(built.key)
    announce(built.key, "dm-writecache", name, *(device.resolve() for device in OTHER[:2]))
    had = [has_content(device) for device in (BACKING, CACHE)]
    journal.undo(built.key)
    return {"had": had, "has": [has_content(device) for device in (BACKING, CACHE)], "left": left()}


def has_content(device: Path) -> bool:
    with device.open("rb") as opened:
        return any(opened.read(4096))


def planned(states: dict[str, dict[str, Any]], target: str = TARGET) -> Plan:
    levels = ", ".join(f"{{ label = {json.dumps(name)}, set = {toml(values)} }}" for name, values in states.items())
    return expand(parse(STUDY.replace("{levels}", levels)), open_target(target))


def toml(values: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items()) + " }"


def left() -> dict[str, Any]:
    """Leftovers of any cache."""
    return {
        "registered": registered(),
        "superblocks": [superblock.read(device) is not None for device in (BACKING, CACHE)],
        "mapped": [path.name for path in Path("/dev/mapper").glob("iosonde-*")],
        "mounted": [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if "iosonde-" in line],
        "journal": [entry.what for entry in journal.entries()],
        "free": [is_free(device) for device in (BACKING, CACHE)],
    }


def registered() -> list[str]:
    """The two drives and the cached device, as far as bcache knows them."""
    names = [device.resolve().name for device in (BACKING, CACHE)]
    folders = [Path("/sys/class/block", name, "bcache") for name in names]
    cached = [(folder / "dev").resolve().name for folder in folders if (folder / "dev").exists()]
    return sorted([name for name, folder in zip(names, folders, strict=True) if folder.exists()] + cached)


def written_sectors() -> int:
    """Sectors that the kernel has written to the other drives."""
    stats = [Path("/sys/class/block", device.resolve().name, "stat").read_text().split() for device in OTHER]
    return sum(int(fields[6]) for fields in stats)
