"""Findings on the stages of an I/O and on the cost of tracing, from known values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from iosonde.features.kernel_trace.questions import LATENCY, PathStages, TracingCost, UntracedPath, find
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load

pytestmark = pytest.mark.unit

UNTRACED, TRACED = [10_000.0, 10_100.0, 9_900.0], [10_500.0, 10_605.0, 10_395.0]
PATH = {
    "path_submission_ns_mean": [500.0, 510.0, 490.0],
    "path_block_layer_ns_mean": [500.0, 490.0, 510.0],
    "path_device_ns_mean": [8_000.0, 8_080.0, 7_920.0],
    "path_interrupt_ns_mean": [0.0, 0.0, 0.0],
    "path_wake_up_ns_mean": [600.0, 606.0, 594.0],
    "path_return_ns_mean": [400.0, 404.0, 396.0],
    "path_total_ns_mean": [10_000.0, 10_090.0, 9_910.0],
    "path_related": [2_000.0, 1_900.0, 2_100.0],
}


def findings(
    path: Mapping[str, Sequence[float]], *, reason: str | None = None, unseen: str | None = None
) -> list[Finding]:
    """Of reads with `sync`: a case with tracing and one without."""
    study = load("kernel-tax")
    cases = pl.DataFrame(
        [
            {"case_id": case, "part": "main", "control": False, "interface": "sync", "operation": "read",
             "kernel_trace": is_traced, "jobs": 1, "queue_depth": 1, "read_fraction": 1.0, "backend": "sync",
             "block_size": 4096, "access": "random"}
            for case, is_traced in (("plain", False), ("traced", True))
        ]
    )  # fmt: skip
    measured = {"plain": {LATENCY: UNTRACED}, "traced": {LATENCY: TRACED, **path}}
    rows: list[dict[str, Any]] = [
        {"case_id": case, "part": "main", "control": False, "run_id": f"{case}{number}", "repeat": number,
         "stream": "main", "operation": "all", "metric": metric, "value": value}
        for case, metrics in measured.items() for metric, values in metrics.items()
        for number, value in enumerate(values)
    ]  # fmt: skip
    outcomes = pl.DataFrame(
        [{"case_id": "plain", "path_reason": None, "path_unseen": None},
         {"case_id": "traced", "path_reason": reason, "path_unseen": unseen}],
        schema=dict.fromkeys(("case_id", "path_reason", "path_unseen"), pl.String),
    )  # fmt: skip
    question = Question(
        study=study,
        analysis=study.analysis[0],
        cases=cases,
        runs=pl.DataFrame(rows),
        outcomes=outcomes,
        support=Support(),
    )
    return list(find(question))


def test_stages_are_listed_with_their_times_the_longest_first() -> None:
    [stages] = [each for each in findings(PATH) if isinstance(each, PathStages)]
    assert [(stage, time.value) for stage, time in stages.stages] == [
        ("device", 8_000.0),
        ("wake_up", 600.0),
        ("submission", 500.0),
        ("block_layer", 500.0),
        ("return", 400.0),
    ]
    assert stages.total.value == 10_000.0
    assert stages.total.low is not None and stages.total.high is not None
    assert stages.software.value == pytest.approx(0.2, abs=0.002)
    assert (stages.related, stages.repeats, stages.unseen) == (1_900, 3, ())
    assert stages.sentence.startswith("4 KiB random reads, sync: of 10 µs (95 % CI ")
    assert " are the device, " in stages.sentence


def test_the_cost_of_tracing_is_the_ratio_of_latencies() -> None:
    [cost] = [each for each in findings(PATH) if isinstance(each, TracingCost)]
    assert cost.ratio.value == pytest.approx(1.05)
    assert cost.backend == "sync"
    assert "traced runs have 1.05 times (95 % CI " in cost.sentence


def test_a_backend_without_stages_has_the_reason() -> None:
    reason = "no permission to read `/sys/kernel/tracing`: tracepoints need root"
    found = findings({}, reason=reason)
    assert not any(isinstance(each, PathStages) for each in found)
    [untraced] = [each for each in found if isinstance(each, UntracedPath)]
    assert (untraced.backend, untraced.reason) == ("sync", reason)
    assert any(isinstance(each, TracingCost) for each in found)
    reason = "the kernel has no tracepoint `irq:irq_handler_entry`"
    [stages] = [each for each in findings(PATH, unseen=f"interrupt: {reason}") if isinstance(each, PathStages)]
    assert stages.unseen == (("interrupt", reason),) and reason in stages.evidence
