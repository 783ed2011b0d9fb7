"""Kernel threads that worked for the array during a run, and their CPU utilization.

md names its threads after the array (`md127_raid5`, `md127_resync`) and btrfs after itself; what workers do for either
goes by the work queue that they served. No name ties a worker to one of several arrays of a kind, so where others are
at work at the same time theirs is counted too. RAID 0 has no thread: its work is in the engine's own account.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

WORKER = "kworker-"
PARITY_WORKERS = "kworker-raid5wq"
"""Of md's parity levels, where `group_thread_cnt` requires workers besides the array's thread."""
_PARITY_LEVELS = ("raid4", "raid5", "raid6")


def from_evidence(target: Json, evidence: Json) -> dict[str, Any]:
    """Return what a record's `target` and its result's `evidence` report about them.

    `array_thread` (the busiest that is the array's own, workers aside), `array_thread_share` (of one core),
    `array_cpu_ns` (all that work for the array). Each is None where nothing is known: in containers, and without an
    array.
    """
    kernel = evidence.get("kernel")
    if not kernel or not kernel["wall_ns"]:
        return dict.fromkeys(("array_thread", "array_thread_share", "array_cpu_ns"))
    prefixes = _prefixes(target)
    ours = [each for each in kernel["threads"] if each["name"].startswith(prefixes)] if prefixes else []
    threads = [each for each in ours if not each["name"].startswith(WORKER)]
    busiest = max(threads, key=lambda each: int(each["busiest_cpu_ns"]), default=None)
    return {
        "array_thread": busiest["name"] if busiest else None,
        "array_thread_share": busiest["busiest_cpu_ns"] / kernel["wall_ns"] if busiest else None,
        "array_cpu_ns": sum(each["cpu_ns"] for each in ours) if prefixes else None,
    }


def _prefixes(target: Json) -> tuple[str, ...]:
    """Beginnings of the names of threads that work for the devices below a target."""
    devices: Sequence[Json] = target.get("devices") or []
    arrays = [device for device in devices if device.get("kind") == "md"]
    found = [f"{array['name']}_" for array in arrays]
    if any(array.get("md_level") in _PARITY_LEVELS for array in arrays):
        found.append(PARITY_WORKERS)
    if (target.get("file_system") or {}).get("kind") == "btrfs":
        found += ["btrfs-", f"{WORKER}btrfs"]
    return tuple(found)
