"""Verdict on a graph algorithm: device-limited, harness-limited (CPU), cache-served, or undetermined.

A job that has nothing to process and waits for a read waits for the device. If jobs spent most of their time so, the
device is the limit. If the page cache of the engine had nearly all lists, it served the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iosonde.features.graph.facts import GraphFacts
from iosonde.results.schema import Record
from iosonde.verdict import shares
from iosonde.verdict.evidence import Total
from iosonde.verdict.judge import Judge
from iosonde.verdict.shares import BUSY, percent
from iosonde.verdict.verdict import Kind, Verdict

WAITING = 0.5
"""Share of the jobs' time in waiting for reads from which the device is the limit."""

NEARLY_ALL = 0.95
"""Share of the needed bytes from the page cache from which it served the run."""


@dataclass(frozen=True, kw_only=True)
class GraphEvidence(shares.Shares):
    """Shares of the jobs' time, of the device's, and of the bytes that were needed; None where nothing was reported."""

    read_wait_share: float
    """Time in which jobs had nothing to process and waited for reads."""
    job_wait_share: float
    """Time in which jobs waited for others at the end of an iteration."""
    thread_cpu_share: float
    """CPU time of the jobs."""
    device_busy_share: float | None
    """Time in which the busiest device had I/O in flight."""
    cache_hit_share: float
    """Bytes that the page cache of the engine had."""


def judge(record: Record, totals: Sequence[Total], cpus: int) -> Verdict | None:
    """Return the verdict on a run; None on one that was stopped before the measurement."""
    if not (record.result or {}).get("graph"):
        return None
    evidence = evidence_of(record)
    kind, because = _decided(evidence)
    return Verdict(kind=kind, because=(because,), warnings=(), evidence=evidence.to_json())


def evidence_of(record: Record) -> GraphEvidence:
    """The shares over the measurement."""
    facts = GraphFacts(record)
    threads_ns = max(1, facts.threads_ns or 0)
    return GraphEvidence(
        read_wait_share=shares.share(facts.number("io_wait_ns") or 0, threads_ns) or 0.0,
        job_wait_share=shares.share(facts.number("job_wait_ns") or 0, threads_ns) or 0.0,
        thread_cpu_share=shares.mean(shares.cpu_shares(facts.result)),
        device_busy_share=shares.device_busy_share(facts.result),
        cache_hit_share=(facts.number("cache_hit_bytes") or 0) / max(1, facts.number("needed_bytes") or 0),
    )


def _decided(evidence: GraphEvidence) -> tuple[Kind, str]:
    waited = f"the jobs waited for reads in {percent(evidence.read_wait_share)} of their time"
    if evidence.read_wait_share >= WAITING:
        return "device-limited", waited
    if evidence.cache_hit_share >= NEARLY_ALL:
        hits = percent(evidence.cache_hit_share)
        return "cache-served", f"the page cache had {hits} of the adjacency lists that were needed"
    if evidence.thread_cpu_share >= BUSY:
        return "harness-limited", f"the jobs used {percent(evidence.thread_cpu_share)} of a CPU each, and {waited}"
    return "undetermined", waited


JUDGES = (Judge("iterations", judge),)
