"""Prepared targets and rounds, carried out on a real file: what reached it, what is recorded, what a stop costs."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine

from iosonde.execution import execute, resume
from iosonde.findings.convergence import convergences, window_means
from iosonde.findings.findings import findings
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.sustained import long_runs
from iosonde.plan import PREPARATION, Plan
from iosonde.planning import expand, parse
from iosonde.procedure.observations import conclusions
from iosonde.procedure.rounds import RoundsConclusion
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.setups.purge import can_trim
from iosonde.study.model import Study

MIB = 1 << 20

STUDY = """
name = "sustained"
title = "Rounds on a small file"
question = "Does it settle?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
ramp = 0
duration = "none"
interval = "100ms"
limit_bytes = "1MiB"
purge = "strongest"
capacity = "8MiB"

[[parts]]
name = "rounds"
factors.fill = [100, 50]

[parts.rounds]
max_rounds = 6
factors.block_size = ["64KiB", "4KiB"]
track = [{ block_size = "4KiB" }]

[profiles.quick]
"""


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def plan_of(target: str, text: str = STUDY, **options: Any) -> Plan:
    return expand(parse(text), open_target(target), profile="quick", **options)


def rounds(text: str, at_most: int) -> str:
    """The study with fewer rounds, where steady state is not what is tested."""
    return text.replace("max_rounds = 6", f"max_rounds = {at_most}")


def found_rounds(result_set: ResultSet) -> list[RoundsConclusion]:
    found = [each for _, each in conclusions(result_set)]
    assert all(isinstance(each, RoundsConclusion) for each in found)
    return found  # type: ignore[return-value]


@pytest.mark.needs("hole punching")
def test_fill_leaves_the_rest_free_and_writes_incompressible_data(tmp_path: Path) -> None:
    plan = plan_of(str(tmp_path / "data"), rounds(STUDY, 1), keep=True)
    execute(plan, tmp_path / "set")
    file = tmp_path / "data"
    # The level before was 100 %: the purge has freed what the second does not hold.
    assert file.stat().st_size == 4 * MIB
    assert file.stat().st_blocks * 512 <= 4 * MIB + 64 * 1024
    content = file.read_bytes()
    assert len(zlib.compress(content, 1)) > 0.99 * len(content)


def test_every_step_is_a_record_and_every_record_has_the_preparation(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    result_set = execute(plan_of(str(tmp_path / "on"), rounds(STUDY, 1)), tmp_path / "set")
    records = result_set.records()
    steps = [(record.levels["fill"], record.levels["step"]) for record in records if record.part == PREPARATION]
    assert steps == [(100, "purge"), (100, "fill"), (50, "purge"), (50, "fill")]
    assert {record.parameters["purge"] for record in records} == {"trim" if can_trim(tmp_path) else "overwrite"}
    assert {record.parameters["fill"] for record in records} == {100, 50}
    filled = next(record for record in records if record.levels.get("step") == "fill")
    assert sum(job["bytes"] for job in filled.result["jobs"]) == 8 * MIB if filled.result else False
    assert len({record.session for record in records}) == 1
    assert not list((tmp_path / "on").iterdir())


def test_the_report_finds_what_the_procedure_decided(tmp_path: Path) -> None:
    result_set = execute(plan_of("simulated:servers=1,write=100us,size=1GiB"), tmp_path / "set")
    study = Study.model_validate(result_set.plan.study)
    metrics = run_metrics(result_set)
    part = study.parts[0]
    table = convergences(part, result_set.cases, metrics)
    decided = [each.passes[0] for each in found_rounds(result_set)]
    assert [(each.first, each.last, each.rounds) for each in table] == [(1, 5, 5), (1, 5, 5)]
    assert [(each.first, each.last) for each in decided] == [(1, 5), (1, 5)]
    means = window_means(part, result_set.cases, metrics, ["iops"])
    assert means["value"].to_list() == pytest.approx([10_000] * 4, rel=0.01)
    titles = [each.sentence for each in findings(study, result_set.cases, metrics)]
    assert "100 % full: steady state, SNIA's criterion met in rounds 1 to 5" in titles
    assert not [title for title in titles if "preparation" in title]


def test_a_resumed_study_prepares_its_target_again_and_keeps_completed_rounds(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    plan = plan_of(str(tmp_path / "on"), rounds(STUDY, 3), settings={"fill": "50"})
    watcher = _StopAfter(5)
    with pytest.raises(KeyboardInterrupt):
        execute(plan, tmp_path / "set", observer=watcher)
    before = {record.run_id: record.ended_at for record in ResultSet.open(tmp_path / "set").records()}
    noted = _StopAfter(None)
    result_set = resume(tmp_path / "set", observer=noted)
    assert any("the target is prepared again" in note for note in noted.notes)
    records = {record.run_id: record for record in result_set.records()}
    assert {run_id: records[run_id].ended_at for run_id in before} == before
    again = [record for record in result_set.records() if record.run_id not in before]
    assert [record.levels.get("step") for record in again[:3]] == ["purge", "fill", None]
    assert found_rounds(result_set)[0].passes[0].restarts == (again[2].levels["round"],)


class _StopAfter:
    """Sends SIGINT to this process once so many runs have ended, as Ctrl-C does."""

    def __init__(self, runs: int | None) -> None:
        self._left = runs
        self.notes: list[str] = []

    def run_started(self, run: Any, case: Any) -> None: ...

    def event(self, run: Any, event: dict[str, Any]) -> None: ...

    def run_ended(self, run: Any, record: Any) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), 2)

    def note(self, text: str) -> None:
        self.notes.append(text)


LONG = """
name = "long"
title = "One long run"
question = "Is it steady?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
ramp = 0
duration = "12s"
interval = "100ms"
round_length = "1s"

[[parts]]
name = "long"
factors.queue_depth = [1, 2]

[profiles.quick]
"""


def test_a_long_run_is_evaluated_by_its_own_rounds(tmp_path: Path) -> None:
    result_set = execute(plan_of("simulated:servers=1,write=100us,size=1GiB", LONG), tmp_path / "set")
    found = long_runs(Facts(result_set))
    assert [len(each.values) for each in found] == [12, 12]
    assert all(each.steady.left is None and each.steady.measured and each.steady.measured.last == 5 for each in found)
    assert all(each.cliff is None for each in found)
    metrics = run_metrics(result_set)
    values = {
        name: metrics.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("steady_iops", "steady_fraction", "seconds_to_steady_state", "seconds_to_cliff")
    }
    assert values["steady_iops"] == pytest.approx([10_000] * 2, rel=0.01)
    assert values["steady_fraction"] == pytest.approx([1, 1], rel=0.01)
    assert values["seconds_to_steady_state"] == [5, 5]
    assert values["seconds_to_cliff"] == []


def test_a_run_too_short_for_a_window_shows_no_steady_state(tmp_path: Path) -> None:
    plan = plan_of("simulated:servers=1,write=100us,size=1GiB", LONG, settings={"duration": "3s"})
    result_set = execute(plan, tmp_path / "set")
    study = Study.model_validate(result_set.plan.study)
    metrics = run_metrics(result_set)
    titles = [
        each.sentence for each in findings(study, result_set.cases, metrics, long_runs=long_runs(Facts(result_set)))
    ]
    assert "Queue depth 1: no steady state shown, 3 rounds of 1 s are fewer than the 5 of a window" in titles
    assert "steady_fraction" not in set(metrics["metric"])


def _titles(result_set: ResultSet) -> list[str]:
    study = Study.model_validate(result_set.plan.study)
    found = findings(
        study, result_set.cases, run_metrics(result_set), runs=result_set.runs, long_runs=long_runs(Facts(result_set))
    )
    return [each.sentence for each in found]
