"""The cache of a library: the same summaries, nothing stale, and SQL over all result sets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from command_line import Iosonde
from fabricate import result_set, small_study

from iosonde.errors import ResultsError
from iosonde.library import compacted, index, indexing, sql
from iosonde.results import ResultSet


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two result sets, and a cache of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, speed in (("a", 1.0), ("b", 1.5)):
        result_set(tmp_path / "sets" / name, small_study(), repeats=1, seconds=1, speed=speed, model=f"SSD {name}")
    return tmp_path / "sets"


def test_a_cached_summary_is_that_of_the_records(root: Path) -> None:
    plain = index(root)
    assert not compacted.place(root).exists()
    assert index(root, compact=True).summaries == plain.summaries
    table = next((root / "a/records").iterdir()) / "histograms.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert index(root, compact=True).summaries == plain.summaries  # It was verified when it was read.
    shutil.rmtree(compacted.place(root))
    index(root, compact=True)
    [file] = (compacted.place(root) / "summaries").iterdir()
    file.write_bytes(b"nothing")
    again = index(root, compact=True)  # A damaged cache is built again.
    assert [each.path for each in again.summaries] == ["b"] and "SHA-256" in again.problems[0]


def test_what_has_changed_is_read_again(root: Path) -> None:
    before = index(root, compact=True)
    shutil.rmtree(next((root / "a/records").iterdir()))
    shutil.rmtree(root / "b")
    [after] = index(root, compact=True).summaries
    assert after.path == "a"
    assert after.complete == next(each.complete for each in before.summaries if each.path == "a") - 1
    (root / "a/report.html").write_text("a report")
    assert [each.report for each in index(root, compact=True).summaries] == ["report.html"]


@pytest.mark.engine
def test_sql_over_a_library_has_every_run_once(iosonde: Iosonde, root: Path) -> None:
    query = (
        "SELECT model, count(*) AS runs, round(avg(value)) AS iops FROM metrics JOIN result_sets USING (result_set) "
        "WHERE metric = 'iops' AND operation = 'all' GROUP BY model ORDER BY model"
    )
    first = sql.answer(root, query).rows
    values = [ResultSet.open(root / name).metrics for name in "ab"]
    expected = [rows.filter(metric="iops", operation="all")["value"] for rows in values]
    assert first["model"].to_list() == ["SSD a", "SSD b"]
    assert first["runs"].to_list() == [len(each) for each in expected]
    assert first["iops"].to_list() == [pytest.approx(each.mean(), abs=1) for each in expected]
    shutil.rmtree(next((root / "a/records").iterdir()))
    assert sql.answer(root, query).rows["runs"].to_list() == [len(expected[0]) - 1, len(expected[1])]
    done = iosonde("sql", root, "SELECT count(*) AS sets FROM result_sets", XDG_CACHE_HOME=os.environ["XDG_CACHE_HOME"])
    assert done.stdout == "sets\n2\n", done.stderr
    with pytest.raises(ResultsError, match="is no result set and has none below it"):
        sql.answer(root.parent / "cache", "SELECT 1")
    for refused in ("COPY result_sets TO '/tmp/x.csv'", "SELECT * FROM read_csv('/etc/passwd')"):
        with pytest.raises(ResultsError):
            sql.answer(root, refused)


def test_neither_result_sets_nor_records_of_a_batch_are_too_many(tmp_path: Path) -> None:
    """Batches of 25 result sets of any size took memory without a limit."""
    sizes = [400, 500, 100, 1, 2000, 5, *[0] * 26]
    directories = [tmp_path / f"{number:02}" for number in range(len(sizes))]
    for directory, size in zip(directories, sizes, strict=True):
        for number in range(size):
            (directory / "records" / f"{number}").mkdir(parents=True)
    batches = list(indexing._batches(directories))
    assert [each for batch in batches for each in batch] == directories
    assert [len(batch) for batch in batches] == [3, 1, 1, 25, 2]
