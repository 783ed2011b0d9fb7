"""Accesses to a mapped file compared with reads of the same blocks.

Mapped and buffered accesses find pages that the run has read before in the page cache, direct reads never do. So a
ratio to direct reads is that of the interfaces over a whole run, not the cost of one page fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from iosonde.findings.cells import cells
from iosonde.findings.finding import Finding, Topic, weakest
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.support import of_interval
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio


@dataclass(frozen=True, kw_only=True)
class MappedReads(Finding):
    """Accesses per second through a mapping over reads per second of one I/O mode."""

    kind: ClassVar[str] = "mapped reads"
    topic: ClassVar[Topic] = "performance"
    io_mode: str
    """Of the reads: `direct` or `buffered`."""
    ratios: tuple[tuple[str, Estimate], ...]
    """Level, as `advice random`, and accesses over reads per second; the largest ratio first."""
    repeats: int

    def _sentence(self) -> str:
        (first, level), *others = [(wording.ratio_estimate_text(each), level) for level, each in self.ratios]
        reads = f"{first} the rate of {self.io_mode} reads of the same blocks with {level}"
        rest = [f"{ratio} with {level}" for ratio, level in others]
        return f"accesses to a mapped file have {wording.listing([reads, *rest])}"

    def _evidence(self) -> str:
        cached = {
            "direct": "accesses find pages in the page cache that the run has read before, direct reads do not",
            "buffered": "both find pages in the page cache that the run has read before",
        }
        compared = f"accesses per second over 4 KiB reads per second; {wording.counted(self.repeats, 'run')} each"
        return "; ".join([compared, *([cached[self.io_mode]] if self.io_mode in cached else [])])


def find(question: Question) -> Iterator[Finding]:
    """Compare the rate at each level with the rate of each I/O mode of the analysis' `device_part`."""
    over = question.analysis.over
    mapped = [
        (row["case_id"], f"{over} {row[over]}", np.asarray(row["values"], dtype=float))
        for row in question.cells().iter_rows(named=True)
    ]
    reads = cells(question.runs, question.cases, part=question.analysis.device_part, metric="iops", factors=["io_mode"])
    for row in reads.iter_rows(named=True):
        if not mapped:
            return
        rates = np.asarray(row["values"], dtype=float)
        ratios = sorted(((level, ratio(values, rates)) for _, level, values in mapped), key=lambda each: -each[1].value)
        case_ids = (*(case_id for case_id, _, _ in mapped), row["case_id"])
        yield MappedReads(
            io_mode=str(row["io_mode"]),
            ratios=tuple(ratios),
            repeats=min(len(rates), *(len(values) for _, _, values in mapped)),
            strength=weakest(*(of_interval(each) for _, each in ratios), question.support.of_cases(case_ids)),
            case_ids=case_ids,
            part=question.part.name,
        )


KINDS = (QuestionKind("mapped_reads", find),)
