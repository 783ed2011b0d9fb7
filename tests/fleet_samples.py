"""A study for fleets, and computed fleets without result sets.

These are summaries of drives whose values are drawn from known distributions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from iosonde.collections.library.summary import THRESHOLDS_NS, Device, SessionCell, StallCounts, Summary

IOPS, P99 = "iops", "completion_latency_ns_p99"
CASES = {"random/queue_depth=1": "4 KiB random reads, queue depth 1", "random/queue_depth=32": "the same, deeper"}
BETWEEN, WITHIN = 0.012, 0.008
"""Standard deviations of logarithms: between drives, and between the runs of one drive."""
INTERVALS = 90
"""Of a case."""
STUDY = """
name = "tiny"
title = "Random reads"
question = "How fast?"
repeats = 2
[measurement]
access = "random"
read_fraction = 1.0
block_size = "4KiB"
span = "4MiB"
duration = "200ms"
ramp = "0s"
interval = "100ms"
[[parts]]
title = "Reads"
[parts.factors]
queue_depth = [1]
[profiles.standard]
"""
"""The study of fleets that are measured."""


def fleet(
    count: int,
    *,
    seed: int,
    slower: Mapping[int, float] | None = None,
    firmware: Mapping[int, str] | None = None,
    hours: Sequence[int] | None = None,
    model: str = "EXAMPLE SSD",
    stalls: float = 0.0,
    more_stalls: Mapping[int, float] | None = None,
) -> list[Summary]:
    """Drives of one model: `slower` multiplies the p99 latency of some, `firmware` is that of some, the others' 1.0.

    `stalls` of 50 ms are expected on each drive, and `more_stalls` besides on some.
    """
    random, found = np.random.default_rng(seed), []
    for number in range(count):
        facts = {"firmware": (firmware or {}).get(number, "1.0"), "serial": f"{number:08x}"}
        own = Device(name=f"nvme{number}n1", model=model, **facts)
        cells = list(_cells(random, (slower or {}).get(number, 1.0)))
        age = hours[number] if hours else None
        expected = stalls + (more_stalls or {}).get(number, 0.0)
        found.append(
            Summary(
                path=f"slot-{number}", study="example", title="Example", profile="quick", target=f"/dev/{own.name}",
                simulated=False, devices=[own], power_on_hours=age, kernel="6.1", software="0.1.0",
                started_at="2026-01-02T03:00:00+00:00", ended_at="2026-01-02T03:10:00+00:00", complete=6, runs=6,
                headlines=[], verdict="device-limited", trust="", report="", problems=[], facts={}, loads=dict(CASES),
                parameters=dict.fromkeys(CASES, "same"), cells=cells, stalls={case: _stalls(random, expected / len(CASES)) for case in CASES},
            )
        )  # fmt: skip
    return found


def _cells(random: np.random.Generator, factor: float) -> Iterator[SessionCell]:
    """Values of three runs of each case."""
    for depth, case in enumerate(CASES, 1):
        for metric, level in ((IOPS, 20_000.0 * depth), (P99, 90_000.0 * depth)):
            own = math.log(level * (factor if metric == P99 else 1.0)) + random.normal(0, BETWEEN)
            logs = own + random.normal(0, WITHIN, 3)
            yield SessionCell(
                case_id=case, metric=metric, mean_log=float(logs.mean()), runs=len(logs),
                run_variance=float(logs.var(ddof=1)), verdict="device-limited",
            )  # fmt: skip


def _stalls(random: np.random.Generator, expected: float) -> StallCounts:
    """Stalls of three runs, each with an I/O of 50 ms."""
    slow = int(random.poisson(expected))
    largest = 50_000_000 if slow else 400_000
    counts = [slow if threshold <= 50_000_000 else 0 for threshold in THRESHOLDS_NS]
    counts = [
        INTERVALS if threshold <= 400_000 else count for threshold, count in zip(THRESHOLDS_NS, counts, strict=True)
    ]
    return StallCounts(intervals=INTERVALS, counts=counts, largest_ns=largest)
