"""The plan of a study on a target: every case, every run, every default.

A `Plan` is what `iosonde plan` prints, `iosonde run` carries out and `plan.json` keeps. It holds resolved engine specs,
so a run can be repeated by hand: `iosonde-engine < spec.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from iosonde.base.features import contributed

JsonObject = dict[str, Any]
Scalar = str | int | float | bool

RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""Also the name of a record's directory."""

OwnName = Annotated[str, Field(pattern=r"^(iosonde-[0-9a-f]{8})?$")]
"""Also the name of a directory on the target."""


ArmName = Literal["", "a", "b"]
"""Arm of an A/B comparison within one session; empty in any other study."""


MOST_CASES = 20_000
"""Combinations of levels that a study may have: planning and reporting of these take seconds."""

MOST_PLANNED_CASES = 3 * MOST_CASES
"""Cases that a plan may have: those of a study twice if it compares two arms, stages and control cases."""


class Frozen(BaseModel):
    """A model that cannot change and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


ASSUMED_BYTES_PER_SECOND = 500 * 10**6
"""Speed at which layout, and a run that only bytes limit, are assumed to go when a plan estimates time."""


class Cost(Frozen):
    """Time, estimated, and bytes written, an upper bound where the study sets limits."""

    seconds: float
    """Of a run: ramp and measurement, in the time of the drive. Of a plan: everything, in the time of the reader."""
    write_bytes: Annotated[int, Field(ge=0, lt=1 << 64)] | None
    """Bytes written at most; None when only time limits them."""


class Destroys(Frozen):
    """Something that is overwritten, or created and removed again."""

    path: str
    what: str
    """A clause: `creates a file of 1 GiB and removes it at the end`."""


DeviceState = Literal["fresh", "preconditioned", "steady", "unknown", "not_applicable"]
"""State of the device that is measured; `not_applicable` to loads that write nothing, and without a device."""

Purge = Literal["format", "sanitize", "trim", "overwrite"]
"""A method of discarding the contents of a target."""

OF_WHOLE_DEVICE: tuple[Purge, ...] = ("format", "sanitize")
"""Means that take all of a device, and not only what is measured."""


class Capacity(Frozen):
    """Basis of a fill level."""

    bytes: int
    used: int = 0
    """By others, and not to be given up."""
    reserved: int = 0
    """Kept back from this user by the file system."""


FileSystem = Literal["none", "ext4", "xfs", "btrfs", "bluestore", "nfs"]
Journal = Literal["on", "off", "external"]
Fresh = Literal["study", "case", "run"]


_REDIRECTING = ("bind", "rbind", "move", "remount", "loop", "helper", "uhelper")


def check_mount_options(options: str) -> str:
    """Return options of mount(8); `ValueError` for those that name a device or path, or mount something else."""
    for option in filter(None, options.split(",")):
        name = option.partition("=")[0].strip().lower()
        if "/" in option or not option.isprintable():
            raise ValueError(f"the mount option `{option}` names a path or device, which a study cannot contain")
        if name == "ro":
            raise ValueError("the mount option `ro` is not supported: iosonde creates its files in the file system")
        if name in _REDIRECTING or name.startswith(("journal_dev", "journal_path", "logdev", "rtdev", "x-mount")):
            raise ValueError(f"the mount option `{option}` must not change what is mounted")
    return options


class SetupPart(Frozen):
    """A layer of a feature over the devices of a setup, fully resolved.

    The serialization alias of a field is the parameter that it resolves.
    """

    part: ClassVar[str]
    """Key of `Setup.parts`, and the parameter that asks for it."""
    combines: ClassVar[bool] = False
    """True if it makes one device of all `devices`; otherwise it is over one device or layer."""
    can_be_simulated: ClassVar[bool] = False
    has_server: ClassVar[bool] = False
    """True if the device is used through a server, which is started on the machine of the device."""

    @property
    def file_system(self) -> FileSystem | None:
        """File system that comes with it, and only has to be mounted."""
        return None

    def text(self, devices: int) -> str:
        """Return a description for a reader."""
        raise NotImplementedError

    def size_bytes(self, below: int, devices: int) -> int:
        """Return a lower bound of its size, over a device (or `devices`) of `below` bytes."""
        return below

    def simulated(self) -> dict[str, Any]:
        """Return fields of a target of simulated drives; `TargetError` for a layer that they do not have."""
        raise NotImplementedError

    def further_bytes(self, device_bytes: int) -> list[int]:
        """Sizes of the further devices that it needs, where they are files; they are the last devices of a target."""
        return []


P = TypeVar("P", bound=SetupPart)


class Setup(Frozen):
    """Layers between the user's target and the workload, fully resolved (study/setup.py)."""

    devices: int = 1
    """The first this many of the target's devices."""
    parts: dict[str, JsonObject] = Field(default_factory=dict)
    """Layers over the devices, by `SetupPart.part`, the lowest first; read with `layers`."""
    file_system: FileSystem = "none"
    journal: Journal = "on"
    mount_options: Annotated[str, AfterValidator(check_mount_options)] = ""
    """Separated by commas."""
    fresh: Fresh = "study"
    setup_size: int | None = None
    """Bytes of the file under a loop device; None where there is none, or where its size is left to the target."""

    def __hash__(self) -> int:
        """Setups are keys; parts are objects, so the hash is that of the text."""
        return hash(self.model_dump_json())

    @cached_property
    def layers(self) -> tuple[SetupPart, ...]:
        """Return the parts of features as their types; `ValueError` for one that no feature of this iosonde defines."""
        of_features: tuple[type[SetupPart], ...] = contributed("setup", "PARTS")
        kinds = {kind.part: kind for kind in of_features}
        unknown = next((name for name in self.parts if name not in kinds), "")
        if unknown:
            raise ValueError(f"`{unknown}` is no part of a setup of this iosonde")
        return tuple(kinds[name].model_validate(values) for name, values in self.parts.items())

    def layer(self, kind: type[P]) -> P | None:
        """Return the part of a feature; None without one."""
        return next((each for each in self.layers if isinstance(each, kind)), None)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return all of it as parameters of a case."""
        layers = [each.model_dump(by_alias=True) for each in self.layers]
        return {**self.model_dump(exclude={"parts"}), **{name: each[name] for each in layers for name in each}}

    @property
    def is_plain(self) -> bool:
        """True if nothing has to be created for it."""
        return self.is_bare_device and self.file_system == "none" and self.setup_size is None

    @property
    def is_bluestore(self) -> bool:
        """True if object daemons of Ceph use the devices directly, without a file system."""
        return self.file_system == "bluestore"

    @property
    def is_bare_device(self) -> bool:
        """True if the workload or file system is directly on one device."""
        return not self.parts

    @property
    def text(self) -> str:
        """Description for a reader: `one device, ext4 without journal`."""
        if self.is_bluestore:
            return f"{'one device' if self.devices == 1 else f'{self.devices} devices'} of BlueStore"
        parts = [] if any(each.combines for each in self.layers) else ["one device"]
        parts += [each.text(self.devices) for each in self.layers]
        if self.file_system != "none":
            journal = {"on": "", "off": " without journal", "external": " with an external journal"}[self.journal]
            parts.append(f"{self.file_system}{journal}")
        if self.mount_options:
            parts.append(f"mounted with {self.mount_options}")
        return ", ".join(parts)


class Procedure(Frozen):
    """Procedure that decides each run of a case during the study, from the records so far (`planning.procedure`)."""

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


class Arm(Frozen):
    """One of two systems that are measured alternately in one session."""

    name: ArmName
    label: str
    """Name and difference, for a reader: `a: /srv/disk1`, `b: io_mode=buffered`."""
    target: str
    settings: dict[str, str]
    """`--set` and, of arm `b`, `--against-set`."""
    study: JsonObject
    """The study with profile and these settings applied."""
    created_name: OwnName = ""
    """Name of what is created on its target."""


class LeftOut(Frozen):
    """A case that the target or the machine cannot carry out (of an optional part), or cannot tell from another."""

    case_id: str
    part: str
    reason: str
    hint: str = ""


class Plan(Frozen):
    """The plan of a study on a target, or on both arms of a comparison."""

    format: Literal[1] = 1
    study: JsonObject
    """The study as read, with profile and settings applied (`Study.model_dump(mode="json")`)."""
    study_name: str
    application: str = ""
    """Application that `iosonde qualify` decides for; empty in any other study."""
    profile: str
    target: str
    """The target as given, resolved to an absolute path or `null:`, `simulated:`."""
    engine: str = "iosonde-engine"
    seed: int
    repeats: int
    cases: list[Case]
    runs: list[Run]
    left_out: list[LeftOut] = Field(default=[])
    """Cases without runs, and why."""
    destroys: list[Destroys]
    layout_bytes: int
    """Bytes that layout writes at most."""
    cost: Cost
    """Sum over all runs plus layout; the upper bound of procedures."""
    settings: dict[str, str]
    """`--set` as given, so that the plan can be rerun."""
    hosts: list[str] = Field(default=[])
    """Hosts that carry out each run at the same time (`--hosts`); in the plan of one of them, that one. Empty for this
    machine alone."""
    joins: bool = False
    """In the plan of a host: True if another host creates and removes the files of its runs."""
    keep: bool = False
    """True if the test file is kept after the study (`--keep`)."""
    arms: list[Arm] = Field(default=[])
    """Arms `a` and `b` of a comparison within one session, whose runs alternate; empty in any other study. `study`,
    `target` and `created_name` are those of arm `a`."""
    notes: list[str] = Field(default=[], exclude=True)
    """Notes for the user before it starts."""
    required_options: list[str] = Field(default=[], exclude=True)
    """Options without which it is not carried out; not kept, since they may contain serial numbers."""
    created_name: OwnName = ""
    """Name of what is created on the target (`iosonde-XXXXXXXX`); empty if nothing is."""

    @property
    def adaptive(self) -> list[Case]:
        """Cases whose runs a procedure decides."""
        return [case for case in self.cases if case.procedure]

    def of_arm(self, name: ArmName) -> Plan:
        """The plan of one arm by itself, with the case ids of a study without arms."""
        (arm,) = (each for each in self.arms if each.name == name)
        cases = [case for case in self.cases if case.arm == name]
        short = {case.case_id: case.case_id.removeprefix(f"{name}/") for case in cases}
        return self._with(
            arms=[],
            study=arm.study,
            settings=arm.settings,
            target=arm.target,
            created_name=arm.created_name,
            cases=[case.model_copy(update={"case_id": short[case.case_id], "arm": ""}) for case in cases],
            runs=[run.model_copy(update={"case_id": short[run.case_id]}) for run in self.runs if run.case_id in short],
        )

    def by_target(self) -> list[Plan]:
        """The plan split by target, because each target is claimed, prepared and restored by itself."""
        if not self.arms:
            return [self]
        arms: dict[tuple[str, str], list[ArmName]] = {}
        for arm in self.arms:
            arms.setdefault((arm.target, arm.created_name), []).append(arm.name)
        return [self._on(target, created, names) for (target, created), names in arms.items()]

    def _on(self, target: str, created_name: str, arms: list[ArmName]) -> Plan:
        cases = [case for case in self.cases if case.arm in arms]
        known = {case.case_id for case in cases}
        runs = [run for run in self.runs if run.case_id in known]
        return self._with(arms=[], target=target, created_name=created_name, cases=cases, runs=runs)

    def _with(self, **changes: Any) -> Plan:
        """A changed copy; `model_copy` would keep the cached properties of the original."""
        return Plan(**{name: getattr(self, name) for name in type(self).model_fields} | changes)

    def specs(self) -> list[JsonObject]:
        """Every spec that is known beforehand, those that procedures start from included."""
        return [run.spec for run in self.runs] + [case.procedure.spec for case in self.cases if case.procedure]

    def case_of(self, run_id: str) -> Case | None:
        """The case that a run with that id belongs to, if there is one."""
        return self._cases_by_run.get(run_id) or self._cases_by_stem.get(run_id.partition("-")[0])

    def planned_case_id(self, run_id: str) -> str:
        """The case id of a planned run; empty for others."""
        return self._cases_by_run[run_id].case_id if run_id in self._cases_by_run else ""

    @model_validator(mode="after")
    def _check_runs(self) -> Plan:
        known = {case.case_id for case in self.cases}
        if [arm.name for arm in self.arms] not in ([], ["a", "b"]):
            raise ValueError("the arms must be `a` and `b`")
        if len({run.run_id for run in self.runs}) != len(self.runs):
            raise ValueError("two runs have the same id")
        for run in self.runs:
            if run.case_id not in known:
                raise ValueError(f"run `{run.run_id}` refers to an unknown case")
        for spec in self.specs():
            if not isinstance(spec.get("workload"), dict):
                raise ValueError("a spec has no workload")
        return self

    @cached_property
    def _cases_by_run(self) -> dict[str, Case]:
        cases = {case.case_id: case for case in self.cases}
        return {run.run_id: cases[run.case_id] for run in self.runs}

    @cached_property
    def _cases_by_stem(self) -> dict[str, Case]:
        return {case.procedure.stem: case for case in self.cases if case.procedure}


def target_of(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target that the engine opens; of a workload on a server only its kind, `server`."""
    found: Mapping[str, Any] = workload.get("target") or {"kind": "server"}
    return found
