"""Cases, the procedures that decide their runs, and runs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from iosonde.plan.base import ArmName, Frozen, JsonObject, RunId, Scalar
from iosonde.plan.cost import Cost
from iosonde.plan.setup import Setup
from iosonde.plan.target import DeviceState


class Procedure(Frozen):
    """Procedure that decides each run of a case during the study, from the records so far (`iosonde.procedure`)."""

    kind: str
    settings: JsonObject
    """Settings of the kind, resolved: everything that a decision depends on besides records."""
    max_runs: int
    """Upper bound of its runs."""
    text: str
    """Its steps and bounds, for a reader."""
    spec: JsonObject
    """Template of the specs of its runs. Their `run_id` starts with this one's."""
    preparing: int = 0
    """Number of these runs that prepare the target or are stages after it; their cost is in `preparation`."""
    preparation: Cost = Cost(seconds=0, write_bytes=0)
    """Cost of preparing the target, and of the stages after its rounds."""

    @property
    def stem(self) -> str:
        """Prefix of the ids of its runs: `c0012`."""
        return str(self.spec["run_id"])


class Case(Frozen):
    """One parameter set; with a procedure, all those that it tries."""

    case_id: str
    """Stable and readable: `PART/FACTOR=LEVEL/...`, or `control`."""
    part: str
    control: bool
    """True if this is the control case, repeated through the study to show drift."""
    levels: dict[str, Scalar]
    """The factors' levels as a reader sees them; a compound level by its label. Bytes are ints."""
    parameters: dict[str, Any]
    """Every parameter of the workload with its value, defaults written out; `STREAM.NAME` where streams differ.
    Sizes are bytes, times nanoseconds. What a procedure decides is not among them."""
    cost: Cost
    """Of one run."""
    device_state: DeviceState = "unknown"
    """State of the device that it measures, as far as the plan can bring it about."""
    device_state_reason: str = ""
    """Reason for a state other than the one that the study declares."""
    procedure: Procedure | None = None
    """None if the plan lists all its runs."""
    setup: Setup | None = None
    """Created on the target for it; None if it uses the target directly."""
    arm: ArmName = ""
    """Its arm; the `case_id` then starts with `a/` or `b/`."""

    @property
    def setup_key(self) -> tuple[str, ...]:
        """Identifies the setup of its runs: runs with the same key can share one.

        Empty without a setup. (`fresh = "run"` never shares: see `Setup.fresh`.)
        """
        if self.setup is None:
            return ()
        made = self.setup.model_dump_json(exclude={"fresh"})
        return (made,) if self.setup.fresh == "study" else (made, self.case_id)


PREPARATION = "preparation"
"""Part of the records of preparation steps; analyses leave it out."""


class Run(Frozen):
    """One repeat of a case."""

    run_id: RunId
    """`c0012-r2`: case number and repeat, both from 1 (the control case is c0000); `c0012-p07-r2` for the second run of
    the seventh probe of a procedure."""
    case_id: str
    """Its case; for a probe, the procedure's case and what it tries: `PART/FACTOR=LEVEL/.../rate=12800`."""
    repeat: int
    order: int
    """Position in the execution order, from 0."""
    spec: JsonObject
    """The engine's spec, ready to be sent."""
    levels: dict[str, Scalar] = Field(default_factory=dict)
    """Levels that a procedure tries, added to the case's levels."""
    parameters: JsonObject = Field(default_factory=dict)
    """Parameters that a procedure decided, added to the case's parameters."""
    part: str = ""
    """Part that its record belongs to, where that is not the case's: `preparation`."""
    purges: bool = False
    """True if the target is purged before the engine starts."""
    until: JsonObject | None = None
    """Early end of the run (`procedure.watch`): once its intervals are steady (`round_ns`, `tracking`, `hold`,
    `criteria`), or once all conditions are decided (`conditions`, `streams`)."""
    restart: int = 0
    """Number of times that the device state was lost in a pause and prepared again."""
