"""Answers in words: what the study found, each sentence with the evidence it stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from iosonde.findings.answer import Answer, answered, trust_of
from iosonde.findings.disturbance import Disturbance
from iosonde.findings.finding import STRENGTHS, Finding, Untyped
from iosonde.findings.idle_recovery import IdleRecovery
from iosonde.findings.lasting_drop import LastingDrop
from iosonde.findings.question import Question
from iosonde.findings.sentences import (
    asymmetry,
    disturbance,
    doubling,
    flatness,
    headline,
    idle_recovery,
    lasting_drop,
    media,
    overload,
    peak,
    promise,
    reference,
    saturation,
    search,
    steady,
    stimulus,
    store,
    tail,
    trust,
)
from iosonde.findings.sentences.search import Ended
from iosonde.findings.stimulus import changes
from iosonde.metrics import wording
from iosonde.metrics.catalogue import METRICS
from iosonde.metrics.sustained import Course
from iosonde.plan import PREPARATION
from iosonde.study.model import AnalysisKind, Study

__all__ = ["Answer", "Finding", "answer", "findings"]

_TELLERS: dict[AnalysisKind, Callable[[Question], Iterator[Finding]]] = {
    "saturation": saturation.tell,
    "gain_per_doubling": doubling.tell,
    "asymmetry": asymmetry.tell,
    "tail_growth": tail.tell,
    "flatness": flatness.tell,
    "peak": peak.tell,
    "steady_state": steady.tell,
    "promise": promise.tell,
}

_ORDER: tuple[str, ...] = (
    "headline",
    "search",
    "recovery",
    "steady",
    "disturbance",
    "promise",
    "peak",
    "saturation",
    "doubling",
    "asymmetry",
    "flatness",
    "tail",
    "reference",
    "unclear",
    "overload",
    "drift",
    "trust",
)
"""What is delivered first, then how it depends on what, then what cannot be said, last whether to believe it."""


def answer(
    study: Study,
    cases: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    runs: pl.DataFrame | None = None,
    simulated: bool = False,
    **rest: Any,
) -> Answer:
    """Answer the study's question from one result set; further arguments are those of `findings`."""
    trust = replace(trust_of(metrics, runs), simulated=simulated)
    return answered(study.question, findings(study, cases, metrics, runs=runs, **rest), trust)


def findings(
    study: Study,
    cases: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    runs: pl.DataFrame | None = None,
    warnings: pl.DataFrame | None = None,
    procedures: Sequence[Ended] = (),
    courses: Sequence[Course] = (),
    disturbed: Sequence[Disturbance] = (),
    recovered: Sequence[IdleRecovery] = (),
    drops: Sequence[LastingDrop] = (),
) -> list[Finding]:
    """Answer the study's questions, the most important first.

    `cases`, `runs` and `warnings` are the views of one result set; `metrics` comes from `metrics.run_metrics` of the
    same, `procedures` from `procedure.observations.conclusions`, `courses` from `sustained.courses`, `disturbed` from
    `disturbance.disturbances`, `recovered` from `idle_recovery.idle_recoveries`, `drops` from
    `lasting_drop.lasting_drops`. What is not given is not spoken of.
    """
    cases, metrics = (each.filter(pl.col("part") != PREPARATION) for each in (cases, metrics))
    found = [
        *headline.tell(cases, metrics),
        *store.tell(cases, metrics, runs),
        *media.tell(study, cases, metrics, runs),
        *(finding for question in _questions(study, cases, metrics, runs) for finding in _answer(question)),
        *search.tell(procedures),
        *disturbance.tell(disturbed),
        *overload.tell(cases, metrics),
        *(each for part in study.parts if part.rounds for each in steady.tell_rounds(part, cases, metrics)),
        *steady.tell_courses(courses, cases, study.parts),
        *stimulus.tell(changes(study, courses, cases)),
        *idle_recovery.tell(recovered),
        *lasting_drop.tell(drops, measured=metrics["run_id"].n_unique()),
        *reference.tell(study, cases, metrics),
        *trust.tell(metrics, outcomes=runs, warnings=warnings, probes=search.probes(procedures)),
    ]
    return sorted(
        dict.fromkeys(found), key=lambda finding: (_ORDER.index(finding.kind), STRENGTHS.index(finding.strength))
    )


def _questions(
    study: Study, cases: pl.DataFrame, metrics: pl.DataFrame, outcomes: pl.DataFrame | None
) -> Iterator[Question]:
    return (
        Question(study=study, analysis=analysis, cases=cases, runs=metrics, outcomes=outcomes)
        for analysis in study.analysis
    )


def _answer(question: Question) -> Iterator[Finding]:
    """Answer a question, or say that nothing was measured that it could be asked of."""
    if question.cells().is_empty():
        return _unsaid(question)
    return _TELLERS[question.analysis.kind](question)


def _unsaid(question: Question) -> Iterator[Finding]:
    """Name the percentile that too few samples stand behind. A part without any run is told as a hole."""
    metric = question.analysis.metric
    measured = question.runs.filter(pl.col("part") == question.part.name, ~pl.col("control"))
    if METRICS[metric].kind == "latency" and len(measured):
        words = wording.metric_words(metric)
        yield Untyped(
            kind="unclear",
            title=wording.sentence(f"{words} cannot be said for any case of part `{question.part.name}`"),
            note="fewer than ten samples lie beyond it in every run; longer runs would settle it",
            strength="weak",
            part=question.part.name,
        )
