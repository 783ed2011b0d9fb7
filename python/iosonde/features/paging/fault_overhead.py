"""Latency of a major fault compared with direct 4 KiB random reads of the same study.

The difference is not the kernel's overhead alone: the kernel may read several pages for a fault, and a fault may wait
for the write of another page.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from iosonde.findings.cells import cells
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, difference, repeats_interval
from iosonde.units import format_latency

FAULTS = "major_fault"
LATENCY = "completion_latency_ns_p50"
MORE_PAGES = 1.05
"""Pages per fault from which more than the page of the fault is read."""


class FaultOverhead(Finding, kind="fault overhead", topic="performance", place=1):
    """Difference of the median latencies of a major fault and of a read of the same device."""

    about: str
    """The load: `uniform accesses, overcommit 2`."""
    fault: Estimate
    """Median latency of a major fault, in ns."""
    device: Estimate
    """Median latency of a direct 4 KiB random read, in ns."""
    added: Estimate
    """The difference, in ns."""
    repeats: int
    included: tuple[str, ...] = ()
    """Parts of the latency of a fault besides the read of one page."""

    def _sentence(self) -> str:
        levels = f"{wording.estimate_text(LATENCY, self.fault)} against {wording.estimate_text(LATENCY, self.device)}"
        if not (self.added.above(0) or self.added.below(0)):
            both = "a major fault and a direct 4 KiB read"
            return f"no statistically clear difference between {both} ({self.about}): {levels}"
        than = f"{_difference_text(self.added)} {'less' if self.added.value < 0 else 'longer'} than"
        return f"a major fault takes {than} a direct 4 KiB read ({self.about}): {levels}"

    def _evidence(self) -> str:
        compared = (
            "median latency of accesses that caused a major fault less that of direct 4 KiB random reads at queue "
            f"depth 1 on the same target; {wording.counted(self.repeats, 'run')} each"
        )
        return "; ".join([compared, *self.included])


def find(question: Question) -> Iterator[Finding]:
    """Compare the median major fault of each cell with the median read of the analysis' `device_part`."""
    device, names = question.of_device(LATENCY), (question.analysis.over, *question.by)
    for row in _faults(question).to_dicts() if len(device) else ():
        faults, reads = row["values"], device["values"][0].to_list()
        added = difference(faults, reads)
        yield FaultOverhead(
            about=", ".join(wording.level_words(name, row[name]) for name in names if name in row),
            fault=repeats_interval(faults),
            device=repeats_interval(reads),
            added=added,
            repeats=min(len(faults), len(reads)),
            included=tuple(_included(question.runs.filter(pl.col("case_id") == row["case_id"]))),
            **question.claim([row["case_id"], *device["case_id"]], added),
        )


def _included(runs: pl.DataFrame) -> Iterator[str]:
    """Yield swap read-ahead, and writes of changed pages that have to be evicted first."""
    values = dict(runs.group_by("metric").agg(pl.col("value").median()).iter_rows())
    if (pages := values.get("swap_in_pages_per_fault") or 0) >= MORE_PAGES:
        yield f"the machine read {pages:.1f} pages from swap per fault"
    if values.get("swap_out_bandwidth"):
        yield "a fault may wait for the write of another page, as the machine wrote to swap"


def _faults(question: Question) -> pl.DataFrame:
    names = [name for name in dict.fromkeys((question.analysis.over, *question.by)) if name != "operation"]
    found = cells(
        question.runs,
        question.cases,
        part=question.part.name,
        metric=LATENCY,
        factors=[*names, "operation"],
        where=question.analysis.where,
    )
    return found.filter(pl.col("operation") == FAULTS)


def _difference_text(added: Estimate) -> str:
    """Write the size of a difference, whatever its sign."""
    low, high = sorted(abs(end or 0.0) for end in (added.low, added.high))
    ends = wording.range_text(format_latency(low), format_latency(high))
    return f"{format_latency(abs(added.value))} (95 % CI {ends})"


KINDS = (QuestionKind("fault_overhead", find),)
