"""The outcome for one application, as text, JSON and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from iosonde.findings.outcome import Outcome, Result
from iosonde.findings.requirements import decisive, overall, results_of
from iosonde.foreign_text import printable
from iosonde.metrics import wording
from iosonde.results import ResultSet
from iosonde.units import format_duration

NO_LIMITS = "its documentation states no limit; state your own in a study file (docs/qualify.md)"


@dataclass(frozen=True, kw_only=True)
class Qualification:
    """One application on one target."""

    application: str
    title: str
    target: str
    directory: Path | None
    """Result set; None where the application could not be measured."""
    outcome: Outcome
    results: Sequence[Result] = ()
    """The worst first."""
    reason: str = ""
    """Reason for which it is undecided, or fails, as a whole."""
    wrong_runs: int = 0
    """Runs that found wrong data: such storage is good enough for nothing."""

    @classmethod
    def without_result(cls, application: str, *, title: str, target: str, reason: str) -> Qualification:
        """One that could not be measured."""
        return cls(
            application=application, title=title, target=target, directory=None, outcome="undecided", reason=reason
        )

    @property
    def worst(self) -> Result | None:
        """The result that decides: the worst of the required limits, or of all where none is required."""
        return next(iter(decisive(self.results)), None)

    @property
    def margin(self) -> str:
        """The margin of the result that decides."""
        return "-" if not self.worst or self.worst.margin is None else f"{100 * self.worst.margin:+.0f} %"

    @property
    def line(self) -> str:
        """The outcome on one line."""
        return f"{self.application}: {self.outcome}: {self.detail}"

    @property
    def detail(self) -> str:
        """The requirement that decides, with its value and its reason, and what a pass does not exclude."""
        if self.wrong_runs:
            return self.reason
        reason = self.worst.reason if self.worst else ""
        return "; ".join(filter(None, (self.decided_by, reason, self.not_excluded)))

    @property
    def not_excluded(self) -> str:
        """Slow phases that a pass does not exclude; empty of others."""
        if self.outcome != "pass":
            return ""
        length = format_duration(min(each.measured_ns for each in decisive(self.results)))
        return f"a slow phase that comes less than once in {length} was not measured"

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
    """Return 0: pass, 1: fail, 2: undecided, 4: wrong data; of several, those without limits do not count."""
    if any(each.wrong_runs for each in qualifications):
        return 4
    outcomes = {each.outcome for each in qualifications if each.reason != NO_LIMITS or len(qualifications) == 1}
    return 1 if "fail" in outcomes else 0 if outcomes == {"pass"} else 2


def to_json(qualifications: Sequence[Qualification]) -> str:
    """Return all values, in the units of the metrics; margins as shares."""
    return json.dumps([_document(each) for each in qualifications], indent=2)


def _document(qualification: Qualification) -> dict[str, Any]:
    results = [{**asdict(each), "requirement": each.requirement.model_dump()} for each in qualification.results]
    directory = str(qualification.directory) if qualification.directory else None
    return {**asdict(qualification), "directory": directory, "results": results}


def junit(qualifications: Sequence[Qualification]) -> str:
    """Return JUnit XML: a suite per application, a test case per requirement; what is undecided is skipped."""
    root = ElementTree.Element("testsuites", name="iosonde qualify")
    for qualification in qualifications:
        outcomes = [each.outcome for each in qualification.results] or ["undecided"]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=qualification.application,
            tests=str(len(outcomes)),
            failures=str(outcomes.count("fail")),
            skipped=str(outcomes.count("undecided")),
        )
        for result in qualification.results:
            _test_case(suite, qualification, result)
        if not qualification.results:
            case = ElementTree.SubElement(suite, "testcase", classname=qualification.application, name="limits")
            ElementTree.SubElement(case, "skipped", message=qualification.reason)
    ElementTree.indent(root)
    # Control characters are not allowed in XML, not even escaped.
    return printable(ElementTree.tostring(root, encoding="unicode", xml_declaration=True)) + "\n"


def _test_case(suite: ElementTree.Element, qualification: Qualification, result: Result) -> None:
    place = f"{qualification.application}.{result.case_id}"
    name = f"{result.requirement.name} ({result.requirement.level})"
    case = ElementTree.SubElement(suite, "testcase", classname=place, name=name)
    message = f"{result.text(result.value)}, limit {result.text(result.limit)}"
    if result.outcome == "fail":
        ElementTree.SubElement(case, "failure", message=f"{message}: {result.requirement.means}")
    elif result.outcome == "undecided":
        ElementTree.SubElement(case, "skipped", message=f"{message}: {result.reason}")
