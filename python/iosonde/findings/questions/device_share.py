"""How much of the device's own bandwidth an application uses, and what else limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from iosonde.findings.cells import cells
from iosonde.findings.finding import Finding, Topic, cases_of, weakest
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.support import of_interval
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio, repeats_interval

BANDWIDTH = "bandwidth"
WAITING = 0.5
"""Share of the jobs' time in waiting for reads from which the device is the limit."""

BUSY = 0.85
"""CPU time of the busiest job over its time from which CPU time is the limit."""


@dataclass(frozen=True, kw_only=True)
class DeviceShare(Finding):
    """Bandwidth of a graph algorithm over that of sequential and of random block reads of the same target."""

    kind: ClassVar[str] = "share of device bandwidth"
    topic: ClassVar[Topic] = "performance"
    about: str
    """The load: `PageRank, 2 jobs`."""
    bandwidth: Estimate
    """In bytes per second."""
    shares: tuple[tuple[str, Estimate], ...]
    """Access (`sequential`, `random`) and bandwidth over that of block reads; empty if those were not measured."""
    edges_per_sec: Estimate
    edges_per_core_sec: Estimate | None
    """Edges per second of CPU time, of all iterations."""
    read_wait: float | None
    """Share of the jobs' time in which they waited for reads."""
    thread_cpu: float | None
    """CPU time of the busiest job over its time."""

    @property
    def is_device_limited(self) -> bool:
        """Whether jobs spent most of their time waiting for reads."""
        return (self.read_wait or 0.0) >= WAITING

    @property
    def is_cpu_limited(self) -> bool:
        """Whether the jobs used their CPUs nearly completely."""
        return not self.is_device_limited and (self.thread_cpu or 0.0) >= BUSY

    def _sentence(self) -> str:
        rate = wording.estimate_text("edges_per_sec", self.edges_per_sec)
        used = wording.value_text(BANDWIDTH, self.bandwidth.value)
        return f"{self.about}: {rate}; {self._limit_text()}, with {', '.join([used, *self._shares_text()])}"

    def _limit_text(self) -> str:
        if self.is_device_limited:
            return "the device limits it"
        if self.is_cpu_limited and self.edges_per_core_sec is not None:
            core = wording.value_text("edges_per_sec", self.edges_per_core_sec.value)
            return f"CPU time limits it to {core} per core"
        return (
            f"limit undetermined (jobs waited for reads in {100 * (self.read_wait or 0):.0f} % of their time, and the "
            f"busiest used {100 * (self.thread_cpu or 0):.0f} % of a CPU)"
        )

    def _shares_text(self) -> list[str]:
        shares = [
            f"{wording.ratio_estimate_text(share, unit='')} of its {access} reads" for access, share in self.shares
        ]
        return [wording.listing(shares)] if shares else []

    def _evidence(self) -> str:
        waited = f"jobs waited for reads in {100 * (self.read_wait or 0):.0f} % of their time"
        used = f"the busiest used {100 * (self.thread_cpu or 0):.0f} % of a CPU"
        shares = "bandwidth of the algorithm over that of block reads with its largest request size"
        if not self.shares:
            shares = "block reads of the same target were not measured"
        return f"{shares}; {waited}, and {used}"


def find(question: Question) -> Iterator[Finding]:
    """Compare the bandwidth of each cell with that of the accesses in the analysis' `device_part`."""
    device = cells(
        question.runs, question.cases, part=question.analysis.device_part, metric=BANDWIDTH, factors=["access"]
    )
    limits = {row["access"]: np.asarray(row["values"], dtype=float) for row in device.iter_rows(named=True)}
    for row in question.cells(BANDWIDTH).iter_rows(named=True):
        values = np.asarray(row["values"], dtype=float)
        edges = _values(question, "edges_per_sec", row["case_id"])
        if edges is None:
            continue
        cores = _values(question, "edges_per_core_sec", row["case_id"])
        waits = _values(question, "read_wait_fraction", row["case_id"])
        busy = _values(question, "core_utilisation", row["case_id"])
        shares = tuple((access, ratio(values, limit)) for access, limit in limits.items())
        rate = repeats_interval(edges)
        yield DeviceShare(
            about=_about(question, row),
            bandwidth=repeats_interval(values),
            shares=shares,
            edges_per_sec=rate,
            edges_per_core_sec=None if cores is None else repeats_interval(cores),
            read_wait=None if waits is None else float(np.median(waits)),
            thread_cpu=None if busy is None else float(np.median(busy)),
            strength=weakest(
                of_interval(shares[0][1] if shares else rate), question.support.of_cases((row["case_id"],))
            ),
            case_ids=(row["case_id"], *cases_of(device)),
            part=question.part.name,
        )


def _about(question: Question, row: dict[str, object]) -> str:
    case = question.cases.filter(pl.col("case_id") == row["case_id"]).row(0, named=True)
    words = wording.phrase(wording.load_words(case))
    apart = dict.fromkeys((question.analysis.over, *question.by))
    names = [name for name in apart if name in row and name not in ("algorithm", "mode")]
    return ", ".join([words, *(wording.level_words(name, row[name]) for name in names)])


def _values(question: Question, metric: str, case_id: str) -> np.ndarray | None:
    found = question.cells(metric).filter(pl.col("case_id") == case_id)
    return np.asarray(found["values"][0].to_list(), dtype=float) if found.height else None


KINDS = (QuestionKind("device_share", find),)
