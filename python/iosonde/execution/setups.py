"""Creation of the setups of a plan's cases: layers, file system and mount between target and workload.

A setup is created before the first run that needs it, and removed before the first run that needs another, or at the
end of the session. Where iosonde keeps the data of a target, a setup is a new target, whose state outlives the session.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from iosonde.plan import Case, JsonObject, Plan, Run, target_of
from iosonde.storage import Target
from iosonde.storage.safety import journal
from iosonde.storage.targets.active_setup import ActiveSetup
from iosonde.storage.targets.device_target import DeviceTarget
from iosonde.storage.targets.kind import TargetState
from iosonde.storage.targets.setup_target import SetupTarget
from iosonde.storage.targets.workspace import join, provision, reused
from iosonde.workload import described, streams_of


@dataclass(frozen=True, kw_only=True)
class ReadyTarget:
    """The target of a run, ready to be used."""

    target: Target
    """As the workload sees it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """About the setup, for the record; empty without one."""
    building: ActiveSetup | None = None
    """The setup on real devices."""
    block_devices: list[str] | None = None
    """To be watched, where they are not known before they are created."""
    claims: Sequence[int] = ()
    """Descriptors that hold a raw device exclusively."""
    shims: Mapping[str, int] = field(default_factory=dict)
    """Descriptors of the shims of libraries that the engine loads, by the name of the store."""
    identities: Mapping[str, str] = field(default_factory=dict)
    """Identities to which the paths that the run opens must lead (`workspace.provision`)."""
    swap_bytes: int = 0
    """Swap that the run's processes may use beyond its memory limit."""
    laid_out_bytes: int = 0
    """Of a raw device: length of the range from its start that earlier runs have written."""

    def with_claims(self, spec: JsonObject) -> JsonObject:
        """The spec for an engine that inherits the claims; without them the engine claims the device itself."""
        workload = spec["workload"]
        if not self.claims or target_of(workload)["kind"] != "device":
            return spec
        return {**spec, "workload": {**workload, "target": {**workload["target"], "is_claimed": True}}}

    def spec(self, run: Run) -> JsonObject:
        """The run's spec with the block devices and the layout that are known only now."""
        spec = run.spec
        if self.block_devices is not None:
            spec = {**spec, "observe": {**spec["observe"], "block_devices": self.block_devices}}
        workload = spec["workload"]
        if 0 < target_of(workload).get("size_bytes", 0) <= self.laid_out_bytes and workload.get("layout") == "missing":
            spec = {**spec, "workload": {**workload, "layout": "never"}}
        return spec


class Setups:
    """Creates and removes the setups of a plan, one at a time, on one target."""

    def __init__(self, plan: Plan, target: Target, state: TargetState) -> None:
        self.base = target.called(plan.created_name)
        self._state = state
        self._joins = plan.joins and bool(plan.hosts)
        self._is_needed = any(case.setup for case in plan.cases)
        self._ready = ReadyTarget(target=self.base)
        self._building: ActiveSetup | None = None
        self._key: tuple[str, ...] | None = None
        self._laid_out_bytes = 0

    def prepare(self, run: Run, case: Case) -> ReadyTarget:
        """The target of that run, created now unless it exists; `TargetError` if that fails."""
        if not self._is_needed:
            return self._current(run)
        is_fresh = case.setup is not None and case.setup.fresh == "run"
        if is_fresh or self._key != case.setup_key:
            self.remove()
            self._ready = self._create(run, case, is_fresh=is_fresh)
            self._key = case.setup_key
        if run.purges:
            self._laid_out_bytes = 0
        return self._current(run)

    def ended(self, run: Run, *, complete: bool) -> None:
        """Keep track of what a run's layout has written to a raw device, which has no holes that would show it."""
        workload = run.spec["workload"]
        if any(stream["mix"]["trim_fraction"] > 0 for stream in streams_of(workload) if "mix" in stream):
            self._laid_out_bytes = 0
        elif complete and target_of(workload)["kind"] == "device" and workload.get("layout") in ("missing", "always"):
            self._laid_out_bytes = max(self._laid_out_bytes, workload["target"]["size_bytes"])

    def remove(self) -> None:
        """Remove the current setup; may be called again."""
        self._key = None
        self._laid_out_bytes = 0
        if self._building is not None:
            self._building.remove()
            self._building = None

    def _identities(self, run: Run) -> dict[str, str]:
        """Identities of the files and devices that a run opens; its files are created now."""
        if described(run.spec["workload"]).server(run.spec["workload"]):
            return {}  # The engine opens a socket; the server's directories are checked when they are created.
        numbers = self._building.numbers if self._building is not None else self.base.numbers_by_name()
        target = target_of(run.spec["workload"])
        paths = [target.get("path", ""), *target.get("beside", ())]
        return (
            {each: numbers[each] for each in paths}
            if paths[0] in numbers
            else (join if self._joins else provision)(run.spec)
        )

    def _current(self, run: Run) -> ReadyTarget:
        """With what changes from run to run, such as the members of an array."""
        if self._building is None:
            return replace(
                self._ready,
                claims=_claims_of(self.base),
                identities=self._identities(run),
                laid_out_bytes=self._laid_out_bytes,
            )
        return replace(
            self._ready,
            building=self._building,
            block_devices=self._building.block_devices(),
            claims=self._building.claims,
            identities=self._identities(run),
            laid_out_bytes=self._laid_out_bytes,
        )

    def _create(self, run: Run, case: Case, *, is_fresh: bool) -> ReadyTarget:
        setup = "\n".join(case.setup_key)
        if case.setup is None:
            self._state.begin(setup, is_fresh=is_fresh)
            return ReadyTarget(target=self.base)
        facts: dict[str, Any] = {
            "requested": case.setup.model_dump(),
            "text": case.setup.text,
            "target": self.base.describe(),
            "created_for": run.run_id,
            "created_at": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        began = time.monotonic()
        target = self.base.with_setup(case.setup)
        if isinstance(target, SetupTarget):
            building = ActiveSetup(target)
            facts |= building.create()
            self._building = building
        else:
            facts |= self._state.begin(setup, is_fresh=is_fresh)
        return ReadyTarget(target=target, facts={"seconds": round(time.monotonic() - began, 3), **facts})


def _claims_of(target: Target) -> list[int]:
    """Those of a device that is measured without a setup."""
    return target.claims.descriptors if isinstance(target, DeviceTarget) else []


def remove_leftovers(plan: Plan) -> None:
    """Remove what `cleanup` would remove of a killed session of this plan, except the files and databases it reuses."""
    if plan.created_name and not plan.joins:
        with journal.undoing(f"remove what was created on `{plan.target}`"):
            journal.clear(plan.created_name, reused=reused(plan))
