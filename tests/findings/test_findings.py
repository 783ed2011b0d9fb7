"""Findings from frames made by hand: kinds and values. Sentences are in `test_sentences.py`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, TypeVar

import polars as pl
import pytest
from hand_made import controls, results, study

from iosonde.findings.answer import Answer
from iosonde.findings.finding import Finding, Support
from iosonde.findings.findings import answer, findings
from iosonde.findings.quality import (
    BusyCore,
    ControlDrift,
    FailedIos,
    FewRepeats,
    LittlesLaw,
    MissingRuns,
    TooFewSamples,
    Verdicts,
    Warned,
)
from iosonde.findings.questions.comparison import Comparison
from iosonde.findings.questions.peak import Peak, Saturation
from iosonde.findings.questions.scaling import Dependence, Scaling, TailGrowth
from iosonde.findings.throughput import OfferedRates, Throughput, UnloadedLatency

LOAD = {"access": "random", "io_mode": "direct", "read_fraction": 1.0, "trim_fraction": 0.0, "jobs": 1}
DEPTHS = [1, 2, 4, 8, 16, 32, 64]
Kind = TypeVar("Kind", bound=Finding)


def of_kind(found: list[Finding], kind: type[Kind]) -> list[Kind]:
    return [each for each in found if isinstance(each, kind)]


def only(found: list[Finding], kind: type[Kind]) -> Kind:
    [finding] = of_kind(found, kind)
    return finding


def around(value: float, spread: float = 0.01) -> list[float]:
    return [value * (1 - spread), value, value * (1 + spread), value * (1 - spread / 2), value * (1 + spread / 2)]


def drive(spread: float = 0.01, repeats: int = 5, verdicts: dict[str, int] | None = None, servers: int = 16) -> Answer:
    """A drive whose servers need 88 µs for each 4 KiB read."""
    iops = {(depth,): around(min(depth, servers) / 88e-6, spread)[:repeats] for depth in DEPTHS}
    p99 = {(depth,): around(1.1e6 * max(depth / 16, 0.5), spread)[:repeats] for depth in DEPTHS}
    p50 = {(depth,): around(88e3 * max(depth / 16, 1), spread)[:repeats] for depth in DEPTHS}
    metrics = {"iops": iops, "completion_latency_ns_p99": p99, "completion_latency_ns_p50": p50}
    metrics["concurrency"] = {(depth,): [depth] * repeats for depth in DEPTHS}
    questions = [
        {"kind": "saturation", "over": "queue_depth", "metric": "iops"},
        {"kind": "gain_per_doubling", "over": "queue_depth", "metric": "iops"},
        {"kind": "tail_growth", "over": "queue_depth", "metric": "completion_latency_ns_p99"},
    ]
    cases, runs = results(["queue_depth"], metrics, block_size=4096, **LOAD)
    kinds = [kind for kind, count in (verdicts or {}).items() for _ in range(count)]
    outcomes = judged(runs, kinds) if kinds else None
    return answer(study({"queue_depth": DEPTHS}, questions), cases, runs, runs=outcomes)


def judged(runs: pl.DataFrame, kinds: list[str]) -> pl.DataFrame:
    """The view `runs`, with these verdicts for the repeats of every case, in turn."""
    known = runs.select("run_id", "case_id", "repeat").unique(maintain_order=True)
    verdicts = [kinds[(repeat - 1) % len(kinds)] for repeat in known["repeat"]]
    nothing = pl.lit(None, dtype=pl.String)
    return known.with_columns(
        verdict=pl.Series(verdicts),
        outcome=pl.lit("complete"),
        failure=nothing,
        failure_message=nothing,
        has_wrong_data=pl.lit(value=False),
    )


def ended(*rows: tuple[str | None, ...]) -> pl.DataFrame:
    columns = ("run_id", "case_id", "outcome", "failure", "failure_message", "verdict")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def test_a_drive_that_saturates() -> None:
    found = drive().findings
    rate = only(found, Throughput)
    assert (rate.metric, rate.setting, rate.unsaturated) == ("iops", "at queue depth 16", False)
    assert rate.value.value == pytest.approx(16 / 88e-6)
    assert only(found, UnloadedLatency).p50.value == pytest.approx(88e3)
    [point] = only(found, Saturation).points
    assert (point.level, point.low, point.high, point.is_last, point.agreement) == (
        16,
        16,
        16,
        False,
        pytest.approx(1, abs=0.01),
    )
    scaling = only(found, Scaling)
    assert (scaling.lower, scaling.upper, scaling.nearly_doubles) == (1, 16, True)
    assert scaling.gain.value == pytest.approx(2, rel=0.01)
    tail = only(found, TailGrowth)
    assert (tail.first_level, tail.last_level) == (1, 64)
    assert (tail.first, tail.last) == (pytest.approx(550e3), pytest.approx(4.4e6))
    assert {each.strength for each in found} == {"strong"}


def test_a_drive_that_does_not_saturate_is_stated_once() -> None:
    found = drive(servers=128).findings
    rate = only(found, Throughput)
    assert (rate.setting, rate.unsaturated) == ("at queue depth 64", True)
    assert of_kind(found, Saturation) == []


def test_a_single_run_has_no_interval_and_is_weak() -> None:
    single = drive(repeats=1)
    [point] = only(single.findings, Saturation).points
    assert (point.level, point.low, point.agreement) == (16, None, None)
    assert {each.strength for each in single.findings} == {"weak"}
    assert of_kind(single.findings, Scaling) == []
    assert single.trust.single and "no confidence intervals" in single.trust.line


def test_strength_follows_from_the_width_of_the_interval() -> None:
    strengths = [only(drive(spread).findings, Throughput).strength for spread in (0.01, 0.1, 0.6)]
    assert strengths == ["strong", "moderate", "weak"]


def test_rates_of_harness_limited_runs_are_lower_bounds() -> None:
    limited = drive(verdicts={"device-limited": 1, "harness-limited": 4})
    rate = only(limited.findings, Throughput)
    assert rate.lower_bound and "at least" in rate.sentence and rate.verdicts == "4 of 5 runs harness-limited"
    assert limited.trust.line == "7 of 35 runs were device-limited, 28 harness-limited: lower bounds only"
    mixed = drive(verdicts={"device-limited": 1, "harness-limited": 2, "undetermined": 2})
    assert only(mixed.findings, Throughput).lower_bound, "the median is no more than what some other run has reached"
    assert mixed.trust.line.endswith(": lower bounds where harness-limited")
    quiet = drive(verdicts={"device-limited": 5})
    assert not only(quiet.findings, Throughput).lower_bound
    assert quiet.trust.line == "35 of 35 runs were device-limited"


def test_rates_of_undetermined_runs_and_of_caches_are_no_bounds() -> None:
    """An unknown cache makes runs undetermined, and faster."""
    disturbed = drive(verdicts={"device-limited": 1, "undetermined": 4})
    rate = only(disturbed.findings, Throughput)
    assert not rate.lower_bound and "at least" not in rate.sentence and rate.verdicts == "4 of 5 runs undetermined"
    assert disturbed.trust.line == "In 28 of 35 runs it is not known whether the device was the bottleneck"
    even = Support(verdicts={"case": Counter({"harness-limited": 2, "undetermined": 2})})
    assert not even.is_lower_bound("case"), "the median is between the two kinds"
    cached = drive(verdicts={"cache-served": 5})
    assert cached.trust.line == "35 of 35 runs were cache-served: results of a cache, not of the device"
    assert not only(cached.findings, Throughput).lower_bound


def test_a_study_of_one_part_that_asks_for_peaks_is_answered_by_all_of_them() -> None:
    loads = [(depth, share) for depth in DEPTHS for share in (0.0, 1.0)]
    metrics: dict[str, Any] = {
        "iops": {(depth, share): around(1e4 * depth * (1 + share)) for depth, share in loads},
        "completion_latency_ns_p50": {load: around(1e5) for load in loads},
        "concurrency": {(depth, share): [depth] * 5 for depth, share in loads},
    }
    cases, runs = results(["queue_depth", "read_fraction"], metrics, block_size=4096, **LOAD)
    question = {"kind": "peak", "over": "queue_depth", "metric": "iops", "by": ["read_fraction"]}
    found = answer(study({"queue_depth": DEPTHS, "read_fraction": [0.0, 1.0]}, [question]), cases, runs)
    assert [each.kind for each in found.summary] == ["peak", "peak", "unloaded latency"]


def comparing(ratio: float, spread: float) -> Comparison:
    bandwidth = {("buffered", 4096): around(1e9 * ratio, spread), ("direct", 4096): around(1e9, spread)}
    bandwidth |= {("buffered", 8192): around(2e9 * ratio, spread), ("direct", 8192): around(2e9, spread)}
    cases, runs = results(["io_mode", "block_size"], {"bandwidth": bandwidth}, **{**LOAD, "io_mode": "direct"})
    questions = [{"kind": "asymmetry", "over": "io_mode", "by": ["block_size"]}]
    asked = study({"io_mode": ["buffered", "direct"], "block_size": [4096, 8192]}, questions)
    return only(findings(asked, cases, runs), Comparison)


def limited(ratio: float, *levels: str, metric: str = "bandwidth", also: float | None = None) -> Comparison:
    """Compare reads with writes, whose value is 1e9; the runs of `levels` are harness-limited.

    `also` is the ratio with blocks of 8 KiB.
    """
    sizes = {4096: ratio, **({8192: also} if also else {})}
    values = {("read", size): around(1e9 * each) for size, each in sizes.items()}
    values |= {("write", size): around(1e9) for size in sizes}
    cases, runs = results(["operation", "block_size"], {metric: values}, **LOAD)
    cases = cases.with_columns(read_fraction=pl.col("operation").replace_strict({"read": 1.0, "write": 0.0}))
    operations = [{"label": name, "set": {"read_fraction": share}} for name, share in (("read", 1.0), ("write", 0.0))]
    asked = study(
        {"operation": operations, "block_size": list(sizes)},
        [{"kind": "asymmetry", "over": "operation", "by": ["block_size"], "metric": metric}],
    )
    is_limited = pl.col("case_id").str.contains(f"operation=({'|'.join(levels) or 'none'})")
    kind = pl.when(is_limited).then(pl.lit("harness-limited")).otherwise(pl.lit("device-limited"))
    outcomes = judged(runs, ["device-limited"]).with_columns(verdict=kind)
    return only(findings(asked, cases, runs, runs=outcomes), Comparison)


P99 = "completion_latency_ns_p99"


@pytest.mark.parametrize(
    ("ratio", "levels", "metric", "bounds", "stated"),
    [
        (1.22, ["write"], "bandwidth", ("at most",), "Reads reach at most 1.22 times"),
        (1.22, ["read"], "bandwidth", ("at least",), "Reads reach at least 1.22 times"),
        (0.5, ["write"], "bandwidth", ("at least",), "Writes reach at least 2.00 times"),
        (0.5, ["read"], "bandwidth", ("at most",), "Writes reach at most 2.00 times"),
        (1.22, [], "bandwidth", (), "Reads reach 1.22 times"),
        (1.22, ["write"], P99, ("at least",), "Reads have at least 1.22 times"),
        (1.22, ["read"], P99, ("at most",), "Reads have at most 1.22 times"),
        (1.0, ["write"], "bandwidth", ("at most",), "Bandwidth of reads over writes for random I/O: at most 1.00"),
        (1.22, ["read", "write"], "bandwidth", ("at least", "at most"), "not compared, lower bounds on both sides"),
        (1.22, ["read", "write"], P99, ("at most", "at least"), "not compared, upper bounds on both sides"),
    ],
)
def test_the_ratio_to_a_harness_limited_level_is_a_bound(
    ratio: float, levels: list[str], metric: str, bounds: tuple[str, ...], stated: str
) -> None:
    found = limited(ratio, *levels, metric=metric)
    assert found.bounds == bounds
    assert stated in found.sentence and ("1.22" in found.sentence) == ("1.22" in stated)
    assert ("times" in found.evidence) == (len(bounds) < 2), "no ratio where there is no bound"


def test_ratios_of_single_cells_are_bounds_where_harness_limited() -> None:
    opposed = limited(2.0, "write", also=0.5)
    assert opposed.opposed and "; upper bounds where harness-limited (" in opposed.sentence
    reverse = limited(4.0, "read", also=0.9)
    assert reverse.reversed_cells and "; lower bounds where harness-limited (" in reverse.sentence


def test_levels_are_different_equal_or_unclear_by_the_interval() -> None:
    different = comparing(0.55, 0.02)
    assert (different.decision, different.top, different.bottom) == ("higher", "direct I/O", "buffered I/O")
    assert different.ratio.value == pytest.approx(1 / 0.55)
    assert comparing(1.01, 0.01).decision == "same"
    unclear = comparing(1.04, 0.15)
    assert (unclear.decision, unclear.strength) == ("unclear", "weak")
    assert "too variable to compare" in comparing(0.2, 0.95).sentence


def test_flatness_and_peak() -> None:
    jobs = [1, 2, 4, 8]
    bandwidth = {(count,): around(1e9 * (1.02 if count == 4 else 1.0), 0.002) for count in jobs}
    cases, runs = results(["jobs"], {"bandwidth": bandwidth}, block_size=1 << 20, **{**LOAD, "access": "sequential"})
    questions = [{"kind": "flatness", "over": "jobs"}, {"kind": "peak", "over": "jobs"}]
    found = findings(study({"jobs": jobs}, questions), cases, runs)
    flat = only(found, Dependence)
    assert (flat.decision, flat.last_level, flat.ratio.value) == ("flat", 4, pytest.approx(1.02))
    peak = only(found, Peak)
    assert (peak.setting, peak.reached, peak.value.value) == ("4 jobs", "1 job", pytest.approx(1.02e9))
    assert of_kind(found, Throughput) == [], "the peak is the same fact"


def highest(bandwidth: dict[tuple[int], list[float]]) -> Peak:
    load = {**LOAD, "access": "sequential"}
    cases, runs = results(["queue_depth"], {"bandwidth": bandwidth}, block_size=1 << 20, **load)
    asked = study({"queue_depth": [depth for (depth,) in bandwidth]}, [{"kind": "peak", "over": "queue_depth"}])
    return only(findings(asked, cases, runs), Peak)


def test_a_value_that_rises_to_the_last_level_is_no_peak() -> None:
    rising = highest({(depth,): around(depth * 1e9) for depth in (1, 2, 4, 8)})
    assert (rising.unsaturated, rising.value.value, rising.setting) == (True, 8e9, "queue depth 8")
    assert "peak" not in rising.sentence and rising.sentence.endswith("; maximum not shown")
    once = highest({(depth,): [depth * 1e9] for depth in (1, 2, 4, 8)})
    assert not once.unsaturated and " reach " in once.sentence, "single runs show no rise, and the last level no peak"
    for last in (1.03, 0.8):
        assert not highest({(4,): around(1e9), (8,): around(last * 1e9)}).unsaturated
    scattered = [0.75e9, 1e9, 1.06e9]
    assert not highest({(4,): [0.6e9, 0.94e9, 1.04e9], (8,): scattered}).unsaturated


@pytest.mark.parametrize(
    ("beyond", "stated"),
    [
        ({}, ": 95 % of the peak reached between queue depth 16 and 64, the highest level measured"),
        ({(128,): [99e3, 100e3, 101e3]}, " saturate between queue depth 16 and 64"),
    ],
)
def test_a_load_that_may_reach_its_peak_at_the_last_level_is_not_stated_to_saturate(
    beyond: dict[tuple[int], list[float]], stated: str
) -> None:
    rates = {(1,): [50e3] * 3, (16,): [90e3, 97e3, 99e3], (64,): [99e3, 100e3, 101e3], **beyond}
    cases, runs = results(["queue_depth"], {"iops": rates}, block_size=4096, **LOAD)
    question = {"kind": "saturation", "over": "queue_depth", "metric": "iops"}
    asked = study({"queue_depth": [depth for (depth,) in rates]}, [question])
    assert only(findings(asked, cases, runs), Saturation).sentence.endswith(stated)


def test_rate_limited_cases_are_no_peak_and_do_not_saturate() -> None:
    rates = [1000, 2000, 4000]
    metrics: dict[str, Any] = {
        "iops": {(rate,): around(min(rate, 2500)) for rate in rates},
        "achieved_rate_fraction": {(rate,): [min(1.0, 2500 / rate)] * 5 for rate in rates},
        "response_latency_ns_p99": {(rate,): around(1e6 * rate) for rate in rates},
    }
    cases, runs = results(["rate"], metrics, block_size=4096, **LOAD)
    questions = [
        {"kind": kind, "over": "rate", "metric": "iops"} for kind in ("saturation", "peak", "gain_per_doubling")
    ]
    questions.append({"kind": "tail_growth", "over": "rate", "metric": "response_latency_ns_p99"})
    found = findings(study({"rate": rates}, questions), cases, runs)
    assert {each.kind for each in found if each.topic != "quality"} == {"offered rates", "tail growth"}
    growth = only(found, TailGrowth)
    assert (growth.last_level, growth.overloaded) == (2000, 4000)
    assert growth.sentence.endswith("; overloaded from rate 4000 on")
    offered = only(found, OfferedRates)
    assert [(round(each.offered), each.kept) for each in offered.rates] == [(1000, True), (2000, True), (4000, False)]


def offered_rates(shares: list[float], kinds: list[str]) -> OfferedRates:
    """One offered rate of 1,000 per second, with the share achieved in each repeat."""
    metrics: dict[str, Any] = {
        "iops": {(1000,): [1000 * share for share in shares]},
        "achieved_rate_fraction": {(1000,): shares},
        "response_latency_ns_p99": {(1000,): [1e6 if share == 1 else 5e9 for share in shares]},
    }
    cases, runs = results(["rate"], metrics, block_size=4096, **LOAD)
    return only(findings(study({"rate": [1000]}, []), cases, runs, runs=judged(runs, kinds)), OfferedRates)


def test_a_rate_is_achieved_if_every_run_achieves_it() -> None:
    found = offered_rates([1.0, 1.0, 0.6], ["device-limited"])
    [rate] = found.rates
    assert (rate.kept, rate.kept_runs, rate.offered) == (False, 2, 1000)
    assert "p99" not in found.sentence and "achieved in 2 of 3 runs" in found.sentence
    assert "(achieved in 2 of 3 runs)" in found.evidence


def test_harness_limited_and_disturbed_runs_show_no_overload() -> None:
    missed = [0.6, 0.6, 0.6]
    for kind in ("harness-limited", "undetermined"):
        [limited] = offered_rates(missed, [kind]).rates
        assert limited.harness == f"3 of 3 runs {kind}"
        assert "not achieved" in limited.shortfall
    [overloaded] = offered_rates(missed, ["device-limited"]).rates
    assert (overloaded.harness, overloaded.shortfall.split()[0]) == ("", "overloaded")


def test_one_rate_in_several_cases_is_one_rate() -> None:
    found = offered_rates([1.0, 1.0, 1.0], ["device-limited"])
    assert found.sentence.startswith("The offered rate of 1,000/s was achieved (part `main`), p99")
    twice = replace(found, rates=(*found.rates, *found.rates))
    assert twice.sentence.startswith("The offered rate of 1,000/s was achieved in both cases (part `main`)")


def test_a_percentile_that_other_levels_have_names_the_levels_without_it() -> None:
    p99_999 = "completion_latency_ns_p99_999"
    metrics: dict[str, Any] = {"iops": {(1,): [10.0] * 3, (2,): [20.0] * 3}, p99_999: {(2,): [1e6] * 3}}
    cases, runs = results(["queue_depth"], metrics, **LOAD)
    asked = {"kind": "flatness", "over": "jobs", "metric": p99_999, "where": {"queue_depth": 1}}
    found = only(findings(study({"queue_depth": [1, 2], "jobs": [1]}, [asked]), cases, runs), TooFewSamples)
    assert found.levels == ("queue depth 1",)
    assert found.sentence.endswith("in every case of part `main` with queue depth 1")


def test_quality_comes_last_with_missing_runs_errors_and_a_busy_core() -> None:
    metrics = {
        "iops": {(1,): [10, 10, 10], (2,): [20, 20, 20]},
        "errors": {(1,): [0, 0, 3]},
        "littles_law_ratio": {(1,): [1.0, 1.0, 1.0], (2,): [0.7, 0.71, 0.99]},
        "completion_latency_ns_mean": {(1,): [1e5] * 3, (2,): [1e5] * 3},
        "seconds": {(1,): [1.0] * 3, (2,): [1.0] * 3},
        "mean_in_flight": {(1,): [1.0] * 3, (2,): [1.4, 1.42, 1.98]},
        "core_utilisation": {(2,): [0.99, 0.98, 0.5]},
    }
    cases, runs = results(["queue_depth"], metrics, **LOAD)
    drifting = pl.concat([runs, controls("iops", [100, 97, 94, 92, 90])], how="vertical_relaxed")
    failed = ("failed", "no_space", "no space left", None)
    outcomes = ended(("a", "x", "complete", None, None, None), ("b", "x", *failed), ("c", "y", *failed))
    warned = pl.DataFrame(
        {"run_id": ["a", "b"], "code": ["one_queue"] * 2, "message": ["the device has one queue"] * 2, "hint": [""] * 2}
    )
    found = findings(study({"queue_depth": [1, 2]}, []), cases, drifting, runs=outcomes, warnings=warned)
    missing = only(found, MissingRuns)
    assert (missing.count, missing.total, missing.empty_cases, missing.reasons) == (2, 3, 1, (("no space left", 2),))
    assert (only(found, FailedIos).count, only(found, FailedIos).runs) == (3, 1)
    law = only(found, LittlesLaw)
    assert (law.verdict, law.count, law.total, law.ratios) == ("below", 2, 6, (0.7, 0.71))
    assert (only(found, BusyCore).count, only(found, BusyCore).total) == (2, 3)
    assert (only(found, Warned).code, only(found, Warned).runs) == ("one_queue", 2)
    assert only(found, ControlDrift).drift.has_trend
    assert [each.topic for each in found][-1] == "quality"


def in_flight(ratios: list[float], *, mean: list[float], longest: float | None = None) -> dict[str, Any]:
    found = {
        "littles_law_ratio": {(1,): ratios},
        "completion_latency_ns_mean": {(1,): mean},
        "seconds": {(1,): [1.0] * 3},
        "mean_in_flight": {(1,): ratios},
        "concurrency": {(1,): [1.0] * 3},
    }
    return found if longest is None else {**found, "completion_latency_ns_max": {(1,): [longest] * 3}}


def test_a_verdict_explains_why_fewer_were_in_flight() -> None:
    cases, runs = results(["queue_depth"], in_flight([0.7, 1.0, 1.0], mean=[1e5] * 3), **LOAD)
    outcomes = judged(runs, ["harness-limited", "device-limited", "device-limited"])
    with_verdicts = findings(study({"queue_depth": [1]}, []), cases, runs, runs=outcomes)
    law = only(with_verdicts, LittlesLaw)
    assert (law.verdict, law.count, law.total) == ("holds", 2, 3), "the run with a verdict was long enough too"
    assert law.sentence == (
        "Little's law holds in 2 of 3 runs long enough to check; fewer I/Os in flight in the others, see verdicts"
    )
    simulated = only(findings(study({"queue_depth": [1]}, []), cases, runs, simulated=True), LittlesLaw)
    assert (simulated.total, simulated.has_verdicts, "verdicts" in simulated.sentence) == (3, False, False)
    for lowest, longest, known, found in (
        (0.7, 1e6, outcomes, [("above", 1, 3)]),
        (0.99, 1e6, None, [("above", 1, 3)]),
        (0.99, 3e8, None, [("too_short", 1, 3), ("holds", 2, 2)]),
    ):
        short = results(["queue_depth"], in_flight([lowest, 1.0, 1.23], mean=[1e5] * 3, longest=longest), **LOAD)
        laws = of_kind(findings(study({"queue_depth": [1]}, []), *short, runs=known), LittlesLaw)
        assert [(each.verdict, each.count, each.total) for each in laws] == found
    without = findings(study({"queue_depth": [1]}, []), cases, runs)
    assert [(each.verdict, each.count) for each in of_kind(without, LittlesLaw)] == [("below", 1)]


def test_verdicts_are_counted_with_the_warnings_behind_them() -> None:
    cases, runs = results(["queue_depth"], {"iops": {(1,): [1.0, 2.0], (2,): [3.0, 4.0]}}, **LOAD)
    kinds = ("device-limited", "harness-limited", "harness-limited", "undetermined")
    outcomes = ended(
        *((run, case, "complete", None, None, kind) for run, case, kind in zip("abcd", "xxyy", kinds, strict=True))
    )
    codes = ["turnaround", "turnaround", "cpu_governor", "other_io"]
    messages = ["26 % of the time", "20 % of the time", "it is `powersave`", "others moved 5 MiB"]
    warned = pl.DataFrame({"run_id": ["b", "c", "c", "d"], "code": codes, "message": messages, "hint": ["do this"] * 4})
    found = findings(study({"queue_depth": [1, 2]}, []), cases, runs, runs=outcomes, warnings=warned)
    verdicts = only(found, Verdicts)
    assert dict(verdicts.counts) == {"device-limited": 1, "harness-limited": 2, "undetermined": 1}
    assert verdicts.warnings == (("turnaround", 2), ("other_io", 1))
    assert only(found, FewRepeats).count == 2
    assert [(each.code, each.runs) for each in of_kind(found, Warned)] == [
        ("turnaround", 2),
        ("other_io", 1),
        ("cpu_governor", 1),
    ]
