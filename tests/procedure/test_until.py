"""Repeats until precise: when a case ends, and that a stopped study continues at the same point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Iosonde
from made_up import Made, MadeUp

from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.findings import searches
from iosonde.metrics import wording
from iosonde.plan import Case, Plan, Run
from iosonde.planning import expand, load, parse
from iosonde.planning.procedure import Remaining, Schedule, progress
from iosonde.planning.procedure.until import UntilConclusion
from iosonde.report.details import repeat_tables
from iosonde.report.material import gather
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target

STUDY = """
name = "until"
title = "Random reads"
question = "How fast are random reads?"
repeats = "until"

[until]
half_width = "{half_width}"
maximum = {maximum}
budget = "{budget}"

[measurement]
access = "random"
block_size = "4KiB"
span = "16MiB"
ramp = 0
duration = "100ms"
interval = "100ms"

[[parts]]
[parts.factors]
queue_depth = [1, 4]

[[analysis]]
kind = "saturation"
over = "queue_depth"
metric = "iops"

[profiles.quick]
[profiles.standard]
[profiles.paper]
repeats = 7
"""


class StopAfter(Observer):
    """Stops the session after so many runs, as Ctrl-C does."""

    def __init__(self, runs: int) -> None:
        self.runs = runs

    def run_ended(self, run: Run, record: Record) -> None:
        self.runs -= 1
        if not self.runs:
            raise KeyboardInterrupt


def planned(*, half_width: str = "3%", maximum: int = 12, budget: str = "", profile: str = "standard") -> Plan:
    study = parse(STUDY.format(half_width=half_width, maximum=maximum, budget=budget))
    return expand(study, open_target("sim:p900"), profile=profile)


def concluded(case: Case, value: Callable[[int], float] | None, repeats: int = 5) -> tuple[UntilConclusion, list[Run]]:
    """The conclusion and the runs that it took; without a value all runs fail."""

    def made(repeat: int) -> Made:
        return Made(value(repeat)) if value else Made(failure="broken")

    assert case.procedure
    first = {f"{case.procedure.stem}-r{repeat}": made(repeat) for repeat in range(1, repeats + 1)}
    evidence, runs = MadeUp(lambda run: made(run.repeat), first), []
    while run := progress(case, evidence).next_run:
        runs.append(run)
        evidence.known[run.run_id] = evidence.observe(run)
    found = progress(case, evidence).conclusion
    assert isinstance(found, UntilConclusion)
    return found, runs


def test_the_default_minimum_is_five_and_three_in_the_quick_profile() -> None:
    assert (planned().repeats, planned(profile="quick").repeats) == (5, 3)
    assert not planned(profile="paper").adaptive, "a profile with a number has that number"


def alternating(repeat: int) -> float:
    return 1000.0 * (1 + repeat % 2)


def test_a_steady_case_ends_at_the_minimum_and_a_noisy_one_continues() -> None:
    case = planned(maximum=40).adaptive[0]
    steady, runs = concluded(case, lambda repeat: 1000 + repeat % 3)
    assert (steady.stopped_by, steady.repeats, runs) == ("precise", 5, [])
    noisy, _ = concluded(case, lambda repeat: 1000 * (1 + 0.05 * (-1) ** repeat + 0.01 * (repeat % 5)))
    assert noisy.repeats > 5
    # A resumed study knows more of other cases' noise than when it decided on a repeat: it drops none that exists.
    resumed, _ = concluded(case, lambda repeat: 1000 + repeat % 3, repeats=7)
    assert (resumed.stopped_by, resumed.repeats) == ("precise", 7)
    without_results, _ = concluded(case, None)
    assert without_results.stopped_by == "no result"


def test_a_case_that_never_becomes_precise_ends_at_the_maximum_with_the_reason() -> None:
    found, runs = concluded(planned().adaptive[0], alternating)
    assert (found.stopped_by, found.repeats, found.reached) == ("maximum", 12, False)
    assert found.reason == "not precise after 12 repeats, the maximum"
    assert (found.half_widths["iops"] or 0) > 0.03
    assert len({run.spec["seed"] for run in runs}) == len(runs) == 7
    case, precise = planned().adaptive[0], concluded(planned().adaptive[0], lambda repeat: 1000 + repeat % 3)[0]
    [stated] = searches.find([(case, found), (case, precise)])
    width = wording.percent_text(max(each or 0 for each in found.half_widths.values()))
    assert isinstance(stated, searches.NotPrecise) and (stated.count, stated.total, stated.repeats) == (1, 2, 12)
    assert f"within {width}" in stated.sentence
    # A run of the evidence takes one second, and none starts once the time budget is spent.
    within_budget, _ = concluded(planned(budget="7s").adaptive[0], alternating)
    assert (within_budget.stopped_by, within_budget.repeats) == ("budget", 7)


@pytest.mark.engine
def test_a_resumed_study_takes_the_same_repeats(tmp_path: Path) -> None:
    plan = planned(half_width="0.0001%", maximum=6)
    whole = execute(plan, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(plan, tmp_path / "stopped", observer=StopAfter(11))
    again = resume(tmp_path / "stopped")
    assert [record.run_id for record in whole.records()] == [record.run_id for record in again.records()]
    assert {record.case_id for record in whole.records()} == {case.case_id for case in plan.cases}
    assert max(record.repeat for record in whole.records()) == 6
    [material] = gather([whole])
    [table] = repeat_tables(material)
    assert {row[-1].text for row in table.rows} <= {"precise", "maximum"}


@pytest.mark.engine
def test_a_study_that_ends_without_its_precision_says_so_and_how_precise_it_is(
    iosonde: Iosonde, tmp_path: Path
) -> None:
    """The finding "not precise" in the report, a message and an exit code."""
    (tmp_path / "until.toml").write_text(STUDY.format(half_width="1%", maximum=6, budget=""))
    target = "simulated:servers=1,read=1ms,service=exponential,size=1GiB"
    done = iosonde("run", tmp_path / "until.toml", "--target", target, "--profile", "quick", "-o", tmp_path / "set")
    assert done.returncode == 3, done.stderr
    assert "2 of 2 cases did not reach their precision" in done.stderr
    shown = " ".join(done.stdout.split())
    assert "Precision of 1.0 % not reached in 2 of 2 cases after up to 6 repeats: IOPS is known within " in shown
    assert "Profile quick, 6 repeats" in shown


def test_settings_of_the_command_line_win(iosonde: Iosonde) -> None:
    quick = ("plan", "quick", "--target", "sim:p900")
    maximum = ("--profile", "quick", "--set", "until.maximum=6")
    shown = iosonde(*quick, *maximum, "--repeats", "until", "--set", "until.half_width=1%")
    assert shown.returncode == 0, shown.stderr
    [time] = [line for line in shown.stdout.splitlines() if line.startswith("time")]
    assert "3 to 6 runs" in shown.stdout and " to " in time
    assert iosonde(*quick, *maximum, "--precision", "1%").stdout == shown.stdout
    both = iosonde(*quick, "--precision", "1%", "--repeats", "5")
    assert both.returncode == 2 and "omit `--repeats`" in both.stderr
    unknown = iosonde(*quick, "--repeats", "until", "--set", "until.width=1")
    assert "no setting `until.width`" in unknown.stderr and "until.half_width" in unknown.stderr


@pytest.mark.parametrize("name", ["latency-curve", "snia-write-saturation"])
def test_the_remaining_work_of_a_new_result_set_includes_cases_that_wait_for_others(name: str, tmp_path: Path) -> None:
    """Rates of a latency curve are derived from a part that has not run yet."""
    plan = expand(load(name), open_target("simulated:servers=4,read=100us,write=100us,size=4GiB"), profile="quick")
    ahead = Schedule(ResultSet.create(tmp_path / "set", plan)).ahead()
    whole = Remaining.from_plan(plan)
    assert (ahead.runs, ahead.at_most) == (whole.runs, whole.at_most)
    assert ahead.at_most > 0
