"""Stages: loads that follow the rounds, each on the state that everything before it has left."""

from __future__ import annotations

from typing import Any

import pytest
from test_rounds import by_round, case_of, concluded, go_on, made, resume_in

from iosonde.errors import StudyError
from iosonde.plan import PREPARATION, Run
from iosonde.planning import expand, parse
from iosonde.storage import open_target

STAGES = [
    {"label": "random", "set": {"block_size": "8KiB"}},
    {"label": "after a pause", "set": {"active": "10s-", "duration": "20s"}},
]


def stages_of(runs: list[Run]) -> list[Any]:
    return [run.levels["stage"] for run in runs if "stage" in run.levels]


def test_stages_follow_once_each_in_order_whether_steady_state_was_achieved_or_not(tmp_path: Any) -> None:
    for series, rounds in ((by_round(100), 5), (by_round(1000, 10, 1000, 10, 1000, 10, 1000), 6)):
        case = case_of(tmp_path, max_rounds=6, stages=STAGES)
        evidence = made(series)
        runs = go_on(case, evidence)
        assert [*map(str, stages_of(runs))] == ["random", "after a pause"]
        assert [run.levels.get("round") for run in runs[2:]] == [*range(1, rounds + 1), None, None]
        found = concluded(case, evidence)
        assert found.reached == (rounds == 5) and found.passes[0].stages == 2


def test_a_stage_changes_what_it_sets_and_nothing_else(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=1, stages=STAGES)
    *_, measured, random, after = go_on(case, made(by_round(100)))
    (first,), (second,), (third,) = (run.spec["workload"]["streams"] for run in (measured, random, after))
    assert {name for name in first if first[name] != second[name]} == {"block_sizes"}
    assert {name for name in first if first[name] != third[name]} == {"active"}
    assert third["active"] == {"begin_ns": 10 * 10**9, "end_ns": None}
    assert (measured.spec["workload"]["duration_ns"], after.spec["workload"]["duration_ns"]) == (10**10, 2 * 10**10)


def test_there_may_be_stages_without_rounds(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=0, stages=STAGES)
    evidence = made(by_round(100))
    assert [run.levels.get("step") or run.levels["stage"] for run in go_on(case, evidence)] == [
        *("purge", "precondition", "random", "after a pause")
    ]
    assert concluded(case, evidence).reached


def test_after_a_pause_everything_before_a_stage_is_done_again_as_preparation(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=2, stages=STAGES)
    evidence = made(by_round(100))
    before = go_on(case, evidence, at_most=5)
    assert stages_of(before) == ["random"]
    resume_in(evidence, "second")
    after = go_on(case, evidence)
    steps = ["purge", "precondition", "again round001-01", "again round002-01", "again stage01"]
    assert [run.levels.get("step") for run in after] == [*steps, None]
    assert [run.part for run in after] == [PREPARATION] * 5 + [""]
    assert all(run.case_id.startswith(f"{PREPARATION}/") for run in after[:5])
    assert after[4].spec["workload"]["streams"] == before[-1].spec["workload"]["streams"]
    evidence.session = ""  # A reader finds the same.
    assert concluded(case, evidence).reached


def test_wherever_it_is_stopped_each_stage_is_measured_once(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=2, stages=STAGES)
    whole = len(go_on(case, made(by_round(100))))
    for stop in range(whole):
        evidence = made(by_round(100))
        go_on(case, evidence, at_most=stop)
        resume_in(evidence, "second")
        go_on(case, evidence, at_most=1)
        resume_in(evidence, "third")
        go_on(case, evidence)
        evidence.session = ""
        assert concluded(case, evidence).reached, stop
        measured = [key for key in evidence.known if "-stage" in key and "again" not in key]
        assert len(measured) == 2, stop


TEXT = """
name = "staged"
title = "Staged"
question = "?"

[measurement]
span = "16MiB"
purge = "overwrite"

[[parts]]
name = "main"
{rounds}

[profiles.quick]
{profile}
"""


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ("rounds.max_rounds = 0", "the part `main` must have rounds or stages"),
        ('rounds.stages = [{ label = "a", set = { span = "1MiB" } }]', "`span` cannot vary within a round or stage"),
        ('rounds.stages = [{ label = "a", set = {} }, { label = "a", set = {} }]', "has the level `a` twice"),
        ('rounds.stages = [{ label = "a", set = { blocksize = "4KiB" } }]', "there is no parameter `blocksize`"),
        ('factors.stage = ["a"]\nrounds.max_rounds = 1', "there is no parameter `stage`"),
        (
            'rounds.factors.load = [{ label = "a", set = { jobs = 2 } }, { label = "b", set = { queue_depth = 2 } }]',
            "levels of `load` must set the same parameters; `a` and `b` differ",
        ),
    ],
)
def test_stages_that_cannot_be_are_refused(rounds: str, message: str) -> None:
    with pytest.raises(StudyError) as raised:
        parse(TEXT.format(rounds=rounds, profile=""))
    assert message in raised.value.what


def test_a_profile_and_the_user_may_choose_other_stages() -> None:
    rounds = 'rounds.stages = [{ label = "a", set = { duration = "60s" } }, { label = "b", set = { jobs = 2 } }]'
    study = parse(TEXT.format(rounds=rounds, profile='factors.stage = [{ label = "a", set = { duration = "1s" } }]'))

    def lengths(**settings: str) -> list[int | None]:
        case = expand(study, open_target("null:1GiB"), profile="quick", settings=settings).adaptive[0]
        assert case.procedure
        return [stage["parameters"].get("duration") for stage in case.procedure.settings["stages"]]

    assert lengths() == [10**9]
    assert lengths(stage="a") == [10**9]
    assert lengths(stage="b,a") == [None, 10**9]


def test_a_plan_counts_what_stages_take(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=3, stages=STAGES)
    assert case.procedure
    assert case.cost.seconds == 12
    assert case.procedure.max_runs == 3 + 2 + 2 and case.procedure.preparing == 4
    without = case_of(tmp_path, max_rounds=3).procedure
    assert without and case.procedure.preparation.seconds == pytest.approx(without.preparation.seconds + 12 + 22)
    assert case.procedure.text.endswith(", then 2 stages: random, after a pause")
