"""Rule about ingest of training data: accelerators that hardly wait for data are the limit themselves."""

from __future__ import annotations

from iosonde.metrics.verdict.evidence import Evidence
from iosonde.metrics.verdict.rules import Result, Rule, percent

BUSY = 0.95
"""Share of their time in which accelerators compute at which they are the limit."""


@Rule(
    title="Accelerators computed nearly all of the time: the load was the limit, not the device",
    hint="use more `accelerators` to find the limit of the device",
    points_to="harness-limited",
    bias="slower",
    of=("own I/O",),
)
def accelerators_busy(run: Evidence) -> Result:
    accelerators = (run.facts.result.get("ai") or {}).get("accelerators") or ()
    running = sum(each["running_ns"] for each in accelerators)
    share = sum(each["compute_ns"] for each in accelerators) / running if running else 0.0
    return f"accelerators computed {percent(share)} of the time" if share >= BUSY else None


RULES = (accelerators_busy,)
