"""The index: what is found, what is skipped, and that its values are those of the result sets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from command_line import Iosonde
from fabricate import result_set, small_study

from iosonde.errors import ResultsError
from iosonde.findings.answer import trust_of
from iosonde.library import index
from iosonde.library.context import facts_of, wear_of
from iosonde.library.indexing import Index
from iosonde.library.page import link, render
from iosonde.library.write import require_outside
from iosonde.metrics.bulk import METRICS, bulk_metrics
from iosonde.metrics.metrics import run_metrics
from iosonde.regression.sessions import session_of
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


def test_result_sets_are_found_at_any_depth_links_are_not_followed_and_damage_is_named(
    root: Path, indexed: Index
) -> None:
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
    newest = first.model_copy(
        update={"started_at": "2027-01-01T00:00:00+00:00", "drives": [{"end": each} for each in ends]}
    )
    older = others[0].model_copy(update={"drives": [{"end": {"power_on_hours": 9999}}]})
    assert wear_of([newest, older, *others[1:]]) == (1200, 3)
    assert wear_of(others[1:]) == (None, None)


def test_headlines_are_the_best_medians_of_the_metrics_of_the_study(root: Path, indexed: Index) -> None:
    results = ResultSet.open(root / "a")
    medians = results.case_metrics.filter(~pl.col("control"), pl.col("operation") == "all")
    summary = next(each for each in indexed.summaries if each.path == "a")
    assert {each.metric for each in summary.headlines} >= {"iops", "completion_latency_ns_p99"}
    for headline in summary.headlines:
        values = medians.filter(pl.col("metric") == headline.metric)["median"]
        best = values.min() if "latency" in headline.metric else values.max()
        assert headline.value == pytest.approx(best)
    assert summary.headlines[0].case_id in summary.loads


def test_sessions_and_trust_are_those_of_the_regression_check_and_the_report(root: Path, indexed: Index) -> None:
    results = ResultSet.open(root / "a")
    summary = next(each for each in indexed.summaries if each.path == "a")
    expected = session_of(results, "").values
    assert {(each.case_id, each.metric): each.mean_log for each in summary.cells} == {
        key: pytest.approx(value.mean_log, rel=1e-12) for key, value in expected.items()
    }
    assert summary.trust == trust_of(results.metrics, results.runs).line


def test_metrics_read_in_bulk_are_those_of_run_metrics(root: Path) -> None:
    keys = ["run_id", "stream", "operation", "metric"]
    results = ResultSet.open_records(root / "a")
    expected = run_metrics(ResultSet.open(root / "a")).filter(pl.col("metric").is_in(METRICS)).sort(keys)
    found = bulk_metrics({"x": results}).sort(keys)
    assert len(found) > 100
    assert found.select(keys).equals(expected.select(keys))
    assert (found["value"] - expected["value"]).abs().max() == 0


@pytest.mark.engine
def test_many_result_sets_are_summarised_by_processes_with_the_same_outcome(
    root: Path, indexed: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("iosonde.library.indexing.ALONE", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parallel = index(root)
    assert parallel.summaries == indexed.summaries
    assert parallel.problems == indexed.problems
    cached = index(root)
    assert (cached.summaries, cached.problems) == (indexed.summaries, indexed.problems)


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
