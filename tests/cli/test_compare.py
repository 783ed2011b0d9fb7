from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Iosonde
from fabricate import result_set, small_study

from iosonde.cli.commands import compare


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drive, one that is 1.3 times as fast, another study, and nothing measured yet."""
    directory = tmp_path_factory.mktemp("sets")
    result_set(directory / "first", small_study(), seconds=1)
    result_set(directory / "second", small_study(), seconds=1, speed=1.3, seed=2)
    result_set(directory / "first-again", small_study(), seconds=1, seed=3)
    result_set(directory / "second-again", small_study(), seconds=1, speed=1.3, seed=4)
    result_set(directory / "other", small_study(name="another-study"), seconds=1, repeats=1)
    result_set(directory / "empty", small_study(), skipped=lambda run: True)
    return directory


def test_cases_are_matched_and_judged(iosonde: Iosonde, sets: Path) -> None:
    done = iosonde("compare", sets / "first", sets / "second")
    assert (done.returncode, done.stderr) == (0, "")
    head, first, *rest = [line.split() for line in done.stdout.splitlines()]
    assert head == ["Case", "Metric", "first", "second", "Ratio", "Verdict"]
    assert first == [
        "queue",
        "depth",
        "1",
        "Bandwidth",
        "55.1",
        "MB/s",
        "70.5",
        "MB/s",
        "1.282",
        "[1.186",
        "..",
        "1.385]",
        "better",
    ]
    assert sum(row[-1:] == ["better"] for row in [first, *rest]) == 16
    text = " ".join(done.stdout.split())
    assert "choose second: higher rate and shorter tail" in text
    assert "bandwidth 1.29 times, 95 % CI 1.20-1.40; p99 completion latency 0.78 times, 95 % CI 0.72-0.84" in text
    assert (
        "16 values compared at a false discovery rate of 5 %: 16 differ, of which 0.8 are expected to be false" in text
    )
    assert "a standard deviation of 2 % is assumed" in text
    assert "Bandwidth: second against first is better in 4 of 4 cases" in text


def test_further_sessions_of_both_systems_replace_the_assumed_variance(iosonde: Iosonde, sets: Path) -> None:
    """Two sessions each, given as options; one of another study is refused."""
    sessions = ["--baseline", sets / "first-again", "--contender", sets / "second-again"]
    done = iosonde("compare", sets / "first", sets / "second", *sessions, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    rows = [row for row in found["cells"] if row["metric"] == "bandwidth"]
    assert {(row["repeats_baseline"], row["repeats_contender"], row["verdict"]) for row in rows} == {(6, 6, "better")}
    assert [row["ratio"] for row in rows] == [pytest.approx(1.3, rel=0.06)] * 4
    text = iosonde("compare", sets / "first", sets / "second", *sessions).stdout
    assert "is assumed" not in text
    refused = iosonde("compare", sets / "first", sets / "second", "--baseline", sets / "other")
    assert refused.returncode == 1 and "another-study" in refused.stderr


def test_html_has_both_result_sets(iosonde: Iosonde, sets: Path, tmp_path: Path) -> None:
    done = iosonde("compare", sets / "first", sets / "second", "--html", tmp_path / "both.html")
    assert (done.returncode, done.stderr) == (0, f"{tmp_path}/both.html\n")
    page = (tmp_path / "both.html").read_text()
    assert "<li>Completion latency, p99: second against first is better in 4 of 4 cases</li>" in page
    assert "Comparison, case by case" in page


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ("other", "the first is of the study `fabricated`, the second of `another-study`"),
        ("empty", "both are of the study `fabricated`, but no case has a result in both"),
    ],
)
def test_what_cannot_be_compared_is_an_error(other: str, problem: str, iosonde: Iosonde, sets: Path) -> None:
    done = iosonde("compare", sets / "first", sets / other)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and problem in done.stderr


def test_a_narrow_terminal_has_a_heading_for_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ["random", "read, queue depth 1", "Bandwidth", "1.000 [0.962 .. 1.040]", "same"],
        ["random", "read, queue depth 1", "IOPS", "1.200 [1.190 .. 1.210]", "better"],
        ["random", "write, queue depth 1", "IOPS", "1.000 [0.990 .. 1.010]", "same"],
    ]
    compare._print_by_case(rows, labels=2)
    assert capsys.readouterr().out.splitlines() == [
        "random, read, queue depth 1",
        "  Bandwidth  1.000 [0.962 .. 1.040]  same",
        "  IOPS       1.200 [1.190 .. 1.210]  better",
        "random, write, queue depth 1",
        "  IOPS  1.000 [0.990 .. 1.010]  same",
    ]
