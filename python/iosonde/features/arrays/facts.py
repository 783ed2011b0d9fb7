"""Facts and metrics of an array: work of its kernel threads, and its rebuild."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.features.arrays.record import ArrayReading
from iosonde.features.arrays.setup import ArraySetup
from iosonde.metrics.metric import Metric
from iosonde.plan import Setup
from iosonde.results.column import NUMBER, TEXT, U64, facts
from iosonde.results.schema import Record

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


def rebuild(record: Record) -> tuple[float | None, float | None]:
    """Return the share of a member that was rebuilt during the run, and the seconds that this took; None without it.

    A rebuild that ended counts as done when it was looked at.
    """
    reading, setup = record.of(ArrayReading), record.setup.get("requested")
    array = Setup.model_validate(setup).layer(ArraySetup) if setup else None
    if not reading or not array or array.state != "rebuilding" or not reading.after:
        return None, None
    before, after = reading.before, reading.after
    if before.get("sync_action", "idle") == "idle":
        return None, None
    done = 1.0 if after.get("sync_action") == "idle" else after.get("sync_done") or 0.0
    return done - (before.get("sync_done") or 0.0), after["at"] - before["at"]


def _threads(record: Record) -> Mapping[str, Any]:
    return from_evidence(record.target, (record.result or {}).get("evidence") or {})


COLUMNS = (
    *facts(
        _threads,
        ("array_thread", TEXT,
            "Kernel thread of the array with the most CPU time, such as `md127_raid5`; null without one"),
        ("array_thread_share", NUMBER, "CPU time of that thread during the measurement, as a share of one core"),
        ("array_cpu_ns", U64, "CPU time of all kernel threads of the array, ns; null without an array"),
    ),
    *facts(
        rebuild,
        ("rebuild_share", NUMBER, "Share of a member that was rebuilt during the run; null without a rebuild",
            lambda rebuilt: rebuilt[0]),
        ("rebuild_share_seconds", NUMBER, "Seconds that rebuilding this share took", lambda rebuilt: rebuilt[1]),
    ),
)  # fmt: skip


METRICS = (
    Metric("array_cpu_ns_per_byte", "CPU time of the array's threads per byte", "ns", "lower", "cpu",
        "CPU time of the kernel threads that work for the array / bytes", "array_cpu_ns / bytes"),
    Metric("array_thread_utilisation", "Utilisation of the array's thread", "", "lower", "cpu",
        "CPU time of the array's busiest kernel thread / measured time", "array_thread_share"),
    Metric("rebuild_seconds", "Time to rebuild a member", "s", "lower", "device",
        "seconds of the run / share of the member rebuilt in that time", "rebuild_share_seconds / rebuild_share"),
)  # fmt: skip
