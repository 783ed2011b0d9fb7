"""The shipped studies of sustained performance on a simulated drive, from plan to report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from statements import contradictions

from iosonde.execution.session import execute
from iosonde.findings.device_state import convergences, window_means
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.sustained import long_runs
from iosonde.plan import PREPARATION
from iosonde.planning import expand, load
from iosonde.report import figures, write
from iosonde.report.content import collect
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.study.model import Study

CarriedOut = Callable[[str], ResultSet]

DRIVE = "sim:pm963,capacity=128MiB"

SETTINGS = {
    "snia-iops": {"duration": "200ms", "block_size": "1MiB,64KiB,4KiB", "read_fraction": "1,0.65,0"},
    "snia-latency": {"duration": "200ms", "block_size": "4KiB", "read_fraction": "0,1"},
    "snia-host-idle-recovery": {"duration": "200ms", "stage": "pauses of 5 s"},
    "snia-cross-stimulus-recovery": {},
    "mixed-endurance": {"duration": "1s", "fill": "90"},
    "master2010-degradation": {"duration": "3s", "fill": "50"},
    "snia-write-saturation": {"duration": "3s", "limit_spans": "none"},
    "jo2024-mixed": {"duration": "100ms", "queue_depth": "1,32"},
    "idle-recovery": {"duration": "4s", "stage": "pause of 1 s"},
}
FILLED = ("mixed-endurance", "master2010-degradation")


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> CarriedOut:
    """Each study once, however many tests look at it."""
    done: dict[str, ResultSet] = {}

    def result_set(name: str) -> ResultSet:
        if name not in done:
            span = {} if name in FILLED else {"span": "64MiB"}
            plan = expand(load(name), open_target(DRIVE), profile="quick", settings={**span, **SETTINGS[name]})
            done[name] = execute(plan, tmp_path_factory.mktemp("on-drive") / "set")
        return done[name]

    return result_set


@pytest.mark.parametrize("name", SETTINGS)
def test_it_runs_to_its_report_whose_statements_do_not_contradict_each_other(
    name: str, carried_out: CarriedOut, tmp_path: Path
) -> None:
    result_set = carried_out(name)
    records = result_set.records()
    assert {record.outcome for record in records} == {"complete"}
    assert records[0].part == PREPARATION and {record.parameters["purge"] for record in records} == {"format"}
    page = write([result_set], tmp_path / "report.md", format="md")[0].read_text()
    assert [view.title for view in load(name).views if view.title not in page] == []
    for fact in ("purge", "preconditioning", "active range", "data pattern", "write cache", "platform"):
        assert fact in page.lower()
    assert name in FILLED or "64 MiB" in page
    [chapter] = collect([result_set]).chapters
    assert contradictions(chapter) == []


def test_rounds_of_the_iops_and_throughput_tests_are_those_of_the_specification() -> None:
    plan = expand(load("snia-iops"), open_target(DRIVE), profile="paper")
    [case] = plan.adaptive
    assert case.procedure
    loads = [
        (each["parameters"]["read_fraction"], each["parameters"]["block_size"], each["tracked"])
        for each in case.procedure.settings["loads"]
    ]
    sizes = [1 << 20, 128 << 10, 64 << 10, 32 << 10, 16 << 10, 8192, 4096, 512]
    mixes = [1.0, 0.95, 0.65, 0.5, 0.35, 0.05, 0.0]
    assert [each[:2] for each in loads] == [(mix, size) for mix in mixes for size in sizes]
    assert [each[:2] for each in loads if each[2]] == [(1.0, 1 << 20), (0.65, 64 << 10), (0.0, 4096)]
    assert (case.parameters["jobs"], case.parameters["queue_depth"], case.parameters["duration"]) == (4, 32, 60 * 10**9)
    plan = expand(load("snia-throughput"), open_target(DRIVE), profile="paper")
    assert [case.parameters["precondition"] for case in plan.adaptive] == [128 << 10, 1 << 20]


def test_the_reported_value_is_the_mean_over_the_window_which_is_drawn_with_its_limits_and_its_fit(
    carried_out: CarriedOut,
) -> None:
    result_set = carried_out("snia-latency")
    study = Study.model_validate(result_set.plan.study)
    metrics = run_metrics(result_set)
    [found] = convergences(study.parts[0], result_set.cases, metrics)
    assert found.first is not None and found.last is not None
    means = window_means(study.parts[0], result_set.cases, metrics, ["completion_latency_ns_mean"])
    writes = means.filter(pl.col("read_fraction") == 0.0)["value"].item()
    [tracked] = found.tracked
    assert writes == pytest.approx(sum(tracked.values[found.first - 1 : found.last]) / 5)
    [figure] = [each for each in figures([result_set]) if each.name == "window-latency"]
    lines: dict[str, list[float]] = {}
    bounds = set()
    for row in figure.rows.sort("x").to_dicts():
        lines.setdefault(row["series"], []).append(row["y"])
        bounds.add((row["low"], row["high"]))
    window = tracked.window
    assert window and len(lines["measured"]) == found.rounds
    unit = lines["measured"][0] / tracked.values[0]
    assert lines["average ± 10 %"] == pytest.approx([window.mean * unit] * 2)
    [band] = bounds - {(None, None)}
    assert band == pytest.approx((0.9 * window.mean * unit, 1.1 * window.mean * unit))
    assert lines["linear fit"][1] - lines["linear fit"][0] == pytest.approx(4 * window.slope * unit)


def test_pauses_and_writes_alternate(carried_out: CarriedOut) -> None:
    result_set = carried_out("snia-host-idle-recovery")
    [run_id] = [record.run_id for record in result_set.records() if record.levels.get("stage") == "pauses of 5 s"]
    by_second = (
        result_set.intervals.filter(pl.col("run_id") == run_id)
        .group_by(second=pl.col("begin_ns") // 10**9)
        .agg(pl.col("count").sum())
        .sort("second")
    )
    # I/Os in flight at the start of a pause are completed in it.
    most = by_second["count"].max()
    assert [count > most / 10 for count in by_second["count"]] == ([True] * 5 + [False] * 5) * 3


def test_write_saturation_stops_after_four_capacities_and_is_drawn_over_them(tmp_path: Path) -> None:
    settings = {"span": "1GiB", "interval": "100ms", "round_length": "200ms"}
    target = open_target("sim:pm963,capacity=1GiB")
    plan = expand(load("snia-write-saturation"), target, profile="quick", settings=settings)
    result_set = execute(plan, tmp_path / "set")
    long_run = long_runs(Facts(result_set))[0]
    assert long_run.written_bytes == 4 * long_run.range_bytes == 4 << 30
    assert long_run.cliff_bytes and long_run.cliff_bytes / long_run.range_bytes == pytest.approx(1.07, abs=0.25)
    over = next(each for each in figures([result_set]) if each.title == "IOPS over data written")
    assert over.heads["x"] == "active_ranges_written"
    assert over.rows["x"].max() == pytest.approx(4, rel=1e-2)
    assert over.rows["x_text"][-1].endswith("times the active range")
    assert "multiples of the active range of 1 GiB" in str(over.panels[0].chart)
    [chapter] = collect([result_set]).chapters
    cliffs = [each.sentence for _, found in chapter.findings for each in found if "write cliff" in each.sentence]
    assert cliffs and "times the active range" in cliffs[0]
