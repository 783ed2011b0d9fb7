"""Simulated drives, whose day takes seconds: a study of a day in parts, ramps until steady, preconditioning in one pass."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from test_sustained import StopAfter, found_rounds, one_case

from iosonde.errors import StudyError
from iosonde.execution.session import execute, resume
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

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
duration = "2h"
interval = "1h"
[[parts]]
name = "day"
[parts.rounds]
max_rounds = 5
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
    assert not found.reached and found.reason == "it did not become steady in 5 rounds"
    with pytest.raises(KeyboardInterrupt):
        execute(plan(), tmp_path / "in-parts", observer=StopAfter(2))
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "in-parts", observer=StopAfter(3))
    listener = StopAfter(None)
    in_parts = resume(tmp_path / "in-parts", observer=listener)
    assert not listener.notes, "a simulated drive keeps its state: nothing is prepared again"
    assert len({record.session for record in in_parts.records()}) == 3
    assert measured(in_parts) == measured(whole)
    assert found_rounds(in_parts) == found_rounds(whole)


SECOND = 10**9
DRIVE = "simulated:servers=1,read=100us,size=1GiB"


def test_a_ramp_ends_once_it_is_steady_or_at_its_limit_with_a_warning(tmp_path: Path) -> None:
    """Five intervals of 100 ms are compared with five before; the simulated clock makes it repeatable."""
    settings = {"ramp": "60s", "ramp_until": "steady", "duration": "1s", "interval": "100ms"}
    ramps = (settings, settings, {**settings, "ramp": "500ms"})
    plans = [one_case(DRIVE, **each) for each in ramps]
    records = [execute(each, tmp_path / str(number)).records()[0] for number, each in enumerate(plans)]
    first, second, short = (record.result["begin_ns"] for record in records if record.result)
    assert SECOND <= first < SECOND + SECOND // 5
    assert (second, short) == (first, SECOND // 2)
    warned = ["ramp_not_steady" in {warning.code for warning in record.warnings} for record in records]
    assert warned == [False, False, True]


@pytest.mark.parametrize(
    ("phase", "operations"),
    [("ycsb_d", {"read"}), ("ycsb_e", {"scan"}), ("ycsb_f", {"read", "read_modify_write"})],
)
@pytest.mark.needs("disk")
def test_ycsb_reads_back_every_field_that_it_updates(tmp_path: Path, phase: str, operations: set[str]) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    plan = one_case(
        directory, "kv", phase=phase, store="lmdb", records="5000", value_size=1000, fields=10, key_order="hashed",
        jobs=2, page_cache="warm", ramp="200ms", ramp_until="steady", duration="60s", interval="100ms",
        limit_operations=5000, lmdb={"mapsize": 4 << 30},  # Where CPUs are busy, a job may hold old pages for long.
    )  # fmt: skip
    [record] = execute(plan, tmp_path / "set").records()
    assert record.failure is None, record.failure
    description = record.spec["workload"]["records"]
    assert (description["fields"], description["key_order"]) == (10, "hashed")
    assert record.result
    checks = record.result["store"]["checks"]
    assert sum(check["values"] for check in checks) > 1000
    assert sum(check["missing"] + check["corrupted"] for check in checks) == 0
    assert {check["operation"] for check in checks if check["values"]} >= operations


CAPACITY = 1 << 28
WRITES = f"""
name = "preconditioning"
title = "Preconditioning"
question = "Which state does it leave?"
repeats = 1
[measurement]
access = "random"
read_fraction = 0.0
queue_depth = 32
jobs = 4
span = "100%"
purge = "format"
ramp = 0
duration = "none"
limit_bytes = "{CAPACITY}"
interval = "100ms"
[[parts]]
name = "main"
[parts.rounds]
max_rounds = 0
stages = [{{ label = "settling", set = {{ limit_bytes = "{4 * CAPACITY}" }} }}, {{ label = "measured", set = {{}} }}]
[profiles.quick]
"""
IN_ORDER = {"precondition": "128KiB"}
IN_ONE_PASS = {"precondition": "4KiB", "precondition_access": "aging", "stage": "measured"}


def totals(results: ResultSet, run_id: str, *, share: float = 1.0) -> tuple[float, int, int, int]:
    """Seconds, bytes written to the drive, bytes written to its media, and writes of the first intervals of a run."""
    of_run = (pl.col("run_id") == run_id, pl.col("phase") == "measure")
    usage = results.usage.filter(*of_run, pl.col("device") != "process").sort("begin_ns")
    usage = usage.head(max(1, round(share * usage.height)))
    writes = results.intervals.filter(*of_run, pl.col("begin_ns") < usage["end_ns"].max())["count"].sum()
    seconds = (usage["end_ns"].max() - usage["begin_ns"].min()) / 1e9  # type: ignore[operator]
    return seconds, int(usage["write_bytes"].sum()), int(usage["media_write_bytes"].sum()), int(writes)


def preconditioned(directory: Path, settings: dict[str, str]) -> tuple[float, float, float, int]:
    """Amplification of the first tenth and of all random writes, their IOPS, and bytes that preconditioning wrote."""
    drive = open_target(f"sim:pm963,capacity={CAPACITY}")
    results = execute(expand(parse(WRITES), drive, profile="quick", settings=settings), directory)
    assert [record.failure for record in results.records() if record.failure] == []
    names = {record.levels.get("stage") or record.levels["step"]: record.run_id for record in results.records()}
    before = sum(totals(results, names[name])[1] for name in ("precondition", "settling") if name in names)
    _, first, first_of_media, _ = totals(results, names["measured"], share=0.1)
    seconds, written, of_media, writes = totals(results, names["measured"])
    return first_of_media / first, of_media / written, writes / seconds, before


def test_one_pass_leaves_the_amplification_of_the_steady_state_from_the_first_write_on(tmp_path: Path) -> None:
    """Endless writes are four capacities here."""
    _, sought, sought_iops, written = preconditioned(tmp_path / "endless", IN_ORDER)
    first, reached, iops, written_in_one_pass = preconditioned(tmp_path / "one-pass", IN_ONE_PASS)
    assert first == pytest.approx(sought, rel=0.07)
    assert reached == pytest.approx(sought, rel=0.05)
    assert iops == pytest.approx(sought_iops, rel=0.1)
    assert written_in_one_pass < written / 4


def test_the_spare_area_of_a_real_drive_must_be_given(tmp_path: Path) -> None:
    study = parse(STUDY.replace('precondition = "1MiB"', 'precondition = "4KiB"\nprecondition_access = "aging"'))
    settings = {"span": "1MiB", "purge": "overwrite"}
    with pytest.raises(StudyError, match="in one pass needs the drive's `over_provisioning`"):
        expand(study, open_target(str(tmp_path)), profile="quick", settings=settings)
    given = {**settings, "over_provisioning": "0.2"}
    plan = expand(study, open_target(str(tmp_path)), profile="quick", settings=given)
    assert plan.adaptive[0].parameters["over_provisioning"] == 0.2
