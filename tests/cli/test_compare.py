from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Iosonde
from fabricate import result_set, small_study
from inline_snapshot import snapshot

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
    assert "\n".join(line.rstrip() for line in done.stdout.splitlines()) == snapshot("""\
Case            Metric                         first     second                   Ratio  Verdict
queue depth 1   Bandwidth                  55.1 MB/s  70.5 MB/s  1.282 [1.186 .. 1.385]  better
queue depth 1   Completion latency, p50      67.1 µs    52.6 µs  0.781 [0.723 .. 0.844]  better
queue depth 1   Completion latency, p99       173 µs     135 µs  0.783 [0.725 .. 0.846]  better
queue depth 1   Completion latency, p99.9     218 µs     171 µs  0.785 [0.726 .. 0.848]  better
queue depth 4   Bandwidth                   216 MB/s   281 MB/s  1.283 [1.182 .. 1.393]  better
queue depth 4   Completion latency, p50      68.8 µs      53 µs  0.780 [0.718 .. 0.846]  better
queue depth 4   Completion latency, p99       182 µs     141 µs  0.783 [0.722 .. 0.849]  better
queue depth 4   Completion latency, p99.9     237 µs     185 µs  0.786 [0.725 .. 0.852]  better
queue depth 16  Bandwidth                   874 MB/s  1.16 GB/s  1.316 [1.212 .. 1.429]  better
queue depth 16  Completion latency, p50      68.2 µs    51.5 µs  0.760 [0.700 .. 0.826]  better
queue depth 16  Completion latency, p99       181 µs     136 µs  0.760 [0.700 .. 0.826]  better
queue depth 16  Completion latency, p99.9     246 µs     186 µs  0.760 [0.700 .. 0.825]  better
queue depth 64  Bandwidth                  1.33 GB/s  1.73 GB/s  1.292 [1.196 .. 1.395]  better
queue depth 64  Completion latency, p50       180 µs     138 µs  0.774 [0.716 .. 0.836]  better
queue depth 64  Completion latency, p99       476 µs     365 µs  0.774 [0.717 .. 0.837]  better
queue depth 64  Completion latency, p99.9     649 µs     502 µs  0.783 [0.725 .. 0.846]  better

4 KiB 70/30 reads and writes: choose second: higher rate and shorter tail (second over first: bandwidth 1.29 times, 95 %
CI 1.20-1.40; p99 completion latency 0.78 times, 95 % CI 0.72-0.84; 4 cases, 3 runs each)
16 values compared at a false discovery rate of 5 %: 16 differ, of which 0.8 are expected to be false
One session each: repeats within a session cannot show how much sessions differ; a standard deviation of 2 % is assumed
Bandwidth: second against first is better in 4 of 4 cases
Completion latency, p50: second against first is better in 4 of 4 cases
Completion latency, p99: second against first is better in 4 of 4 cases
Completion latency, p99.9: second against first is better in 4 of 4 cases\
""")


def test_a_result_set_is_the_same_as_itself(iosonde: Iosonde, sets: Path) -> None:
    done = iosonde("compare", sets / "first", sets / "first")
    assert done.returncode == 0
    assert "better" not in done.stdout and "worse" not in done.stdout


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


def test_different_studies_cannot_be_compared(iosonde: Iosonde, sets: Path) -> None:
    done = iosonde("compare", sets / "first", sets / "other")
    assert done.returncode == 1
    assert done.stderr.replace(str(sets), "DIR") == snapshot("""\
error: cannot compare `DIR/first` with `DIR/other`
  the first is of the study `fabricated`, the second of `another-study`

hint: run the same study on both targets, or report both side by side with `iosonde report DIR DIR`
""")


def test_two_result_sets_without_a_common_case_are_an_error(iosonde: Iosonde, sets: Path) -> None:
    done = iosonde("compare", sets / "first", sets / "empty")
    assert done.returncode == 1
    assert done.stderr.replace(str(sets), "DIR") == snapshot("""\
error: `DIR/first` and `DIR/empty` have no case in common
  both are of the study `fabricated`, but no case has a result in both

hint: run the study with the same factors on both targets, or `iosonde report` them side by side
""")


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
