"""Columns of `runs` about the kernel threads of an array, and about its rebuild."""

from __future__ import annotations

from iosonde.features.arrays import threads
from iosonde.features.arrays.record import ArrayReading
from iosonde.features.arrays.setup import ArraySetup
from iosonde.plan.setup import Setup
from iosonde.results.column import NUMBER, TEXT, U64, Column, DType
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


def _thread(name: str, dtype: DType, text: str) -> Column:
    return Column(name, dtype, text, lambda run: threads.from_evidence(run.record.target, run.part("evidence"))[name])


COLUMNS = (
    _thread(
        "array_thread",
        TEXT,
        "Kernel thread of the array with the most CPU time, such as `md127_raid5`; null without one",
    ),
    _thread("array_thread_share", NUMBER, "CPU time of that thread during the measurement, as a share of one core"),
    _thread("array_cpu_ns", U64, "CPU time of all kernel threads of the array, ns; null without an array"),
    Column(
        "rebuild_share",
        NUMBER,
        "Share of a member that was rebuilt during the run; null without a rebuild",
        lambda run: run.of(rebuild)[0],
    ),
    Column("rebuild_share_seconds", NUMBER, "Seconds that rebuilding this share took", lambda run: run.of(rebuild)[1]),
)
