"""Merging result sets from several places: copied once, completed, never changed; damaged ones named."""

from __future__ import annotations

import shutil
from pathlib import Path

from iosonde.library.collect import collect
from iosonde.results import ResultSet


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
    # The hosts of a study on several keep their own records; those of a host may arrive later.
    shutil.copytree(made / "host-b/results", source / "set/hosts/host-b")
    assert collect([source], library).completed == first.copied
    assert len(ResultSet.open(library / "source/set/hosts/host-b").records()) == 5
    (library / "source/set/format.json").unlink()
    assert collect([source], library).copied == first.copied, "an interrupted copy is completed"
    shutil.copytree(made / "host-b/results", tmp_path / "other/source/set")
    assert collect([tmp_path / "other/source"], library).copied == [library / "source/set-2"], "a name that is taken"
    assert not ResultSet.open(library / "source/set").problems


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
