"""Merging result sets from several places: copied once, completed, never changed; damaged ones named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import Iosonde
from fabricate import plan, result_set, small_study

from iosonde.library.collect import collect
from iosonde.results import ResultSet


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two result sets of the same plan, as of two hosts: records differ."""
    root = tmp_path_factory.mktemp("made")
    planned = plan(small_study(), repeats=1)
    result_set(root / "host-a/results", planned, seconds=1)
    result_set(root / "host-b/results", planned, seconds=1, seed=2)
    return root


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_result_sets_are_copied_once_and_sources_stay_as_they_are(made: Path, tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    shutil.copytree(made / "host-a", stick / "backup")
    before = contents(made)
    library = tmp_path / "library"
    done = collect([made / "host-a", made / "host-b", stick], library)
    assert [each.relative_to(library) for each in done.copied] == [Path("host-a/results"), Path("host-b/results")]
    assert (done.known, done.problems) == (1, [])
    assert contents(made) == before
    for host in ("host-a", "host-b"):
        copy = contents(library / host / "results")
        assert copy == {name: text for name, text in contents(made / host / "results").items() if name != "lock"}
        assert not ResultSet.open(library / host / "results").problems
    again = collect([made, stick], library)
    assert (again.copied, again.completed, again.known) == ([], [], 3)


def test_a_result_set_that_grew_completes_its_copy(made: Path, tmp_path: Path) -> None:
    source, library = tmp_path / "source", tmp_path / "library"
    shutil.copytree(made / "host-a/results", source / "set")
    late = sorted((source / "set/records").iterdir())[-1]
    shutil.move(late, tmp_path / "late")
    first = collect([source], library)
    shutil.move(tmp_path / "late", late)
    second = collect([source], library)
    assert (first.copied, second.copied, second.completed) == ([library / "source/set"], [], first.copied)
    assert collect([source], library).known == 1
    assert len(ResultSet.open(library / "source/set").records()) == 5


def test_damaged_records_and_result_sets_are_named_and_left_out(made: Path, tmp_path: Path) -> None:
    source, library = tmp_path / "source", tmp_path / "library"
    for name in ("record", "plan"):
        shutil.copytree(made / "host-a/results", source / name)
    table = next((source / "record/records").iterdir()) / "intervals.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    (source / "plan/plan.json").write_text("{}")
    (source / "record/records/linked").symlink_to(made / "host-b/results/records")
    done = collect([source], library)
    assert done.copied == [library / "source/record"]
    assert len(done.problems) == 3 and "intervals.parquet` was modified" in " ".join(done.problems)
    assert any("records/linked` skipped" in each for each in done.problems)
    copy = ResultSet.open(library / "source/record")
    assert len(copy.records()) == 4 and not copy.problems


def test_result_sets_of_hosts_in_a_result_set_are_part_of_it(made: Path, tmp_path: Path) -> None:
    """The hosts of a study on several keep their own records; those of a host may arrive later."""
    source, library = tmp_path / "source", tmp_path / "library"
    shutil.copytree(made / "host-a/results", source / "set")
    assert collect([source], library).copied == [library / "source/set"]
    shutil.copytree(made / "host-b/results", source / "set/hosts/host-b")
    assert collect([source], library).completed == [library / "source/set"]
    assert not ResultSet.open(library / "source/set").problems
    assert len(ResultSet.open(library / "source/set/hosts/host-b").records()) == 5
    assert collect([source], library).known == 1


def test_a_name_that_is_taken_gets_a_number_and_an_interrupted_copy_is_completed(made: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    shutil.copytree(made / "host-a/results", tmp_path / "x/results")
    shutil.copytree(made / "host-b/results", tmp_path / "y/x/results")
    collect([tmp_path / "x"], library)
    assert collect([tmp_path / "y/x"], library).copied == [library / "x/results-2"]
    (library / "x/results-2/format.json").unlink()
    assert collect([tmp_path / "y/x"], library).copied == [library / "x/results-2"]
    assert not ResultSet.open(library / "x/results-2").problems


def test_the_command_prints_what_it_did(iosonde: Iosonde, made: Path, tmp_path: Path) -> None:
    done = iosonde("collect", made / "host-a", made / "host-b", "--output", tmp_path / "library", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["copied"]) == 2
    assert iosonde("library", tmp_path / "library").returncode == 0
    refused = iosonde("collect", tmp_path / "absent", "--output", tmp_path / "library")
    assert refused.returncode == 1 and "is not a directory" in refused.stderr
