"""`--json` output for result sets: the study, findings, and the metrics of each case with their intervals."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iosonde.results import ResultSet


def of_result_set(result_set: ResultSet) -> dict[str, Any]:
    """One result set."""
    return of_result_sets([result_set])[0]


def of_result_sets(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> list[dict[str, Any]]:
    """Several result sets, grouped by study."""
    from iosonde.results.shapes import interpreting

    with interpreting(each.directory for each in result_sets):
        return _documents(result_sets, mix_simulated=mix_simulated)


def _documents(result_sets: Sequence[ResultSet], *, mix_simulated: bool) -> list[dict[str, Any]]:
    from iosonde.report.content import collect

    documents = []
    for chapter in collect(result_sets, mix_simulated=mix_simulated).chapters:
        answers = dict(chapter.answers)
        for source in chapter.material.sources:
            documents.append(
                {
                    "result_set": str(source.directory),
                    "study": source.plan.study_name,
                    "title": chapter.study.title,
                    "question": chapter.study.question,
                    "profile": source.plan.profile,
                    "target": source.plan.target,
                    "simulated": source.simulated,
                    "missing_runs": len(source.missing),
                    "requirements": _requirements(source.results),
                    "answer": [finding.sentence for finding in answers[source.label].summary],
                    "trust": answers[source.label].trust.line,
                    "findings": [_finding(each) for each in answers[source.label].findings],
                    "metrics": _metrics(chapter.material.summary, source.label),
                    "warnings": source.results.warnings.to_dicts(),
                    "missing_parts": [dataclasses.asdict(part) for part in chapter.omitted],
                }
            )
    return documents


def _requirements(result_set: ResultSet) -> list[dict[str, Any]]:
    """The result of each requirement of the study, the worst first."""
    from iosonde.findings.requirements import results_of

    return [
        {**dataclasses.asdict(each), "requirement": each.requirement.model_dump()} for each in results_of(result_set)
    ]


def _finding(finding: Any) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "topic": finding.topic,
        "sentence": finding.sentence,
        "evidence": finding.evidence,
        "methods": finding.methods,
        **dataclasses.asdict(finding),
    }


def _metrics(summary: Any, label: str) -> list[dict[str, Any]]:
    rows = summary.filter(result_set=label).drop("result_set").to_dicts()
    return [{**row, "unit": _units()[row["metric"]]} for row in rows]


def _units() -> dict[str, str]:
    from iosonde.metrics.registry import known_names, metric

    return {name: metric(name).unit for name in known_names()}
