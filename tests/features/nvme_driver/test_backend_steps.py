"""Gains from one I/O backend to the next, and the share of latency that is software, from known values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from iosonde.features.nvme_driver.questions import (
    LATENCY,
    BackendStep,
    SoftwareShare,
    TotalGain,
    UnknownSoftwareShare,
    find,
)
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load

pytestmark = pytest.mark.unit

IOPS = {"sync": [10_000.0, 10_100.0, 9_900.0], "libaio": [10_500.0, 10_600.0, 10_400.0], "uring": [15_000.0, 15_100.0, 14_900.0]}  # fmt: skip
NS = {"sync": [100_000.0, 101_000.0, 99_000.0], "libaio": [95_000.0, 95_500.0, 94_500.0], "uring": [66_000.0, 66_500.0, 65_500.0]}  # fmt: skip


def findings(iops: Mapping[str, Sequence[float]], ns: Mapping[str, Sequence[float]]) -> list[Finding]:
    """Of reads with one job and one I/O in flight."""
    return list(find(question(iops, ns)))


def question(iops: Mapping[str, Sequence[float]], ns: Mapping[str, Sequence[float]]) -> Question:
    """The first question of the study, about runs with these values."""
    study = load("jo2024-driver")
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
    return Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows), support=Support())


def test_each_step_and_the_total_have_a_ratio_with_its_interval() -> None:
    steps = [each for each in findings(IOPS, NS) if isinstance(each, BackendStep)]
    assert [(step.before, step.after, step.kind) for step in steps] == [
        ("sync", "libaio", "backend step"),
        ("libaio", "uring", "backend step"),
        ("sync", "uring", "total backend gain"),
    ]
    assert [round(step.ratio.value, 2) for step in steps] == [1.05, 1.43, 1.5]
    for step in steps:
        assert step.ratio.low is not None and step.ratio.high is not None
        assert step.ratio.low < step.ratio.value < step.ratio.high
    assert "uring has 1.43 times" in steps[1].sentence
    assert "IOPS of libaio" in steps[1].sentence
    assert "uring, the best backend, has 1.50 times" in steps[2].sentence


def test_the_best_backend_is_named_as_such_only_if_its_gain_is_shown() -> None:
    iops = {**IOPS, "uring": [2_000.0, 15_000.0, 50_000.0]}
    [total] = [each for each in findings(iops, NS) if each.kind == "total backend gain"]
    assert "libaio is shown to improve on sync; uring, with the highest median" in total.sentence, total.sentence
    noisy = {**iops, "libaio": [8_000.0, 10_500.0, 13_000.0]}
    [total] = [each for each in findings(noisy, NS) if each.kind == "total backend gain"]
    assert "no backend is shown to improve on sync; uring" in total.sentence, total.sentence


def test_a_backend_that_is_not_shown_to_lead_another_is_not_called_the_best() -> None:
    iops = {**IOPS, "libaio": [14_500.0, 15_200.0, 14_700.0]}
    [total] = [each for each in findings(iops, NS) if isinstance(each, TotalGain)]
    assert (total.after, total.leads) == ("uring", False)
    assert "uring, with the highest median of all backends, has 1.50 times" in total.sentence
    [total] = [each for each in findings(IOPS, NS) if isinstance(each, TotalGain)]
    assert total.leads


def test_without_the_user_level_driver_the_share_of_software_is_unknown() -> None:
    found = findings(IOPS, NS)
    assert not [each for each in found if isinstance(each, SoftwareShare)]
    [share] = [each for each in found if isinstance(each, UnknownSoftwareShare)]
    assert "unknown" in share.sentence


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
    assert "software is 50 %" in share.sentence and "67 %" in share.sentence
    assert "of the latency with uring to" in share.sentence and "67 %" in share.sentence.partition("to ")[2]
    assert "the floor is 33 µs" in share.sentence


def test_a_backend_that_is_faster_than_the_user_level_driver_has_no_software_share() -> None:
    slow = {"nvme_user": [80_000.0, 80_100.0, 79_900.0]}
    [share] = [each for each in findings(IOPS | DRIVER_IOPS, NS | slow) if isinstance(each, SoftwareShare)]
    assert dict(share.shares)["uring"].value < 0
    assert "%" in share.sentence and "-" not in share.sentence.partition("software is")[2].partition("with libaio")[0]
    assert (
        "the latency of uring is not shown to be above that of the user-level driver; the floor is 80 µs"
        in share.sentence
    )
    assert "uring 0.0 %" in share.evidence
    slowest = {"nvme_user": [200_000.0, 200_100.0, 199_900.0]}
    [share] = [each for each in findings(IOPS | DRIVER_IOPS, NS | slowest) if isinstance(each, SoftwareShare)]
    assert "software is" not in share.sentence
    assert (
        "the latency of sync, libaio and uring is not shown to be above that of the user-level driver" in share.sentence
    )


def test_a_study_without_the_user_level_driver_makes_no_statement_on_software() -> None:
    study = load("kernel-tax")
    asked = question(IOPS, NS)
    asked = replace(
        asked,
        study=study,
        analysis=next(each for each in study.analysis if each.kind == "backend_steps"),
        cases=asked.cases.with_columns(part=pl.lit("main"), kernel_trace=pl.lit(False)),
        runs=asked.runs.with_columns(part=pl.lit("main")),
    )
    assert {type(each) for each in find(asked)} == {BackendStep, TotalGain}


def test_steps_of_cpu_time_are_written_in_its_unit_and_the_best_has_the_least() -> None:
    asked = question(IOPS, NS)
    cpu = next(each for each in asked.study.analysis if each.metric == "cpu_ns_per_operation")
    runs = asked.runs.with_columns(pl.col("metric").replace(LATENCY, "cpu_ns_per_operation"))
    steps = [each for each in find(replace(asked, analysis=cpu, runs=runs)) if isinstance(each, BackendStep)]
    assert [(step.before, step.after, step.kind) for step in steps][-1] == ("sync", "uring", "total backend gain")
    assert "times the CPU time per operation of" in re.sub(r" \(.*?\)", "", steps[0].sentence)


def test_the_share_is_stated_once_where_two_parts_measure_queue_depth_1() -> None:
    study = load("jo2024-driver")
    first, second, *_ = [each for each in study.analysis if each.kind == "backend_steps"]
    asked = question(IOPS | DRIVER_IOPS, NS | DRIVER_NS)
    assert asked.analysis == first
    assert not [each for each in find(replace(asked, analysis=second)) if isinstance(each, SoftwareShare)]


def test_the_user_level_driver_with_interrupts_is_no_floor() -> None:
    asked = question(IOPS | DRIVER_IOPS, NS | DRIVER_NS)
    slow = asked.cases.with_columns(interrupts=pl.col("backend") == "nvme_user")
    found = list(find(replace(asked, cases=slow)))
    assert not [each for each in found if isinstance(each, SoftwareShare)]
