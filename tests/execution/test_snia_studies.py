"""The shipped studies of sustained performance on a simulated drive, from plan to report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from engines import real_engine
from statements import contradictions

from iosonde.execution import execute
from iosonde.findings.convergence import convergences, window_means
from iosonde.findings.device_state import DeviceStates
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import PREPARATION, DeviceState
from iosonde.planning import expand, load, parse
from iosonde.report.content.report import collect
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.study.model import Study

DRIVE = "sim:pm963,capacity=256MiB"

SETTINGS = {
    "snia-iops": {"duration": "500ms", "block_size": "1MiB,64KiB,4KiB", "read_fraction": "1,0.65,0"},
    "snia-latency": {"duration": "500ms", "block_size": "4KiB", "read_fraction": "0,1"},
    "snia-host-idle-recovery": {"duration": "500ms", "stage": "pauses of 5 s,after pauses of 5 s"},
    "snia-cross-stimulus-recovery": {},
    "mixed-endurance": {"duration": "2s", "fill": "90"},
    "master2010-degradation": {"duration": "6s", "fill": "50,90"},
    "snia-write-saturation": {"duration": "6s", "limit_spans": "none"},
    "jo2024-mixed": {"duration": "100ms", "queue_depth": "1,32"},
    "idle-recovery": {"duration": "6s", "stage": "pause of 1 s"},
}
FILLED = ("mixed-endurance", "master2010-degradation")


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ResultSet]:
    """Each study once, however many tests look at it."""
    done: dict[str, ResultSet] = {}

    def result_set(name: str) -> ResultSet:
        if name not in done:
            span = {} if name in FILLED else {"span": "128MiB"}
            plan = expand(load(name), open_target(DRIVE), profile="quick", settings={**span, **SETTINGS[name]})
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("IOSONDE_ENGINE", str(real_engine()))
                done[name] = execute(plan, tmp_path_factory.mktemp("on-drive") / "set")
        return done[name]

    return result_set


@pytest.mark.parametrize("name", SETTINGS)
def test_it_runs_to_its_report(name: str, carried_out: Callable[[str], ResultSet], tmp_path: Path) -> None:
    from iosonde.report import write

    result_set = carried_out(name)
    records = result_set.records()
    assert {record.outcome for record in records} == {"complete"}
    assert records[0].part == PREPARATION and {record.parameters["purge"] for record in records} == {"format"}
    page = write([result_set], tmp_path / "report.md", format="md")[0].read_text()
    assert [view.title for view in load(name).views if view.title not in page] == []
    for fact in ("purge", "preconditioning", "active range", "data pattern", "write cache"):
        assert fact in page


@pytest.mark.parametrize("name", SETTINGS)
def test_no_two_statements_of_its_report_contradict_each_other(
    name: str, carried_out: Callable[[str], ResultSet]
) -> None:
    [chapter] = collect([carried_out(name)]).chapters
    assert contradictions(chapter) == []


def test_a_report_whose_tables_do_not_follow_its_findings_is_noticed(
    carried_out: Callable[[str], ResultSet],
) -> None:
    [chapter] = collect([carried_out("snia-latency")]).chapters
    assert chapter.findings, "of a fresh device"
    [(label, known)] = chapter.material.device_states.items()
    planned: dict[tuple[str, int], DeviceState] = dict.fromkeys(known.runs, "steady")
    chapter.material.__dict__["device_states"] = {label: DeviceStates(planned)}
    found = contradictions(chapter)
    assert any("is {'steady'}" in each for each in found), found


def test_a_round_of_the_iops_test_goes_through_mixes_and_then_block_sizes() -> None:
    plan = expand(load("snia-iops"), open_target(DRIVE), profile="paper")
    [case] = plan.adaptive
    assert case.procedure
    loads = [each["parameters"] for each in case.procedure.settings["loads"]]
    sizes = [1 << 20, 128 << 10, 64 << 10, 32 << 10, 16 << 10, 8192, 4096, 512]
    mixes = [1.0, 0.95, 0.65, 0.5, 0.35, 0.05, 0.0]
    assert [(each["read_fraction"], each["block_size"]) for each in loads] == [(m, s) for m in mixes for s in sizes]
    tracked = [each["parameters"] for each in case.procedure.settings["loads"] if each["tracked"]]
    assert [(each["read_fraction"], each["block_size"]) for each in tracked] == [
        (1.0, 1 << 20),
        (0.65, 64 << 10),
        (0.0, 4096),
    ]
    assert (case.parameters["jobs"], case.parameters["queue_depth"], case.parameters["duration"]) == (4, 32, 60 * 10**9)


def test_each_block_size_of_the_throughput_test_is_prepared_by_itself() -> None:
    plan = expand(load("snia-throughput"), open_target(DRIVE), profile="paper")
    assert [case.parameters["precondition"] for case in plan.adaptive] == [128 << 10, 1 << 20]


def test_the_reported_value_is_the_mean_over_the_measurement_window(carried_out: Callable[[str], ResultSet]) -> None:
    result_set = carried_out("snia-latency")
    study = Study.model_validate(result_set.plan.study)
    metrics = run_metrics(result_set)
    [found] = convergences(study.parts[0], result_set.cases, metrics)
    assert found.first is not None and found.last is not None
    means = window_means(study.parts[0], result_set.cases, metrics, ["completion_latency_ns_mean"])
    writes = means.filter(pl.col("read_fraction") == 0.0)["value"].item()
    [tracked] = found.tracked
    assert writes == pytest.approx(sum(tracked.values[found.first - 1 : found.last]) / 5)


def test_the_window_is_drawn_with_its_average_its_limits_and_its_linear_fit(
    carried_out: Callable[[str], ResultSet],
) -> None:
    from iosonde.report import figures

    result_set = carried_out("snia-latency")
    [figure] = [each for each in figures([result_set]) if each.name == "window-latency"]
    lines: dict[str, list[float]] = {}
    bounds = set()
    for row in figure.rows.sort("x").to_dicts():
        lines.setdefault(row["series"], []).append(row["y"])
        bounds.add((row["low"], row["high"]))
    study = Study.model_validate(result_set.plan.study)
    [found] = convergences(study.parts[0], result_set.cases, run_metrics(result_set))
    window = found.tracked[0].window
    assert window and len(lines["measured"]) == found.rounds
    unit = lines["measured"][0] / found.tracked[0].values[0]
    assert lines["average ± 10 %"] == pytest.approx([window.mean * unit] * 2)
    [band] = bounds - {(None, None)}
    assert band == pytest.approx((0.9 * window.mean * unit, 1.1 * window.mean * unit))
    assert lines["linear fit"][1] - lines["linear fit"][0] == pytest.approx(4 * window.slope * unit)


def test_the_head_of_a_report_names_device_platform_and_preparation(carried_out: Callable[[str], ResultSet]) -> None:
    from iosonde.report.content.provenance import headline
    from iosonde.report.content.report import collect

    [chapter] = collect([carried_out("snia-latency")]).chapters
    [source] = chapter.material.sources
    head = dict(headline(source, chapter.material, chapter.omitted))
    assert (head["Purge"], head["Data pattern"]) == ("format", "random, incompressible")
    assert head["Preconditioning"] == "sequential writes of 128 KiB, twice the range"
    assert (head["Active range"], head["Write cache"]) == ("128 MiB", "that of the simulated device")
    assert "Linux" in head["Platform"] and "simulated" in head["Device"]


def test_a_figure_of_stages_has_no_rounds(carried_out: Callable[[str], ResultSet]) -> None:
    from iosonde.report import figures

    result_set = carried_out("snia-host-idle-recovery")
    [figure] = [each for each in figures([result_set]) if each.title == "IOPS over time, after the rounds"]
    assert len(figure.panels) == 1
    assert set(figure.rows["series"]) == {"pauses of 5 s", "after pauses of 5 s"}
    times = figure.rows.filter(figure.rows["series"] == "after pauses of 5 s")["x"]
    assert times.min() > 30, "one after the other"


def test_pauses_and_writes_alternate(carried_out: Callable[[str], ResultSet]) -> None:
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


PAUSES = """
name = "pauses"
title = "Pauses"
question = "What does a pause recover?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
queue_depth = 32
span = "2000MiB"
purge = "strongest"
precondition = "128KiB"
ramp = 0
duration = "10s"
interval = "100ms"

[[parts]]
name = "main"

[parts.rounds]
max_rounds = 1
stages = [
  { label = "too short", set = { active = "200ms-", duration = "2200ms" } },
  { label = "long", set = { active = "5s-", duration = "7s" } },
]

[profiles.quick]
"""


def test_a_pause_recovers_what_the_drive_collects_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pm963 begins to collect ahead after half a second without a command."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    result_set = execute(
        expand(parse(PAUSES), open_target("sim:pm963,capacity=2GiB"), profile="quick"), tmp_path / "set"
    )
    runs = {record.levels["stage"]: record.run_id for record in result_set.records() if "stage" in record.levels}
    written = {
        label: result_set.intervals.filter(pl.col("run_id") == run_id, pl.col("count") > 0)
        .sort("begin_ns")
        .head(3)["bytes"]
        .sum()
        for label, run_id in runs.items()
    }
    assert written["long"] > 1.05 * written["too short"] > 0
    silent = result_set.intervals.filter(pl.col("run_id") == runs["long"], pl.col("begin_ns") < 4 * 10**9)
    assert silent["count"].sum() == 0
