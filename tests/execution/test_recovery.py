"""Findings of SNIA's saturation and recovery tests, on simulated drives of known behaviour."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.features.simulated_drives.model import models
from iosonde.features.sustained_load.idle_recovery import IdleRecovery, idle_recoveries
from iosonde.features.sustained_load.lasting_drop import lasting_drops
from iosonde.features.sustained_load.questions import OF_RESULTS
from iosonde.features.sustained_load.stimulus import find as changes
from iosonde.findings.device_state import device_states
from iosonde.findings.finding import Finding
from iosonde.findings.findings import findings
from iosonde.findings.question import Results
from iosonde.findings.questions.steady import SteadyRun, WriteCliff
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.sustained import long_runs
from iosonde.planning import expand, load, parse
from iosonde.report import figures
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.study.model import Study

GIB = 1 << 30


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def carried_out(text: str, target: str, directory: Path) -> ResultSet:
    return execute(expand(parse(text), open_target(target), profile="quick"), directory)


def study_of(result_set: ResultSet) -> Study:
    return Study.model_validate(result_set.plan.study)


def findings_of(result_set: ResultSet) -> list[Finding]:
    study = study_of(result_set)
    facts, metrics = Facts(result_set), run_metrics(result_set)
    judged = long_runs(facts)
    states = device_states(study, result_set.cases, metrics, None, judged)
    measured = Results(
        study=study, result_set=result_set, facts=facts, metrics=metrics, long_runs=judged, states=states
    )
    of_results = [each for find in OF_RESULTS for each in find(measured)]
    return findings(study, result_set.cases, metrics, long_runs=judged, of_results=of_results, states=states)


PAUSES = """
name = "pauses"
title = "Pauses"
question = "What do they recover?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
queue_depth = 32
span = "100%"
purge = "strongest"
precondition = "128KiB"
ramp = 0
duration = "2s"
interval = "100ms"

[[parts]]
name = "idle"

[parts.rounds]
max_rounds = 25
stages = [
  { label = "short", set = { active = "0s-500ms every 600ms", duration = "3s" } },
  { label = "after short", set = { duration = "2s" } },
  { label = "long", set = { active = "0s-500ms every 10s", duration = "40s" } },
  { label = "after long", set = { duration = "6s" } },
]

[profiles.quick]
"""


def recoveries(target: str, directory: Path) -> tuple[list[IdleRecovery], list[str]]:
    result_set = carried_out(PAUSES, target, directory)
    fallen = [each.case_id for each in lasting_drops(Facts(result_set))]
    assert not any("stage" in case_id for case_id in fallen), "the loss of a stage is a finding of the pass"
    found = idle_recoveries(study_of(result_set), result_set)
    return found, [each.sentence for each in findings_of(result_set)]


def test_a_drive_that_collects_when_idle_is_faster_after_pauses_until_its_free_blocks_are_used(tmp_path: Path) -> None:
    """It frees up to 18 % of its blocks, 230 MiB, and only when it was idle for half a second.

    So pauses of 100 ms change nothing. After 9.5 s a burst writes into free blocks at the rate of the controller, and
    the writes that follow without a pause are back where they were when these are used up.
    """
    model = models()["iodrive"].read_text().replace("fraction = 0.05", "fraction = 0.18")
    (tmp_path / "tidy.toml").write_text(model)
    [short, long], titles = recoveries(f"sim:{tmp_path}/tidy.toml,capacity=1GiB", tmp_path / "set")
    assert (short.burst_s, short.pause_s, long.pause_s) == pytest.approx((0.5, 0.1, 9.5))
    assert short.base_is_steady and short.gain == pytest.approx(1, abs=0.1)
    assert long.gain > 1.25 and len(long.bursts) == 4
    assert long.decay and long.decay.back_s and long.decay.back_bytes
    # The first of the four bursts comes before any pause, and the stage ends with one: free blocks wait for the next.
    assert 0.3 * 230 < long.decay.back_bytes / (1 << 20) < 4 * 230
    assert long.decay.first > 1.3 * long.base and long.decay.last == pytest.approx(long.base, rel=0.1)
    assert any(title.startswith("Bursts reach ") and "after pauses of 100 ms" in title for title in titles)
    assert any("returns to within 10 % of it after" in title for title in titles)


def test_a_stateless_device_gains_nothing_from_pauses(tmp_path: Path) -> None:
    text = PAUSES.replace('precondition = "128KiB"\n', "")
    result_set = carried_out(text, "simulated:servers=1,write=100us,size=1GiB", tmp_path / "set")
    found = idle_recoveries(study_of(result_set), result_set)
    assert [each.gain for each in found] == pytest.approx([1, 1], abs=0.02)
    assert all(each.decay and each.decay.back_s == 0 for each in found)
    titles = [each.sentence for each in findings_of(result_set)]
    assert any(title.startswith("Idle pauses of 100 ms–9.5 s: rate within 10 %") for title in titles)


STIMULI = """
name = "stimuli"
title = "Stimuli"
question = "Which change costs?"
repeats = 1

[measurement]
read_fraction = 0.0
queue_depth = 32
span = "100%"
purge = "strongest"
ramp = 0
interval = "100ms"
round_length = "200ms"
tracking = "bandwidth"

[[parts]]
name = "recovery"

[parts.rounds]
max_rounds = 0
stages = [
  { label = "sequential", set = { access = "sequential", block_size = "1MiB", duration = "2s" } },
  { label = "random", set = { access = "random", block_size = "8KiB", duration = "4s" } },
  { label = "sequential again", set = { access = "sequential", block_size = "1MiB", duration = "LAST" } },
]

[profiles.quick]
"""


def test_random_writes_degrade_and_sequential_overwrites_recover(tmp_path: Path) -> None:
    """The drive holds 512 MiB and takes 1.2 GB/s in order: what random writes left is gone after about two passes."""
    result_set = carried_out(STIMULI.replace("LAST", "5s"), "sim:pm963,capacity=512MiB", tmp_path / "set")
    random, again = changes(study_of(result_set), long_runs(Facts(result_set)), result_set.cases)
    assert (random.before, random.after, random.earlier) == ("sequential", "random", "")
    assert random.first > 1.3 * random.level
    assert (again.earlier, again.after) == ("sequential", "sequential again")
    assert again.recovered_s and 0.3 < again.recovered_s < 4 and again.once == pytest.approx(again.level, rel=0.05)
    titles = [each.sentence for each in findings_of(result_set)]
    assert any("`random` after `sequential`: degrades from" in title for title in titles)
    assert any("recovers to within 10 % of `sequential`" in title for title in titles)
    cliffs = [each.sentence for each in findings_of(result_set) if "write cliff" in each.sentence]
    assert not any("random" in title or "again" in title for title in cliffs), "what the stage before left is no cliff"


def test_a_stage_that_is_too_short_does_not_recover(tmp_path: Path) -> None:
    text = STIMULI.replace("LAST", "1s").replace('"4s"', '"40s"')
    result_set = carried_out(text, "sim:pm963,capacity=2GiB", tmp_path / "set")
    assert any("does not recover within 1 s" in each.sentence for each in findings_of(result_set))


def test_a_stateless_device_loses_nothing_by_a_change(tmp_path: Path) -> None:
    text = STIMULI.replace("LAST", "2s").replace("1MiB", "4KiB").replace("8KiB", "4KiB")
    result_set = carried_out(text, "simulated:servers=1,write=100us,size=1GiB", tmp_path / "set")
    titles = [each.sentence for each in findings_of(result_set)]
    assert any("from the first round" in title for title in titles)
    assert any("; within 10 % of" in title for title in titles)


def test_write_saturation_stops_after_four_capacities_and_is_drawn_over_them(tmp_path: Path) -> None:
    plan = expand(
        load("snia-write-saturation"),
        open_target("sim:pm963,capacity=1GiB"),
        profile="quick",
        settings={"span": "1GiB", "interval": "100ms", "round_length": "200ms"},
    )
    result_set = execute(plan, tmp_path / "set")
    long_run = long_runs(Facts(result_set))[0]
    assert long_run.range_bytes == GIB
    assert long_run.written_bytes == 4 * long_run.range_bytes
    assert long_run.cliff_bytes and long_run.cliff_bytes / long_run.range_bytes == pytest.approx(1.07, abs=0.25)
    over = next(each for each in figures([result_set]) if each.title == "IOPS over data written")
    assert over.heads["x"] == "active_ranges_written"
    assert over.rows["x"].max() == pytest.approx(4, rel=1e-2)
    assert over.rows["x_text"][-1].endswith("times the active range")
    axis = over.panels[0].chart["encoding"]["x"] if "encoding" in over.panels[0].chart else str(over.panels[0].chart)
    assert "multiples of the active range of 1 GiB" in str(axis)
    cliffs = [each.sentence for each in findings_of(result_set) if "write cliff" in each.sentence]
    assert cliffs and "times the active range" in cliffs[0]


def test_a_saturation_that_is_still_falling_is_not_steady(tmp_path: Path) -> None:
    """It was "steady at 55.3 k" after 33.5 s, and the writes after it had 47.6 k; they end at 40.4 k."""
    settings = {"span": "4GiB", "duration": "200s"}
    target = open_target("sim:pm963,capacity=4GiB")
    plan = expand(load("snia-write-saturation"), target, profile="quick", settings=settings, seed=1)
    result_set = execute(plan, tmp_path / "set")
    found = findings_of(result_set)
    [run] = [each for each in found if isinstance(each, SteadyRun)]
    [cliff] = [each for each in found if isinstance(each, WriteCliff)]
    rates = run_metrics(result_set).filter(pl.col("metric") == "iops", pl.col("operation") == "all")
    after = rates.filter(pl.col("case_id").str.contains("histogram"))["value"][0]
    assert (run.outcome, run.level, cliff.settled) == ("falling", None, False)
    assert run.changed_to and 40_400 < after < 0.95 * run.changed_to
    assert run.forecast is None or run.forecast.low < 40_400 < run.forecast.high  # type: ignore[operator]
    # The plateau lasts until spare blocks are used up, about 1.07 times the capacity; a later level is above the end.
    assert cliff.after_bytes == pytest.approx(4.3 * GIB, rel=0.1)
    assert after * 4096 < cliff.after < cliff.before / 4


SETTLED = """
name = "settled"
title = "Settled"
question = "How precise is the level of a run that has settled?"
repeats = 1

[measurement]
access = "random"
block_size = "4KiB"
read_fraction = 0.0
io_mode = "direct"
backend = "sync"
jobs = 16
purge = "strongest"
page_cache = "keep"
ramp = 0
span = "100%"
duration = "40s"
interval = "250ms"
round_length = "1s"

[[parts]]
name = "main"

[parts.rounds]
max_rounds = 1
stages = [{ label = "after", set = { duration = "40s", round_length = "none" } }]

[profiles.quick]
"""


def test_the_interval_of_a_long_run_that_has_settled_is_narrow_and_has_the_level_of_what_follows(
    tmp_path: Path,
) -> None:
    """`master2010-degradation` gave 1,820 to 8,080 IOPS around 4,950, where the truth was 4,921."""
    result_set = carried_out(SETTLED, "sim:pm963,capacity=1GiB", tmp_path / "set")
    [run] = [each for each in findings_of(result_set) if isinstance(each, SteadyRun)]
    rates = run_metrics(result_set).filter(pl.col("metric") == "iops", pl.col("operation") == "all")
    truth = rates.filter(pl.col("case_id").str.contains("after"))["value"][0]
    assert run.outcome == "steady" and run.level and run.level.low and run.level.high
    assert run.level.low <= truth <= run.level.high
    assert run.level.high - run.level.low < 0.06 * truth
    assert run.drift_below is not None and run.drift_below < 0.1
