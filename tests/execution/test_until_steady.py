"""Runs that iosonde stops because they are steady or the time limit is reached, and a simulated drive of known behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import Iosonde
from engines import real_engine
from test_sustained import found_rounds

from iosonde.errors import StudyError
from iosonde.execution import execute, resume
from iosonde.findings.findings import findings
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.sustained import long_runs
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.study.model import Study

GIB = 1 << 30

STUDY = """
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


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def plan_of(target: str, text: str = STUDY, **settings: str) -> Plan:
    return expand(parse(text), open_target(target), profile="quick", settings=settings)


class Listener:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def run_started(self, run: Any, case: Any) -> None: ...

    def event(self, run: Any, event: dict[str, Any]) -> None: ...

    def run_ended(self, run: Any, record: Any) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def titles(result_set: ResultSet) -> list[str]:
    study = Study.model_validate(result_set.plan.study)
    found = findings(
        study, result_set.cases, run_metrics(result_set), runs=result_set.runs, long_runs=long_runs(Facts(result_set))
    )
    return [each.sentence for each in found]


def test_the_engine_is_stopped_once_it_is_steady(tmp_path: Path) -> None:
    """A write of this drive takes 100 us whatever happens: steady with the fifth round, and three more are requested."""
    listener = Listener()
    plan = plan_of("simulated:servers=1,write=100us,size=1GiB", duration="24h")
    result_set = execute(plan, tmp_path / "set", observer=listener)
    [record] = result_set.records()
    assert (record.outcome, record.end_reason) == ("complete", "steady")
    [long_run] = long_runs(Facts(result_set))
    assert long_run.steady.measured and (long_run.steady.measured.first, long_run.steady.measured.last) == (1, 5)
    assert 8 <= len(long_run.values) < 24 * 3600, "the engine on virtual time is ahead when the stop arrives"
    assert "steady state reached after 8 s; the run ends" in listener.notes
    assert found_rounds(result_set)[0].reached


def test_the_study_defines_steady_and_the_record_has_the_applied_rule(tmp_path: Path) -> None:
    """Exponential service times: SNIA's rule holds with the fifth round, one of a tenth of a percent never does."""
    target = "simulated:servers=1,write=100us,size=1GiB"
    settings = {"duration": "30s", "service": "exponential"}
    strict = STUDY.replace("hold = 3", "window = 3\nrange = 0.001\nslope = 0.001")
    loose = execute(plan_of(target, STUDY.replace("hold = 3", ""), **settings), tmp_path / "loose")
    missed = execute(plan_of(target, strict, **settings), tmp_path / "strict")
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


@pytest.mark.parametrize(("duration", "rounds"), [("500ms", "0 rounds"), ("3s", "3 rounds")])
def test_a_run_of_too_few_rounds_shows_no_steady_state_and_its_rate_is_a_mean(
    tmp_path: Path, duration: str, rounds: str
) -> None:
    """Shorter than one round it had no answer at all, and the rate was stated like that of a level."""
    result_set = execute(plan_of("simulated:servers=1,write=100us,size=1GiB", duration=duration), tmp_path / "set")
    stated = titles(result_set)
    assert any(f"no steady state shown, {rounds} of 1 s are fewer than the 5 of a window" in each for each in stated)
    assert any("IOPS" in each and each.endswith("; mean over a run that is not steady") for each in stated), stated


def test_a_window_of_three_ends_a_run_sooner_than_one_of_five(tmp_path: Path) -> None:
    listener = Listener()
    plan = plan_of("simulated:servers=1,write=100us,size=1GiB", STUDY.replace("hold = 3", "window = 3"))
    execute(plan, tmp_path / "set", observer=listener)
    assert "steady state reached after 3 s; the run ends" in listener.notes


def test_a_run_that_is_too_short_has_not_achieved_steady_state(tmp_path: Path) -> None:
    result_set = execute(plan_of("simulated:servers=1,write=100us,size=1GiB", duration="4s"), tmp_path / "set")
    [found] = found_rounds(result_set)
    assert not found.reached and found.reason == "steady state was not achieved within the length of the run"
    assert [record.end_reason for record in result_set.records()] == [""]
    assert any("no steady state" in title for title in titles(result_set))


def test_a_drive_of_known_spare_area_slows_down_when_it_is_used_up(tmp_path: Path) -> None:
    """The pm963 has 7 % of spare capacity: new, it takes 1.07 times its capacity of random writes before it must collect.

    Its steady state then is what collecting leaves: with `a = exp(-(1 - a) 1.07)` of a block valid when it is collected,
    each write costs 1 / (1 - a) programs. Greedy collection, small blocks and the buffer are worth a fifth.
    """
    result_set = execute(plan_of("sim:pm963,capacity=1GiB"), tmp_path / "set")
    long_run = long_runs(Facts(result_set))[-1]
    assert long_run.steady.measured and long_run.cliff and long_run.cliff_bytes
    assert long_run.cliff_bytes == pytest.approx(1.07 * GIB, rel=0.1)
    assert long_run.cliff_s == pytest.approx(long_run.cliff_bytes / long_run.cliff.before, rel=0.1)
    fresh, steady = long_run.cliff.before, float(long_run.bandwidth[long_run.steady.measured.last - 1])
    valid = 0.0
    for _ in range(1000):
        valid = 2.718281828 ** (-(1 - valid) * 1.07)
    assert steady / fresh == pytest.approx(1 - valid, rel=0.25)
    level = long_run.level
    assert level and level.low is not None and level.high is not None
    final = float(long_run.bandwidth[-5:].mean()) / 4096
    assert final == pytest.approx(level.value, rel=0.05), "the level lasts to the end"
    # Four more capacities of random writes end at 40.5 k (docs/sustained.md).
    assert level.low < 40_453 < level.high and (level.high - level.low) / level.value < 0.2
    sentences = titles(result_set)
    assert any(": steady at" in title for title in sentences) and any("write cliff" in title for title in sentences)


SLOW = STUDY.replace('interval = "100ms"', 'interval = "100ms"\nio_mode = "buffered"').replace(
    "until_steady = true\nhold = 3\n", ""
)


def test_a_long_run_is_kept_when_the_time_limit_is_reached(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    listener = Listener()
    load = {"span": "16MiB", "arrival": "constant", "rate": "1000"}
    plan = plan_of(str(tmp_path / "on"), SLOW, **load, duration="10min", purge="none")
    result_set = execute(plan, tmp_path / "set", observer=listener, time_limit_s=3)
    for limit_s in (6, 12, 24):  # A machine that is busy may not have come to measure anything.
        if not result_set.records():
            result_set = resume(tmp_path / "set", observer=listener, time_limit_s=limit_s)
    [record] = result_set.records()
    assert (record.outcome, record.end_reason) == ("complete", "time_limit")
    [long_run] = long_runs(Facts(result_set))
    assert 0 < len(long_run.values) < 600
    assert not list((tmp_path / "on").iterdir()), "what was made is removed"


def test_a_study_at_its_time_limit_keeps_completed_runs_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    text = SLOW.replace("max_rounds = 1", "max_rounds = 500")
    settings = {"span": "16MiB", "duration": "300ms", "round_length": "none", "purge": "overwrite"}
    listener = Listener()
    plan = plan_of(
        str(tmp_path / "on"),
        text.replace("max_rounds = 500", "max_rounds = 500\nrange = 1e-9\nslope = 1e-9"),
        **settings,
    )
    result_set = execute(plan, tmp_path / "set", observer=listener, time_limit_s=1)
    before: set[str] = set()
    for limit_s in range(2, 22):  # Longer each time: a busy machine may need seconds to prepare the target again.
        rounds = {record.run_id for record in result_set.records() if "round" in record.levels}
        assert before <= rounds, "what was measured counts"
        if len(rounds) >= 5:
            break
        before = rounds
        result_set = resume(tmp_path / "set", observer=listener, time_limit_s=limit_s)
    assert any("the time limit is reached" in note for note in listener.notes)
    assert {record.outcome for record in result_set.records()} == {"complete"}
    assert any("no steady state" in title for title in titles(result_set))


def test_the_command_has_a_time_limit_and_refuses_invalid_ones(iosonde: Iosonde, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace("[profiles.quick]", "[profiles.standard]"))
    for text, message in (("8 hours", "is not a unit of time"), ("0s", "must be greater than 0")):
        refused = iosonde("run", str(tmp_path / "study.toml"), "--target", "null:1GiB", "--time-limit", text)
        assert refused.returncode == 2 and message in refused.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STUDY.replace("max_rounds = 1", "max_rounds = 9"), "`until_steady` requires rounds within a run"),
        (STUDY.replace('round_length = "1s"\n', ""), "`until_steady` requires `round_length`"),
    ],
)
def test_rounds_that_can_never_be_evaluated_are_refused(text: str, message: str) -> None:
    with pytest.raises(StudyError) as raised:
        plan_of("null:1GiB", text)
    assert message in raised.value.what
