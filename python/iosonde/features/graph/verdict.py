"""Verdict on a graph algorithm: device-limited, harness-limited (CPU), cache-served, or undetermined.

A job that has nothing to process and waits for a read waits for the device. If jobs spent most of their time so, the
device is the limit. If the page cache of the engine had nearly all lists, it served the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.features.graph.facts import GraphFacts
from iosonde.metrics.verdict.evidence import Total, share_of
from iosonde.metrics.verdict.verdict import BUSY, Verdict, device_busy_share, first, mean_job_cpu_share, whole_percent
from iosonde.results.schema import Record


def judge(record: Record, totals: Sequence[Total], cpus: int) -> Verdict | None:
    """Return the verdict on a run; None on one that was stopped before the measurement."""
    if not (record.result or {}).get("graph"):
        return None
    facts = GraphFacts(record)
    threads_ns = max(1, facts.threads_ns or 0)
    waited = share_of(facts.graph.get("io_wait_ns") or 0, threads_ns) or 0.0
    used = mean_job_cpu_share(facts.result)
    hits = (facts.graph.get("cache_hit_bytes") or 0) / max(1, facts.graph.get("needed_bytes") or 0)
    waiting = f"the jobs waited for reads in {whole_percent(waited)} of their time"
    cached = f"the page cache had {whole_percent(hits)} of the adjacency lists that were needed"
    busy = f"the jobs used {whole_percent(used)} of a CPU each, and {waiting}"
    return first(
        [
            (waited >= 0.5, "device-limited", waiting),
            (hits >= 0.95, "cache-served", cached),
            (used >= BUSY, "harness-limited", busy),
        ],
        waiting,
        {
            "read_wait_share": waited,
            "job_wait_share": share_of(facts.graph.get("job_wait_ns") or 0, threads_ns) or 0.0,
            "thread_cpu_share": used,
            "device_busy_share": device_busy_share(facts.result),
            "cache_hit_share": hits,
        },
    )


JUDGES = (("iterations", judge),)
