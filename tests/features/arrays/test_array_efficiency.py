"""Arrays of known performance: expected values, losses and their causes, as values and as sentences."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from fabricate import Array, result_set
from hand_made import results, study

from iosonde.features.arrays.loads import Loads
from iosonde.features.arrays.performance import array_performance
from iosonde.features.arrays.questions import ArrayEfficiency, why
from iosonde.findings.findings import findings
from iosonde.findings.question import Question
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet
from iosonde.study.model import Study

KIB, GB = 1 << 10, 1e9
READ, WRITE = 2.5 * GB, 2.0 * GB
OPERATIONS = [
    {"label": "read", "set": {"read_fraction": 1.0, "jobs": 64}},
    {"label": "write", "set": {"read_fraction": 0.0, "jobs": 64}},
]


FACTORS = {"array": ["single", "raid0", "raid1", "raid5"], "devices": [1, 4, 8], "operation": OPERATIONS}
STUDY = {
    **{"name": "arrays", "title": "Arrays", "question": "?", "profiles": {"quick": {}}},
    "parts": [{"name": "main", "factors": FACTORS}],
    "analysis": [{"kind": "array_efficiency", "over": "devices", "by": ["array", "operation"]}],
}


def shares(parameters: dict[str, Any]) -> float:
    """Throughput of an array in devices: all of them for RAID 0, half for RAID 1 reads, the model for RAID 5."""
    level, devices = parameters.get("array", "single"), parameters.get("devices", 1)
    if level == "single" or devices == 1:
        return 1.0
    reads = {"raid0": devices, "raid1": devices / 2, "raid5": devices - 1}
    return (reads if parameters["read_fraction"] == 1 else {"raid0": devices, "raid1": 1, "raid5": devices / 50})[level]


def performance(parameters: dict[str, Any], *, speed: float) -> tuple[float, float]:
    one = READ if parameters["read_fraction"] == 1 else WRITE
    iops = speed * shares(parameters) * one / parameters["block_size"]
    return iops, 64 / iops * 1e9


def array(parameters: dict[str, Any]) -> Array | None:
    level, devices = parameters.get("array", "single"), parameters.get("devices", 1)
    target = {"kind": "simulated", "simulated": True, "size_bytes": int(480e9)}
    if level == "single" or devices == 1:
        return Array(target=target, members=[], shares=[])
    capacity = {"raid0": devices, "raid1": 1, "raid5": devices - 1}[level]
    writes, reads = {"raid0": (1, 0), "raid1": (devices, 0), "raid5": (2, 2)}[level]
    if parameters["read_fraction"] == 1:
        writes, reads = 0, 1
    members = [f"drive{number}" for number in range(devices)]
    return Array(
        target={**target, "size_bytes": int(480e9 * capacity), "devices": [{"device": each} for each in members]},
        members=members,
        shares=[1 / devices] * devices,
        busy=0.5 if level == "raid1" else 0.98,
        reads=reads,
        writes=writes,
        read_bytes=reads,
        write_bytes=writes,
    )


@pytest.fixture(scope="module")
def fabricated(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    directory = tmp_path_factory.mktemp("arrays") / "results"
    return result_set(directory, STUDY, repeats=3, seconds=1, performance=performance, array=array)


@pytest.fixture(scope="module")
def answers(fabricated: ResultSet) -> list[dict[str, Any]]:
    model = Study.model_validate(fabricated.plan.study)
    cases, runs = fabricated.cases, run_metrics(fabricated)
    question = Question(study=model, analysis=model.analysis[0], cases=cases, runs=runs, outcomes=fabricated.runs)
    return Loads(question).answers()


def row(answers: list[dict[str, Any]], level: str, devices: int, operation: str) -> dict[str, Any]:
    wanted = level, devices, operation
    [found] = [each for each in answers if (each["array"], each["devices"], each["operation"]) == wanted]
    return found


def test_efficiency_is_measured_over_expected_with_its_interval(answers: list[dict[str, Any]]) -> None:
    assert {each["devices"] for each in answers} == {4, 8}
    assert "single" not in {each["array"] for each in answers}
    largest = row(answers, "raid5", 8, "read")
    assert largest["capacity"] == largest["expected_capacity"] == 7 * 480e9
    for level, devices, operation, multiple, efficiency in [
        ("raid0", 8, "read", 8, 1.0),
        ("raid1", 4, "read", 4, 0.5),
        ("raid1", 8, "write", 1, 1.0),
        ("raid5", 8, "read", 7, 1.0),
        ("raid5", 8, "write", 7 / 4, (8 / 50) / (7 / 4)),
    ]:
        found = row(answers, level, devices, operation)
        assert found["multiple"] == pytest.approx(multiple)
        assert found["efficiency"] == pytest.approx(efficiency, rel=0.05)
        assert found["low"] <= found["efficiency"] <= found["high"]
        assert found["overhead"] == pytest.approx(1 - found["efficiency"])
        assert found["speedup"] == pytest.approx(found["efficiency"] * multiple)
        assert found["expected"] == pytest.approx(multiple * found["baseline"])


def test_member_counters_give_the_cost_of_each_io_and_the_bound_that_of_partial_stripes(
    answers: list[dict[str, Any]],
) -> None:
    modify = row(answers, "raid5", 8, "write")
    assert modify["member_ios_per_operation"] == pytest.approx(4, abs=0.05)
    assert modify["member_reads_per_operation"] == pytest.approx(2, abs=0.05)
    assert modify["member_bytes_per_byte"] == pytest.approx(4, abs=0.05)
    assert modify["member_utilisation"] == pytest.approx(0.98)
    assert modify["member_imbalance"] == pytest.approx(1, abs=0.01)
    assert modify["cpu_ns_per_byte"] is None, "simulated drives say nothing of the processor"
    assert row(answers, "raid1", 8, "write")["member_ios_per_operation"] == pytest.approx(8, abs=0.05)
    # 4 KiB on a chunk of 512 KiB: two reads and two writes, shared out among 8 drives, both at once.
    assert (modify["needed_bytes"], modify["bound_by"], modify["members_in_use"]) == (4, "members", 8)
    assert modify["bound"] == pytest.approx(8 / (2 / WRITE), rel=0.05)


LOAD = {"block_size": 4 * KIB, "io_mode": "direct", "access": "random", "read_fraction": 1.0, "queue_depth": 1}


def answers_by_hand(values: dict[tuple[str, int], list[float]], **facts: Any) -> list[dict[str, Any]]:
    """RAID and one device with one I/O in flight; `facts` are recorded facts about the target."""
    cases, runs = results(["array", "devices"], {"bandwidth": values}, jobs=1, **LOAD)
    outcomes = cases.select("case_id").with_columns(pl.lit(value).alias(name) for name, value in facts.items())
    question = Question(study=BY_HAND, analysis=BY_HAND.analysis[0], cases=cases, runs=runs, outcomes=outcomes)
    return Loads(question).answers()


BY_HAND = study(
    {"array": ["single", "raid0", "raid5"], "devices": [1, 4]},
    [{"kind": "array_efficiency", "over": "devices", "by": ["array"]}],
)
ONE_IN_FLIGHT = {("single", 1): [100.0] * 3, ("raid0", 4): [98.0] * 3}


@pytest.mark.parametrize(
    ("facts", "bound", "bound_by", "reason"),
    [
        ({}, 100, "parallelism", "this load keeps 1 of 4 members busy at once"),
        ({"link_bytes_per_second": 90.0}, 90, "link", "limited by the link that all members share"),
        ({"pcie_bytes_per_second": 90.0}, 90, "pcie", "limited by the PCIe link that members share"),
    ],
)
def test_the_lowest_bound_is_the_reason(facts: dict[str, float], bound: float, bound_by: str, reason: str) -> None:
    (found,) = answers_by_hand(ONE_IN_FLIGHT, **facts)
    assert (found["expected"], found["bound"], found["bound_by"]) == (400, bound, bound_by)
    assert why(found) == reason


def test_a_thread_that_saturates_its_core_is_the_reason_where_members_are_not() -> None:
    (found,) = answers_by_hand({("single", 1): [100.0] * 3, ("raid0", 4): [60.0] * 3})
    assert why({**found, "core_utilisation": 0.97}) == "CPU-limited: a thread used 97 % of one core"
    assert why({**found, "member_utilisation": 0.6, "member_imbalance": 1.2}) == (
        "members are idle 40 % of the time, the busiest moving 1.20 times the mean"
    )
    assert why({**found, "member_imbalance": 1.5}) == "uneven load: the busiest member moves 1.50 times the mean"
    assert why({**found, "member_utilisation": 0.98}) == "members are busy 98 % of the time"
    assert why(found) == ""
    busy = {**found, "core_utilisation": 0.99, "member_utilisation": 0.6}
    assert why(busy, is_polling=True) == "members are idle 40 % of the time"
    polled, blocked = (
        efficiencies(single=[100.0] * 3, array=[60.0] * 3, core_utilisation=0.99, completion_polling=is_polling)
        for is_polling in (True, False)
    )
    assert [each.reason for each in (*polled, *blocked)] == ["", "CPU-limited: a thread used 99 % of one core"]


def test_a_thread_of_md_that_has_no_time_left_is_the_reason_and_not_the_members() -> None:
    (found,) = answers_by_hand({("single", 1): [100.0] * 3, ("raid0", 4): [60.0] * 3})
    assert (found["array_thread"], found["array_thread_utilisation"]) == (None, None)
    [named] = answers_by_hand(ONE_IN_FLIGHT, array_thread="md127_raid5")
    assert named["array_thread"] == "md127_raid5"
    saturated = {**found, "array_thread": "md127_raid5", "array_thread_utilisation": 0.98, "of_bound": 0.3}
    held = "CPU-limited: `md127_raid5` used 98 % of one core"
    assert why(saturated) == held
    assert why({**saturated, "member_utilisation": 1.0}) == held, "a member with one I/O in flight counts as busy"
    assert why({**saturated, "of_bound": 0.97}) == "this load keeps 1 of 4 members busy at once"
    assert why({**saturated, "array_thread_utilisation": 0.5}) == ""


def test_without_a_single_device_there_is_no_expected_value() -> None:
    cases, runs = results(["array", "devices"], {"bandwidth": {("raid0", 4): [98.0] * 3}}, jobs=1, **LOAD)
    cells = runs.group_by("case_id").agg(values=pl.col("value")).join(cases, on="case_id")
    assert array_performance(cells, cases, factors=[]) == []


def test_efficiencies_of_each_level_and_load(fabricated: ResultSet) -> None:
    model = Study.model_validate(fabricated.plan.study)
    every = findings(model, fabricated.cases, run_metrics(fabricated), runs=fabricated.runs)
    found = [each for each in every if isinstance(each, ArrayEfficiency)]
    assert {(each.array, each.load, each.applies) for each in found} == {
        ("RAID 0", "", True),
        ("RAID 1", "writes", True),
        ("RAID 1", "reads", True),
        ("RAID 5", "reads", True),
        ("RAID 5", "writes", True),
    }
    by_load = {(each.array, each.load): each for each in found}
    assert by_load["RAID 5", "writes"].efficiency == (pytest.approx(0.09, abs=0.005), pytest.approx(0.1, abs=0.005))
    assert by_load["RAID 5", "writes"].reason == "4 member I/Os per host write, 2 of them reads"
    assert by_load["RAID 1", "reads"].reason == "members are idle 50 % of the time"
    assert by_load["RAID 0", ""].devices == (4, 8)


def efficiencies(
    *,
    single: list[float],
    array: list[float],
    level: str = "raid0",
    core_utilisation: float | None = None,
    **parameters: Any,
) -> list[ArrayEfficiency]:
    """The efficiency of an array of four devices, of reads by default."""
    metrics = {"bandwidth": {("single", 1): single, (level, 4): array}}
    if core_utilisation is not None:
        metrics["core_utilisation"] = {(level, 4): [core_utilisation] * len(array)}
    cases, runs = results(["array", "devices"], metrics, jobs=1, **{**LOAD, "queue_depth": 8, **parameters})
    return [each for each in findings(BY_HAND, cases, runs) if isinstance(each, ArrayEfficiency)]


def test_the_model_applies_unless_the_interval_is_above_it() -> None:
    [scattered] = efficiencies(single=[80.0, 100.0, 130.0], array=[380.0, 524.0, 700.0])
    assert (scattered.applies, scattered.reason) == (True, "")
    assert scattered.lowest["efficiency"] > 1.2 > 1 > scattered.lowest["low"]
    [above] = efficiencies(single=[100.0, 101.0, 102.0], array=[520.0, 524.0, 530.0])
    assert (above.applies, above.reason) == (False, "cause unknown; 130 % of the layout bound")
    [once] = efficiencies(single=[100.0], array=[700.0])
    assert (once.applies, once.strength) == (False, "weak"), "no interval, no efficiency of 175 %"


def test_above_the_model_it_does_not_apply_and_the_reason_is_named() -> None:
    """Never an efficiency of 308 %, nor a negative overhead. Whole stripes explain it only as far as the layout permits."""
    whole_stripe = 3 * (512 << 10)
    for rate, reason in ((300.0, "the model assumes partial-stripe writes"), (700.0, "cause unknown")):
        writes = {"level": "raid5", "read_fraction": 0.0, "block_size": whole_stripe, "queue_depth": 1}
        [finding] = efficiencies(single=[100.0] * 3, array=[rate] * 3, **writes)
        assert not finding.applies
        assert finding.reason.startswith(reason)
        assert "does not apply" in finding.sentence
