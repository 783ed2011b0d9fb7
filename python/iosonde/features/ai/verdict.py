"""Rules about ingest of training data: accelerators that are the limit themselves, and short measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iosonde.metrics.verdict.evidence import Evidence
from iosonde.metrics.verdict.rules import Result, Rule, percent

BUSY = 0.95
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
    return f"accelerators computed {percent(share)} of the time" if share >= BUSY else None


@Rule(
    title="Few steps for the batches that are read ahead",
    hint="use a longer `duration`",
    of=("own I/O",),
)
def few_steps(run: Evidence) -> Result:
    accelerators, workload = _accelerators(run), run.facts.spec["workload"]
    if not accelerators or _computing(accelerators) >= BUSY:
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
