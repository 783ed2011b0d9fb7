"""The plan of a study on a target."""

from __future__ import annotations

from functools import cached_property

from pydantic import AliasChoices, Field, model_validator

from iosonde.plan.base import Frozen, JsonObject, OwnName
from iosonde.plan.case import Case, Run
from iosonde.plan.cost import Cost
from iosonde.plan.target import Destroys


class Plan(Frozen):
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
    """Sum over all runs plus layout; the upper bound of procedures."""
    settings: dict[str, str]
    """`--set` as given, so that the plan can be rerun."""
    keep: bool = False
    """Whether the test file is kept after the study (`--keep`)."""
    notes: list[str] = Field(default=[], exclude=True)
    """Notes for the user before it starts."""
    required_options: list[str] = Field(default=[], exclude=True)
    """Options without which it is not carried out; not kept, since they may contain serial numbers."""
    created_name: OwnName = Field(default="", validation_alias=AliasChoices("created_name", "own"))
    """Name of what is created on the target (`iosonde-XXXXXXXX`), where anything is. Earlier plans call it `own`."""

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

    def planned_case_id(self, run_id: str) -> str:
        """The case id of a planned run; empty for others."""
        return self._cases_by_run[run_id].case_id if run_id in self._cases_by_run else ""

    @model_validator(mode="after")
    def _check_runs(self) -> Plan:
        known = {case.case_id for case in self.cases}
        if len({run.run_id for run in self.runs}) != len(self.runs):
            raise ValueError("two runs have the same id")
        for run in self.runs:
            if run.case_id not in known:
                raise ValueError(f"run `{run.run_id}` is of an unknown case")
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
