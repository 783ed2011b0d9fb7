"""Two systems, case by case, and the better of them for each workload, with the values that this is based on."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hand_made import results
from inline_snapshot import snapshot

from iosonde.findings.comparison.cases import Design, Recommendation, compare, recommend, sentences
from iosonde.findings.comparison.sessions import paired_spreads
from iosonde.metrics.distributions import adjusted_for_discovery

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import comparison_error_rates

SLOW = {(1,): [100.0, 101, 99], (2,): [200.0, 150, 250], (4,): [300.0, 301, 302], (8,): [1.0, 1, 1]}
FAST = {(1,): [150.0, 151, 149], (2,): [210.0, 160, 260], (4,): [303.0, 304, 302], (16,): [1.0, 1, 1]}
LATENCY = {(1,): [10.0, 10, 10]}
SLOWER = {(1,): [20.0, 20, 20]}
TAIL = "completion_latency_ns_p99"


def compared(metric: str = "iops", **design: Any) -> pl.DataFrame:
    cases, runs = results(["queue_depth"], {"iops": SLOW, "completion_latency_ns_p99": LATENCY}, span=1)
    other_cases, other_runs = results(["queue_depth"], {"iops": FAST, "completion_latency_ns_p99": SLOWER}, span=2)
    table = compare(
        runs.with_columns(result_set=pl.lit("a")),
        other_runs.with_columns(result_set=pl.lit("b")),
        baseline_cases=cases,
        contender_cases=other_cases,
        design=Design(**{"deterministic": True, **design}),
    )
    return table.filter(pl.col("metric") == metric)


def sessions(metrics: Mapping[str, Sequence[Sequence[float]]], name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return cases and run metrics of one case in several sessions: each metric's repeats by session."""
    frames = []
    for number in range(len(next(iter(metrics.values())))):
        cases, runs = results(["queue_depth"], {each: {(1,): values[number]} for each, values in metrics.items()})
        frames.append(runs.with_columns(result_set=pl.lit(f"{name}{number}")))
    return cases, pl.concat(frames)


def verdict_of(baseline: Sequence[Sequence[float]], contender: Sequence[Sequence[float]]) -> str:
    cases, ours = sessions({"iops": baseline}, "a")
    _, theirs = sessions({"iops": contender}, "b")
    return str(compare(ours, theirs, baseline_cases=cases, contender_cases=cases)["verdict"].item())


def test_cases_that_both_have_are_judged_by_the_interval_of_their_ratio() -> None:
    assert compared().select("case_id", "verdict").rows() == [
        ("main/queue_depth=1", "better"),
        ("main/queue_depth=2", "unclear"),
        ("main/queue_depth=4", "same"),
    ]
    row = compared().row(0, named=True)
    assert [round(row[name], 3) for name in ("baseline", "contender", "ratio")] == [100, 150, 1.5]
    assert row["low"] < 1.5 < row["high"]
    assert json.loads(row["differs"]) == {"span": [1, 2]}, "a parameter that differs in cases of the same name"
    row = compared("completion_latency_ns_p99").row(0, named=True)
    assert (round(row["ratio"], 9), row["verdict"]) == (2, "worse"), "more latency is worse"


def test_disturbed_cases_are_excluded_with_the_reason() -> None:
    disturbed = {("b", f"main/queue_depth=1-r{repeat}"): "undetermined" for repeat in (1, 2, 3)}
    row = compared(verdicts=disturbed).row(0, named=True)
    assert (row["verdict"], row["p_value"]) == ("excluded", None)
    assert row["reason"] == "all contender runs are undetermined"


def test_cases_that_the_harness_limited_on_both_systems_are_excluded() -> None:
    both = {(name, f"main/queue_depth=1-r{repeat}"): "harness-limited" for name in "ab" for repeat in (1, 2, 3)}
    row, *others = compared(verdicts=both, two_targets=True).to_dicts()
    assert (row["verdict"], row["reason"], row["bound"]) == ("excluded", "the runs of both are harness-limited", "")
    assert all(not each["reason"] for each in others)
    row = compared(verdicts=both).row(0, named=True)
    assert (row["verdict"], row["bound"]) == ("better", ""), "settings of one target"


@pytest.mark.parametrize(
    ("limited", "metric", "verdict", "bound", "reason"),
    [
        ("a", "iops", "excluded", "at most", "the baseline is slower, but harness-limited"),
        ("b", "iops", "better", "at least", ""),
        ("a", TAIL, "worse", "at least", ""),
        ("b", TAIL, "excluded", "at most", "the contender is slower, but harness-limited"),
    ],
)
def test_the_ratio_to_a_harness_limited_system_is_a_bound(
    limited: str, metric: str, verdict: str, bound: str, reason: str
) -> None:
    """IOPS 100 and 150, latencies 10 and 20; two of three runs are enough."""
    runs = {(limited, f"main/queue_depth=1-r{repeat}"): "harness-limited" for repeat in (1, 2)}
    row, *others = compared(metric, verdicts=runs, two_targets=True).to_dicts()
    assert (row["verdict"], row["bound"], row["reason"]) == (verdict, bound, reason)
    assert all((each["bound"], each["reason"]) == ("", "") for each in others)


def test_equality_with_a_harness_limited_system_is_not_shown() -> None:
    runs = {("b", f"main/queue_depth=4-r{repeat}"): "harness-limited" for repeat in (1, 2, 3)}
    assert compared(verdicts=runs)["verdict"].to_list()[2] == "same"
    assert compared(verdicts=runs, two_targets=True)["verdict"].to_list()[2] == "unclear"


def test_one_session_each_cannot_show_that_two_systems_are_the_same() -> None:
    """Sessions may differ by more than their repeats: the assumed variance enters the interval."""
    assert compared(deterministic=False)["verdict"].to_list() == ["better", "unclear", "unclear"]
    assert verdict_of([[100, 100.1, 99.9]], [[103, 103.1, 102.9]]) == "unclear"


def test_several_sessions_show_how_much_sessions_differ() -> None:
    steady = [[100, 101, 99], [100.5, 99.5, 100], [99.8, 100.6, 100.2], [100.1, 99.2, 100.9]]
    assert verdict_of(steady, [[value * 1.06 for value in each] for each in steady]) == "better"
    assert verdict_of(steady, [[value * 1.005 for value in each] for each in steady]) == "same"
    unsteady = [[80, 81, 82], [100, 101, 99], [120, 119, 121], [95, 96, 95]]
    assert verdict_of(unsteady, [[value * 1.06 for value in each] for each in unsteady]) == "unclear"


def test_in_open_loop_the_response_latency_is_compared() -> None:
    metrics = {"response_latency_ns_p99": [[1e6] * 3], "completion_latency_ns_p99": [[1e5] * 3]}
    cases, ours = sessions(metrics, "a")
    table = compare(ours, ours, baseline_cases=cases, contender_cases=cases)
    assert table["metric"].to_list() == ["response_latency_ns_p99"]


def test_equal_systems_are_seldom_distinguished_even_if_sessions_vary() -> None:
    """3 repeats, sessions vary by 2 %: at most 5 % of comparisons of equals may decide."""
    random = np.random.default_rng(5)

    def session() -> list[float]:
        effect = random.normal(0, 0.02)
        return [float(np.exp(np.log(1e5) + effect + random.normal(0, 0.01))) for _ in range(3)]

    decided = sum(verdict_of([session()], [session()]) in ("better", "worse") for _ in range(40))
    assert decided <= 5, "a binomial of 40 at 5 % exceeds 5 in 1 % of all cases"


def test_pairs_within_a_session_cancel_what_both_members_share() -> None:
    random = np.random.default_rng(1)
    shared = [float(each) for each in np.exp(random.normal(0, 0.2, 6))]
    faster = [each * 1.05 * float(np.exp(random.normal(0, 0.005))) for each in shared]
    cases, ours = sessions({"iops": [shared]}, "a")
    _, theirs = sessions({"iops": [faster]}, "b")
    paired = compare(ours, theirs, baseline_cases=cases, contender_cases=cases, design=Design(paired=True))
    assert 1.03 < paired["low"].item() < 1.05 < paired["high"].item() < 1.08
    apart = compare(ours, theirs, baseline_cases=cases, contender_cases=cases)
    assert apart["high"].item() / apart["low"].item() > 1.2


def test_a_run_without_a_partner_takes_no_part_in_a_paired_comparison() -> None:
    cases, ours = sessions({"iops": [[100.0, 110.0, 90.0]]}, "a")
    _, theirs = sessions({"iops": [[200.0, 220.0, 180.0, 5000.0]]}, "b")
    found = compare(ours, theirs, baseline_cases=cases, contender_cases=cases, design=Design(paired=True))
    assert found.select(pl.col("ratio").round(9), "repeats_contender").rows() == [(2, 3)]


def test_equal_pairs_are_seldom_distinguished_although_variances_are_moderated() -> None:
    """Twelve cases of which one is ten times as noisy as the others."""
    random = np.random.default_rng(3)
    noise = np.where(np.arange(12) == 0, 0.1, 0.01)
    alarms = 0
    for _ in range(100):
        rows = random.normal(0, noise[:, None], (12, 3)) * math.sqrt(2)
        spreads = paired_spreads(list(rows))
        ratios = [each.ratio(float(row.mean())) for each, row in zip(spreads, rows, strict=True)]
        alarms += min(adjusted_for_discovery([each.p_value for each in ratios])) <= 0.05
    assert alarms <= 10


def test_drift_of_the_control_widens_the_interval_or_excludes() -> None:
    cases, ours = sessions({"iops": [[100, 101, 99]]}, "a")
    _, theirs = sessions({"iops": [[120, 121, 119]]}, "b")

    def judged(drift: float, *, paired: bool = False) -> dict[str, Any]:
        design = Design(drift={"a0": drift}, deterministic=True, paired=paired)
        return compare(ours, theirs, baseline_cases=cases, contender_cases=cases, design=design).row(0, named=True)

    assert judged(0.1)["high"] > judged(0.0)["high"]
    assert judged(0.3)["verdict"] == "excluded"
    assert judged(0.3)["reason"] == "the control case of the baseline drifted by 30 %"
    assert judged(0.3, paired=True)["verdict"] == "better"


def test_result_sets_without_a_common_case_compare_to_nothing() -> None:
    cases, runs = results(["queue_depth"], {"iops": {(1,): [1.0]}})
    other_cases, other_runs = results(["jobs"], {"iops": {(1,): [1.0]}})
    table = compare(runs, other_runs, baseline_cases=cases, contender_cases=other_cases)
    assert table.is_empty()
    assert "verdict" in table.columns


def test_cases_of_different_durability_are_excluded_with_the_reason() -> None:
    cases, runs = results(["queue_depth"], {"iops": SLOW}, span=1)
    reason = "acknowledged writes survive process crash in the baseline, nothing in the contender"
    table = compare(
        runs.with_columns(result_set=pl.lit("a")),
        runs.with_columns(result_set=pl.lit("b")),
        baseline_cases=cases,
        contender_cases=cases,
        design=Design(incomparable={"main/queue_depth=1": reason}),
    )
    excluded = table.filter(pl.col("verdict") == "excluded")
    assert excluded.select("case_id", "reason").rows() == [("main/queue_depth=1", reason)]


@pytest.mark.parametrize("paired", [False, True])
def test_intervals_of_ratios_cover_where_consecutive_repeats_are_correlated(paired: bool) -> None:
    """Correlation 0.6 over ten repeats of 20 cases: without correction two thirds of the intervals cover."""
    settings = {"correlation": 0.6, "repeats": 10, "sets": 25, "paired": paired}
    assert comparison_error_rates.coverage(np.random.default_rng(2), **settings) >= 0.94
    assert comparison_error_rates.coverage(np.random.default_rng(2), **settings, corrected=False) < 0.75


def test_a_comparison_estimates_the_correlation_of_repeats_from_its_result_sets() -> None:
    """Twelve cases that drift alike through ten repeats: the interval is wider than that of the same values shuffled."""
    random = np.random.default_rng(4)
    rows = [np.cumsum(random.normal(0, 0.05, 10)) for _ in range(24)]  # more than sessions vary

    def width(order: np.ndarray[Any, Any]) -> float:
        values = [[float(1e5 * math.exp(each)) for each in row[order]] for row in rows]
        found = []
        for name, half in (("a", values[:12]), ("b", values[12:])):
            cases, runs = results(["queue_depth"], {"iops": {(2**i,): each for i, each in enumerate(half)}})
            found.append((cases, runs.with_columns(result_set=pl.lit(name))))
        [(cases, ours), (other, theirs)] = found
        table = compare(
            ours, theirs, baseline_cases=cases, contender_cases=other, design=Design(deterministic=False)
        ).filter(pl.col("metric") == "iops")
        return float((table["high"] / table["low"]).log().mean())  # type: ignore[arg-type]

    assert width(np.arange(10)) > 1.3 * width(np.array([0, 5, 2, 8, 4, 1, 7, 3, 9, 6]))


NAMES = {"baseline": "flash", "contender": "optane"}


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
    assert (found.choice, found.by, len(found.rate.cells), found.repeats) == ("contender", "rate", 2, 3)
    assert list(sentences([found], NAMES)) == snapshot(
        [
            "Random reads: choose optane: higher rate (optane over flash: bandwidth 1.22 times, 95 % CI 1.18–1.26; p99 completion latency 1.00 times, 95 % CI ±0.1 %; 2 cases, 3 runs each)"
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
    assert "undecided; more repeats, or an A/B run (`iosonde run --against`), can decide it" in sentence
    workloads = dict.fromkeys(system([100])["case_id"], "random reads")
    [paired] = recommend(system([100], tail=[1e5]), system([150], tail=[1e5]), workloads, design=Design(paired=True))
    assert paired.choice == "unclear"
    assert "undecided; more repeats can decide it" in next(sentences([paired], NAMES)), "it is an A/B run"


def test_one_win_and_one_loss_within_a_workload_are_no_win() -> None:
    _, ours = results(["queue_depth"], {"bandwidth": {(1,): [100.0] * 3, (4,): [100.0] * 3}})
    _, theirs = results(["queue_depth"], {"bandwidth": {(1,): [200.0] * 3, (4,): [50.0] * 3}})
    found = judged(ours, theirs)
    assert (found.choice, found.tail.ratio) == ("either", None)
    [sentence] = sentences([found], NAMES)
    assert "0.50–2.00 in single cases; too few samples for p99" in sentence, "a mean that hides both"


def bounded(ratios: Mapping[int, float], limited: Mapping[int, str], tails: float = 1.0) -> Recommendation:
    """Judge a contender of these rates over 100 by queue depth; `limited` names the harness-limited system of a case."""
    rates: dict[str, dict[tuple[int], float]] = {
        "a": {(depth,): 100.0 for depth in ratios},
        "b": {(depth,): 100 * ratio for depth, ratio in ratios.items()},
    }
    systems = {}
    for name, of_system in rates.items():
        rate = {case: [0.99 * value, value, 1.01 * value] for case, value in of_system.items()}
        tail = dict.fromkeys(of_system, [1e5 * (tails if name == "b" else 1)] * 3)
        systems[name] = results(["queue_depth"], {"bandwidth": rate, TAIL: tail})[1].with_columns(
            result_set=pl.lit(name)
        )
    verdicts = {
        (name, f"main/queue_depth={depth}-r{repeat}"): "harness-limited"
        for depth, name in limited.items()
        for repeat in (1, 2, 3)
    }
    workloads = dict.fromkeys(sorted(set(systems["a"]["case_id"])), "random reads")
    design = Design(deterministic=True, two_targets=True, verdicts=verdicts)
    [found] = recommend(systems["a"], systems["b"], workloads, design=design)
    return found


def test_a_recommendation_leaves_out_cases_whose_slower_system_is_harness_limited() -> None:
    found = bounded({1: 1.2, 4: 1.2, 16: 3.0}, {16: "a"}, tails=0.5)
    assert (found.choice, found.by, found.rate.bounds) == ("contender", "both", ())
    assert found.rate.ratio is not None and found.rate.ratio.value == pytest.approx(1.2)
    assert found.rate.excluded == ["the baseline is slower, but harness-limited"]
    [sentence] = sentences([found], NAMES)
    assert "bandwidth 1.20 times" in sentence and "2 cases" in sentence
    assert sentence.endswith("; excluded: the baseline is slower, but harness-limited)")
    every = bounded({1: 1.2, 4: 1.3}, dict.fromkeys((1, 4), "a"))
    assert every.choice == "unclear" and not every.rate.cells
    assert "undecided, no usable case (the baseline is slower" in next(sentences([every], NAMES))


def test_a_recommendation_of_the_harness_limited_system_states_a_bound() -> None:
    found = bounded({1: 1.2, 4: 1.2, 16: 1.2}, {16: "b"}, tails=2.0)
    assert (found.choice, found.by, found.rate.bounds) == ("contender", "rate", ("at least",))
    assert (found.tail.excluded, len(found.tail.cells)) == (["the contender is slower, but harness-limited"], 2)
    [sentence] = sentences([found], NAMES)
    assert "optane over flash: bandwidth at least 1.20 times, 95 % CI" in sentence and "3 cases" in sentence
    assert sentence.endswith("; excluded: p99: the contender is slower, but harness-limited)")
    alone = bounded({1: 1.2, 4: 1.2}, dict.fromkeys((1, 4), "b"), tails=2.0)
    assert "; no usable p99; 2 cases" in next(sentences([alone], NAMES))


def test_arms_are_named_once_with_their_difference() -> None:
    workloads = dict.fromkeys(system([100])["case_id"], "random reads")
    design = Design(paired=True, deterministic=True)
    names = {"baseline": "a: /mnt/a", "contender": "b: /mnt/b"}
    [sentence] = sentences(recommend(system([98, 100, 102]), system([119, 122, 125]), workloads, design=design), names)
    assert "choose b: /mnt/b: higher rate (b over a: bandwidth 1.22 times" in sentence


def test_bounds_in_both_directions_decide_nothing() -> None:
    found = bounded({1: 1.5, 4: 1.5, 16: 0.9}, {4: "b", 16: "a"})
    assert (found.choice, found.rate.bounds, found.rate.ratio) == ("unclear", ("at least", "at most"), None)
    [sentence] = sentences([found], NAMES)
    assert "undecided; some cases are harness-limited (" in sentence
    assert "bandwidth not averaged: each system is harness-limited in some cases" in sentence
    against = bounded({1: 0.5, 4: 0.5, 16: 1.5}, {16: "b"})
    assert against.rate.ratio is not None and against.rate.ratio.value < 1, "at least 0.72 times is no loss"
    assert (against.choice, against.rate.bounds) == ("unclear", ("at least",))


def test_noise_does_not_choose_a_harness_limited_system() -> None:
    """Equal systems, 20 % between cases, the baseline harness-limited: the cases that favour it are not selected."""
    ratios = {2**place: ratio for place, ratio in enumerate((0.8, 0.9, 0.8, 1.25, 1.11, 1.3))}
    found = bounded(ratios, dict.fromkeys(ratios, "a"))
    assert (found.choice, found.rate.bounds, found.rate.excluded) == ("unclear", ("at most",), [])
    assert found.rate.ratio is not None and found.rate.ratio.value == pytest.approx(
        np.prod(list(ratios.values())) ** (1 / 6)
    )
    below = {depth: 0.95 * ratio for depth, ratio in ratios.items()}
    assert len(bounded(below, dict.fromkeys(below, "a")).rate.cells) == 6


def test_cases_that_one_system_lacks_take_no_part_and_choices_are_counted() -> None:
    baseline = system([100, 100, 100])
    contender = baseline.filter(pl.col("case_id") == baseline["case_id"][0])
    assert len(judged(baseline, contender).rate.cells) == 1
    cases = sorted(set(baseline["case_id"]))
    found = recommend(baseline, system([150, 150, 150]), {cases[0]: "reads", cases[1]: "writes"})
    assert next(iter(sentences(found, NAMES))) == "Recommendation: optane for 2 of 2 workloads"
    assert recommend(baseline, contender.clear(), {baseline["case_id"][0]: "reads"}) == []
