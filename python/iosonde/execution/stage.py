"""What stands between the target and the workload of a run: made before the first run that asks for it, and taken apart
when another is asked for, or at the end of the session.

Simulated drives have nothing to be made: a setup is a new array of them, and their state outlives the session.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from iosonde.execution import array_health
from iosonde.plan import Case, JsonObject, Plan, Run
from iosonde.storage import Target, drive_state, journal
from iosonde.storage.building import Building
from iosonde.storage.device_target import DeviceTarget
from iosonde.storage.made import MadeTarget
from iosonde.storage.workspace import furnish


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a run finds."""

    target: Target
    """As the workload sees it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record; empty where nothing was made."""

    block_devices: list[str] | None = None
    """To be watched, where they are not known before they are made."""
    claims: Sequence[int] = ()
    """Descriptors that hold a raw device exclusively."""
    laid_out_bytes: int = 0
    """Of a raw device: what earlier runs have written of it from its beginning on."""

    def with_claims(self, spec: JsonObject) -> JsonObject:
        """The spec for an engine that inherits the claims; by itself, an engine claims a device."""
        workload = spec["workload"]
        if not self.claims or workload["target"].get("kind") != "device":
            return spec
        return {**spec, "workload": {**workload, "target": {**workload["target"], "is_claimed": True}}}

    def spec(self, run: Run) -> JsonObject:
        """The run's spec, with what only now is known."""
        spec = run.spec
        if self.block_devices is not None:
            spec = {**spec, "observe": {**spec["observe"], "block_devices": self.block_devices}}
        workload = spec["workload"]
        if 0 < workload["target"].get("size_bytes", 0) <= self.laid_out_bytes and workload.get("layout") == "missing":
            spec = {**spec, "workload": {**workload, "layout": "never"}}
        return spec


class Stage:
    """Makes what the cases of a plan ask for, one after the other, on one target."""

    def __init__(self, plan: Plan, target: Target, directory: Path) -> None:
        """`directory` is that of the result set, where simulated drives keep their state."""
        self.base = target.called(plan.own)
        self._directory = directory
        self._is_needed = any(case.setup for case in plan.cases)
        self._standing = Standing(target=self.base)
        self._building: Building | None = None
        self._key: tuple[str, ...] | None = None
        self._laid_out_bytes = 0
        self._state: dict[str, Any] = {}
        self._member_failed: dict[str, Any] = {}

    def ready(self, run: Run, case: Case) -> Standing:
        """What that run is to find; made now unless it stands. `TargetError` where it cannot be made."""
        if not self._is_needed:
            return self._on_target()
        is_fresh = case.setup is not None and case.setup.fresh == "run"
        if is_fresh or self._key != case.stands_on:
            self.take_apart()
            self._standing = self._made(run, case, is_fresh=is_fresh)
            self._key = case.stands_on
        if run.purges:
            self._laid_out_bytes = 0
        furnish(run.spec)
        return replace(self._standing, **self._now())

    def watch(self, event: dict[str, Any]) -> None:
        """See when a member fails: called with what the engine says, it looks at the array with each interval."""
        if event["event"] != "interval" or self._building is None or self._member_failed:
            return
        if array_health.has_lost_a_member(self._state, self._building.health()):
            self._member_failed = {"at": time.time(), "phase": event["phase"], "interval": event["index"]}

    def ended(self, run: Run, *, complete: bool) -> None:
        """A run has ended: a raw device, which knows no holes, now holds what its layout wrote."""
        workload = run.spec["workload"]
        if any(stream["mix"]["trim_fraction"] > 0 for stream in workload.get("streams", ()) if "mix" in stream):
            self._laid_out_bytes = 0
        elif complete and workload["target"]["kind"] == "device" and workload.get("layout") in ("missing", "always"):
            self._laid_out_bytes = max(self._laid_out_bytes, workload["target"]["size_bytes"])

    def after(self) -> dict[str, Any]:
        """How the array came out of the run that has ended, for the record; nothing without one."""
        state = self._building.state() if self._building is not None else {}
        seen = {"member_failed": self._member_failed} if self._member_failed else {}
        return {"state_after": state, **seen} if state else {}

    def take_apart(self) -> None:
        """Take apart what stands; may be called again."""
        self._key = None
        self._laid_out_bytes = 0
        if self._building is not None:
            self._building.take_apart()
            self._building = None

    def _on_target(self) -> Standing:
        return replace(self._standing, claims=_claims_of(self.base), laid_out_bytes=self._laid_out_bytes)

    def _now(self) -> dict[str, Any]:
        """What may change from run to run: a member of an array may fail between two."""
        if self._building is None:
            return {"claims": _claims_of(self.base)}
        self._state, self._member_failed = self._building.state(), {}
        return {
            "facts": {**self._standing.facts, **({"state": self._state} if self._state else {})},
            "block_devices": self._building.block_devices(),
            "claims": self._building.claims,
            "laid_out_bytes": self._laid_out_bytes,
        }

    def _made(self, run: Run, case: Case, *, is_fresh: bool) -> Standing:
        if case.setup is None:
            self._simulated(run, case, is_fresh=is_fresh)
            return Standing(target=self.base)
        facts: dict[str, Any] = {
            "asked": case.setup.model_dump(),
            "text": case.setup.text,
            "on": self.base.describe(),
            "made_for": run.run_id,
            "made_at": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        began = time.monotonic()
        target = self.base.with_setup(case.setup)
        if isinstance(target, MadeTarget):
            building = Building(target)
            facts |= building.make()
            self._building = building
        else:
            facts |= self._simulated(run, case, is_fresh=is_fresh)
        return Standing(target=target, facts={"seconds": round(time.monotonic() - began, 3), **facts})

    def _simulated(self, run: Run, case: Case, *, is_fresh: bool) -> dict[str, Any]:
        """New drives, unless those of an earlier session are these very ones; nothing where none are simulated."""
        if run.spec["workload"].get("backend", {}).get("kind") != "ssd":
            return {}
        wanted = "\n".join(case.stands_on)
        if is_fresh or drive_state.stands_on(self._directory) != wanted:
            drive_state.begin(self._directory, wanted)
            return {"simulated": True}
        return {"simulated": True, "kept_from_before": True}


def _claims_of(target: Target) -> list[int]:
    """Those of a device that is measured as it is."""
    return target.claims.descriptors if isinstance(target, DeviceTarget) else []


def clear(plan: Plan) -> None:
    """Take apart what a session that was killed has left; nothing where nothing was made."""
    if plan.own and any(case.setup for case in plan.cases):
        with journal.undoing(f"take apart what was made on `{plan.target}`"):
            journal.clear(plan.own)
