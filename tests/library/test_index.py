"""Libraries on disks: collected, indexed, cached, queried; values are those of the result sets."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from command_line import Iosonde
from fabricate import result_set, small_study

from iosonde.collections.library.collect import collect
from iosonde.collections.library.indexing import Cache, Index, answer, index
from iosonde.collections.library.page import link, render, require_outside
from iosonde.collections.library.summary import THRESHOLDS_NS, count_stalls, facts_of, wear_of
from iosonde.errors import ResultsError
from iosonde.findings.answer import trust_of
from iosonde.findings.regression import session_of
from iosonde.metrics.metrics import BULK_METRICS, bulk_metrics, run_metrics
from iosonde.results import ResultSet


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two result sets at different depths, a link to one, a damaged one and a foreign directory."""
    root = tmp_path_factory.mktemp("library")
    result_set(root / "a", small_study(), seconds=2)
    odd = root / "deep" / "odd <b>[a]* 100%#?"
    result_set(odd, small_study(), seconds=2, speed=1.3, seed=2, model="OTHER SSD")
    (odd / "report.html").write_text("<p>report</p>")
    (root / "linked").symlink_to(root / "a")
    shutil.copytree(root / "a", root / "modified")
    (root / "modified" / "plan.json").write_text("{}")
    (root / "foreign").mkdir()
    (root / "foreign" / "notes.txt").write_text("nothing of ours")
    return root


@pytest.fixture(scope="module")
def indexed(root: Path) -> Index:
    return index(root)


def test_result_sets_are_found_at_any_depth_and_links_are_not_followed(root: Path, indexed: Index) -> None:
    assert sorted(each.path for each in indexed.summaries) == ["a", "deep/odd <b>[a]* 100%#?"]
    [problem] = indexed.problems
    assert str(root / "modified") in problem and "modified after it was written" in problem
    odd = next(each for each in indexed.summaries if each.path.startswith("deep"))
    assert (odd.study, odd.target, odd.report) == ("fabricated", "/srv/test/iosonde.dat", "report.html")
    assert [(each.model, each.firmware) for each in odd.devices] == [("OTHER SSD", "1.2.3")]
    assert odd.complete == odd.runs == 13
    assert odd.started_at.startswith("2026-01-02T03:00:00")
    assert odd.trust == "No run has a verdict"


def test_age_and_wear_are_those_of_the_newest_record(root: Path) -> None:
    """The highest of several drives; a drive that reports none changes nothing."""
    first, *others = ResultSet.open(root / "a").records()
    ends = [{"power_on_hours": 900, "percentage_used": 3}, {"power_on_hours": 1200}, {"not_reported": "SATA"}]
    changed = {"started_at": "2027-01-01T00:00:00+00:00", "drives": [{"end": each} for each in ends]}
    newest = first.model_copy(update=changed)
    older = others[0].model_copy(update={"drives": [{"end": {"power_on_hours": 9999}}]})
    assert wear_of([newest, older, *others[1:]]) == (1200, 3)
    assert wear_of(others[1:]) == (None, None)


def test_sessions_and_trust_are_those_of_the_regression_check_and_the_report(root: Path, indexed: Index) -> None:
    results = ResultSet.open(root / "a")
    summary = next(each for each in indexed.summaries if each.path == "a")
    expected = session_of(results, "").values
    assert {(each.case_id, each.metric): each.mean_log for each in summary.cells} == {
        key: pytest.approx(value.mean_log, rel=1e-12) for key, value in expected.items()
    }
    assert summary.trust == trust_of(results.metrics, results.runs).line
    medians = results.case_metrics.filter(~pl.col("control"), pl.col("operation") == "all")
    for headline in summary.headlines:
        values = medians.filter(pl.col("metric") == headline.metric)["median"]
        best = values.min() if "latency" in headline.metric else values.max()
        assert headline.value == pytest.approx(best)
    assert summary.headlines[0].case_id in summary.loads


def test_metrics_read_in_bulk_are_those_of_run_metrics(root: Path) -> None:
    keys = ["run_id", "stream", "operation", "metric"]
    results = ResultSet.open_records(root / "a")
    expected = run_metrics(ResultSet.open(root / "a")).filter(pl.col("metric").is_in(BULK_METRICS)).sort(keys)
    found = bulk_metrics({"x": results}).sort(keys)
    assert len(found) > 100
    assert found.select(keys).equals(expected.select(keys))
    assert (found["value"] - expected["value"]).abs().max() == 0


def test_stalls_are_counted_once_however_many_ios_and_intervals_they_delay() -> None:
    """By hand, in ms: two stalls of run a of which one lasts three intervals, one of run b, and one of the engine itself."""
    rows = [
        {"run_id": run, "phase": phase, "interval": number, "completion_latency_ns_max": value and value * 1_000_000}
        | {"engine_stalled_ns": 60_000_000 if (run, number) == ("b", 1) else None}
        for run, phase, values in (
            ("a", "measure", (1, 50, 30, None, 90, 1, 25)),
            ("a", "ramp", (999,)),
            ("b", "measure", (25, 70, 1)),
            ("other", "measure", (999,)),
        )
        for number, value in enumerate(values)
    ]
    intervals = pl.DataFrame(
        rows, schema_overrides={"completion_latency_ns_max": pl.UInt64, "engine_stalled_ns": pl.UInt64}
    )
    found = count_stalls(intervals, {"a": "case", "b": "case"})["case"]
    assert (found.intervals, found.largest_ns) == (9, 90_000_000)
    expected = {20_000_000: 3, 50_000_000: 2, 100_000_000: 0}
    assert {each: found.counts[THRESHOLDS_NS.index(each)] for each in expected} == expected


def test_links_are_relative_and_encoded(root: Path, indexed: Index, tmp_path: Path) -> None:
    assert link(Path("/a/b c/[x]*?#%/report.html"), Path("/a/d")) == "./../b%20c/%5Bx%5D%2A%3F%23%25/report.html"
    page = render(indexed, root)
    assert 'href="./deep/odd%20%3Cb%3E%5Ba%5D%2A%20100%25%23%3F/report.html"' in page
    assert "<b>[a]" not in page and "odd &lt;b&gt;[a]* 100%#?" in page


def test_facts_of_strangers_are_text_of_any_shape() -> None:
    environments: Mapping[str, object] = {"kernel": "6.1", "cpu": {"mitigations": 3, "model": ["a", "b"]}}
    assert facts_of(environments, [], {"io_mode": "buffered"}) == {"CPU": "a b", "setting io_mode": "buffered"}


@pytest.mark.engine
def test_the_command_writes_a_page_and_leaves_result_sets_alone(iosonde: Iosonde, root: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    done = iosonde("library", root, "--output", tmp_path / "index.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'index.html'}\n"
    assert "modified" in done.stderr and "2 result sets" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    listed = json.loads(iosonde("library", root, "--json").stdout)
    assert [each["study"] for each in listed["result_sets"]] == ["fabricated", "fabricated"]
    assert len(listed["skipped"]) == 1
    with pytest.raises(ResultsError, match="inside the result set"):
        require_outside(root / "a" / "library.html")
    with pytest.raises(ResultsError, match="not a directory"):
        index(tmp_path / "missing")


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two result sets, and a cache of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, speed in (("a", 1.0), ("b", 1.5)):
        result_set(tmp_path / "sets" / name, small_study(), repeats=1, seconds=1, speed=speed, model=f"SSD {name}")
    return tmp_path / "sets"


def test_a_cached_summary_is_that_of_the_records(changing: Path) -> None:
    plain = index(changing)
    assert not Cache.of(changing).path.exists()
    assert index(changing, compact=True).summaries == plain.summaries
    table = next((changing / "a/records").iterdir()) / "histograms.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert index(changing, compact=True).summaries == plain.summaries  # It was verified when it was read.
    shutil.rmtree(Cache.of(changing).path)
    index(changing, compact=True)
    [file] = (Cache.of(changing).path / "summaries").iterdir()
    file.write_bytes(b"nothing")
    again = index(changing, compact=True)  # A damaged cache is built again.
    assert [each.path for each in again.summaries] == ["b"] and "SHA-256" in again.problems[0]


def test_what_has_changed_is_read_again(changing: Path) -> None:
    before = index(changing, compact=True)
    shutil.rmtree(next((changing / "a/records").iterdir()))
    shutil.rmtree(changing / "b")
    [after] = index(changing, compact=True).summaries
    assert after.path == "a"
    assert after.complete == next(each.complete for each in before.summaries if each.path == "a") - 1
    (changing / "a/report.html").write_text("a report")
    assert [each.report for each in index(changing, compact=True).summaries] == ["report.html"]


@pytest.mark.engine
def test_sql_over_a_library_has_every_run_once(iosonde: Iosonde, changing: Path) -> None:
    query = (
        "SELECT model, count(*) AS runs, round(avg(value)) AS iops FROM metrics JOIN result_sets USING (result_set) "
        "WHERE metric = 'iops' AND operation = 'all' GROUP BY model ORDER BY model"
    )
    first = answer(changing, query).rows
    values = [ResultSet.open(changing / name).metrics for name in "ab"]
    expected = [rows.filter(metric="iops", operation="all")["value"] for rows in values]
    assert first["model"].to_list() == ["SSD a", "SSD b"]
    assert first["runs"].to_list() == [len(each) for each in expected]
    assert first["iops"].to_list() == [pytest.approx(each.mean(), abs=1) for each in expected]
    shutil.rmtree(next((changing / "a/records").iterdir()))
    assert answer(changing, query).rows["runs"].to_list() == [len(expected[0]) - 1, len(expected[1])]
    done = iosonde(
        "sql", changing, "SELECT count(*) AS sets FROM result_sets", XDG_CACHE_HOME=os.environ["XDG_CACHE_HOME"]
    )
    assert done.stdout == "sets\n2\n", done.stderr
    with pytest.raises(ResultsError, match="is no result set and has none below it"):
        answer(changing.parent / "cache", "SELECT 1")
    with pytest.raises(ResultsError):
        answer(changing, "SELECT * FROM read_csv('/etc/passwd')")


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
