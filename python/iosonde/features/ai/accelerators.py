"""Number of accelerators that storage feeds: the answer of a search over their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Fact, Finding
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, repeats_interval
from iosonde.planning.procedure.condition import MetricBound, parse

STRAGGLING = 2.0
"""Data wait of the slowest accelerator over that of the median one, from which on it is stated."""
WAITING = 0.1
"""Share of the time of accelerators that waiting for data must have for that."""


class AcceleratorsFed(Finding, kind="accelerators fed", topic="limits", place=1):
    """The largest number of accelerators that are used as much as required."""

    states_verdicts = True
    load: str
    fed: int
    """0 if a single accelerator, or the fewest that were tried, waits too long."""
    threshold: float
    levels: tuple[tuple[int, Estimate], ...]
    """The largest number that is fed and the smallest above it that is not, where there are such, with utilization."""
    limit: str
    """Verdict on the runs with more accelerators than are fed; empty if none are."""
    demand: float
    """Bytes per second that the last of `levels` needs."""
    bandwidth: float
    """Bytes per second that it got."""
    straggling: float | None
    """Data wait of the slowest accelerator over that of the median one there, if it is long."""
    hosts: str = ""
    """` on each of 2 hosts`, if there are several."""

    @property
    def facts(self) -> set[Fact]:
        """The boundary of the search."""
        return {*super().facts, *(("boundary", case_id) for case_id in self.case_ids)}

    def _sentence(self) -> str:
        number = (
            f"at least {self.fed}"
            if self.fed and not self.limit
            else str(self.fed or ("not even 1" if self.hosts else "no"))
        )
        noun = "accelerator" if self.fed == 1 or not self.fed else "accelerators"
        at = [f"{wording.estimate_text('accelerator_utilization', value)} at {count}" for count, value in self.levels]
        clauses = [f"{self.load}: storage feeds {number} {noun}{self.hosts} (utilization {', '.join(at)})"]
        last = self.levels[-1][0]
        if self.limit:
            need, got = (wording.value_text("bandwidth", each) for each in (self.demand, self.bandwidth))
            needed = f"{wording.counted(last, 'accelerator')}{self.hosts} {'needs' if last == 1 else 'need'} {need}"
            clauses += [f"{needed}, and read {got}", self.limit]
        if self.straggling:
            times = wording.times_text(self.straggling)
            clauses.append(f"the slowest accelerator waited {times} as long for data as the median")
        return "; ".join(clauses)

    def _evidence(self) -> str:
        return f"required utilization {self.threshold:g}; decoding of samples is not simulated"


def accelerators_fed(question: Question) -> Iterator[Finding]:
    """Return the largest number of `over` at which the condition of the part's search holds, for each other level."""
    search = question.part.search
    conditions = [search.holds] if search and isinstance(search.holds, str) else search.holds if search else []
    bounds = [each for each in (parse(text, streams=()) for text in conditions) if isinstance(each, MetricBound)]
    threshold = next((each.bound for each in bounds if each.metric == question.analysis.metric), 0.9)
    for key, cells in groups(question.cells(), question.by):
        yield _fed(question, key, cells.sort(question.analysis.over), threshold)


def _fed(question: Question, key: Mapping[str, Any], cells: pl.DataFrame, threshold: float) -> Finding:
    over = question.analysis.over
    rows = [(int(row[over]), repeats_interval(row["values"]), row["case_id"]) for row in cells.iter_rows(named=True)]
    held = [row for row in rows if row[1].value >= threshold][-1:]
    failed = [row for row in rows if row[1].value < threshold and row[0] > (held[0][0] if held else 0)][:1]
    levels = [*held, *failed]
    last = levels[-1][2]
    repeats = min(len(values) for values in cells["values"])
    waiting = question.mean("accelerator_data_wait_share", [last]) or 0.0
    straggling = question.mean("accelerator_straggling", [last]) or 0.0
    return AcceleratorsFed(
        load=question.load(key, last, without=[over]),
        fed=held[0][0] if held else 0,
        threshold=threshold,
        levels=tuple((count, value) for count, value, _ in levels),
        limit=question.support.of_most([failed[0][2]]) or "limit unknown" if failed else "",
        demand=question.mean("accelerator_demand", [last]) or 0.0,
        bandwidth=question.mean("bandwidth", [last]) or 0.0,
        hosts=question.on_each_host(last),
        straggling=straggling if straggling >= STRAGGLING and waiting >= WAITING else None,
        **question.claim([case_id for *_, case_id in levels], at_most="strong" if repeats > 1 else "moderate"),
    )
