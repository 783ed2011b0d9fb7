"""Share of the device's own bandwidth that an application uses, and what else limits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from iosonde.findings.finding import Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio, repeats_interval

BANDWIDTH = "bandwidth"
WAITING = 0.5
"""Smallest share of the jobs' time in waiting for reads that makes the device the limit."""
BUSY = 0.85
"""Smallest CPU time of the busiest job over its time that makes CPU time the limit."""


class DeviceShare(Finding, kind="share of device bandwidth", topic="performance", place=1):
    """Bandwidth of a graph algorithm over sequential and random block reads of the same target."""

    about: str
    """The load: `PageRank, 2 jobs`."""
    bandwidth: Estimate
    shares: tuple[tuple[str, Estimate], ...]
    """Access (`sequential`, `random`) and bandwidth over that of block reads; empty if not measured."""
    edges_per_sec: Estimate
    edges_per_core_sec: Estimate | None
    """Edges per second of CPU time, of all iterations."""
    read_wait: float
    """Share of the jobs' time in which they waited for reads."""
    thread_cpu: float
    """CPU time of the busiest job over its time."""

    @property
    def is_device_limited(self) -> bool:
        """True if jobs spent most of their time waiting for reads."""
        return self.read_wait >= WAITING

    @property
    def is_cpu_limited(self) -> bool:
        """True if the jobs used their CPUs nearly completely."""
        return not self.is_device_limited and self.thread_cpu >= BUSY

    def _sentence(self) -> str:
        rate = wording.estimate_text("edges_per_sec", self.edges_per_sec)
        shares = [f"{wording.ratio_estimate_text(share, unit='')} of its {kind} reads" for kind, share in self.shares]
        used = [wording.value_text(BANDWIDTH, self.bandwidth.value), *([wording.listing(shares)] if shares else [])]
        return f"{self.about}: {rate}; {self._limit_text()}, with {', '.join(used)}"

    def _limit_text(self) -> str:
        if self.is_device_limited:
            return "the device limits it"
        if self.is_cpu_limited and self.edges_per_core_sec is not None:
            core = wording.value_text("edges_per_sec", self.edges_per_core_sec.value)
            return f"CPU time limits it to {core} per core"
        return f"limit undetermined ({self._use})"

    @property
    def _use(self) -> str:
        waited = f"jobs waited for reads in {100 * self.read_wait:.0f} % of their time"
        return f"{waited}, and the busiest used {100 * self.thread_cpu:.0f} % of a CPU"

    def _evidence(self) -> str:
        shares = "bandwidth of the algorithm over that of block reads with its largest request size"
        return f"{shares if self.shares else 'block reads of the same target were not measured'}; {self._use}"


def find(question: Question) -> Iterator[Finding]:
    """Compare the bandwidth of each cell with the accesses in the analysis' `device_part`."""
    device = question.of_device(BANDWIDTH, "access")
    for row in question.cells(BANDWIDTH).iter_rows(named=True):
        case_id = row["case_id"]
        edges, cores, waits, busy = (question.values(metric, case_id) for metric in _OF_CASE)
        if not edges:
            continue
        shares = tuple((each["access"], ratio(row["values"], each["values"])) for each in device.to_dicts())
        rate = repeats_interval(edges)
        yield DeviceShare(
            about=_about(question, row),
            bandwidth=repeats_interval(row["values"]),
            shares=shares,
            edges_per_sec=rate,
            edges_per_core_sec=repeats_interval(cores) if cores else None,
            read_wait=median(waits) if waits else 0.0,
            thread_cpu=median(busy) if busy else 0.0,
            **question.claim([case_id, *device["case_id"]], shares[0][1] if shares else rate),
        )


_OF_CASE = ("edges_per_sec", "edges_per_core_sec", "read_wait_fraction", "core_utilisation")


def _about(question: Question, row: Mapping[str, Any]) -> str:
    words = wording.phrase(wording.load_words(question.case(row["case_id"])))
    apart = dict.fromkeys((question.analysis.over, *question.by))
    names = [name for name in apart if name in row and name != "mode"]
    return ", ".join([words, *(wording.level_words(name, row[name]) for name in names)])


KINDS = (QuestionKind("device_share", find, needs_device_part=True),)
