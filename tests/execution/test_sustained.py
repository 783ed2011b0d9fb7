"""Prepared targets, rounds, and runs that end once they are steady, on a real file and on drives of known behaviour."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.findings.device_state import convergences, window_means
from iosonde.findings.findings import findings
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.sustained import long_runs
from iosonde.plan import PREPARATION, Plan
from iosonde.planning import expand, parse
from iosonde.planning.procedure import conclusions
from iosonde.planning.procedure.observations import Conclusion
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.targets.direct_io import can_trim
from iosonde.study.model import Study

MIB = 1 << 20

STUDY = """
name = "sustained"
title = "Rounds on a small file"
question = "Does it settle?"
repeats = 1
[measurement]
access = "random"
read_fraction = 0.0
ramp = 0
duration = "none"
interval = "100ms"
limit_bytes = "1MiB"
purge = "strongest"
capacity = "8MiB"
[[parts]]
name = "rounds"
factors.fill = [100, 50]
[parts.rounds]
max_rounds = 6
factors.block_size = ["64KiB", "4KiB"]
track = [{ block_size = "4KiB" }]
[profiles.quick]
"""


def one_case(target: str | Path, workload: str = "block", **measurement: Any) -> Plan:
    """A study of one run."""
    facts = {"name": "one", "title": "One case", "question": "?", "repeats": 1, "workload": workload}
    case = {"measurement": measurement, "parts": [{"name": "main"}], "profiles": {"standard": {}}}
    return expand(Study.model_validate(facts | case), open_target(str(target)))


def plan_of(target: str, text: str = STUDY, **options: Any) -> Plan:
    return expand(parse(text), open_target(target), profile="quick", **options)


def found_rounds(result_set: ResultSet) -> list[Conclusion]:
    return [each for _, each in conclusions(result_set) if each]


def test_every_step_is_a_record_and_every_record_has_the_preparation(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    result_set = execute(
        plan_of(str(tmp_path / "on"), STUDY.replace("max_rounds = 6", "max_rounds = 1")), tmp_path / "set"
    )
    records = result_set.records()
    steps = [(record.levels["fill"], record.levels["step"]) for record in records if record.part == PREPARATION]
    assert steps == [(100, "purge"), (100, "fill"), (50, "purge"), (50, "fill")]
    assert {record.parameters["purge"] for record in records} == {"trim" if can_trim(tmp_path) else "overwrite"}
    assert {record.parameters["fill"] for record in records} == {100, 50}
    filled = next(record for record in records if record.levels.get("step") == "fill")
    assert sum(job["bytes"] for job in filled.result["jobs"]) == 8 * MIB if filled.result else False
    assert len({record.session for record in records}) == 1
    assert not list((tmp_path / "on").iterdir())


def test_the_report_finds_what_the_procedure_decided(tmp_path: Path) -> None:
    result_set = execute(plan_of("simulated:servers=1,write=100us,size=1GiB"), tmp_path / "set")
    study = Study.model_validate(result_set.plan.study)
    metrics = run_metrics(result_set)
    table = convergences(study.parts[0], result_set.cases, metrics)
    assert [(each.first, each.last, each.rounds) for each in table] == [(1, 5, 5), (1, 5, 5)]
    assert [each.reached for each in found_rounds(result_set)] == [True, True]
    means = window_means(study.parts[0], result_set.cases, metrics, ["iops"])
    assert means["value"].to_list() == pytest.approx([10_000] * 4, rel=0.01)
    titles = [each.sentence for each in findings(study, result_set.cases, metrics)]
    assert "100 % full: steady state, SNIA's criterion met in rounds 1 to 5" in titles
    assert not [title for title in titles if "preparation" in title]


def test_a_resumed_study_prepares_its_target_again_and_keeps_completed_rounds(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    plan = plan_of(str(tmp_path / "on"), STUDY.replace("max_rounds = 6", "max_rounds = 3"), settings={"fill": "50"})
    watcher = StopAfter(5)
    with pytest.raises(KeyboardInterrupt):
        execute(plan, tmp_path / "set", observer=watcher)
    before = {record.run_id: record.ended_at for record in ResultSet.open(tmp_path / "set").records()}
    noted = StopAfter(None)
    result_set = resume(tmp_path / "set", observer=noted)
    assert any("the target is prepared again" in note for note in noted.notes)
    records = {record.run_id: record for record in result_set.records()}
    assert {run_id: records[run_id].ended_at for run_id in before} == before
    again = [record for record in result_set.records() if record.run_id not in before]
    assert [record.levels.get("step") for record in again[:3]] == ["purge", "fill", None]
    done = [int(records[run_id].levels.get("round", 0)) for run_id in before]
    assert again[2].levels["round"] == max(done), "the round continues with its next load"


class StopAfter(Observer):
    """Sends SIGINT to this process once so many runs have ended, as Ctrl-C does."""

    def __init__(self, runs: int | None) -> None:
        self._left = runs
        self.notes: list[str] = []

    def run_ended(self, run: Any, record: Any) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), 2)

    def note(self, text: str) -> None:
        self.notes.append(text)


def titles(result_set: ResultSet) -> list[str]:
    study = Study.model_validate(result_set.plan.study)
    found = findings(
        study, result_set.cases, run_metrics(result_set), runs=result_set.runs, long_runs=long_runs(Facts(result_set))
    )
    return [each.sentence for each in found]


UNTIL = """
name = "until"
title = "Until it is steady"
question = "When is it?"
repeats = 1
device_state = "steady"
[measurement]
access = "random"
read_fraction = 0.0
queue_depth = 32
span = "100%"
purge = "strongest"
ramp = 0
duration = "10min"
interval = "100ms"
round_length = "1s"
[[parts]]
name = "main"
[parts.rounds]
max_rounds = 1
until_steady = true
hold = 3
[profiles.quick]
"""


def until(target: str, text: str = UNTIL, **settings: str) -> Plan:
    return plan_of(target, text, settings=settings)


def test_the_engine_is_stopped_once_it_is_steady(tmp_path: Path) -> None:
    """A write of this drive takes 100 us whatever happens: steady with the fifth round, and three more are requested."""
    listener = StopAfter(None)
    plan = until("simulated:servers=1,write=100us,size=1GiB", duration="24h")
    result_set = execute(plan, tmp_path / "set", observer=listener)
    [record] = result_set.records()
    assert (record.outcome, record.end_reason) == ("complete", "steady")
    [long_run] = long_runs(Facts(result_set))
    assert long_run.steady.measured and (long_run.steady.measured.first, long_run.steady.measured.last) == (1, 5)
    assert 8 <= len(long_run.values) < 24 * 3600, "the engine on virtual time is ahead when the stop arrives"
    assert "steady state reached after 8 s; the run ends" in listener.notes
    assert found_rounds(result_set)[0].reached
    assert long_run.steady.left is None and long_run.cliff is None
    metrics = run_metrics(result_set)
    values = {
        name: metrics.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("steady_iops", "steady_fraction", "seconds_to_steady_state", "seconds_to_cliff")
    }
    assert values["steady_iops"] == pytest.approx([10_000], rel=0.01)
    assert values["steady_fraction"] == pytest.approx([1], rel=0.01)
    assert (values["seconds_to_steady_state"], values["seconds_to_cliff"]) == ([5], [])


def test_the_study_defines_steady_and_the_record_has_the_applied_rule(tmp_path: Path) -> None:
    """Exponential service times: SNIA's rule holds with the fifth round, one of a tenth of a percent never does."""
    target = "simulated:servers=1,write=100us,size=1GiB"
    settings = {"duration": "30s", "service": "exponential"}
    strict = UNTIL.replace("hold = 3", "window = 3\nrange = 0.001\nslope = 0.001")
    loose = execute(until(target, UNTIL.replace("hold = 3", ""), **settings), tmp_path / "loose")
    missed = execute(until(target, strict, **settings), tmp_path / "strict")
    [record], [other] = loose.records(), missed.records()
    assert (record.end_reason, other.end_reason) == ("steady", "")
    criteria = [
        [each.parameters[f"rounds.{name}"] for name in ("window", "range", "slope")] for each in (record, other)
    ]
    assert criteria == [[5, 0.2, 0.1], [3, 0.001, 0.001]]
    [long_run] = long_runs(Facts(missed))
    assert (long_run.steady.measured, long_run.steady.criteria.window) == (None, 3)
    assert any("no steady state" in title for title in titles(missed))
    asked = missed.sql('SELECT "rounds.range" AS range FROM cases WHERE round_length IS NOT NULL')
    assert asked["range"].to_list() == [0.001]


def test_a_run_shorter_than_a_round_shows_no_steady_state_and_its_rate_is_a_mean(tmp_path: Path) -> None:
    """It had no answer at all, and the rate was stated like that of a level."""
    result_set = execute(until("simulated:servers=1,write=100us,size=1GiB", duration="500ms"), tmp_path / "set")
    stated = titles(result_set)
    assert any("no steady state shown, 0 rounds of 1 s are fewer than the 5 of a window" in each for each in stated)
    assert any("IOPS" in each and each.endswith("; mean of a whole run, not shown to be steady") for each in stated), (
        stated
    )
    assert "steady_fraction" not in set(run_metrics(result_set)["metric"])
    [found] = found_rounds(result_set)
    assert not found.reached and found.reason == "it did not become steady within the length of the run"
    assert [record.end_reason for record in result_set.records()] == [""]


def test_a_drive_of_known_spare_area_slows_down_when_it_is_used_up(tmp_path: Path) -> None:
    """The pm963 has 7 % of spare capacity: new, it takes 1.07 times its capacity of random writes before it must collect.

    Its steady state then is what collecting leaves: with `a = exp(-(1 - a) 1.07)` of a block valid when it is collected,
    each write costs 1 / (1 - a) programs. Greedy collection, small blocks and the buffer are worth a fifth.
    """
    result_set = execute(until("sim:pm963,capacity=1GiB"), tmp_path / "set")
    assert [record.device_state for record in result_set.records()] == ["not_applicable", "steady"]
    assert result_set.cases["device_state"].unique().to_list() == ["steady"]
    assert result_set.sql("SELECT device_state FROM runs WHERE part = 'main'").rows() == [("steady",)]
    long_run = long_runs(Facts(result_set))[-1]
    assert long_run.steady.measured and long_run.cliff and long_run.cliff_bytes
    assert long_run.cliff_bytes == pytest.approx(1.07 * 1024 * MIB, rel=0.1)
    assert long_run.cliff_s == pytest.approx(long_run.cliff_bytes / long_run.cliff.before, rel=0.1)
    fresh, steady = long_run.cliff.before, float(long_run.bandwidth[long_run.steady.measured.last - 1])
    valid = 0.0
    for _ in range(1000):
        valid = math.exp(-(1 - valid) * 1.07)
    assert steady / fresh == pytest.approx(1 - valid, rel=0.25)
    level = long_run.level
    assert level and level.low is not None and level.high is not None
    final = float(long_run.bandwidth[-5:].mean()) / 4096
    assert final == pytest.approx(level.value, rel=0.05), "the level lasts to the end"
    # Four more capacities of random writes end at 40.5 k (docs/sustained.md), within the drift that is not excluded.
    drift = long_run.steady.drift_below
    assert drift is not None and drift < 0.1
    assert level.low * (1 - drift) < 40_453 < level.high and (level.high - level.low) / level.value < 0.2
    sentences = titles(result_set)
    assert any(": steady at" in title for title in sentences) and any("write cliff" in title for title in sentences)


SLOW = UNTIL.replace('interval = "100ms"', 'interval = "100ms"\nio_mode = "buffered"').replace(
    "until_steady = true\nhold = 3\n", ""
)


def test_a_long_run_is_kept_when_the_time_limit_is_reached(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    listener = StopAfter(None)
    load = {"span": "16MiB", "arrival": "constant", "rate": "1000"}
    plan = until(str(tmp_path / "on"), SLOW, **load, duration="10min", purge="none")
    result_set = execute(plan, tmp_path / "set", observer=listener, time_limit_s=1)
    for limit_s in (3, 10, 30, 60):  # A machine that is busy may not have come to measure anything.
        if not result_set.records():
            result_set = resume(tmp_path / "set", observer=listener, time_limit_s=limit_s)
    [record] = result_set.records()
    assert (record.outcome, record.end_reason) == ("complete", "time_limit")
    [long_run] = long_runs(Facts(result_set))
    assert len(long_run.values) < 600
    assert not list((tmp_path / "on").iterdir()), "what was made is removed"


def test_a_study_at_its_time_limit_keeps_completed_runs_and_resumes(tmp_path: Path) -> None:
    listener = StopAfter(None)
    plan = until("sim:pm963,capacity=64MiB", SLOW.replace("max_rounds = 1", "max_rounds = 2"), duration="100ms")
    result_set = execute(plan, tmp_path / "set", observer=listener, time_limit_s=0)
    assert result_set.records() == [] and any("the time limit is reached" in note for note in listener.notes)
    result_set = resume(tmp_path / "set")
    assert {record.outcome for record in result_set.records()} == {"complete"} and result_set.records()
