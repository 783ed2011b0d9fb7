"""Each question on frames whose answer can be computed by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hand_made import cells, controls, results

from iosonde.findings.cells import cells as take_cells
from iosonde.findings.kinds import asymmetry, curves
from iosonde.findings.quality import littles_law
from iosonde.findings.questions.peak import saturation
from iosonde.findings.questions.scaling import steps_of
from iosonde.findings.support import drift


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
    found = asymmetry(cells(["operation"], values), over="operation")
    assert found.select("first", "second", "ratio", "low").rows() == [
        ("read", "write", 3, 3),
        ("read", "mix", 2, 2),
        ("write", "mix", pytest.approx(2 / 3), pytest.approx(2 / 3)),
    ]


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
    values |= {"mean_in_flight": 4 * ratio, "concurrency": 4.0}
    values |= {"completion_latency_ns_max": longest_ns} if longest_ns else {}
    _, runs = results(["x"], {metric: {(1,): [value]} for metric, value in values.items()})
    checked = littles_law(runs).row(0, named=True)
    assert checked["verdict"] == expected
    assert checked["ratio"] == ratio


def test_a_run_in_which_nothing_completed_is_not_checked() -> None:
    """On a stalled device a run is complete without a single I/O, and without a mean latency."""
    values = {"littles_law_ratio": {(1,): [1.0], (2,): [0.0]}, "completion_latency_ns_mean": {(1,): [1e6]}}
    values |= {name: {(1,): [1.0], (2,): [1.0]} for name in ("seconds", "concurrency", "mean_in_flight")}
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
