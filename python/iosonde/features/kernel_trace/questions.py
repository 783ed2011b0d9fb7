"""Breakdown of an I/O's time in the kernel, from traced runs, and the cost of tracing itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from iosonde.features.kernel_trace.facts import STAGES, TOTAL, metric_of
from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio, repeats_interval

LATENCY = "completion_latency_ns_mean"
TRACED = "kernel_trace"
"""The factor of the study that has traced and untraced cases."""


class PathStages(Finding, kind="stages of an I/O", topic="path"):
    """The mean time of an I/O in each stage; they add up to the total."""

    load: str
    backend: str
    total: Estimate
    """In nanoseconds."""
    stages: tuple[tuple[str, Estimate], ...]
    """Stage and its time, the longest first; those that did not occur are left out."""
    software: Estimate
    """Share of the total that is not the device."""
    unseen: tuple[tuple[str, str], ...]
    """Stages that were not visible, with the reason: their time is part of the stage before."""
    related: int
    """Traced I/Os of the repeat with the fewest."""
    repeats: int

    def _sentence(self) -> str:
        total = wording.estimate_text(LATENCY, self.total)
        listed = [
            f"{wording.estimate_text(LATENCY, time)} are {_named(stage)}"
            if place == 0
            else f"{wording.estimate_text(LATENCY, time)} {_named(stage)}"
            for place, (stage, time) in enumerate(self.stages)
        ]
        return f"{self.load}, {self.backend}: of {total}, {wording.listing(listed)}"

    def _evidence(self) -> str:
        share = _share_text(self.software)
        unseen = [f"{_named(stage)} is part of the stage before: {reason}" for stage, reason in self.unseen]
        counted = f"{self.related} traced I/Os or more in each of {wording.counted(self.repeats, 'run')}"
        return "; ".join([f"means; {share} is software", counted, *unseen])


class UntracedPath(Finding, kind="stages not traced", topic="quality"):
    """A backend whose stages are not known."""

    evidence_text = "latencies of the backends still show what one costs more than another"
    load: str
    backend: str
    reason: str

    def _sentence(self) -> str:
        return f"{self.load}, {self.backend}: the stages of an I/O are unknown: {self.reason}"


class TracingCost(Finding, kind="cost of tracing", topic="quality"):
    """Mean latency with tracing over that without, as the engine measures it."""

    load: str
    backend: str
    ratio: Estimate
    repeats: int

    def _sentence(self) -> str:
        times = wording.ratio_estimate_text(self.ratio)
        return f"{self.load}, {self.backend}: traced runs have {times} the mean latency of untraced runs"

    def _evidence(self) -> str:
        return f"{wording.counted(self.repeats, 'run')} each, in shuffled order; stages include the cost of tracing"


def find(question: Question) -> Iterator[Finding]:
    """Divide the time of each traced cell into stages; then compare traced with untraced cells."""
    factors = [name for name in question.by if name != TRACED]
    over = question.analysis.over
    traced = {**question.analysis.where, TRACED: True}
    total = question.cells_by(metric_of(TOTAL), [over, *factors], traced)
    for row in total.iter_rows(named=True):
        yield _stages(question, row, factors)
    yield from _untraced(question, known=set(total["case_id"]))
    yield from _costs(question, [over, *factors])


def _stages(question: Question, row: Mapping[str, Any], factors: Sequence[str]) -> PathStages:
    case_id = row["case_id"]
    values = {stage: question.repeats(metric_of(stage), case_id) for stage in STAGES}
    occurred = {stage: repeats_interval(times) for stage, times in values.items() if times.size and times.max() > 0}
    totals, device = np.asarray(row["values"], dtype=float), values["device"]
    share = 1 - device / totals if device.size == totals.size else np.asarray([1.0])
    related = question.repeats("path_related", case_id)
    total = repeats_interval(totals)
    return PathStages(
        load=_load(question, row, factors),
        backend=str(row[question.analysis.over]),
        total=total,
        stages=tuple(sorted(occurred.items(), key=lambda item: -item[1].value)),
        software=repeats_interval(share),
        unseen=tuple(
            (stage, reason)
            for part in _text(question, case_id, "path_unseen").split("; ")
            for stage, _, reason in [part.partition(": ")]
            if reason
        ),
        related=int(related.min()) if related.size else 0,
        repeats=totals.size,
        **question.claim([case_id], total),
    )


def _text(question: Question, case_id: str, column: str) -> str:
    """The first text in a column of the runs of a case; empty if there is none."""
    outcomes = question.outcomes
    if outcomes is None or column not in outcomes.columns:
        return ""
    return next((str(each) for each in outcomes.filter(pl.col("case_id") == case_id)[column] if each), "")


def _untraced(question: Question, *, known: set[str]) -> Iterator[UntracedPath]:
    """One finding for each case that was to be traced and has no stages, with the reason of its runs."""
    of_part = question.cases.filter(pl.col("part") == question.part.name, pl.col(TRACED))
    for row in of_part.iter_rows(named=True):
        case_id = row["case_id"]
        reason = "" if case_id in known else _text(question, case_id, "path_reason")
        if reason:
            yield UntracedPath(
                load=question.load({}, case_id),
                backend=str(row.get(question.analysis.over)),
                reason=reason,
                strength="strong",
                case_ids=(case_id,),
                part=question.part.name,
            )


def _costs(question: Question, factors: Sequence[str]) -> Iterator[TracingCost]:
    both = question.cells_by(LATENCY, [TRACED, *factors])
    for key, group in groups(both, factors):
        values = dict(zip(group[TRACED], group["values"], strict=True))
        if values.keys() != {True, False}:
            continue
        found = ratio(values[True].to_numpy(), values[False].to_numpy())
        case_ids = tuple(group["case_id"])
        yield TracingCost(
            load=_load(question, {**key, "case_id": case_ids[0]}, [each for each in factors if each in key]),
            backend=str(key[question.analysis.over]),
            ratio=found,
            repeats=min(len(each) for each in values.values()),
            **question.claim(case_ids, found),
        )


def _load(question: Question, row: Mapping[str, Any], factors: Sequence[str]) -> str:
    return question.load({name: row[name] for name in factors if name in row}, row["case_id"], without=[TRACED])


def _named(stage: str) -> str:
    return f"the {STAGES[stage][0].lower()}"


def _share_text(share: Estimate) -> str:
    if share.low is None or share.high is None:
        return wording.percent_text(share.value)
    return f"{wording.percent_text(share.value)} (95 % CI {wording.percent_range(share.low, share.high)})"


KINDS = (QuestionKind("io_path", find, explains_missing=True),)
