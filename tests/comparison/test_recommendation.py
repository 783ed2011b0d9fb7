"""The better of two systems for each workload, with the values that the recommendation is based on."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hand_made import results
from inline_snapshot import snapshot

from iosonde.comparison.cases import Design, Recommendation, recommend, sentences

NAMES = {"baseline": "flash", "contender": "optane"}
TAIL = "completion_latency_ns_p99"


def system(rate: Sequence[float], tail: Sequence[float] = (1e5, 1e5, 1e5)) -> pl.DataFrame:
    cases = {(depth,): list(rate) for depth in (1, 4)}
    _, runs = results(["queue_depth"], {"bandwidth": cases, TAIL: {(depth,): list(tail) for depth in (1, 4)}})
    return runs


def judged(baseline: pl.DataFrame, contender: pl.DataFrame) -> Recommendation:
    workloads = dict.fromkeys(sorted(set(baseline["case_id"])), "random reads")
    [found] = recommend(baseline, contender, workloads, design=Design(deterministic=True))
    return found


def test_the_faster_one_is_chosen_and_the_evidence_is_stated() -> None:
    found = judged(system([98, 100, 102]), system([119, 122, 125]))
    assert (found.choice, found.by, found.cases, found.repeats) == ("contender", "rate", 2, 3)
    assert list(sentences([found], NAMES)) == snapshot(
        [
            "Random reads: choose optane: higher rate (optane over flash: bandwidth 1.22 times, 95 % CI 1.18–1.26; p99 completion latency 1.00 times, 95 % CI 1.00; 2 cases, 3 runs each)"
        ]
    )


def test_where_both_are_as_fast_the_tail_decides_and_what_is_surely_equal_is_no_choice() -> None:
    found = judged(system([100, 100, 101]), system([100, 101, 101], tail=(2e4, 2e4, 2e4)))
    assert (found.choice, found.by) == ("contender", "tail")
    found = judged(system([100, 100, 101]), system([100, 101, 101], tail=(3e5, 3e5, 3e5)))
    assert (found.choice, found.by) == ("baseline", "tail")
    assert judged(system([100, 100, 101]), system([100, 101, 101])).choice == "either"


def test_a_faster_one_with_the_longer_tail_is_named_with_both() -> None:
    found = judged(system([100, 100, 100]), system([150, 150, 150], tail=(9e5, 9e5, 9e5)))
    [sentence] = sentences([found], NAMES)
    assert "choose optane: higher rate; flash has the shorter tail" in sentence


def test_single_runs_decide_nothing() -> None:
    found = judged(system([100], tail=[1e5]), system([150], tail=[1e5]))
    # Two cases are fewer than an interval over cases needs.
    assert found.choice == "unclear"
    [sentence] = sentences([found], NAMES)
    assert "undecided; more repeats" in sentence


def test_one_win_and_one_loss_within_a_workload_are_no_win() -> None:
    _, ours = results(["queue_depth"], {"bandwidth": {(1,): [100.0] * 3, (4,): [100.0] * 3}})
    _, theirs = results(["queue_depth"], {"bandwidth": {(1,): [200.0] * 3, (4,): [50.0] * 3}})
    found = judged(ours, theirs)
    assert (found.choice, found.tail) == ("either", None)
    [sentence] = sentences([found], NAMES)
    assert "0.50–2.00 in single cases; too few samples for p99" in sentence, "a mean that hides both"


def test_cases_that_one_system_lacks_take_no_part_and_choices_are_counted() -> None:
    baseline = system([100, 100, 100])
    contender = baseline.filter(pl.col("case_id") == baseline["case_id"][0])
    assert judged(baseline, contender).cases == 1
    cases = sorted(set(baseline["case_id"]))
    found = recommend(baseline, system([150, 150, 150]), {cases[0]: "reads", cases[1]: "writes"})
    assert next(iter(sentences(found, NAMES))) == "Recommendation: optane for 2 of 2 workloads"
    assert recommend(baseline, contender.clear(), {baseline["case_id"][0]: "reads"}) == []
