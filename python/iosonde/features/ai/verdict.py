"""Verdict on checkpoints and restores: the limit while they are in progress, without the training between them.

Ranks write, sync or read in all of that time, so that storage is the limit unless their threads use the CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.features.ai.facts import AiFacts
from iosonde.metrics.verdict.evidence import SOME, Total, share_of
from iosonde.metrics.verdict.verdict import BUSY, Verdict, first, whole_percent
from iosonde.results.schema import Record
from iosonde.study.workload.block.backends import ON_VIRTUAL_TIME


def judge(record: Record, totals: Sequence[Total], cpus: int) -> Verdict | None:
    """Return the verdict on a run; None on one that was stopped before its first checkpoint."""
    facts, result = AiFacts(record), record.result or {}
    if not facts.checkpoints:
        return None
    ranks = len(record.spec["workload"]["ranks"])
    threads_ns = facts.active_ns * ranks
    cpu_ns = sum(job["usage"]["user_ns"] + job["usage"]["system_ns"] for job in result["jobs"])
    used = share_of(cpu_ns, facts.active_ns * min(ranks, cpus)) or 0.0
    waited = share_of(sum(total.completion_latency_ns_sum for total in totals), threads_ns) or 0.0
    cached = facts.restore_cached_fraction or 0.0
    waiting = f"ranks waited for storage in {whole_percent(waited)} of the time of checkpoints and restores"
    return first(
        [
            (result["backend"]["kind"] in ON_VIRTUAL_TIME, "device-limited", "a simulated device on a virtual clock"),
            (cached >= SOME, "cache-served", f"{whole_percent(cached)} of the restored bytes were in the page cache"),
            (used >= BUSY, "harness-limited", f"the ranks used {whole_percent(used)} of their CPUs"),
            (waited >= 0.5, "device-limited", waiting),
        ],
        waiting,
        {"io_wait_share": waited, "rank_cpu_share": used, "restore_cached_share": cached},
    )


JUDGES = (("checkpoints", judge),)
