"""Rounds until steady, and stages after them: the next run is decided by the records alone, at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from made_up import Made, MadeUp, adaptive_case

from iosonde.errors import StudyError
from iosonde.plan import PREPARATION, Case, Run
from iosonde.planning import expand, parse
from iosonde.planning.procedure import progress
from iosonde.planning.procedure.observations import Conclusion
from iosonde.storage import open_target

Series = Callable[[Run], float]


def case_of(target: Any, *, repeats: int = 1, purge: str = "overwrite", **rounds: Any) -> Case:
    measurement = {"span": "16MiB", "purge": purge, "precondition": "128KiB"}
    return adaptive_case(str(target), measurement, repeats=repeats, rounds=rounds)


def go_on(case: Case, evidence: MadeUp, *, at_most: int = 10_000) -> list[Run]:
    """Carry out the requested runs, in the evidence's session."""
    runs: list[Run] = []
    while len(runs) < at_most and (run := progress(case, evidence).next_run):
        evidence.known[run.run_id] = evidence.observe(run)
        runs.append(run)
    return runs


def made(series: Series, session: str = "first") -> MadeUp:
    return MadeUp(lambda run: Made(series(run), session=session), session=session)


def resume_in(evidence: MadeUp, session: str, value: float = 100.0) -> None:
    evidence.session, evidence.observe = session, lambda run: Made(value, session=session)


def concluded(case: Case, evidence: MadeUp) -> Conclusion:
    found = progress(case, evidence).conclusion
    assert found
    return found


def by_round(*values: float) -> Series:
    return lambda run: values[min(int(run.levels.get("round", 1)), len(values)) - 1]


def rounds_of(runs: list[Run]) -> list[int]:
    return [int(run.levels["round"]) for run in runs if "round" in run.levels]


def test_the_target_is_prepared_first_and_the_rounds_end_with_the_first_steady_window(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=25)
    evidence = made(by_round(900, 500, 300, 110, 105, 100, 100, 95, 100, 100))
    runs = go_on(case, evidence)
    assert [run.levels.get("step") for run in runs[:3]] == ["purge", "precondition", None]
    assert [run.part for run in runs[:3]] == [PREPARATION, PREPARATION, ""]
    assert rounds_of(runs) == list(range(1, 10))
    assert concluded(case, evidence).reached


def test_a_closing_check_withdraws_a_steady_state_that_does_not_last(tmp_path: Any) -> None:
    """Five equal rounds, then a lower level: without the check the first level would be called steady."""
    series = by_round(300, 300, 300, 300, 300, 150, 100, 100, 100, 100, 100, 100)
    assert concluded_after(case_of(tmp_path, max_rounds=25), series) == (True, 5)
    assert concluded_after(case_of(tmp_path, max_rounds=25, hold=1), series) == (True, 12)
    assert concluded_after(case_of(tmp_path, max_rounds=8, hold=1), series) == (False, 8)


def test_a_window_that_moved_too_little_of_the_active_range_is_not_steady(tmp_path: Any) -> None:
    """16 MiB are addressed; a round moves 1,000 bytes."""
    case = case_of(tmp_path, max_rounds=7, min_written=0.01)
    assert concluded_after(case, by_round(100), moved_bytes=1000.0) == (False, 7)
    assert concluded_after(case, by_round(100), moved_bytes=0.011 * (16 << 20)) == (True, 5)


def concluded_after(case: Case, series: Series, **made_with: float) -> tuple[bool, int]:
    """Return whether steady state was reached, and after how many rounds the pass ended."""
    evidence = MadeUp(lambda run: Made(series(run), session="first", **made_with), session="first")  # type: ignore[arg-type]
    runs = go_on(case, evidence)
    return concluded(case, evidence).reached, len(rounds_of(runs))


def test_not_achieved_is_a_result(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=7)
    evidence = made(lambda run: 1000 * 0.8 ** int(run.levels.get("round", 1)))
    assert rounds_of(go_on(case, evidence)) == [1, 2, 3, 4, 5, 6, 7]
    found = concluded(case, evidence)
    assert not found.reached and found.reason == "it did not become steady in 7 rounds"


def test_all_that_is_tracked_must_be_steady_in_the_same_window(tmp_path: Any) -> None:
    def series(run: Run) -> float:
        number = int(run.levels.get("round", 1))
        slow = {0.0: 3, 0.5: 6, 1.0: 99}[float(run.levels.get("read_fraction", 0.0))]
        return 100 if number >= slow else 1000.0 / number

    factors = {"read_fraction": [1.0, 0.5, 0.0]}
    case = case_of(tmp_path, max_rounds=30, factors=factors, track=[{"read_fraction": 0.5}, {"read_fraction": 0.0}])
    evidence = made(series)
    runs = go_on(case, evidence)
    assert [run.levels["read_fraction"] for run in runs[2:5]] == [1.0, 0.5, 0.0]
    assert concluded(case, evidence).reached and max(rounds_of(runs)) == 10


def test_rounds_that_are_fewer_than_a_window_are_counted_and_not_judged(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=1, repeats=2)
    evidence = made(by_round(100))
    runs = go_on(case, evidence)
    assert [(run.repeat, run.levels.get("step", "round")) for run in runs] == [
        (repeat, step) for repeat in (1, 2) for step in ("purge", "precondition", "round")
    ]
    assert concluded(case, evidence).reached


def test_after_a_pause_the_target_is_prepared_again_and_completed_rounds_count(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=8, window=5)
    evidence = made(by_round(*(1000 * 0.8**n for n in range(8))))
    before = go_on(case, evidence, at_most=5)
    assert rounds_of(before) == [1, 2, 3]
    resume_in(evidence, "second", value=50.0)
    after = go_on(case, evidence)
    assert [run.levels.get("step") for run in after[:2]] == ["purge", "precondition"]
    assert all(run.restart == 1 and "-a2-" in run.run_id for run in after)
    assert rounds_of(after) == [4, 5, 6, 7, 8]
    evidence.session = ""  # A reader finds the same.
    assert concluded(case, evidence).reached


def test_a_pause_during_preparation_restarts_it(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=1)
    evidence = made(by_round(100))
    assert [run.levels["step"] for run in go_on(case, evidence, at_most=1)] == ["purge"]
    for session in ("second", "third"):
        resume_in(evidence, session)
        again = go_on(case, evidence, at_most=1 if session == "second" else 99)
        assert again[0].levels["step"] == "purge"
    assert [run.levels.get("step", "round") for run in again] == ["purge", "precondition", "round"]
    evidence.session = ""
    assert concluded(case, evidence).reached


def test_rounds_stopped_anywhere_resume_with_the_same_result(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=4, window=3, factors={"block_size": ["64KiB", "4KiB"]})
    whole = len(go_on(case, made(by_round(100))))
    for stop in range(whole):
        evidence = made(by_round(100))
        go_on(case, evidence, at_most=stop)
        resume_in(evidence, "second")
        go_on(case, evidence)
        evidence.session = ""
        assert concluded(case, evidence).reached, stop
        measured = [key for key in evidence.known if "round" in key]
        assert len({key.partition("round")[2] for key in measured}) == len(measured) == 6, stop


def test_on_a_simulated_target_a_pause_destroys_nothing() -> None:
    case = case_of("simulated:size=1GiB", purge="none", max_rounds=6)
    evidence = made(by_round(1000, 10, 1000, 10, 1000, 10))
    go_on(case, evidence, at_most=3)
    resume_in(evidence, "second")
    assert all(run.restart == 0 for run in go_on(case, evidence))


def test_a_failed_step_or_round_ends_the_pass_with_the_reason(tmp_path: Any) -> None:
    case = case_of(tmp_path, max_rounds=6)
    evidence = MadeUp(lambda run: Made(failure="no space left" if run.part else "", latency_ns=1.0))
    assert len(go_on(case, evidence)) == 1
    found = concluded(case, evidence)
    assert not found.reached and found.reason == "preparation by `purge` failed: no space left"
    broken = MadeUp(lambda run: Made(failure="EIO" if run.levels.get("round") == 2 else "", latency_ns=1.0))
    assert rounds_of(go_on(case, broken)) == [1, 2]
    assert concluded(case, broken).reason == "EIO"


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ({"factors": {"span": ["1MiB", "2MiB"]}}, "`span` cannot vary within a round"),
        ({"metric": "iopses"}, "unknown tracked metric `iopses`"),
        ({"max_rounds": 6, "hold": 2}, "6 rounds are too few for a window of 5 and a closing check of 2"),
        ({"track": [{"block_size": "4KiB"}]}, "`block_size` does not vary within a round"),
        (
            {"factors": {"block_size": ["4KiB"]}, "track": [{"block_size": "8KiB"}]},
            "the tracked load must be a load of the rounds; got block_size 8192",
        ),
    ],
)
def test_what_cannot_be_measured_in_rounds_is_refused(tmp_path: Any, rounds: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as raised:
        case_of(tmp_path, **rounds)
    assert message in raised.value.what


# Stages: loads that follow the rounds, each on the state that everything before it has left

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
        assert concluded(case, evidence).reached == (rounds == 5)


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
    runs = go_on(case, evidence := made(by_round(100)))
    steps = [run.levels.get("step") or run.levels["stage"] for run in runs]
    assert steps == ["purge", "precondition", "random", "after a pause"]
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
