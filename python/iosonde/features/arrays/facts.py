"""Columns of `runs` about the kernel threads of an array, and about its rebuild."""

from __future__ import annotations

from typing import Any

from iosonde.features.arrays import threads
from iosonde.features.arrays.record import ArrayReading
from iosonde.features.arrays.setup import ArraySetup
from iosonde.plan.setup import Setup
from iosonde.results.column import NUMBER, TEXT, U64, Column, DType
from iosonde.results.schema import Record


class Rebuild:
    """How far a rebuild came during the run, and in which time. One that ended counts as done when it was looked at."""

    share: float | None = None
    seconds: float | None = None

    def __init__(self, record: Record) -> None:
        reading = record.of(ArrayReading)
        if reading is None or reading.before.get("sync_action", "idle") == "idle":
            return
        array = Setup.model_validate(record.setup["requested"]).layer(ArraySetup)
        before, after = reading.before, reading.after
        if array and array.state == "rebuilding" and after:
            done = 1.0 if after.get("sync_action") == "idle" else after.get("sync_done") or 0.0
            self.share = done - (before.get("sync_done") or 0.0)
            self.seconds = after["at"] - before["at"]


def _share(run: Any) -> float | None:
    return run.of(Rebuild).share  # type: ignore[no-any-return]


def _seconds(run: Any) -> float | None:
    return run.of(Rebuild).seconds  # type: ignore[no-any-return]


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
        "rebuild_share", NUMBER, "Share of a member that was rebuilt during the run; null without a rebuild", _share
    ),
    Column("rebuild_share_seconds", NUMBER, "Seconds that rebuilding this share took", _seconds),
)
