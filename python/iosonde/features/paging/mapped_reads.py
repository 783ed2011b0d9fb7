"""Accesses to a mapped file compared with reads of the same blocks.

Mapped and buffered accesses find pages that the run has read before in the page cache, direct reads never do. So a
ratio to direct reads is that of the interfaces over a whole run, not the cost of one page fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from iosonde.findings.finding import Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio


class MappedReads(Finding, kind="mapped reads", topic="performance"):
    """Accesses per second through a mapping over reads per second of one I/O mode."""

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
    mapped, over = question.cells().to_dicts(), question.analysis.over
    for reads in question.of_device("iops", "io_mode").to_dicts() if mapped else ():
        found = [(f"{over} {row[over]}", ratio(row["values"], reads["values"])) for row in mapped]
        rows = [*mapped, reads]
        yield MappedReads(
            io_mode=str(reads["io_mode"]),
            ratios=tuple(sorted(found, key=lambda each: -each[1].value)),
            repeats=min(len(row["values"]) for row in rows),
            **question.claim([row["case_id"] for row in rows], *(each for _, each in found)),
        )


KINDS = (QuestionKind("mapped_reads", find),)
