"""The plan of a study on a target."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import Field, model_validator

from iosonde.plan.base import ArmName, Frozen, JsonObject, OwnName
from iosonde.plan.case import Case, Run
from iosonde.plan.cost import Cost
from iosonde.plan.target import Destroys


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

    format: int = 1
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
