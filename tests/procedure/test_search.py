"""Searches for the highest value that meets a condition, with made-up observations."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_up import MS, Made, MadeUp, carry_out, search_case, up_to

from iosonde.errors import StudyError
from iosonde.plan import Run
from iosonde.planning.procedure import progress

boundaries = st.floats(min_value=1, max_value=10**6)
precisions = st.sampled_from([0.001, 0.01, 0.05, 0.3, 1.0])
repeats = st.integers(min_value=1, max_value=5)


@settings(max_examples=8)
@given(boundary=boundaries, start=st.integers(1, 10**6), precision=precisions, repeats=repeats)
def test_a_search_ends_within_its_bound_and_finds_the_boundary(
    boundary: float, start: int, precision: float, repeats: int
) -> None:
    assume(boundary < 10**6)
    case = search_case(repeats=repeats, start=start, precision=precision)
    assert case.procedure
    found, runs = carry_out(case, up_to(boundary))
    assert len(runs) <= case.procedure.max_runs
    assert found.reached and found.value is not None and found.fails_at is not None
    assert found.value <= boundary < found.fails_at
    assert found.fails_at / found.value <= 1 + precision
    assert len({run.run_id for run in runs}) == len(runs)


@settings(max_examples=8)
@given(boundary=st.integers(1, 4095), highest=st.integers(2, 4096), start=st.integers(1, 4096), precision=precisions)
def test_whole_numbers_are_bracketed_to_neighbours_or_to_the_precision(
    boundary: int, highest: int, start: int, precision: float
) -> None:
    assume(boundary < highest and start <= highest)
    case = search_case(over="queue_depth", between=[1, highest], start=start, precision=precision)
    assert case.procedure
    found, runs = carry_out(case, up_to(boundary, "queue_depth"))
    assert len(runs) <= case.procedure.max_runs
    assert found.value is not None and found.fails_at is not None
    assert all(isinstance(run.levels["queue_depth"], int) for run in runs)
    assert found.value <= boundary < found.fails_at
    assert found.fails_at - found.value == 1 or found.fails_at / found.value <= 1 + precision


@settings(max_examples=5)
@given(boundary=boundaries, start=st.integers(1, 10**6), repeats=repeats, stop=st.integers(0, 60))
def test_a_search_stopped_at_any_run_resumes_with_the_same_result(
    boundary: float, start: int, repeats: int, stop: int
) -> None:
    case = search_case(repeats=repeats, start=start)
    observe = up_to(boundary)
    _, runs = carry_out(case, observe)
    stop = min(stop, len(runs) - 1)
    kept = MadeUp(observe, {run.run_id: observe(run) for run in runs[:stop]})
    assert progress(case, kept).next_run == runs[stop]


@pytest.mark.parametrize("start", [1, 777, 10**6])
def test_a_condition_met_everywhere_or_nowhere_is_reported_with_the_bound(start: int) -> None:
    everywhere, runs = carry_out(search_case(start=start), up_to(10**9))
    assert (everywhere.reached, everywhere.value, everywhere.fails_at) == (False, 10**6, None)
    assert everywhere.reason == "the conditions hold up to 1000000, the highest rate of the search"
    nowhere, more = carry_out(search_case(start=start), up_to(0))
    assert (nowhere.reached, nowhere.value, nowhere.fails_at) == (False, None, 1)
    assert nowhere.reason == "the conditions fail down to 1, the lowest rate of the search"
    assert max(len(runs), len(more)) <= 21


def test_too_few_samples_are_no_pass() -> None:
    found, _ = carry_out(search_case(), lambda run: Made(None))
    assert (found.reached, found.value, found.fails_at) == (False, None, None)
    assert found.reason == "too few samples at rate 1000000 and below to decide"
    found, _ = carry_out(search_case(start=10**6), lambda run: Made(None if run.levels["rate"] < 2000 else MS * 2))
    assert (found.reached, found.value) == (False, None)
    assert found.reason.startswith("too few samples at rate 19")


@settings(max_examples=6)
@given(start=st.integers(1, 10**6))
def test_a_rate_too_low_for_enough_samples_does_not_keep_a_search_from_higher_ones(start: int) -> None:
    def observe(run: Run) -> Made:
        rate = float(run.levels["rate"])
        return Made(None if rate < 2000 else 0.5 * MS if rate <= 50_000 else 2 * MS)

    found, _ = carry_out(search_case(start=start), observe)
    assert found.value is not None and 50_000 / 1.05 <= found.value <= 50_000


def test_most_of_a_probes_runs_decide_or_all_and_no_more_are_taken_than_it_takes() -> None:
    def moody(run: Run) -> Made:
        return Made(2 * MS if run.repeat == 2 or float(run.levels["rate"]) > 100 else 0.5 * MS)

    most, runs = carry_out(search_case(repeats=3, agree="majority"), moody)
    assert most.value is not None and 100 / 1.05 <= most.value <= 100
    first = [run.repeat for run in runs if run.levels["rate"] == 1]
    assert first == [1, 2, 3]
    assert [run.repeat for run in runs if run.levels["rate"] == 128] == [1, 2]
    every, runs = carry_out(search_case(repeats=3, agree="all"), moody)
    assert (every.value, every.fails_at) == (None, 1)
    assert [run.repeat for run in runs] == [1, 2]


def test_a_probe_without_any_result_ends_the_search_with_the_reason() -> None:
    found, runs = carry_out(search_case(repeats=3), lambda run: Made(failure="the device answered with an error"))
    assert not found.reached
    assert found.reason == "every run at rate 1 failed: the device answered with an error"
    assert len(runs) == 2, "two of three without a result decide"


def test_a_failed_run_among_others_is_no_pass_but_no_end_and_each_run_has_a_seed_of_its_own() -> None:
    def observe(run: Run) -> Made:
        return Made(failure="crashed") if run.repeat == 1 else up_to(1000)(run)

    found, runs = carry_out(search_case(repeats=3), observe)
    assert found.value is not None and 1000 / 1.05 <= found.value <= 1000
    assert len({run.spec["seed"] for run in runs}) == len(runs)
    assert {run.spec["workload"]["streams"][0]["arrival"]["rate"] for run in runs} == {
        run.levels["rate"] for run in runs
    }


@pytest.mark.parametrize(
    ("search", "what"),
    [
        ({"over": "block_size"}, "cannot search over `block_size`"),
        ({"between": [100, 100]}, "`between` must be the lowest and the highest value; got 100 and 100"),
        ({"between": [0, 100]}, "`rate` cannot be `0`: it must be above 0"),
        ({"between": [1, "100M"]}, "a rate of 1e+08 per second is beyond what can be timed, 10,000,000"),
        ({"between": [0.01, 100]}, "a rate of 0.01 per second starts nothing within `duration`"),
        ({"start": "2M"}, "`start` must be within `between`; got 2000000"),
        ({"holds": []}, "a search requires a condition"),
        ({"holds": "latency <= 1ms"}, "invalid condition `latency <= 1ms`: there is no metric `latency`"),
    ],
)
def test_a_search_that_cannot_be_done_is_refused_before_anything_is_measured(
    search: dict[str, object], what: str
) -> None:
    with pytest.raises(StudyError) as raised:
        search_case(**search)
    assert raised.value.what == what
