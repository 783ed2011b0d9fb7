"""Plans of qualifications: until decided, or over a long time in windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from iosonde.errors import StudyError
from iosonde.metrics.limit_test import SHORTEST_NS
from iosonde.metrics.wording import counted
from iosonde.plan import Plan, Run
from iosonde.planning import expand
from iosonde.qualify.qualification import NO_LIMITS
from iosonde.storage import Target
from iosonde.study.model import MOST_REPEATS, Study
from iosonde.units import format_bytes, format_count, format_duration, parse_duration

USUAL_LIMIT_NS = 60 * 10**9
"""Longest measurement of a load, unless the user names another one."""
_EXAMPLE_BYTES_PER_SECOND = 100 * 10**6


def plan_of(
    study: Study, target: Target, *, time_limit_ns: int, settings: Mapping[str, str] | None = None, keep: bool = False
) -> Plan:
    """Plan the loads of an application; each ends once its requirements are decided, or at the time limit."""
    plan = expand(study, target, settings={"duration": f"{time_limit_ns}ns", **(settings or {})}, keep=keep)
    parts = {case.case_id: case.part for case in plan.cases}
    runs = [_until_decided(run, Study.model_validate(plan.study), parts[run.case_id]) for run in plan.runs]
    notes = [*plan.notes, *_on_limits(study)]
    return plan.model_copy(update={"runs": runs, "notes": notes, "application": _application(plan)})


def _on_limits(study: Study) -> Iterator[str]:
    if not study.requirement:
        yield f"the load is measured and reported, and the result will be undecided: {NO_LIMITS}"


def _application(plan: Plan) -> str:
    return plan.study_name.removeprefix("qualify-")


def _until_decided(run: Run, study: Study, name: str) -> Run:
    conditions = [each.holds for each in study.requirement if each.part == name]
    streams = [stream.name for part in study.parts if part.name == name for stream in part.streams]
    return run.model_copy(update={"until": {"conditions": conditions, "streams": streams}}) if conditions else run


def watch_plan(
    study: Study,
    target: Target,
    *,
    duration_ns: int,
    every_ns: int,
    settings: Mapping[str, str] | None = None,
    keep: bool = False,
) -> Plan:
    """Plan continuous load, each window of which is a run that must meet all limits; loads take turns."""
    settings = settings or {}
    ramp_ns = parse_duration(settings.get("ramp", study.measurement.get("ramp", 0)))
    if every_ns < ramp_ns + SHORTEST_NS:
        least = f"{format_duration(ramp_ns + SHORTEST_NS)}: {format_duration(SHORTEST_NS)} after the ramp"
        raise StudyError(
            f"a window must be at least {least}; got {format_duration(every_ns)}", hint="lengthen `--every`"
        )
    requirements = [each.model_copy(update={"every_run": True}) for each in study.requirement]
    watched = study.model_copy(update={"requirement": requirements})
    settings = {"duration": f"{every_ns - ramp_ns}ns", **settings}
    loads = len(expand(watched, target, repeats=1, settings=settings).runs)
    windows = duration_ns // (every_ns * loads)
    if not 1 <= windows <= MOST_REPEATS:
        length, each = format_duration(duration_ns), format_duration(every_ns)
        raise StudyError(
            f"a watch must have 1 to {format_count(MOST_REPEATS)} windows of each load; got {format_count(windows)}",
            where=f"{length} for {counted(loads, 'load')} in windows of {each}",
            hint="change `--duration` or `--every`",
        )
    plan = expand(watched, target, repeats=windows, settings=settings, keep=keep)
    notes = [*plan.notes, *_on_limits(study), _note(plan, every_ns)]
    return plan.model_copy(update={"notes": notes, "application": _application(plan)})


def _note(plan: Plan, every_ns: int) -> str:
    """State what is done, and what a load that only time limits writes."""
    judged = ", each judged" if plan.study["requirement"] else ""
    text = f"continuous load in {format_count(len(plan.runs))} windows of {format_duration(every_ns)}{judged}"
    if plan.cost.write_bytes is not None:
        return text
    written = format_bytes(round(plan.cost.seconds * _EXAMPLE_BYTES_PER_SECOND))
    return f"{text}; a closed loop writes as fast as the target permits: {written} at 100 MB/s"
