"""Questions and the general kinds of findings, on frames whose answer can be computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hand_made import cells, controls, results, study

from iosonde.collections.qualify import load_application
from iosonde.features.key_value_stores.questions import MemoryExtension, ReadCacheGain, memory_extension
from iosonde.findings.cells import case_words
from iosonde.findings.cells import cells as take_cells
from iosonde.findings.finding import Support, drift
from iosonde.findings.kinds import between, curves, decided, of_question, over_numbers, pairs_of
from iosonde.findings.quality import littles_law
from iosonde.findings.question import Question
from iosonde.findings.questions.comparison import MemoryShare, memory_shares
from iosonde.findings.questions.peak import saturation
from iosonde.findings.questions.scaling import steps_of
from iosonde.metrics.statistics import Estimate
from iosonde.planning import load


def test_saturation_is_the_first_level_with_95_percent_of_the_peak() -> None:
    values = {(1,): [40], (2,): [80], (4,): [94.9], (8,): [95], (16,): [100], (32,): [90]}
    [curve] = curves(cells(["queue_depth"], values), over="queue_depth")
    point = saturation(curve)
    assert (point.level, point.peak_level, point.is_last) == (8, 16, False)
    assert (point.low, point.high, point.agreement) == (None, None, None)
    [rising] = curves(cells(["x"], {(1,): [1] * 3, (2,): [2] * 3, (4,): [4] * 3}), over="x")
    assert (saturation(rising).level, saturation(rising).is_rising) == (4, True)


def test_repeats_that_disagree_give_a_range_of_levels() -> None:
    values = {(4,): [80, 97, 99], (8,): [99, 100, 101], (16,): [99, 100, 101]}
    [curve] = curves(cells(["queue_depth"], values), over="queue_depth")
    point = saturation(curve)
    assert (point.level, point.low, point.high) == (4, 4, 8)
    assert point.agreement is not None and point.agreement < 0.95 and point.is_uncertain


def test_gain_is_per_doubling_for_every_step() -> None:
    steps = steps_of(curves(cells(["x"], {(2,): [10], (8,): [40], (10,): [40]}), over="x"))
    assert [step.ratios for step in steps] == [(4,), (1,)]
    assert [step.gain.value for step in steps] == [2, 1]


def test_asymmetry_compares_every_two_levels() -> None:
    values = {("read",): [30, 30, 30], ("write",): [10, 10, 10], ("mix",): [15, 15, 15]}
    found = curves(cells(["operation"], values), over="operation")
    assert pairs_of(found) == [("read", "write"), ("read", "mix"), ("write", "mix")]
    [row] = between(found, "read", "mix")
    assert [each.tolist() for each in row["pair"]] == [[30, 30, 30], [15, 15, 15]]


def test_the_control_case_shows_a_machine_that_slows_down() -> None:
    found = drift(controls("iops", [100, 99, 97, 96, 94, 93, 91, 90]), metric="iops")
    assert found is not None
    assert found.change.value == pytest.approx(-0.105, abs=0.01)
    assert found.change.below(0)
    assert found.spread == pytest.approx(10 / 95)


def test_noise_is_not_drift() -> None:
    values = np.random.default_rng(3).normal(100, 2, 12)
    found = drift(controls("iops", values.tolist()), metric="iops")
    assert found is not None
    assert not found.change.below(0) and not found.change.above(0)
    assert drift(controls("iops", [100, 90, 80]), metric="iops") is None, "three controls are too few"


def test_no_more_than_all_of_a_rate_is_lost() -> None:
    found = drift(controls("iops", [100, 3, 900, 2, 70, 1]), metric="iops")
    assert found is not None and found.change.low is not None
    assert -1 < found.change.low < found.change.value


@pytest.mark.parametrize(
    ("ratio", "mean_latency_ns", "longest_ns", "expected"),
    [
        (1.0, 1e6, None, "holds"),
        (0.985, 1e6, None, "holds"),
        (0.96, 1e6, None, "below"),
        (1.08, 1e6, None, "above"),
        (0.96, 25e6, None, "holds"),
        (0.95, 50e6, None, "too_short"),
        (0.5, 300e6, None, "too_short"),
        (1.23, 1e6, 3e8, "too_short"),
    ],
)
def test_littles_law_allows_what_a_run_cannot_resolve(
    ratio: float, mean_latency_ns: float, longest_ns: float | None, expected: str
) -> None:
    values = {"littles_law_ratio": ratio, "completion_latency_ns_mean": mean_latency_ns, "seconds": 1.0}
    values |= {"completion_latency_ns_max": longest_ns} if longest_ns else {}
    _, runs = results(["x"], {metric: {(1,): [value]} for metric, value in values.items()})
    checked = littles_law(runs).row(0, named=True)
    assert checked["verdict"] == expected
    assert checked["ratio"] == ratio


def test_a_run_in_which_nothing_completed_is_not_checked() -> None:
    """On a stalled device a run is complete without a single I/O, and without a mean latency."""
    values = {"littles_law_ratio": {(1,): [1.0], (2,): [0.0]}, "completion_latency_ns_mean": {(1,): [1e6]}}
    values["seconds"] = {(1,): [1.0], (2,): [1.0]}
    assert littles_law(results(["x"], values)[1])["verdict"].to_list() == ["holds"]


def test_cells_are_chosen_by_part_metric_and_level_as_a_study_writes_them() -> None:
    values = {(4096, 1): [1.0, 2.0], (4096, 2): [3.0, 4.0], (8192, 1): [5.0, 6.0], (8192, 2): [0.0, 0.0]}
    cases, runs = results(["block_size", "queue_depth"], {"iops": values, "bandwidth": values})
    chosen = take_cells(runs, cases, part="main", metric="iops", factors=["queue_depth"], where={"block_size": "4KiB"})
    assert chosen.select("queue_depth", "values").rows() == [(1, [1, 2]), (2, [3, 4])]
    nothing_completed = take_cells(
        runs, cases, part="main", metric="iops", factors=["queue_depth"], where={"block_size": 8192}
    )
    assert nothing_completed["queue_depth"].to_list() == [1]


def test_a_factor_is_found_under_the_name_that_the_view_gives_it() -> None:
    """`operation` is a column of the results too, so the view of cases calls the factor `operation_level`."""
    cases, runs = results(["operation"], {"iops": {("read",): [10.0], ("mix",): [20.0]}})
    apart = [runs.with_columns(operation=pl.lit(name)) for name in ("read", "write")]
    view = cases.rename({"operation": "operation_level"})
    chosen = take_cells(pl.concat([runs, *apart]), view, part="main", metric="iops", factors=["operation"])
    assert chosen.select("operation", "values").rows() == [("read", [10]), ("mix", [20])]
    # Where the study has no factor of that name, it is the operation of the results.
    cases, runs = results(["queue_depth"], {"iops": {(1,): [10.0], (2,): [20.0]}})
    both = pl.concat([runs, *(runs.with_columns(operation=pl.lit(name)) for name in ("read", "write"))])
    chosen = take_cells(both, cases, part="main", metric="iops", factors=["queue_depth", "operation"])
    assert sorted(chosen["operation"].unique()) == ["read", "write"]
    whole = take_cells(both, cases, part="main", metric="iops", factors=["queue_depth"])
    assert whole["values"].to_list() == [[10], [20]]


def question(values: dict[tuple[str, int], float]) -> Question:
    repeated = {cell: [0.99 * value, value, 1.01 * value] for cell, value in values.items()}
    cases, runs = results(["format", "jobs"], {"iops": repeated})
    asked = {"kind": "asymmetry", "over": "format", "metric": "iops"}
    described = study({"format": ["ext4", "xfs"], "jobs": [1, 4, 16]}, [asked])
    return Question(study=described, analysis=described.analysis[0], cases=cases, runs=runs, support=Support())


@pytest.mark.parametrize(
    ("interval", "decision"),
    [
        ((1.1, 1.3), "higher"),
        ((0.7, 0.9), "lower"),
        ((0.98, 1.02), "same"),
        ((0.9, 1.2), "unclear"),
        (None, "unclear"),
        ((1.2, 13.0), "unclear"),
    ],
)
def test_the_decision_of_a_ratio_is_its_direction(interval: tuple[float, float] | None, decision: str) -> None:
    assert decided(Estimate(1.0, *(interval or (None, None)))) == decision


def test_a_ratio_has_the_same_cells_in_either_direction() -> None:
    asked = question({("ext4", 1): 100, ("xfs", 1): 200, ("ext4", 4): 100, ("xfs", 4): 50, ("ext4", 16): 100})
    found = curves(asked.cells(), over="format", by=["jobs"])
    forth, back = between(found, "xfs", "ext4"), between(found, "ext4", "xfs")
    assert [row["cases"] for row in forth] == [row["cases"][::-1] for row in back]
    up, down = of_question(asked, forth), of_question(asked, back)
    assert up["cells"] == (("4 jobs", 0.5), ("1 job", 2.0))
    assert down["ratio"].value == pytest.approx(1 / up["ratio"].value)
    assert up["opposed"] is not None and (up["opposed"].above, up["opposed"].below) == (1, 1)
    assert up["repeats"] == 3 and len(up["case_ids"]) == 4


def test_the_evidence_of_a_ratio_names_the_range_of_its_cells() -> None:
    asked = question({("ext4", 1): 100, ("xfs", 1): 200, ("ext4", 4): 100, ("xfs", 4): 300})
    rows = between(curves(asked.cells(), over="format", by=["jobs"]), "xfs", "ext4")
    names: dict[str, Any] = {"top": "xfs", "bottom": "ext4", "published": 2.5, "source": "A"}
    found = ReadCacheGain(**of_question(asked, rows), **names, block_cache_hit_ratio=None, read_cache_hit_ratio=None)
    assert found.evidence.startswith("IOPS of xfs over ext4: 2.45 times (95 % CI ")
    assert "), 2.00–3.00 in 2 cells; 3 runs each; published: 2.5 times (A)" in found.evidence


def test_curves_that_differ_in_numbers_are_together_and_in_their_order() -> None:
    values = {(size, depth): [1.0] for size in (65536, 4096) for depth in (1, 2)} | {(8192, 1): [1.0]}
    found = curves(cells(["block_size", "queue_depth"], values), over="queue_depth", by=["block_size"])
    assert [curve.key["block_size"] for curve in found] == [65536, 4096], "a single level is no curve"
    cases, runs = results(["block_size", "queue_depth"], {"iops": values})
    asked = study(
        {"block_size": [65536, 4096, 8192], "queue_depth": [1, 2]},
        [{"kind": "flatness", "over": "queue_depth", "metric": "iops"}],
    )
    [(key, group)] = over_numbers(Question(study=asked, analysis=asked.analysis[0], cases=cases, runs=runs))
    assert (key, [curve.key["block_size"] for curve in group]) == ({}, [4096, 65536])


def test_a_case_without_factors_has_the_title_of_its_part() -> None:
    cases = pl.DataFrame({"case_id": ["redo", "binlog"], "part": ["redo", "binlog"]})
    assert case_words(load_application("mysql"), cases) == {"redo": "Redo log", "binlog": "Binary log"}


def test_equal_levels_of_two_parts_are_preceded_by_the_titles() -> None:
    rows = [("log/d=read", "log", "read", None), ("data/d=read", "data", "read", "16 MiB"), ("x", "gone", "read", None)]
    cases = pl.DataFrame(rows, schema=["case_id", "part", "direction", "block_size"], orient="row")
    words = case_words(load_application("sap-hana"), cases)
    assert all("`" not in words[case_id] for case_id in ("log/d=read", "data/d=read"))
    assert len(set(words.values())) == 3 and words["x"] == "`x`"


MIB = 1 << 20
LEVELS = ("all", "three quarters", "half", "quarter")


def rows(metric: str, operation: str, part: str, cells: dict[str, list[float]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"case_id": case, "part": part, "control": False, "run_id": f"{case}{repeat}", "repeat": repeat,
             "stream": "main", "operation": operation, "metric": metric, "value": value}
            for case, values in cells.items() for repeat, value in enumerate(values)
        ]
    )  # fmt: skip


def share(latencies: list[list[float]]) -> MemoryShare:
    study = load("cache-tiers")
    limits = [160 * MIB * part // 4 for part in (4, 3, 2, 1)]
    cases = pl.DataFrame(
        {"case_id": list(LEVELS), "part": ["extstore"] * 4, "memory": list(LEVELS), "memory_limit": limits}
    )
    runs = rows("response_latency_ns_p99", "read", "extstore", dict(zip(LEVELS, latencies, strict=True)))
    question = Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs)
    [found] = memory_shares(question)
    assert isinstance(found, MemoryShare)
    return found


def test_the_largest_share_with_an_equal_latency_is_the_answer() -> None:
    found = share([[100.0, 101, 99], [101.0, 100, 102], [102.0, 101, 100], [300.0, 310, 305]])
    assert found.replaced == 0.5
    assert found.ratio is not None and found.next_ratio is not None
    assert 1.0 <= found.ratio.value <= 1.02
    assert (found.next_replaced, found.next_decision) == (0.75, "worse")
    assert 3.0 < found.next_ratio.value < 3.1
    assert found.sentence.startswith("Flash tier (extstore): with 50 % of memory replaced, p99")
    assert "with 75 % replaced it is 3.0" in found.sentence


def test_a_device_that_replaces_nothing_and_one_that_replaces_everything_measured() -> None:
    none = share([[100.0, 101, 99], [200.0, 201, 202], [100.0, 100, 101], [300.0, 310, 305]])
    assert (none.replaced, none.ratio, none.next_replaced, none.equal_beyond) == (0, None, 0.25, (0.5,))
    assert "the smallest measured share of memory cannot be replaced" in none.sentence
    assert none.sentence.endswith("; with 50 % replaced it is not higher")
    every = share([[100.0, 101, 99]] * 4)
    assert (every.replaced, every.next_replaced) == (0.75, None)
    assert every.sentence.endswith("no larger share was measured")


def extended(values: list[int]) -> MemoryExtension:
    study = load("memory-extension")
    levels = ["all in memory", "half, swap on the device", "half, flash tier"]
    ids = [f"{level}{jobs}" for level in levels for jobs in (1, 4)]
    cases = pl.DataFrame(
        {"case_id": ids, "part": ["rocksdb"] * 6, "tier": [level for level in levels for _ in (1, 4)],
         "jobs": [1, 4] * 3, "store": ["rocksdb"] * 6}
    )  # fmt: skip
    runs = rows("ops_per_sec", "all", "rocksdb", {case: [v, v, v] for case, v in zip(ids, values, strict=True)})
    [found] = memory_extension(Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs))
    assert isinstance(found, MemoryExtension)
    return found


def test_a_store_keeps_a_share_of_its_throughput_with_each_extension() -> None:
    found = extended([1000, 4000, 100, 400, 500, 2000])
    assert found.opposed == (None, None)
    assert (found.store, found.whole, found.cells, found.repeats) == ("RocksDB", "all in memory", 2, 3)
    assert [(level, each.value) for level, each in found.kept] == [
        ("half, swap on the device", pytest.approx(0.1)),
        ("half, flash tier", pytest.approx(0.5)),
    ]
    assert "RocksDB operations per second over all in memory: half, swap on the device 0.10 times" in found.sentence
