"""What a study will do on a target: every case, every run, every default.

A `Plan` is what `iosonde plan` prints, `iosonde run` carries out and `plan.json` keeps. It holds resolved engine specs,
so a run can be repeated by hand: `iosonde-engine < spec.json`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from iosonde.units import format_bytes

JsonObject = dict[str, Any]
Scalar = str | int | float | bool


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


ASSUMED_BYTES_PER_SECOND = 500 * 10**6
"""Speed at which layout, and a run that only bytes limit, are assumed to go when a plan estimates time."""


class Cost(_Frozen):
    """What something takes: upper bounds where the study sets limits, estimates where it does not."""

    seconds: float
    """Time of ramp and measurement together, without layout."""
    write_bytes: int | None
    """Bytes written at most; None when only time limits them."""


class Procedure(_Frozen):
    """How the runs of a case are decided while it is carried out: each by the records so far (`iosonde.procedure`)."""

    kind: str
    settings: JsonObject
    """What the kind needs to know, resolved: everything that a decision depends on besides records."""
    most_runs: int
    """It never takes more."""
    text: str
    """What it does and how far it goes at most, for a reader."""
    spec: JsonObject
    """What the specs of all its runs are made from. Its `run_id` is what theirs begin with."""
    preparing: int = 0
    """How many of these runs prepare the target or are stages after it; what those take is not the case's cost but
    `preparation`."""
    preparation: Cost = Cost(seconds=0, write_bytes=0)
    """Of the target, and of the stages after its rounds, on top of what its runs take."""

    @property
    def stem(self) -> str:
        """What the ids of its runs begin with: `c0012`."""
        return str(self.spec["run_id"])


ArrayLevel = Literal["single", "raid0", "raid1", "raid10", "raid5", "raid6"]
ArrayKind = Literal["md", "btrfs"]
ArrayState = Literal["clean", "synced", "degraded", "rebuilding"]
FileSystem = Literal["none", "ext4", "xfs", "btrfs"]
Journal = Literal["on", "off", "external"]
Fresh = Literal["study", "case", "run"]


class Setup(_Frozen):
    """What stands between the user's target and the workload of a case, with everything decided (study/setup.py)."""

    devices: int = 1
    """The first so many of the target's devices."""
    array: ArrayLevel = "single"
    array_kind: ArrayKind = "md"
    chunk: int = 512 << 10
    """Bytes."""
    array_state: ArrayState = "synced"
    failed_members: int = 0
    file_system: FileSystem = "none"
    journal: Journal = "on"
    mount_options: str = ""
    """Separated by commas."""
    fresh: Fresh = "study"
    setup_size: int | None = None
    """Bytes of the file under a loop device; None where there is none, or where its size is left to the target."""

    @property
    def is_plain(self) -> bool:
        """Whether it asks for nothing that would have to be made."""
        return self.array == "single" and self.file_system == "none" and self.setup_size is None

    @property
    def text(self) -> str:
        """What it is, for a reader: `raid5 of 4, chunk 64 KiB, ext4 without journal`."""
        parts = ["one device" if self.array == "single" else f"{self.array} of {self.devices}"]
        if self.array != "single":
            parts += [self.array_kind, f"chunk {format_bytes(self.chunk)}", self.array_state]
        if self.failed_members:
            parts.append(f"{self.failed_members} failed")
        if self.file_system != "none":
            journal = {"on": "", "off": " without journal", "external": " with its journal apart"}[self.journal]
            parts.append(f"{self.file_system}{journal}")
        if self.mount_options:
            parts.append(f"mounted with {self.mount_options}")
        return ", ".join(parts)


class Case(_Frozen):
    """One parameter set; with a procedure, all those that it tries."""

    case_id: str
    """Stable and readable: `PART/FACTOR=LEVEL/...`, or `control`."""
    part: str
    control: bool
    """Whether this is the control case, repeated through the study to show drift."""
    levels: dict[str, Scalar]
    """The factors' levels as a reader sees them; a compound level by its label. Bytes are ints."""
    parameters: dict[str, Any]
    """Every parameter of the workload with its value, defaults written out; `STREAM.NAME` where streams differ.
    Sizes are bytes, times nanoseconds. What a procedure decides is not among them."""
    cost: Cost
    """Of one run."""
    procedure: Procedure | None = None
    """None where all runs are known beforehand and stand in the plan."""
    setup: Setup | None = None
    """What is made on the target for it; None where it takes the target as it is."""

    @property
    def stands_on(self) -> tuple[str, ...]:
        """What must stand when one of its runs begins: runs with the same can follow each other on it.

        Empty where nothing is made. (`fresh = "run"` asks for more: see `Setup.fresh`.)
        """
        if self.setup is None:
            return ()
        made = self.setup.model_dump_json(exclude={"fresh"})
        return (made,) if self.setup.fresh == "study" else (made, self.case_id)


PREPARATION = "preparation"
"""Part that the records of steps of preparation belong to: what is asked of the study leaves them out."""


class Run(_Frozen):
    """One repeat of a case."""

    run_id: str
    """`c0012-r2`: case number and repeat, both from 1 (the control case is c0000); `c0012-p07-r2` for the second run of
    the seventh probe of a procedure."""
    case_id: str
    """Its case; for a probe, the procedure's case and what it tries: `PART/FACTOR=LEVEL/.../rate=12800`."""
    repeat: int
    order: int
    """Position in the execution order, from 0."""
    spec: JsonObject
    """The engine's spec, ready to be sent."""
    levels: dict[str, Scalar] = {}
    """What a procedure tries, on top of the case's levels."""
    parameters: JsonObject = {}
    """What a procedure decided, on top of the case's parameters."""
    part: str = ""
    """Part that its record belongs to, where that is not the case's: `preparation`."""
    purges: bool = False
    """Whether the target gives up what it holds before the engine starts."""
    until: JsonObject | None = None
    """The run ends once its intervals are steady (`procedure.watch`): `round_ns`, `tracking`, `hold`, `criteria`."""
    restart: int = 0
    """How often what the run builds on had been destroyed by a pause, and was made again."""


class Destroys(_Frozen):
    """Something that existing data could be lost from, or that is made and removed again."""

    path: str
    what: str
    """A clause: `creates a file of 1 GiB and removes it at the end`."""


Purge = Literal["format", "sanitize", "trim", "overwrite"]
"""A means of giving up what a target holds."""

OF_WHOLE_DEVICE: tuple[Purge, ...] = ("format", "sanitize")
"""Means that take all of a device, and not only what is measured."""


class Capacity(_Frozen):
    """What a fill level is a share of."""

    bytes: int
    used: int = 0
    """By others, and not to be given up."""
    reserved: int = 0
    """Kept back from this user by the file system."""


class Plan(_Frozen):
    """What a study will do on a target."""

    format: int = 1
    study: JsonObject
    """The study as read, with profile and settings applied (`Study.model_dump(mode="json")`)."""
    study_name: str
    profile: str
    target: str
    """What the user named, resolved to an absolute path or `null:`, `simulated:`."""
    engine: str = "iosonde-engine"
    seed: int
    repeats: int
    cases: list[Case]
    runs: list[Run]
    destroys: list[Destroys]
    layout_bytes: int
    """Bytes that layout writes at most."""
    cost: Cost
    """Sum over all runs plus layout; procedures with the most that they can take."""
    settings: dict[str, str]
    """`--set` as given, so that the plan can be rerun."""
    keep: bool = False
    """Whether the test file stays after the study (`--keep`)."""
    notes: list[str] = Field(default=[], exclude=True)
    """What a user should know before it begins."""
    asks: list[str] = Field(default=[], exclude=True)
    """Options without which it is not carried out; not kept, for serial numbers may stand there."""
    own: str = ""
    """Name of what is made on the target (`iosonde-XXXXXXXX`), where anything is."""

    @property
    def adaptive(self) -> list[Case]:
        """Cases whose runs a procedure decides."""
        return [case for case in self.cases if case.procedure]

    def specs(self) -> list[JsonObject]:
        """Every spec that is known beforehand, those that procedures start from included."""
        return [run.spec for run in self.runs] + [case.procedure.spec for case in self.cases if case.procedure]

    def case_of(self, run_id: str) -> Case | None:
        """The case that a run with that id belongs to, if there is one."""
        return self._cases_by_run.get(run_id) or self._cases_by_stem.get(run_id.partition("-")[0])

    @cached_property
    def _cases_by_run(self) -> dict[str, Case]:
        cases = {case.case_id: case for case in self.cases}
        return {run.run_id: cases[run.case_id] for run in self.runs}

    @cached_property
    def _cases_by_stem(self) -> dict[str, Case]:
        return {case.procedure.stem: case for case in self.cases if case.procedure}
