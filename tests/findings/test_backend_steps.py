"""Gains from one I/O backend to the next, and the share of latency that is software, from known values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from iosonde.findings.backend_steps import LATENCY, BackendStep, SoftwareShare, find
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load
from iosonde.study.model import Level

pytestmark = pytest.mark.unit

IOPS = {"sync": [10_000.0, 10_100.0, 9_900.0], "libaio": [10_500.0, 10_600.0, 10_400.0], "uring": [15_000.0, 15_100.0, 14_900.0]}  # fmt: skip
NS = {"sync": [100_000.0, 101_000.0, 99_000.0], "libaio": [95_000.0, 95_500.0, 94_500.0], "uring": [66_000.0, 66_500.0, 65_500.0]}  # fmt: skip


def findings(iops: Mapping[str, Sequence[float]], ns: Mapping[str, Sequence[float]]) -> list[Finding]:
    """Of reads with one job and one I/O in flight."""
    study = load("jo2024-driver")
    interfaces = study.parts[0].factors["interface"]
    interfaces.append(Level(label="nvme_user", set={"backend": "nvme_user"}))
    cases = pl.DataFrame(
        [
            {"case_id": name, "part": "single", "control": False, "interface": name, "operation": "read", "jobs": 1,
             "queue_depth": 1, "read_fraction": 1.0, "backend": name.split()[0], "block_size": 4096, "access": "random"}
            for name in iops
        ]
    )  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"case_id": name, "part": "single", "control": False, "run_id": f"{name}{i}", "repeat": i, "stream": stream,
         "operation": operation, "metric": metric, "value": value}
        for metric, values in (("iops", iops), (LATENCY, ns)) for name, each in values.items()
        for i, value in enumerate(each) for stream, operation in (("all", "all"), ("main", "all"), ("main", "read"))
    ]  # fmt: skip
    question = Question(
        study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows), support=Support()
    )
    return list(find(question))


def test_each_step_and_the_total_have_a_ratio_with_its_interval() -> None:
    steps = [each for each in findings(IOPS, NS) if isinstance(each, BackendStep)]
    assert [(step.before, step.after, step.is_total) for step in steps] == [
        ("sync", "libaio", False),
        ("libaio", "uring", False),
        ("sync", "uring", True),
    ]
    assert [round(step.ratio.value, 2) for step in steps] == [1.05, 1.43, 1.5]
    for step in steps:
        assert step.ratio.low is not None and step.ratio.high is not None
        assert step.ratio.low < step.ratio.value < step.ratio.high
    assert "uring has 1.43 times" in steps[1].sentence
    assert "IOPS of libaio" in steps[1].sentence
    assert "in total, uring has" in steps[2].sentence


def test_a_backend_that_was_not_available_is_stepped_over() -> None:
    steps = [
        each
        for each in findings({"sync": IOPS["sync"], "uring": IOPS["uring"]}, {"sync": NS["sync"], "uring": NS["uring"]})
        if isinstance(each, BackendStep)
    ]
    assert [(step.before, step.after) for step in steps] == [("sync", "uring")]


def test_without_a_user_level_driver_the_share_of_software_is_unknown() -> None:
    [share] = [each for each in findings(IOPS, NS) if isinstance(each, SoftwareShare)]
    assert share.shares == ()
    assert "unknown" in share.sentence


def test_the_share_of_software_is_what_a_user_level_driver_does_not_have() -> None:
    driver = {"nvme_user": [33_000.0, 33_100.0, 32_900.0]}
    found = findings(IOPS | {"nvme_user": [30_000.0, 30_100.0, 29_900.0]}, NS | driver)
    [share] = [each for each in found if isinstance(each, SoftwareShare)]
    shares = dict(share.shares)
    assert list(shares) == ["sync", "libaio", "uring"]
    assert shares["sync"].value == pytest.approx(0.67)
    assert shares["uring"].value == pytest.approx(0.5)
    low, high = shares["uring"].low, shares["uring"].high
    assert low is not None and high is not None and low < 0.5 < high
    assert "uring 50 %" in share.sentence
