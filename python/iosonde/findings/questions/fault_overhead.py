"""Latency of a major fault compared with direct 4 KiB random reads of the same study.

The difference is not the kernel's overhead alone: a fault may read several pages (`page_cluster`), and may wait for the
write of another page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from iosonde.findings.cells import cells
from iosonde.findings.finding import Finding, Topic, cases_of, weakest
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.support import of_interval
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, difference, repeats_interval
from iosonde.units import format_latency

FAULTS = "major_fault"
LATENCY = "completion_latency_ns_p50"


@dataclass(frozen=True, kw_only=True)
class FaultOverhead(Finding):
    """Difference of the median latencies of a major fault and of a read of the same device."""

    kind: ClassVar[str] = "fault overhead"
    topic: ClassVar[Topic] = "performance"
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
    """What the latency of a fault includes besides the read of one page."""

    @property
    def _is_clear(self) -> bool:
        return self.added.low is not None and self.added.high is not None and self.added.low * self.added.high > 0

    def _sentence(self) -> str:
        levels = f"{wording.estimate_text(LATENCY, self.fault)} against {wording.estimate_text(LATENCY, self.device)}"
        if not self._is_clear:
            return f"a major fault and a direct 4 KiB read do not differ clearly ({self.about}): {levels}"
        if self.added.value < 0:
            less = _difference_text(self.added, sign=-1)
            return f"a major fault takes {less} less than a direct 4 KiB read ({self.about}): {levels}"
        more = _difference_text(self.added)
        return f"a major fault takes {more} longer than a direct 4 KiB read ({self.about}): {levels}"

    def _evidence(self) -> str:
        compared = (
            "median latency of accesses that caused a major fault less that of direct 4 KiB random reads at queue "
            f"depth 1 on the same target; {wording.counted(self.repeats, 'run')} each"
        )
        return "; ".join([compared, *self.included])


def find(question: Question) -> Iterator[Finding]:
    """Compare the median major fault of each cell with the median read of the analysis' `device_part`."""
    device = cells(
        question.runs,
        question.cases,
        part=question.analysis.device_part,
        metric=LATENCY,
        factors=[],
    )
    faults = _faults(question)
    if device.is_empty() or faults.is_empty():
        return
    reads = device["values"][0].to_numpy()
    for row in faults.iter_rows(named=True):
        values = np.asarray(row["values"], dtype=float)
        levels = [
            wording.level_words(name, row[name]) for name in (question.analysis.over, *question.by) if name in row
        ]
        added = difference(values, reads)
        yield FaultOverhead(
            about=", ".join(levels),
            fault=repeats_interval(values),
            device=repeats_interval(reads),
            added=added,
            repeats=min(len(values), len(reads)),
            included=tuple(_included(question.case(row["case_id"]))),
            strength=weakest(of_interval(added), question.support.of_cases((row["case_id"],))),
            case_ids=(row["case_id"], *cases_of(device)),
            part=question.part.name,
        )


def _included(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Swap read-ahead, and writes of changed pages that have to be evicted first."""
    if not parameters.get("swap") or parameters["swap"] == "off":
        return
    if (cluster := parameters.get("page_cluster")) is None:
        yield "a fault may read several pages (swap read-ahead: `page_cluster` is the system's)"
    elif cluster > 0:
        yield f"a fault may read up to {1 << int(cluster)} pages (swap read-ahead: `page_cluster` {cluster:g})"
    if (share := parameters.get("read_fraction")) is not None and share < 1:
        yield "a fault may wait for the write of another page (`read_fraction` below 1)"


def _faults(question: Question) -> pl.DataFrame:
    """Cells of the latency of major faults alone."""
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


def _difference_text(added: Estimate, *, sign: int = 1) -> str:
    low, high = sorted(sign * (end or 0.0) for end in (added.low, added.high))
    ends = wording.range_text(format_latency(low), format_latency(high))
    return f"{format_latency(sign * added.value)} (95 % CI {ends})"


KINDS = (QuestionKind("fault_overhead", find),)
