"""Major page faults against direct reads of the same study, and accesses to a mapped file against reads of its blocks.

The difference of a major fault to a read is not the kernel's overhead alone: the kernel may read several pages for a
fault, and a fault may wait for the write of another page. Mapped and buffered accesses find pages that the run has read
before in the page cache, direct reads never do. So a ratio to direct reads is that of the interfaces over a whole run,
not the cost of one page fault.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from iosonde.findings.finding import Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, difference, ratio, repeats_interval
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


def fault_overheads(question: Question) -> Iterator[Finding]:
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
    found = question.cells_by(LATENCY, [*names, "operation"])
    return found.filter(pl.col("operation") == FAULTS)


def _difference_text(added: Estimate) -> str:
    """Write the size of a difference, whatever its sign."""
    low, high = sorted(abs(end or 0.0) for end in (added.low, added.high))
    ends = wording.range_text(format_latency(low), format_latency(high))
    return f"{format_latency(abs(added.value))} (95 % CI {ends})"


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


def mapped_reads(question: Question) -> Iterator[Finding]:
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


KINDS = (
    QuestionKind("fault_overhead", fault_overheads, needs_device_part=True),
    QuestionKind("mapped_reads", mapped_reads, needs_device_part=True),
)
