"""Paging: parameters and the spec they become, swap of a case, verdicts, and comparisons with reads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine
from measured import record

from iosonde.engine import protocol
from iosonde.errors import StudyError, TargetError
from iosonde.features.paging.questions import FaultOverhead, MappedReads, fault_overheads, mapped_reads
from iosonde.features.paging.verdict import judge
from iosonde.features.swap_areas import area, settings
from iosonde.findings.finding import Finding, Support
from iosonde.findings.question import Question
from iosonde.metrics.statistics import difference
from iosonde.metrics.verdict.evidence import Total
from iosonde.planning import expand, load, parse
from iosonde.storage import control_groups, open_target
from iosonde.study import setup
from iosonde.study.workload import named

MIB = 1 << 20
PAGING = named("paging")

STUDY = """
name = "mixed-workloads"
title = "Faults beside reads"
question = "What does the kernel add?"
workload = "paging"
repeats = 1

[measurement]
size = "64MiB"
swap = "target"
swap_size = "128MiB"

[[parts]]
name = "faults"
[parts.factors]
page_cluster = [0, 3]

[[parts]]
name = "reads"
workload = "block"
measurement = { span = "8MiB", read_fraction = 1.0 }

[profiles.quick]
measurement = { duration = "1s" }
parts.reads = { duration = "2s" }
"""


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": PAGING.build(parameters)}
    return PAGING.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every user who runs the tests, memory can be limited and swap can be used."""
    hierarchy = control_groups.Hierarchy(directory=Path("/"), version=2)
    monkeypatch.setattr(control_groups, "hierarchy", lambda: hierarchy)
    monkeypatch.setattr(area, "check_possible", lambda: None)
    monkeypatch.setattr(settings, "check_possible", lambda _: None)


@pytest.mark.parametrize(
    ("written", "kind", "shape"),
    [
        ("sequential", "sequential", {}),
        ("zipfian", "zipfian", {"theta": 0.99}),
        ("zipfian:1.2", "zipfian", {"theta": 1.2}),
        ("normal:0.05", "normal", {"deviation": 0.05}),
    ],
)
def test_patterns_reach_the_engine_with_their_shape(tmp_path: Path, written: str, kind: str, shape: Any) -> None:
    assert spec(tmp_path, pattern=written)["streams"][0]["pattern"] == {"kind": kind, **shape}


def test_overcommit_decides_the_memory_limit(tmp_path: Path) -> None:
    stream = PAGING.build({"size": "256MiB", "overcommit": 2})
    fitted = PAGING.fit({"main": stream}, open_target(str(tmp_path)), room_bytes=0)["main"]
    assert fitted.memory_limit == 128 * MIB
    assert PAGING.buffer_bytes({"main": fitted}) == 128 * MIB
    with pytest.raises(StudyError, match="too small") as raised:
        spec(tmp_path, size="64MiB", overcommit=4)
    assert "overcommit" in raised.value.where


def test_a_mapped_file_is_the_one_that_block_io_reads(tmp_path: Path) -> None:
    mapped = spec(tmp_path, mapping="file", size="16MiB", advice="random")
    assert mapped["target"]["kind"] == "file"
    assert Path(mapped["target"]["path"]).name == "data"
    assert (mapped["advice"], mapped["page_cache"]) == ("random", "drop")
    stream = PAGING.build({"mapping": "file", "size": "16MiB"})
    assert PAGING.files({"main": stream}) == {"data": 16 * MIB}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mapping": "file", "read_fraction": 0.5}, "only read"),
        ({"page_cache": "warm"}, "page_cache"),
        ({"memory_limit": "1GiB", "overcommit": 2}, "set one of them"),
        ({"duration": "none"}, "never end"),
        ({"pattern": "zipfian:0"}, "pattern"),
        ({"pattern": "normal:x"}, "pattern"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        PAGING.build(parameters)


def test_parts_with_another_workload_have_parameters_of_their_own(tmp_path: Path) -> None:
    plan = expand(parse(STUDY), open_target(str(tmp_path)), profile="quick")
    kinds = {run.case_id: run.spec["workload"]["kind"] for run in plan.runs}
    assert kinds == {"faults/page_cluster=0": "paging", "faults/page_cluster=3": "paging", "reads": "block"}
    durations = {run.case_id: run.spec["workload"]["duration_ns"] for run in plan.runs}
    assert durations == {"faults/page_cluster=0": 10**9, "faults/page_cluster=3": 10**9, "reads": 2 * 10**9}
    cases = {case.case_id: case.parameters for case in plan.cases}
    assert cases["faults/page_cluster=3"]["swap"] == "target"
    assert cases["faults/page_cluster=3"]["page_cluster"] == 3
    assert "swap" not in cases["reads"]
    settings = {"size": "32MiB", "span": "4MiB", "duration": "3s"}
    plan = expand(parse(STUDY), open_target(str(tmp_path)), profile="quick", settings=settings)
    workloads = {run.case_id: run.spec["workload"] for run in plan.runs}
    assert workloads["faults/page_cluster=0"]["target"]["size_bytes"] == 32 * MIB
    assert workloads["reads"]["target"]["size_bytes"] == 4 * MIB
    assert {each["duration_ns"] for each in workloads.values()} == {3 * 10**9}


def test_the_plan_names_the_swap_file_and_refuses_one_without_room(tmp_path: Path) -> None:
    plan = expand(parse(STUDY), open_target(str(tmp_path)), profile="quick")
    assert any("creates a swap file of 128 MiB" in each.what for each in plan.destroys)
    with pytest.raises(TargetError, match="no room for a swap area") as raised:
        expand(parse(STUDY), open_target(str(tmp_path)), profile="quick", settings={"swap_size": "1000000GiB"})
    assert "swap_size" in raised.value.where


def test_wrong_values_of_swap_and_a_question_without_the_part_with_reads_are_refused() -> None:
    for name, value in (("swap", "tape"), ("swap_size", "4KiB"), ("page_cluster", 99), ("zswap", "maybe")):
        with pytest.raises(StudyError, match=name):
            setup.read_value(name, value)
    question = '\n[[analysis]]\nkind = "fault_overhead"\npart = "faults"\nover = "page_cluster"\n'
    parse(STUDY + question + 'device_part = "reads"\n')
    with pytest.raises(StudyError, match="no part"):
        parse(STUDY + question)


# Verdicts -------------------------------------------------------------------------------------------------------------


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


# A major fault compared with a read of the device, from latencies with a known difference -----------------------------


def rows_of(case: str, part: str, metric: str, values: list[float], operation: str = "all") -> list[dict[str, Any]]:
    same = {"case_id": case, "part": part, "control": False, "stream": "main", "operation": operation, "metric": metric}
    return [{**same, "run_id": f"{case}{i}", "repeat": i, "value": value} for i, value in enumerate(values)]


def question(kind: str, cases: pl.DataFrame, rows: list[dict[str, Any]]) -> Question:
    study = load("paging")
    analysis = next(each for each in study.analysis if each.kind == kind)
    return Question(study=study, analysis=analysis, cases=cases, runs=pl.DataFrame(rows), support=Support())


def findings(faults: list[float], reads: list[float], **metrics: float) -> list[Finding]:
    cases = pl.DataFrame(
        {
            "case_id": ["f", "d"], "part": ["patterns", "device"], "control": [False, False],
            "pattern": ["uniform", None], "overcommit": [2.0, None],
        }
    )  # fmt: skip
    by_operation = {"major_fault": faults, "hit": [90.0] * len(faults), "all": [100.0] * len(faults)}
    median = "completion_latency_ns_p50"
    rows = [row for name, each in by_operation.items() for row in rows_of("f", "patterns", median, each, name)]
    rows += [row for name in ("read", "all") for row in rows_of("d", "device", median, reads, name)]
    rows += [row for name, value in metrics.items() for row in rows_of("f", "patterns", name, [value])]
    return list(fault_overheads(question("fault_overhead", cases, rows)))


def test_the_difference_has_an_interval_and_names_read_ahead_and_writes_that_the_kernel_counted() -> None:
    [found] = findings([91_000.0, 91_500.0, 90_500.0, 91_200.0], [80_000.0, 80_300.0, 79_700.0, 80_000.0])
    assert isinstance(found, FaultOverhead)
    assert found.added.low is not None and found.added.high is not None
    assert found.added.low < 11_000 < found.added.high
    assert found.added.high - found.added.low < 2_000
    assert found.sentence.startswith("A major fault takes 11")
    faults, reads = [91.0, 92.0, 93.0], [80.0, 81.0, 82.0]
    [found] = findings(faults, reads, swap_in_pages_per_fault=7.6, swap_out_bandwidth=1e6)
    assert isinstance(found, FaultOverhead) and len(found.included) == 2
    [found] = findings(faults, reads, swap_in_pages_per_fault=1.01, swap_out_bandwidth=0)
    assert isinstance(found, FaultOverhead) and found.included == ()


def test_latencies_within_the_noise_are_no_overhead() -> None:
    [found] = findings([80_000.0, 95_000.0, 70_000.0], [78_000.0, 92_000.0, 75_000.0])
    assert "o statistically clear difference" in found.sentence
    [found] = findings([20_000.0, 20_100.0, 19_900.0], [80_000.0, 80_100.0, 79_900.0])
    assert "less than a direct 4 KiB read" in found.sentence, "by read-ahead"
    assert findings([20_000.0, 20_100.0, 19_900.0], []) == []


def test_the_interval_of_a_difference_is_that_of_welch() -> None:
    # Computed with scipy.stats.ttest_ind(equal_var=False).confidence_interval().
    found = difference([10.0, 12.0, 14.0], [1.0, 2.0, 6.0])
    assert found.value == 10
    assert (found.low, found.high) == pytest.approx((3.5239, 14.4761), abs=1e-3)


# Accesses to a mapped file compared with reads, from rates with known ratios ------------------------------------------


def mapped_findings(rates: dict[str, list[float]], reads: dict[str, list[float]]) -> list[Finding]:
    cases = pl.DataFrame(
        [
            {"case_id": name, "part": "mapped", "control": False, "advice": name, "io_mode": None} for name in rates
        ] + [
            {"case_id": name, "part": "reads", "control": False, "advice": None, "io_mode": name} for name in reads
        ]
    )  # fmt: skip
    values = [("mapped", "ops_per_sec", rates), ("reads", "iops", reads)]
    rows = [
        row for part, metric, each in values for case, found in each.items()
        for row in rows_of(case, part, metric, found)
    ]  # fmt: skip
    return list(mapped_reads(question("mapped_reads", cases, rows)))


RATES = {"normal": [300.0, 303.0, 297.0], "random": [90.0, 91.0, 89.0]}


def test_each_io_mode_has_the_ratio_of_every_advice() -> None:
    direct, buffered = mapped_findings(RATES, {"direct": [100.0, 101.0, 99.0], "buffered": [200.0, 202.0, 198.0]})
    assert isinstance(direct, MappedReads)
    assert isinstance(buffered, MappedReads)
    assert [(level, each.value) for level, each in direct.ratios] == [
        ("advice normal", pytest.approx(3.0)),
        ("advice random", pytest.approx(0.9)),
    ]
    assert dict(buffered.ratios)["advice random"].value == pytest.approx(0.45)
    assert direct.sentence.startswith("Accesses to a mapped file have 3.00 times")
    assert mapped_findings(RATES, {}) == []
    assert mapped_findings({}, {"direct": [100.0, 101.0, 99.0]}) == []


# A mapped file, by the engine itself -----------------------------------------------------------------------------------


def mapped(path: Path, *, limit_operations: int | None = 1000) -> dict[str, Any]:
    stream = {
        "name": "main", "jobs": 1, "pattern": {"kind": "uniform"}, "read_fraction": 1.0,
        "limit_operations": limit_operations, "cpus": [],
    }  # fmt: skip
    workload = {
        "kind": "paging", "target": {"kind": "file", "path": str(path), "size_bytes": 8 * MIB}, "advice": "random",
        "huge_pages": False, "compressible_fraction": 0.0, "content_seed": 1, "page_cache": "drop", "streams": [stream],
        "ramp": {"duration_ns": 0, "bytes": None}, "duration_ns": 60_000_000_000, "interval_ns": 100_000_000,
        "verify_after": True,
    }  # fmt: skip
    return {
        "protocol": protocol.VERSION, "run_id": "r", "seed": 1, "workload": workload, "observe": {"block_devices": []},
    }  # fmt: skip


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.engine
def test_a_mapped_file_is_laid_out_read_and_verified_and_other_contents_are_reported(tmp_path: Path) -> None:
    asked = json.dumps(mapped(tmp_path / "data"))

    def run() -> list[dict[str, Any]]:
        return events(subprocess.run([real_engine()], input=asked, capture_output=True, text=True, check=True).stdout)

    for written in (8 * MIB, 0):
        result = run()[-1]
        assert result["event"] == "result"
        assert result["layout"] == {"written_bytes": written, "kept_bytes": 8 * MIB - written}
        facts = result["paging"]
        assert facts["verified_pages"] == facts["pages"] == 8 * MIB // facts["page_bytes"]
        assert (facts["corrupted"], facts["wrong_pages"]) == (0, 0)
        assert facts["minor_faults"] + facts["major_faults"] > 0
    with (tmp_path / "data").open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"x" * 4096)
    found = run()
    facts = found[-1]["paging"]
    assert (facts["wrong_pages"], facts["first_wrong_page"]) == (1, 5)
    assert "wrong_pages" in [each["code"] for each in found if each["event"] == "warning"]


@pytest.mark.engine
def test_a_file_that_is_truncated_under_the_mapping_ends_the_run_with_an_error(tmp_path: Path) -> None:
    engine = subprocess.Popen([real_engine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert engine.stdin is not None and engine.stdout is not None
    engine.stdin.write(json.dumps(mapped(tmp_path / "data", limit_operations=None)) + "\n")
    engine.stdin.flush()
    for line in engine.stdout:
        if json.loads(line)["event"] == "interval":
            break
    with (tmp_path / "data").open("r+b") as file:
        file.truncate(0)
    rest = events(engine.stdout.read())
    assert engine.wait() == 1
    assert (rest[-1]["event"], rest[-1]["code"]) == ("error", "io_error")
    assert "SIGBUS" in rest[-1]["message"]
    engine.stdin.close()
