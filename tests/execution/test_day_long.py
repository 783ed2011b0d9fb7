"""Simulated drives, whose day takes seconds: a study of a day in parts, ramps until steady, preconditioning in one pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from test_sustained import StopAfter, found_rounds

from iosonde.errors import StudyError
from iosonde.execution import execute, resume
from iosonde.plan import Case, Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.study.model import Study

STUDY = """
name = "day"
title = "A day"
question = "Does it settle within a day?"
repeats = 1
[measurement]
access = "random"
read_fraction = 0.3
arrival = "poisson"
rate = 20
queue_depth = 16
span = "100%"
purge = "strongest"
precondition = "1MiB"
ramp = 0
duration = "4h"
interval = "1h"
[[parts]]
name = "day"
[parts.rounds]
max_rounds = 6
metric = "completion_latency_ns_max"
range = 1e-6
slope = 1e-6
stages = [{ label = "after an hour of rest", set = { active = "1h-", duration = "2h" } }]
[profiles.quick]
"""


def plan() -> Plan:
    return expand(parse(STUDY), open_target("sim:pm963,capacity=64MiB"), profile="quick")


def measured(result_set: ResultSet) -> dict[str, list[tuple[int, int]]]:
    """I/Os and the sum of their latencies in every interval of each run."""
    return {
        record.run_id: result_set.only([record.run_id])
        .intervals.sort("begin_ns", "operation")
        .select("count", "completion_latency_ns_sum")
        .rows()
        for record in result_set.records()
    }


def test_a_day_that_was_interrupted_is_the_same_day(tmp_path: Path) -> None:
    whole = execute(plan(), tmp_path / "whole")
    [found] = found_rounds(whole)
    assert not found.reached and found.reason == "steady state was not achieved within 6 rounds"
    assert found.passes[0].stages == 1
    for runs in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            if runs == 2:
                execute(plan(), tmp_path / "in-parts", observer=StopAfter(runs))
            else:
                resume(tmp_path / "in-parts", observer=StopAfter(runs))
    listener = StopAfter(None)
    in_parts = resume(tmp_path / "in-parts", observer=listener)
    assert not listener.notes, "a simulated drive keeps its state: nothing is prepared again"
    assert len({record.session for record in in_parts.records()}) == 3
    assert measured(in_parts) == measured(whole)
    assert found_rounds(in_parts)[0].passes == found_rounds(whole)[0].passes


SECOND = 10**9
Measure = Callable[..., Record]
DRIVE = "simulated:servers=1,read=100us,size=1GiB"


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    numbers = iter(range(10))

    def run(target: str | Path, workload: str = "block", **measurement: Any) -> Record:
        study = Study.model_validate(
            {
                "name": "one", "title": "One case", "question": "When is it warm?", "repeats": 1,
                "workload": workload, "measurement": measurement, "parts": [{"name": "main"}],
                "profiles": {"standard": {}},
            }
        )  # fmt: skip
        [record] = execute(expand(study, open_target(str(target))), tmp_path / f"set{next(numbers)}").records()
        assert record.failure is None, record.failure
        return record

    return run


def ramp_ns(record: Record) -> int:
    assert record.result
    return int(record.result["begin_ns"])


def codes(record: Record) -> set[str]:
    return {warning.code for warning in record.warnings}


def test_a_ramp_ends_once_it_is_steady_or_at_its_limit_with_a_warning(measure: Measure) -> None:
    """Five intervals of 100 ms are compared with five before; the simulated clock makes it repeatable."""
    settings = {"ramp": "60s", "ramp_until": "steady", "duration": "1s", "interval": "100ms"}
    first, second = (measure(DRIVE, **settings) for _ in range(2))
    assert SECOND <= ramp_ns(first) < SECOND + SECOND // 5
    assert ramp_ns(first) == ramp_ns(second)
    assert "ramp_not_steady" not in codes(first)
    short = measure(DRIVE, **{**settings, "ramp": "500ms"})
    assert ramp_ns(short) == SECOND // 2
    assert "ramp_not_steady" in codes(short)
    assert ramp_ns(measure(DRIVE, ramp="3s", duration="1s", interval="100ms")) == 3 * SECOND


@pytest.mark.needs("disk")
def test_a_cold_start_is_a_warning_unless_the_study_names_it(measure: Measure, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    buffered = {"io_mode": "buffered", "span": "16MiB", "duration": "300ms", "interval": "100ms"}
    assert "cold_start" in codes(measure(directory, **buffered, ramp="0s"))
    named = measure(directory, **buffered, start="cold")
    assert ramp_ns(named) == 0 or named.spec["workload"]["ramp"]["duration_ns"] == 0
    assert "cold_start" not in codes(named)


@pytest.mark.parametrize(
    ("phase", "operations"),
    [
        ("ycsb_a", {"read", "write"}),
        ("ycsb_d", {"read"}),
        ("ycsb_e", {"scan"}),
        ("ycsb_f", {"read", "read_modify_write"}),
    ],
)
@pytest.mark.needs("disk")
def test_ycsb_reads_back_every_field_that_it_updates(
    measure: Measure, tmp_path: Path, phase: str, operations: set[str]
) -> None:
    """Hashed keys, ten fields and a growing key space; every value that is read is compared."""
    directory = tmp_path / "data"
    directory.mkdir()
    record = measure(
        directory, "kv", phase=phase, store="lmdb", records="5000", value_size=1000, fields=10, key_order="hashed",
        jobs=2, page_cache="warm", ramp="200ms", ramp_until="steady", duration="60s", interval="100ms",
        limit_operations=5000, lmdb={"mapsize": 4 << 30},  # Where CPUs are busy, a job may hold old pages for long.
    )  # fmt: skip
    description = record.spec["workload"]["records"]
    assert (description["fields"], description["key_order"]) == (10, "hashed")
    assert record.result
    checks = record.result["store"]["checks"]
    assert sum(check["values"] for check in checks) > 1000
    assert sum(check["missing"] + check["corrupted"] for check in checks) == 0
    assert {check["operation"] for check in checks if check["values"]} >= operations


GIB = 1 << 30

ONE_PASS = """
name = "one-pass"
title = "One pass"
question = "?"
repeats = 1
[measurement]
access = "random"
read_fraction = 0.0
span = "1GiB"
purge = "strongest"
precondition = "4KiB"
precondition_access = "aging"
ramp = 0
[[parts]]
name = "main"
rounds.max_rounds = 1
[profiles.quick]
"""


def case_on(target: str, **settings: str) -> Case:
    return expand(parse(ONE_PASS), open_target(target), profile="quick", settings=settings).adaptive[0]


def test_one_pass_leaves_the_amplification_of_the_steady_state_from_the_first_write_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Endless writes are four capacities here."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "bench"))
    import preconditioning

    sys.modules.pop("preconditioning")
    _, endless, one_pass, *_ = preconditioning.ways(0.07)
    found = {
        way.name: preconditioning.measured("sim:pm963,capacity=512MiB", way, GIB // 2) for way in (endless, one_pass)
    }
    sought, reached = found[endless.name], found[one_pass.name]
    assert reached.first_amplification == pytest.approx(sought.amplification, rel=0.07)
    assert reached.amplification == pytest.approx(sought.amplification, rel=0.05)
    assert reached.iops == pytest.approx(sought.iops, rel=0.1)
    assert reached.written_bytes < sought.written_bytes / 5


def test_the_spare_area_of_a_real_drive_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="in one pass needs the drive's `over_provisioning`") as raised:
        case_on(str(tmp_path), span="1MiB")
    assert "--set over_provisioning=0.07" in raised.value.hint
    assert case_on(str(tmp_path), span="1MiB", over_provisioning="0.2").parameters["over_provisioning"] == 0.2
    with pytest.raises(StudyError, match="`precondition_access` is for `precondition`"):
        case_on("null:2GiB", precondition="none", over_provisioning="0.1")
