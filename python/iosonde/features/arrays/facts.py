"""Facts and metrics of an array: work of its kernel threads, and its rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.features.arrays import threads
from iosonde.features.arrays.record import ArrayReading
from iosonde.features.arrays.setup import ArraySetup
from iosonde.metrics.metric import Metric
from iosonde.plan.setup import Setup
from iosonde.results.column import NUMBER, TEXT, U64, facts
from iosonde.results.schema import Record


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
    return threads.from_evidence(record.target, (record.result or {}).get("evidence") or {})


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
