"""Verdict on checkpoints and restores, without the training between them; rules about ingest of training data.

Ranks write, sync or read in all of the time of a checkpoint, so that storage is the limit unless their threads use the
CPUs. Accelerators that hardly wait for data are the limit themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iosonde.features.ai.facts import AiFacts
from iosonde.metrics.verdict.evidence import SOME, Evidence, Total, share_of
from iosonde.metrics.verdict.rules import Result, Rule, percent
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
    hosts = len({job.get("host") for job in result["jobs"]})
    used = share_of(cpu_ns, facts.active_ns * min(ranks, hosts * cpus)) or 0.0
    waited = share_of(sum(total.completion_latency_ns_sum for total in totals), threads_ns) or 0.0
    cached = facts.restore_cached_fraction or 0.0
    apart = max(each.get("begin_spread_ns", 0) / each["complete_ns"] for each in (*facts.checkpoints, *facts.restores))
    waiting = f"ranks waited for storage in {whole_percent(waited)} of the time of checkpoints and restores"
    return first(
        [
            (result["backend"]["kind"] in ON_VIRTUAL_TIME, "device-limited", "a simulated device on a virtual clock"),
            (cached >= SOME, "cache-served", f"{whole_percent(cached)} of the restored bytes were in the page cache"),
            (apart > TOGETHER, "undetermined", f"hosts started {whole_percent(apart)} of a checkpoint's time apart"),
            (used >= BUSY, "harness-limited", f"the ranks used {whole_percent(used)} of their CPUs"),
            (waited >= 0.5, "device-limited", waiting),
        ],
        waiting,
        {"io_wait_share": waited, "rank_cpu_share": used, "restore_cached_share": cached},
    )


TOGETHER = 0.05
"""Share of a step's time within which hosts begin it together."""
JUDGES = (("checkpoints", judge),)

COMPUTING = 0.95
"""Share of their time in which accelerators compute at which they are the limit."""
STEPS_LEAST = 10
"""Steps for each batch that is read ahead: such batches come in bursts, by one of which a measurement may be off."""


@Rule(
    title="Accelerators computed nearly all of the time: the load was the limit, not the device",
    hint="use more `accelerators` to find the limit of the device",
    points_to="harness-limited",
    bias="slower",
    of=("own I/O",),
)
def accelerators_busy(run: Evidence) -> Result:
    share = _computing(_accelerators(run))
    return f"accelerators computed {percent(share)} of the time" if share >= COMPUTING else None


@Rule(title="Few steps for the batches that are read ahead", hint="use a longer `duration`", of=("own I/O",))
def few_steps(run: Evidence) -> Result:
    accelerators, workload = _accelerators(run), run.facts.spec["workload"]
    if not accelerators or _computing(accelerators) >= COMPUTING:
        return None
    threads, ahead = workload["read_threads"], workload["prefetch"]
    if workload["loader"] == "samples":
        ahead = -(-ahead // threads) * threads
    steps = sum(each["steps"] for each in accelerators) / len(accelerators)
    short = f"an accelerator completed {steps:.0f} steps, with {ahead} batches read ahead"
    return short if steps < STEPS_LEAST * ahead else None


def _accelerators(run: Evidence) -> Sequence[Mapping[str, int]]:
    return (run.facts.result.get("ai") or {}).get("accelerators") or ()


def _computing(accelerators: Sequence[Mapping[str, int]]) -> float:
    running = sum(each["running_ns"] for each in accelerators)
    return sum(each["compute_ns"] for each in accelerators) / running if running else 0.0


RULES = (accelerators_busy, few_steps)
