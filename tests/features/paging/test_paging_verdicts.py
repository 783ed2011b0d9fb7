"""Verdicts on paging runs: each limit alone, and none."""

from __future__ import annotations

import pytest
from measured import record

from iosonde.features.paging.verdict import judge
from iosonde.verdict.evidence import Total

pytestmark = pytest.mark.unit

SECOND = 10**9


def total(operation: str, seconds: float, count: int = 1000) -> Total:
    return Total(
        stream="main", operation=operation, count=count, bytes=0, completion_latency_ns_sum=int(seconds * SECOND)
    )


@pytest.mark.parametrize(
    ("totals", "client_s", "kind"),
    [
        ([total("hit", 10), total("minor_fault", 1)], 40.0, "cache-served"),
        ([total("hit", 1), total("major_fault", 30)], 4.0, "device-limited"),
        ([total("hit", 30), total("major_fault", 5)], 38.0, "harness-limited"),
        ([total("hit", 5), total("major_fault", 5)], 10.0, "undetermined"),
    ],
)
def test_the_threads_time_decides(totals: list[Total], client_s: float, kind: str) -> None:
    verdict = judge(record(client_s=client_s), totals, 1)
    assert verdict.kind == kind
    assert verdict.evidence["major_faults"] == (0 if kind == "cache-served" else 1000)
    assert verdict.because
