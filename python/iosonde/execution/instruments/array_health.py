"""Health of the array under a run: its state before and after, and warnings where they differ from the case."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading, RunContext
from iosonde.protocol.event import Event
from iosonde.results.schema import RecordWarning
from iosonde.units import format_bytes

MEMBER_FAILED = "member_failed"
MEMBER_MISSING = "member_missing"

Json = Mapping[str, Any]


class ArrayHealth(Instrument):
    """Watches the array of the run's setup, and records the setup."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._array = context.ready.building
        self._before: dict[str, Any] = {}
        self._member_failed: dict[str, Any] = {}

    def start(self) -> None:
        """Read the state before the run."""
        if self._array:
            self._before = self._array.state()

    def event(self, event: Event) -> None:
        """Note the first interval after a member failed."""
        if event["event"] != "interval" or not self._array or self._member_failed:
            return
        if has_lost_a_member(self._before, self._array.health()):
            self._member_failed = {"at": time.time(), "phase": event["phase"], "interval": event["index"]}

    def stop(self, done: EngineRun) -> Reading:
        """Read the state after the run."""
        after = self._array.state() if self._array else {}
        setup = dict(self.context.ready.facts)
        if self._before:
            setup["state"] = self._before
        if after:
            setup["state_after"] = after
        if after and self._member_failed:
            setup[MEMBER_FAILED] = self._member_failed
        return Reading(facts={"setup": setup}, warnings=list(warnings(setup)))


def warnings(setup: Json) -> Iterator[RecordWarning]:
    """Warnings about the array in the `setup` of a record (docs/arrays.md)."""
    before, after = setup.get("state") or {}, setup.get("state_after") or {}
    if lacking := _lacking(setup.get("requested") or {}, before):
        yield RecordWarning(
            code=MEMBER_MISSING,
            message=f"the array was degraded before the run started: {lacking}",
            hint="the results are those of a degraded array, unlike the case; replace the device and repeat these runs",
        )
    if has_lost_a_member(before, after):
        yield RecordWarning(
            code=MEMBER_FAILED,
            message=f"a member of the array failed during the run: {_lost(before, after)}"
            + _when(setup.get(MEMBER_FAILED) or {}),
            hint="the results are those of a degraded array from that moment on; replace the device and repeat the run",
        )
    if before.get("sync_action", "idle") != "idle" and after.get("sync_action") == "idle":
        yield RecordWarning(
            code="rebuild_ended",
            message="the rebuild completed during the run, so only part of the run was measured during it",
            hint="measure for a shorter time, or use larger devices",
        )
    if unequal := (setup.get("array") or {}).get("unequal"):
        yield RecordWarning(
            code="unequal_members",
            message=f"the members differ in size; {format_bytes(unequal['unused_bytes'])} of the others are unused",
            hint="build arrays from devices of one size",
        )


def has_lost_a_member(before: Json, after: Json) -> bool:
    """Whether more members are missing, or return errors, than before."""
    return any((after.get(name) or 0) > (before.get(name) or 0) for name in ("degraded", "errors") if after)


def _lacking(requested: Json, before: Json) -> str:
    """How an array differs from what its case requires; empty if it does not."""
    missing, errors = ((before.get(name) or 0) for name in ("degraded", "errors"))
    if missing > (requested.get("failed_members") or 0):
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


def _when(seen: Json) -> str:
    return f", first seen in interval {seen['interval']} of `{seen['phase']}`" if seen else ""
