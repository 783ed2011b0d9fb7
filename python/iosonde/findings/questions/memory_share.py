"""Share of memory that a device can replace: a latency with less memory against the same load with all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding
from iosonde.findings.kinds import in_parentheses
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio, verdict

MEMORY = "memory_limit"
"""Parameter whose value is the memory of a case."""

ENOUGH = ("same", "better")


class MemoryShare(Finding, kind="memory share", topic="limits", place=2):
    """The largest share of memory that can be replaced without a measurably higher latency."""

    tier: str
    """Title of the part: where the remaining data is."""
    metric: str
    about: str
    replaced: float
    """Share of memory that the device replaces; 0 if it replaces none of the measured shares."""
    ratio: Estimate | None
    """The metric with that share replaced over the metric with all memory."""
    next_replaced: float | None
    """The next larger share that was measured; None if the largest one was replaced."""
    next_ratio: Estimate | None
    next_decision: str
    """`worse` or `unclear`; empty if the largest share was replaced."""
    repeats: int
    equal_beyond: tuple[float, ...] = ()
    """Larger shares than `next_replaced` at which the metric is not higher."""

    def _sentence(self) -> str:
        metric = f"{wording.metric_words(self.metric)}{self.about}"
        smallest = "the smallest measured share of memory" if self.equal_beyond else ""
        if self.replaced and self.ratio:
            share, times = wording.percent_text(self.replaced), wording.ratio_estimate_text(self.ratio)
            found = f"with {share} of memory replaced, {metric} is {times} that with all memory"
        elif self.next_decision == "unclear":
            found = f"not clear whether {smallest or 'any memory'} can be replaced at equal {metric}"
        elif self.equal_beyond:
            found = f"{smallest} cannot be replaced at equal {metric}"
        else:
            found = f"no measured share of memory can be replaced at equal {metric}"
        return f"{self.tier}: {found}; {self._limit()}"

    def _limit(self) -> str:
        if self.next_replaced is None or self.next_ratio is None:
            return "no larger share was measured"
        larger = [wording.percent_text(each) for each in self.equal_beyond]
        beyond = f"; with {wording.listing(larger)} replaced it is not higher" if larger else ""
        found = "the difference is not clear," if self.next_decision == "unclear" else "it is"
        times = wording.ratio_estimate_text(self.next_ratio)
        return f"with {wording.percent_text(self.next_replaced)} replaced {found} {times}{beyond}"

    def _evidence(self) -> str:
        compared = f"{wording.metric_words(self.metric)} of each memory limit over that of the largest one"
        return f"{compared}, equal within 5 %; {wording.counted(self.repeats, 'run')} each"


def find(question: Question) -> Iterator[Finding]:
    """Compare each level of `over` with the one that has the most memory."""
    memory = dict(question.cases.select("case_id", MEMORY).iter_rows()) if MEMORY in question.cases.columns else {}
    frame = question.cells()
    known = frame.filter(pl.col("case_id").is_in([case for case, size in memory.items() if size]))
    for key, group in groups(known, question.by):
        rows = sorted(group.iter_rows(named=True), key=lambda row: -int(memory[row["case_id"]]))
        if len(rows) > 1:
            yield _answer(question, key, rows, memory)


def _answer(question: Question, key: dict[str, Any], rows: list[dict[str, Any]], memory: dict[str, Any]) -> MemoryShare:
    whole, *others = rows
    replaced, found, following = 0.0, None, None
    beyond: list[float] = []
    for row in others:
        share = 1 - int(memory[row["case_id"]]) / int(memory[whole["case_id"]])
        times = ratio(row["values"], whole["values"])
        decision = verdict(times, better="lower")
        if following:
            beyond += [share] if decision in ENOUGH else []
        elif decision not in ENOUGH:
            following = (share, times, decision)
        else:
            replaced, found = share, times
    return MemoryShare(
        tier=question.part.title or question.part.name,
        metric=question.analysis.metric,
        about=in_parentheses(key, without=["operation"]),
        replaced=replaced,
        ratio=found,
        next_replaced=following[0] if following else None,
        next_ratio=following[1] if following else None,
        next_decision=following[2] if following else "",
        repeats=min(len(row["values"]) for row in rows),
        equal_beyond=tuple(beyond),
        **question.claim([row["case_id"] for row in rows], following[1] if following else found),
    )


KINDS = (QuestionKind("memory_share", find, compares_levels=True),)
