"""Plans of qualifications: one run of each load, or a watch over a long time in windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.errors import StudyError
from iosonde.findings.usable import reads
from iosonde.metrics.limit_test import SHORTEST_NS
from iosonde.metrics.wording import counted
from iosonde.plan import Plan
from iosonde.planning import expand
from iosonde.qualify.qualification import NO_LIMITS
from iosonde.storage import Target
from iosonde.study.model import MOST_REPEATS, Requirement, Study
from iosonde.units import format_bytes, format_count, format_duration, parse_duration
from iosonde.verdict.evidence import MEMORY_FILE_SYSTEMS

_LEAST_NS = 60 * 10**9
"""Least measurement before a pass, unless the study states it (`pass_after`)."""
_EXAMPLE_BYTES_PER_SECOND = 100 * 10**6


def plan_of(
    study: Study,
    target: Target,
    *,
    time_limit_ns: int | None = None,
    settings: Mapping[str, str] | None = None,
    keep: bool = False,
) -> Plan:
    """Plan the loads of an application, each measured for the time after which it can pass, or for the time limit."""
    study = study.model_copy(update={"pass_after": study.pass_after or _LEAST_NS})
    if time_limit_ns is not None and time_limit_ns < SHORTEST_NS and study.requirement:
        raise StudyError(
            f"a time limit must be at least {format_duration(SHORTEST_NS)}; got {format_duration(time_limit_ns)}",
            where="a shorter measurement decides no requirement",
            hint="omit `--time-limit`, or lengthen it",
        )
    length_ns = study.pass_after if time_limit_ns is None else time_limit_ns
    plan = expand(study, target, settings={"duration": f"{length_ns}ns", **(settings or {})}, keep=keep)
    notes = [*plan.notes, *_on_limits(study, plan, target, length_ns=length_ns)]
    return plan.model_copy(update={"notes": notes, "application": _application(plan)})


def loads_of(study: Study) -> int:
    """Return the number of cases of a study without procedures."""
    return sum(math.prod(len(levels) for levels in part.factors.values()) for part in study.parts)


def _on_limits(study: Study, plan: Plan, target: Target, *, length_ns: int) -> Iterator[str]:
    """State what the measurement cannot decide."""
    if not study.requirement:
        yield f"the load is measured and reported, and the result will be undecided: {NO_LIMITS}"
        return
    if length_ns < study.pass_after:
        yield f"no limit can pass: a pass requires {format_duration(study.pass_after)} of each load"
    kind = _memory_of(target.describe())
    if kind in MEMORY_FILE_SYSTEMS:
        yield f"no limit can pass: the target is in memory (`{kind}`)"
    elif kind and (names := [f"`{each.name}`" for each in study.requirement if _has_reads(plan, each)]):
        yield (
            f"limits that cannot pass: {', '.join(names)}; no block device is visible under the file system `{kind}`, "
            "so reads from memory of this machine are not recognized"
        )


def _memory_of(target: Mapping[str, Any]) -> str:
    """Return the kind of a file system whose I/O memory of this machine may serve unnoticed; empty for others."""
    system = target.get("file_system") or {}
    while system.get("below"):
        system = system["below"]
    kind = str(system.get("kind") or "")
    is_hidden = not target.get("devices") and (kind == "overlay" or kind.startswith("fuse"))
    return kind if is_hidden or kind in MEMORY_FILE_SYSTEMS else ""


def _has_reads(plan: Plan, requirement: Requirement) -> bool:
    cases = {case.case_id for case in plan.cases if case.part == requirement.part}
    return any(run.case_id in cases and reads(run.spec["workload"]) for run in plan.runs)


def _application(plan: Plan) -> str:
    return plan.study_name.removeprefix("qualify-")


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
    watched = study.model_copy(update={"requirement": requirements, "pass_after": study.pass_after or _LEAST_NS})
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
    on_limits = _on_limits(watched, plan, target, length_ns=windows * every_ns)
    notes = [*plan.notes, *on_limits, _note(plan, every_ns)]
    return plan.model_copy(update={"notes": notes, "application": _application(plan)})


def _note(plan: Plan, every_ns: int) -> str:
    """State what is done, and what a load that only time limits writes."""
    judged = ", each judged" if plan.study["requirement"] else ""
    text = f"continuous load in {format_count(len(plan.runs))} windows of {format_duration(every_ns)}{judged}"
    if plan.cost.write_bytes is not None:
        return text
    lengths_s = {case.case_id: case.cost.seconds for case in plan.cases}
    written = format_bytes(round(sum(lengths_s[run.case_id] for run in plan.runs) * _EXAMPLE_BYTES_PER_SECOND))
    return f"{text}; a closed loop writes as fast as the target permits: {written} at 100 MB/s"
