"""A/B comparisons within one session, carried out on simulated drives and on files."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Iosonde, in_this_process

from iosonde.errors import ResultsError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import Interrupted, execute, resume
from iosonde.plan import Plan, Run
from iosonde.planning import Against, expand, parse
from iosonde.report import as_text, comparison
from iosonde.report.material import gather
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target

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
duration = "50ms"
interval = "100ms"
queue_depth = 4
[[parts]]
[parts.factors]
read_fraction = [0.0, 1.0]
[profiles.standard]
"""


def planned(first: str, second: str | None = None, *, repeats: int = 2, **settings: str) -> Plan:
    against = Against(target=open_target(second) if second else None, settings=settings)
    return expand(parse(STUDY), open_target(first), against=against, repeats=repeats)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """Two models of drives, compared by the command line."""
    directory = tmp_path_factory.mktemp("arms")
    (directory / "arms.toml").write_text(STUDY)
    words = ("--target", "sim:sp900", "--against", "sim:p900", "--output", directory / "results", "--no-report")
    done = in_this_process("run", directory / "arms.toml", *words)
    assert done.returncode == 0, done.stderr
    assert "arm a: sim:sp900" in done.stderr and "arm b: sim:p900" in done.stderr
    return ResultSet.open(directory / "results")


def test_different_simulated_drives_are_distinguished_and_one_is_recommended(
    whole: ResultSet, iosonde: Iosonde
) -> None:
    [material] = gather([whole])
    assert set(comparison.pairs(material, metrics=("bandwidth",))["verdict"]) == {"better"}
    text = " ".join(as_text(whole).split())
    assert "choose b: sim:p900" in text
    assert "Measured alternately in one session, pairs per case: 3." in text
    assert '"paired": true' in iosonde("compare", whole.directory, "--json").stdout
    refused = iosonde("compare", whole.directory, whole.directory)
    assert refused.returncode != 0 and "cannot be compared with another result set" in refused.stderr


def test_a_stopped_comparison_continues_at_the_same_pair(whole: ResultSet, tmp_path: Path) -> None:
    class StopsAfterFive(Observer):
        left = 5

        def run_ended(self, run: Run, record: Record) -> None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    plan = whole.plan
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        execute(plan, tmp_path / "results", observer=StopsAfterFive())
    stopped = ResultSet.open(tmp_path / "results")
    assert [record.run_id for record in stopped.records()] == [run.run_id for run in plan.runs[:5]]
    finished = resume(tmp_path / "results")
    assert [record.run_id for record in finished.records()] == [run.run_id for run in plan.runs]
    assert [each.result["jobs"][0]["operations"] for each in finished.records() if each.result] == [
        each.result["jobs"][0]["operations"] for each in whole.records() if each.result
    ]


@pytest.mark.parametrize("second", ["one", "two"])
def test_two_settings_of_directories_are_compared_and_their_files_removed(second: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    other = str(tmp_path / second) if second == "two" else None
    plan = planned(str(tmp_path / "one"), other, block_size="16KiB", repeats=1)
    same = "are on the same file system: this does not compare devices"
    assert any(same in note for note in plan.notes) == (second == "two")
    results = execute(plan, tmp_path / "results")
    paths = {
        record.arm: Path(record.spec["workload"]["target"]["path"]).parents[1].name for record in results.records()
    }
    assert paths == {"a": "one", "b": second}
    assert not [*(tmp_path / "one").iterdir(), *(tmp_path / "two").iterdir()]
    sizes = {record.arm: record.parameters["block_size"] for record in results.records()}
    assert sizes == {"a": 4096, "b": 16384}


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
