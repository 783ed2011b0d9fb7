"""A/B comparisons within one session, carried out on simulated drives and on files."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Iosonde

from iosonde.errors import ResultsError
from iosonde.execution import Interrupted, Observer, execute, resume
from iosonde.plan import Plan, Run
from iosonde.planning import Against, expand, parse
from iosonde.report import as_text
from iosonde.report.content import comparison
from iosonde.report.material.result_sets import gather
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target

pytestmark = pytest.mark.engine

STUDY = """
name = "arms"
title = "Random reads and writes"
question = "Which of two systems is faster?"
repeats = 3

[measurement]
access = "random"
block_size = "4KiB"
span = "16MiB"
io_mode = "direct"
ramp = 0
duration = "200ms"
interval = "100ms"
queue_depth = 4

[[parts]]
[parts.factors]
read_fraction = [0.0, 1.0]

[profiles.standard]
"""


def planned(first: str, second: str | None = None, **settings: str) -> Plan:
    against = Against(target=open_target(second) if second else None, settings=settings)
    return expand(parse(STUDY), open_target(first), against=against)


def verdicts(results: ResultSet) -> set[str]:
    [material] = gather([results])
    return set(comparison.pairs(material, metrics=("bandwidth",))["verdict"])


class StopAfter(Observer):
    """Stops the session after so many runs, as Ctrl-C does."""

    def __init__(self, runs: int) -> None:
        self.runs = runs

    def run_ended(self, run: Run, record: Record) -> None:
        self.runs -= 1
        if not self.runs:
            raise KeyboardInterrupt


def test_equal_simulated_drives_are_the_same(tmp_path: Path) -> None:
    """A/A: two drives of one model, each with its own state."""
    results = execute(planned("sim:p900*1", "sim:p900"), tmp_path / "results")
    assert verdicts(results) == {"same"}
    assert {record.arm for record in results.records()} == {"a", "b"}
    assert results.problems == []
    assert not (tmp_path / "results" / "against").exists()


def test_different_simulated_drives_are_distinguished_and_one_is_recommended(tmp_path: Path) -> None:
    results = execute(planned("sim:sp900", "sim:p900"), tmp_path / "results")
    assert verdicts(results) == {"better"}
    text = as_text(results)
    assert "choose b: sim:p900" in " ".join(text.split())
    assert "Measured alternately in one session, pairs per case: 3." in " ".join(text.split())


def test_a_stopped_comparison_continues_at_the_same_pair(tmp_path: Path) -> None:
    plan = planned("sim:sp900", "sim:p900")
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        execute(plan, tmp_path / "results", observer=StopAfter(5))
    stopped = ResultSet.open(tmp_path / "results")
    assert [record.run_id for record in stopped.records()] == [run.run_id for run in plan.runs[:5]]
    finished = resume(tmp_path / "results")
    assert [record.run_id for record in finished.records()] == [run.run_id for run in plan.runs]
    whole = execute(plan, tmp_path / "whole")
    assert [each.result["jobs"][0]["operations"] for each in finished.records() if each.result] == [
        each.result["jobs"][0]["operations"] for each in whole.records() if each.result
    ]


def test_two_settings_of_one_directory_are_compared_and_its_files_removed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    results = execute(planned(str(target), block_size="16KiB"), tmp_path / "results")
    assert [arm.label for arm in results.arms()] == ["a: block_size=4KiB", "b: block_size=16KiB"]
    assert list(target.iterdir()) == []
    sizes = {record.arm: record.parameters["block_size"] for record in results.records()}
    assert sizes == {"a": 4096, "b": 16384}


def test_two_directories_each_have_files_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    plan = planned(str(tmp_path / "one"), str(tmp_path / "two"))
    assert any("are on the same file system: this does not compare devices" in note for note in plan.notes)
    results = execute(plan, tmp_path / "results")
    paths = {
        record.arm: Path(record.spec["workload"]["target"]["path"]).parents[1].name for record in results.records()
    }
    assert paths == {"a": "one", "b": "two"}
    assert not [*(tmp_path / "one").iterdir(), *(tmp_path / "two").iterdir()]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_nothing_is_written_through_what_replaces_the_drive_state_of_arm_b(kind: str, tmp_path: Path) -> None:
    """A received result set may have a link there: it is refused, and nothing is created where it leads to."""
    victim = tmp_path / "victim"
    victim.mkdir()
    plan = planned("sim:sp900", "sim:p900")
    place = ResultSet.create(tmp_path / "results", plan).directory / "against"
    if kind == "link":
        place.symlink_to(victim)
    else:
        place.write_text("a file")
    with pytest.raises(ResultsError, match="is not a directory"):
        resume(tmp_path / "results")
    assert list(victim.iterdir()) == []
    assert place.is_symlink() or place.read_text() == "a file"


def test_the_command_line_runs_and_compares_both_arms(iosonde: Iosonde, tmp_path: Path) -> None:
    study = tmp_path / "arms.toml"
    study.write_text(STUDY)
    done = iosonde("run", study, "--target", "sim:sp900", "--against", "sim:p900", "--output", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert "arm a: sim:sp900" in done.stderr and "arm b: sim:p900" in done.stderr
    compared = iosonde("compare", tmp_path / "results", "--json")
    assert compared.returncode == 0, compared.stderr
    assert '"paired": true' in compared.stdout
    refused = iosonde("compare", tmp_path / "results", tmp_path / "results")
    assert refused.returncode != 0 and "cannot be compared with another result set" in refused.stderr
