"""Plan of a qualification."""

from __future__ import annotations

from collections.abc import Mapping

from iosonde.plan import Plan, Run
from iosonde.planning import expand
from iosonde.storage import Target
from iosonde.study.model import Study


def plan_of(
    study: Study, target: Target, *, time_limit_ns: int, settings: Mapping[str, str] | None = None, keep: bool = False
) -> Plan:
    """Plan the loads of an application; each ends once its requirements are decided, or at the time limit."""
    plan = expand(study, target, settings={"duration": f"{time_limit_ns}ns", **(settings or {})}, keep=keep)
    parts = {case.case_id: case.part for case in plan.cases}
    runs = [_until_decided(run, Study.model_validate(plan.study), parts[run.case_id]) for run in plan.runs]
    return plan.model_copy(update={"runs": runs})


def _until_decided(run: Run, study: Study, name: str) -> Run:
    conditions = [each.holds for each in study.requirement if each.part == name]
    streams = [stream.name for part in study.parts if part.name == name for stream in part.streams]
    return run.model_copy(update={"until": {"conditions": conditions, "streams": streams}}) if conditions else run
