"""The share of the device's bandwidth that an algorithm uses, from bandwidths with a known ratio."""

from __future__ import annotations

import polars as pl
import pytest

from iosonde.features.graph.questions import DeviceShare, find
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load

pytestmark = pytest.mark.unit


def findings(*, wait: float, busy: float = 0.95, device: bool = True) -> list[Finding]:
    cases = pl.DataFrame(
        {
            "case_id": ["g", "s", "r"], "part": ["pagerank", "device", "device"], "control": [False] * 3,
            "algorithm": ["pagerank", None, None], "mode": ["pull", None, None], "jobs": [2, None, None],
            "access": [None, "sequential", "random"],
        }
    )  # fmt: skip
    values = {
        ("g", "pagerank", "bandwidth"): [0.9e9, 0.91e9, 0.89e9],
        ("g", "pagerank", "edges_per_sec"): [2e8, 2.02e8, 1.98e8],
        ("g", "pagerank", "edges_per_core_sec"): [6e7, 6.1e7, 5.9e7],
        ("g", "pagerank", "read_wait_fraction"): [wait, wait + 0.01, wait - 0.01],
        ("g", "pagerank", "core_utilisation"): [busy, busy, busy],
    }
    if device:
        values[("s", "device", "bandwidth")] = [1e9, 1.01e9, 0.99e9]
        values[("r", "device", "bandwidth")] = [1.8e9, 1.82e9, 1.78e9]
    rows = [
        {"case_id": case, "part": part, "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
         "operation": "all", "metric": metric, "value": value}
        for (case, part, metric), each in values.items() for i, value in enumerate(each)
    ]  # fmt: skip
    study = load("jo2024-pagerank")
    return list(
        find(Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows), support=Support()))
    )


def test_an_algorithm_that_waits_for_reads_is_limited_by_the_device() -> None:
    [found] = findings(wait=0.8)
    assert isinstance(found, DeviceShare)
    assert found.is_device_limited
    shares = dict(found.shares)
    assert shares["sequential"].value == pytest.approx(0.9)
    assert shares["random"].value == pytest.approx(0.5)
    assert found.sentence.startswith("PageRank (pull), 2 jobs: 200 M edges/s")
    assert "the device limits it" in found.sentence
    assert "80 %" in found.evidence


def test_an_algorithm_that_waits_little_is_limited_by_cpu_time() -> None:
    [found] = findings(wait=0.1)
    assert isinstance(found, DeviceShare)
    assert not found.is_device_limited
    assert "CPU time limits it to 60 M edges/s per core" in found.sentence


def test_without_enough_cpu_time_nothing_is_named_as_the_limit() -> None:
    [found] = findings(wait=0.1, busy=0.5)
    assert isinstance(found, DeviceShare)
    assert not found.is_cpu_limited
    assert "limit undetermined (jobs waited for reads in " in found.sentence


def test_without_the_devices_reads_there_is_a_rate_and_no_share() -> None:
    [found] = findings(wait=0.8, device=False)
    assert isinstance(found, DeviceShare)
    assert found.shares == ()
    assert found.sentence.endswith("the device limits it, with 900 MB/s"), found.sentence
    assert "were not measured" in found.evidence
