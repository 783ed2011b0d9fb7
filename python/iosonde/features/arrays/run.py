"""Health of the array under a run: its state before and after, and warnings where they differ from the case."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.engine.protocol import Event
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.arrays import facts
from iosonde.features.arrays.record import ArrayReading, MemberFailed
from iosonde.features.arrays.setup import Array, ArraySetup
from iosonde.metrics.verdict.evidence import SATURATED
from iosonde.results.schema import RecordWarning
from iosonde.units import format_bytes

MEMBER_FAILED = "member_failed"
MEMBER_MISSING = "member_missing"

Json = Mapping[str, Any]


class ArrayHealth(Instrument):
    """Watches the array of the run's setup."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._array = context.building.layer(Array) if context.building else None
        self._before: dict[str, Any] = {}
        self._member_failed: MemberFailed | None = None

    def start(self) -> None:
        """Read the state before the run."""
        if self._array:
            self._before = self._array.state()

    def event(self, event: Event) -> None:
        """Note the first interval after a member failed."""
        if event["event"] != "interval" or not self._array or self._member_failed:
            return
        if has_lost_a_member(self._before, self._array.health()):
            self._member_failed = MemberFailed(at=time.time(), phase=event["phase"], interval=event["index"])

    def stop(self, done: EngineRun) -> Reading:
        """Read the state after the run, and the work of the array's threads, of an array that was there before too."""
        saturated = [*thread_warnings(self.context.target_facts, (done.result or {}).get("evidence") or {})]
        if not self._array:
            return Reading(warnings=saturated)
        reading = ArrayReading(before=self._before, after=self._array.state(), member_failed=self._member_failed)
        setup = self.context.case.setup
        requested = setup.layer(ArraySetup) if setup else None
        assert requested, "the case of a run on an array"
        return Reading(parts=[reading], warnings=[*warnings(reading, requested, self._array.facts), *saturated])


def thread_warnings(target: Json, evidence: Json) -> Iterator[RecordWarning]:
    """Yield a warning if the thread of an array below the target used a core."""
    found = facts.from_evidence(target, evidence)
    share = found["array_thread_share"]
    if share is not None and share >= SATURATED:
        yield RecordWarning(
            code="array_thread_saturated",
            message=f"`{found['array_thread']}` used {100 * share:.0f} % of one core",
            hint="the result describes the array's thread, not its members; for RAID 4, 5 and 6 raise "
            "`group_thread_cnt` in `/sys/block/MD/md`, or use several arrays, which have one thread each",
        )


def warnings(reading: ArrayReading, requested: ArraySetup, built: Json) -> Iterator[RecordWarning]:
    """Yield warnings about an array and how it was built (docs/arrays.md)."""
    before, after = reading.before, reading.after
    if lacking := _lacking(requested, before):
        yield RecordWarning(
            code=MEMBER_MISSING,
            message=f"the array was degraded before the run started: {lacking}",
            hint="the results are those of a degraded array, unlike the case; replace the device and repeat these runs",
        )
    if has_lost_a_member(before, after):
        yield RecordWarning(
            code=MEMBER_FAILED,
            message=f"a member of the array failed during the run: {_lost(before, after)}"
            + _when(reading.member_failed),
            hint="the results are those of a degraded array from that moment on; replace the device and repeat the run",
            is_lasting=True,
        )
    if before.get("sync_action", "idle") != "idle" and after.get("sync_action") == "idle":
        yield RecordWarning(
            code="rebuild_ended",
            message="the rebuild completed during the run, so only part of the run was measured during it",
            hint="measure for a shorter time, or use larger devices",
        )
    if unequal := built.get("unequal"):
        yield RecordWarning(
            code="unequal_members",
            message=f"the members differ in size; {format_bytes(unequal['unused_bytes'])} of the others are unused",
            hint="build arrays from devices of one size",
        )


def has_lost_a_member(before: Json, after: Json) -> bool:
    """Return True if more members are missing, or return errors, than before."""
    return any((after.get(name) or 0) > (before.get(name) or 0) for name in ("degraded", "errors") if after)


def _lacking(requested: ArraySetup, before: Json) -> str:
    """Say how an array differs from what its case requires; empty if it does not."""
    missing, errors = ((before.get(name) or 0) for name in ("degraded", "errors"))
    if missing > requested.failed_members:
        return f"{missing} of {before.get('raid_disks', '?')} members were missing"
    return f"{errors} I/Os of its members had failed" if errors else ""


def _lost(before: Json, after: Json) -> str:
    missing, errors = ((after.get(name) or 0) - (before.get(name) or 0) for name in ("degraded", "errors"))
    if missing > 0:
        return f"{_names(before, after)}{after['degraded']} of {after.get('raid_disks', '?')} are missing"
    return f"{errors} of its I/Os failed"


def _names(before: Json, after: Json) -> str:
    """The members that failed, where the kernel reports the state of each."""
    now = after.get("members") or {}
    failed = [f"`{name}`" for name, state in (before.get("members") or {}).items()
              if "in_sync" in state and "in_sync" not in now.get(name, "")]  # fmt: skip
    return f"{', '.join(failed)}; " if failed else ""


def _when(failed: MemberFailed | None) -> str:
    return f", first seen in interval {failed.interval} of `{failed.phase}`" if failed else ""


INSTRUMENTS = (ArrayHealth,)
