"""Gains from one I/O backend to the next, and the share of latency that is software, from known values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
import pytest
from hand_made import results

from iosonde.features.nvme_driver.questions import (
    LATENCY,
    BackendStep,
    SoftwareShare,
    TotalGain,
    UnknownSoftwareShare,
    find,
)
from iosonde.findings.finding import Finding, Support
from iosonde.findings.question import Question
from iosonde.planning import load

pytestmark = pytest.mark.unit

IOPS = {"sync": [10_000.0, 10_100.0, 9_900.0], "libaio": [10_500.0, 10_600.0, 10_400.0], "uring": [15_000.0, 15_100.0, 14_900.0]}  # fmt: skip
NS = {"sync": [100_000.0, 101_000.0, 99_000.0], "libaio": [95_000.0, 95_500.0, 94_500.0], "uring": [66_000.0, 66_500.0, 65_500.0]}  # fmt: skip


NOISY = [2_000.0, 15_000.0, 50_000.0]


def findings(iops: Mapping[str, Sequence[float]], ns: Mapping[str, Sequence[float]]) -> list[Finding]:
    """Of reads with one job and one I/O in flight."""
    return list(find(question(iops, ns)))


def question(iops: Mapping[str, Sequence[float]], ns: Mapping[str, Sequence[float]]) -> Question:
    """The first question of the study, about runs with these values."""
    study = load("jo2024-driver")
    metrics = {metric: {(name,): each for name, each in by.items()} for metric, by in (("iops", iops), (LATENCY, ns))}
    same = {"operation": "read", "jobs": 1, "queue_depth": 1, "read_fraction": 1.0, "access": "random"}
    cases, runs = results(["interface"], metrics, part="single", block_size=4096, **same)
    cases = cases.with_columns(backend=pl.col("interface"))
    return Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs, support=Support())


def test_each_step_and_the_total_have_a_ratio_with_its_interval() -> None:
    found = findings(IOPS, NS)
    steps = [each for each in found if isinstance(each, BackendStep)]
    assert [(step.before, step.after, step.kind) for step in steps] == [
        ("sync", "libaio", "backend step"),
        ("libaio", "uring", "backend step"),
        ("sync", "uring", "total backend gain"),
    ]
    assert [round(step.ratio.value, 2) for step in steps] == [1.05, 1.43, 1.5]
    for step in steps:
        assert step.ratio.low is not None and step.ratio.high is not None
        assert step.ratio.low < step.ratio.value < step.ratio.high
    assert not [each for each in found if isinstance(each, SoftwareShare)], "not known without the user-level driver"
    assert [each for each in found if isinstance(each, UnknownSoftwareShare)]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "uring, the best backend, has 1.50 times"),
        ({"libaio": [14_500.0, 15_200.0, 14_700.0]}, "uring, with the highest median of all backends, has 1.50 times"),
        ({"uring": NOISY}, "libaio is shown to improve on sync; uring, with the highest median"),
        ({"uring": NOISY, "libaio": [8_000.0, 10_500.0, 13_000.0]}, "no backend is shown to improve on sync; uring"),
    ],
)
def test_the_best_backend_is_named_as_such_only_if_its_lead_is_shown(
    changed: dict[str, list[float]], words: str
) -> None:
    [total] = [each for each in findings({**IOPS, **changed}, NS) if isinstance(each, TotalGain)]
    assert (total.after, total.leads) == ("uring", not changed)
    assert words in total.sentence


DRIVER_IOPS = {"nvme_user": [30_000.0, 30_100.0, 29_900.0]}
DRIVER_NS = {"nvme_user": [33_000.0, 33_100.0, 32_900.0]}


def test_the_share_of_software_is_what_exceeds_the_latency_of_the_user_level_driver() -> None:
    [share] = [each for each in findings(IOPS | DRIVER_IOPS, NS | DRIVER_NS) if isinstance(each, SoftwareShare)]
    shares = dict(share.shares)
    assert list(shares) == ["sync", "libaio", "uring"]
    assert shares["sync"].value == pytest.approx(0.67)
    assert shares["uring"].value == pytest.approx(0.5)
    low, high = shares["uring"].low, shares["uring"].high
    assert low is not None and high is not None and low < 0.5 < high
    assert share.floor.value == 33_000
    assert "of the latency with uring to" in share.sentence and "67 %" in share.sentence.partition("to ")[2]


def test_a_backend_that_is_faster_than_the_user_level_driver_has_no_software_share() -> None:
    slow = {"nvme_user": [80_000.0, 80_100.0, 79_900.0]}
    [share] = [each for each in findings(IOPS | DRIVER_IOPS, NS | slow) if isinstance(each, SoftwareShare)]
    assert dict(share.shares)["uring"].value < 0
    assert "the latency of uring is not shown to be above that of the user-level driver" in share.sentence
    slowest = {"nvme_user": [200_000.0, 200_100.0, 199_900.0]}
    [share] = [each for each in findings(IOPS | DRIVER_IOPS, NS | slowest) if isinstance(each, SoftwareShare)]
    assert "software is" not in share.sentence


def test_the_share_is_stated_once_and_a_driver_with_interrupts_is_no_floor() -> None:
    """Two parts of the study measure queue depth 1."""
    asked = question(IOPS | DRIVER_IOPS, NS | DRIVER_NS)
    first, second, *_ = [each for each in asked.study.analysis if each.kind == "backend_steps"]
    assert asked.analysis == first
    slow = asked.cases.with_columns(interrupts=pl.col("backend") == "nvme_user")
    for other in (replace(asked, analysis=second), replace(asked, cases=slow)):
        assert not [each for each in find(other) if isinstance(each, SoftwareShare)]
