"""Qualification of storage for an application: its load runs, and its requirements are decided.

An application is a study in `data/applications`, with requirements from its documentation or none. Plan, session and
report are those of any study. No run ends early: a good value of the first seconds does not exclude a slow phase, and a
bad one may be a disturbance. A watch applies the load for hours: every run is a window of it, and must meet the
requirements (`findings.requirements`).
"""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from iosonde.base.foreign_text import printable
from iosonde.data import applications
from iosonde.errors import StudyError
from iosonde.findings.requirements import Outcome, Result, decisive, overall, reads, results_of
from iosonde.metrics import wording
from iosonde.metrics.limit_test import SHORTEST_NS
from iosonde.metrics.verdict.evidence import MEMORY_FILE_SYSTEMS
from iosonde.metrics.wording import counted
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.results import ResultSet
from iosonde.storage import Target
from iosonde.study.model import MOST_REPEATS, Requirement, Study
from iosonde.study.workload import named
from iosonde.units import format_bytes, format_count, format_duration, parse_duration


def load_application(name: str) -> Study:
    """Read the study of an application, or one with requirements in a file that is named by its path."""
    if "/" in name or name.endswith(".toml"):
        return load(Path(name))
    known = applications()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise StudyError(
            f"there is no application `{name}`",
            hint=f"{f'did you mean `{near[0]}`? ' if near else ''}`iosonde qualify` lists the applications",
        )
    return load(known[name])


def describe(study: Study) -> str:
    """State how many limits an application has."""
    required = sum(each.level == "required" for each in study.requirement)
    recommended = len(study.requirement) - required
    counts = [f"{number} {level}" for number, level in ((required, "required"), (recommended, "recommended")) if number]
    own = ", set by you" if study.asks else ""
    return f"{', '.join(counts)}{own}" if counts else "none: characterizes"


NO_LIMITS = "its documentation states no limit; state your own in a study file (docs/qualify.md)"


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
    lengths = {"duration": f"{length_ns}ns"} if _has_duration(study) else {}
    plan = expand(study, target, settings={**lengths, **(settings or {})}, keep=keep)
    notes = [*plan.notes, *_on_limits(study, plan, target, length_ns=length_ns)]
    return plan.model_copy(update={"notes": notes, "application": plan.study_name.removeprefix("qualify-")})


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
    if not _has_duration(study):
        raise StudyError(
            "`--duration` requires a load of any length; this one ends by itself", hint="omit `--duration`"
        )
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
    return plan.model_copy(update={"notes": notes, "application": plan.study_name.removeprefix("qualify-")})


def _has_duration(study: Study) -> bool:
    return "duration" in named(study.workload).parameters.model_fields


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


def _note(plan: Plan, every_ns: int) -> str:
    """State what is done, and what a load that only time limits writes."""
    judged = ", each judged" if plan.study["requirement"] else ""
    text = f"continuous load in {format_count(len(plan.runs))} windows of {format_duration(every_ns)}{judged}"
    if plan.cost.write_bytes is not None:
        return text
    lengths_s = {case.case_id: case.cost.seconds for case in plan.cases}
    written = format_bytes(round(sum(lengths_s[run.case_id] for run in plan.runs) * _EXAMPLE_BYTES_PER_SECOND))
    return f"{text}; a closed loop writes as fast as the target permits: {written} at 100 MB/s"


@dataclass(frozen=True, kw_only=True)
class Qualification:
    """One application on one target."""

    application: str
    title: str
    target: str
    directory: Path | None = None
    """Result set; None where the application could not be measured."""
    outcome: Outcome = "undecided"
    results: Sequence[Result] = ()
    """The worst first."""
    reason: str = ""
    """Reason for which it is undecided, or fails, as a whole."""
    wrong_runs: int = 0
    """Runs that found wrong data: such storage is good enough for nothing."""

    @property
    def worst(self) -> Result | None:
        """The result that decides: the worst of the required limits, or of all where none is required."""
        return next(iter(decisive(self.results)), None)

    @property
    def margin(self) -> str:
        """The margin of the result that decides."""
        return "-" if not self.worst or self.worst.margin is None else wording.margin_text(self.worst.margin)

    @property
    def line(self) -> str:
        """The outcome on one line."""
        return f"{self.application}: {self.outcome}: {self.detail}"

    @property
    def detail(self) -> str:
        """The requirement that decides, with its value and its reason, and what a pass does not exclude."""
        if self.wrong_runs:
            return self.reason
        parts = [self.decided_by, self.worst.reason if self.worst else ""]
        if self.outcome == "pass":
            length = format_duration(min(each.measured_ns for each in decisive(self.results)))
            parts.append(f"a slow phase that comes less than once in {length} was not measured")
        return "; ".join(filter(None, parts))

    @property
    def decided_by(self) -> str:
        """The requirement that decides, with its value."""
        worst = self.worst
        return f"{worst.requirement.name} {worst.text(worst.value)} ({worst.limit_text})" if worst else self.reason


def qualification_of(results: ResultSet) -> Qualification:
    """Return the outcome of a result set."""
    found, records = results_of(results), results.records()
    wrong = sum(record.has_wrong_data for record in records)
    reason = f"wrong data in {wrong} of {wording.counted(len(records), 'run')}" if wrong else "" if found else NO_LIMITS
    return Qualification(
        application=results.plan.application or results.plan.study_name,
        title=results.study.title,
        target=results.plan.target,
        directory=results.directory,
        outcome="fail" if wrong else overall(found),
        results=found,
        reason=reason,
        wrong_runs=wrong,
    )


def exit_code(qualifications: Sequence[Qualification]) -> int:
    """Return 0: pass, 1: fail, 3: undecided, 4: wrong data; of several, those without limits do not count."""
    if any(each.wrong_runs for each in qualifications):
        return 4
    outcomes = {each.outcome for each in qualifications if each.reason != NO_LIMITS or len(qualifications) == 1}
    return 1 if "fail" in outcomes else 0 if outcomes == {"pass"} else 3


def to_json(qualifications: Sequence[Qualification]) -> str:
    """Return all values, in the units of the metrics; margins as shares."""
    documents = [
        {
            **asdict(each),
            "directory": str(each.directory) if each.directory else None,
            "results": [{**asdict(result), "requirement": result.requirement.model_dump()} for result in each.results],
        }
        for each in qualifications
    ]
    return json.dumps(documents, indent=2)


def junit(qualifications: Sequence[Qualification]) -> str:
    """Return JUnit XML: a suite per application, a test case per requirement; what is undecided is skipped."""
    root = ElementTree.Element("testsuites", name="iosonde qualify")
    for of in qualifications:
        suite = ElementTree.SubElement(root, "testsuite", name=of.application)
        outcomes = []
        for each in of.results:
            name = f"{each.requirement.name} ({each.requirement.level})"
            value = f"{each.text(each.value)}, limit {each.text(each.limit)}"
            meaning = each.requirement.means if each.outcome == "fail" else each.reason
            outcomes.append((f"{of.application}.{each.case_id}", name, each.outcome, f"{value}: {meaning}"))
        outcomes = outcomes or [(of.application, "limits", "undecided", of.reason)]
        kinds = Counter(outcome for _, _, outcome, _ in outcomes)
        counts = {"tests": len(outcomes), "failures": kinds["fail"], "skipped": kinds["undecided"]}
        suite.attrib |= {name: str(count) for name, count in counts.items()}
        for place, name, outcome, message in outcomes:
            case = ElementTree.SubElement(suite, "testcase", classname=place, name=name)
            if outcome != "pass":
                ElementTree.SubElement(case, "failure" if outcome == "fail" else "skipped", message=message)
    ElementTree.indent(root)
    # Control characters are not allowed in XML, not even escaped.
    return printable(ElementTree.tostring(root, encoding="unicode", xml_declaration=True)) + "\n"


_LEAST_NS = 60 * 10**9
"""Least measurement before a pass, unless the study states it (`pass_after`)."""
_EXAMPLE_BYTES_PER_SECOND = 100 * 10**6
