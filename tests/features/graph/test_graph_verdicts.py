"""Verdicts on graph algorithms: each limit alone, and none."""

from __future__ import annotations

import polars as pl
import pytest
from measured import record

from iosonde.execution.record import judged
from iosonde.features.graph.verdict import judge
from iosonde.results.schema import INTERVALS

pytestmark = pytest.mark.unit

SECOND = 10**9


@pytest.mark.parametrize(
    ("wait_s", "cached", "client_s", "kind"),
    [
        (25.0, 0.0, 10.0, "device-limited"),
        (0.1, 1.0, 39.0, "cache-served"),
        (2.0, 0.2, 36.0, "harness-limited"),
        (10.0, 0.2, 20.0, "undetermined"),
    ],
)
def test_the_jobs_time_decides(wait_s: float, cached: float, client_s: float, kind: str) -> None:
    measured = record(client_s=client_s)
    assert measured.result is not None
    facts = {
        "iterations": [], "request_sizes": [], "io_wait_ns": int(wait_s * SECOND), "job_wait_ns": 0, "needed_bytes": 1000,
        "cache_hit_bytes": int(1000 * cached), "check": None,
    }  # fmt: skip
    verdict = judge(measured.model_copy(update={"result": {**measured.result, "graph": facts}}), [], 1)
    assert verdict is not None
    assert verdict.kind == kind
    assert verdict.evidence["read_wait_share"] == pytest.approx(wait_s / 40, abs=1e-3)
    assert verdict.because


def test_a_run_that_was_stopped_before_the_measurement_has_no_verdict() -> None:
    """The engine reports CPU time and devices of it too, but those were not measured for the algorithm."""
    stopped = record()
    result = {**(stopped.result or {}), "backend": {"kind": "uring"}, "evidence": {"stalls": None}}
    spec = {**stopped.spec, "workload": {"kind": "graph"}}
    stopped = stopped.model_copy(update={"result": result, "spec": spec})
    intervals = pl.DataFrame(schema=INTERVALS)
    assert judged(stopped, intervals, environment={}, study={}) == stopped
