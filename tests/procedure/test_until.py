"""Repeats until precise: when a case ends, and that a stopped study continues at the same point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Iosonde
from made_up import Made, MadeUp

from iosonde.errors import StudyError
from iosonde.execution import Observer, execute, resume
from iosonde.plan import Case, Plan, Run
from iosonde.planning import expand, parse
from iosonde.procedure import progress
from iosonde.procedure.until import UntilConclusion
from iosonde.report.content.repeats import repeat_tables
from iosonde.report.material.result_sets import gather
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


def concluded(case: Case, value: Callable[[int], float]) -> UntilConclusion:
    evidence = MadeUp(lambda run: Made(value(run.repeat)))
    assert case.procedure
    for repeat in range(1, case.procedure.settings["minimum"] + 1):
        evidence.known[f"{case.procedure.stem}-r{repeat}"] = Made(value(repeat))
    while run := progress(case, evidence).next_run:
        evidence.known[run.run_id] = evidence.observe(run)
    found = progress(case, evidence).conclusion
    assert isinstance(found, UntilConclusion)
    return found


def test_the_default_minimum_is_five_and_three_in_the_quick_profile() -> None:
    assert planned().repeats == 5
    assert planned(profile="quick").repeats == 3
    assert not planned(profile="paper").adaptive, "a profile with a number has that number"


def test_a_steady_case_ends_at_the_minimum_and_a_noisy_one_continues() -> None:
    case = planned(maximum=40).adaptive[0]
    steady = concluded(case, lambda repeat: 1000 + repeat % 3)
    assert (steady.stopped_by, steady.repeats) == ("precise", 5)
    noisy = concluded(case, lambda repeat: 1000 * (1 + 0.05 * (-1) ** repeat + 0.01 * (repeat % 5)))
    assert noisy.repeats > 5


def test_a_case_that_never_becomes_precise_ends_at_the_maximum_with_the_reason() -> None:
    found = concluded(planned().adaptive[0], lambda repeat: 1000.0 * (1 + repeat % 2))
    assert (found.stopped_by, found.repeats, found.reached) == ("maximum", 12, False)
    assert found.reason == "not precise after 12 repeats, the maximum"
    assert (found.half_widths["iops"] or 0) > 0.03


def test_no_repeat_starts_once_the_time_budget_is_spent() -> None:
    """A run of the evidence takes one second."""
    found = concluded(planned(budget="7s").adaptive[0], lambda repeat: 1000.0 * (1 + repeat % 2))
    assert (found.stopped_by, found.repeats) == ("budget", 7)


def test_repeats_that_exist_are_not_dropped_when_other_cases_change_what_is_known_of_noise() -> None:
    """A resumed study knows more than when it decided on a repeat."""
    case = planned(maximum=40).adaptive[0]
    assert case.procedure
    evidence = MadeUp(lambda run: Made(1000.0))
    evidence.known = {f"{case.procedure.stem}-r{repeat}": Made(1000 + repeat % 3) for repeat in range(1, 8)}
    found = progress(case, evidence).conclusion
    assert isinstance(found, UntilConclusion)
    assert (found.stopped_by, found.repeats) == ("precise", 7)


def test_a_case_without_results_ends_at_the_minimum() -> None:
    case = planned().adaptive[0]
    assert case.procedure
    evidence = MadeUp(lambda run: Made(failure="broken"))
    evidence.known = {f"{case.procedure.stem}-r{repeat}": Made(failure="broken") for repeat in range(1, 6)}
    found = progress(case, evidence).conclusion
    assert isinstance(found, UntilConclusion) and found.stopped_by == "no result"


@pytest.mark.engine
def test_a_resumed_study_takes_the_same_repeats(tmp_path: Path) -> None:
    plan = planned(half_width="0.0001%", maximum=8)
    whole = execute(plan, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(plan, tmp_path / "stopped", observer=StopAfter(12))
    again = resume(tmp_path / "stopped")
    assert [record.run_id for record in whole.records()] == [record.run_id for record in again.records()]
    assert {record.case_id for record in whole.records()} == {case.case_id for case in plan.cases}
    assert 5 < max(record.repeat for record in whole.records()) <= 8
    [material] = gather([whole])
    [table] = repeat_tables(material)
    assert {row[-1].text for row in table.rows} <= {"precise", "maximum"}


@pytest.mark.engine
def test_settings_of_the_command_line_win(iosonde: Iosonde, tmp_path: Path) -> None:
    shown = iosonde(
        "plan", "quick", "--profile", "quick", "--target", "sim:p900", "--repeats", "until", "--set",
        "until.maximum=6", "--set", "until.half_width=1%",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "3 to 6 runs" in shown.stdout and " to " in next(
        line for line in shown.stdout.splitlines() if line.startswith("time")
    )
    short = iosonde(
        "plan", "quick", "--profile", "quick", "--target", "sim:p900", "--precision", "1%", "--set", "until.maximum=6"
    )
    assert short.stdout == shown.stdout, short.stderr
    both = iosonde("plan", "quick", "--target", "sim:p900", "--precision", "1%", "--repeats", "5")
    assert both.returncode == 2 and "omit `--repeats`" in both.stderr
    wrong = iosonde("plan", "quick", "--target", "sim:p900", "--repeats", "often")
    assert wrong.returncode == 2 and "must be `until` or a number" in wrong.stderr


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(StudyError, match=r"no setting `until\.width`") as refused:
        expand(
            parse(STUDY.format(half_width="3%", maximum=9, budget="")),
            open_target("sim:p900"),
            settings={"until.width": "1"},
        )
    assert "until.half_width" in refused.value.hint


def test_runs_of_a_repeat_have_seeds_of_their_own() -> None:
    case = planned().adaptive[0]
    assert case.procedure
    evidence = MadeUp(lambda run: Made(1000.0 * (1 + run.repeat % 2)))
    evidence.known = {f"{case.procedure.stem}-r{repeat}": Made(1000.0 * (1 + repeat % 2)) for repeat in range(1, 6)}
    found: list[Run] = []
    while run := progress(case, evidence).next_run:
        found.append(run)
        evidence.known[run.run_id] = evidence.observe(run)
    assert len({run.spec["seed"] for run in found}) == len(found) == 7
