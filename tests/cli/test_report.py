"""`report`, `export`, `sql` and `compare` on result sets, in every locale; outputs go to files and pipes, never to a device."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
from pathlib import Path

import polars as pl
import pytest
from command_line import Iosonde
from fabricate import plan, result_set, small_study
from loop_stacks import loop_devices
from recordings import recorded

from iosonde.results import ResultSet
from iosonde.results.schema import RecordVerdict

QUERY = "SELECT run_id, queue_depth, failure FROM runs ORDER BY run_id LIMIT 2"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("seeded", tmp_path_factory.mktemp("sets") / "set").directory


@pytest.fixture(scope="module")
def with_figure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("store", tmp_path_factory.mktemp("sets") / "set").directory


def test_a_report_is_written_into_the_result_set_by_default(iosonde: Iosonde, first: Path) -> None:
    done = iosonde("report", first)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{first}/report.html\n", "")
    assert (first / "report.html").read_text().startswith("<!doctype html>")


def test_the_watch_of_memory_ends_with_the_command(iosonde: Iosonde, first: Path) -> None:
    """It remained, and looked twenty times a second: 500 threads in a process that had called the command line so often."""
    before = set(threading.enumerate())
    assert iosonde("report", first).returncode == 0
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_markdown_and_figures_are_written_to_a_given_path(iosonde: Iosonde, with_figure: Path, tmp_path: Path) -> None:
    done = iosonde("report", with_figure, "--format", "md", "--output", tmp_path / "new" / "report.md")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/new/report.md\n", "")
    figures = list((tmp_path / "new" / "figures").glob("*.svg"))
    written = iosonde("report", with_figure, "--figures", "pdf", "--output", tmp_path / "figures").stdout.splitlines()
    assert len(written) == len(figures) > 0
    assert all(Path(line).read_bytes().startswith(b"%PDF") for line in written)


@pytest.mark.parametrize("command", [("report",), ("resume",), ("export", "--format", "csv"), ("compare",)])
def test_a_directory_that_is_no_result_set_is_named(command: tuple[str, ...], iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde(command[0], tmp_path, *command[1:])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: `{tmp_path}` is not a result set\n")


def test_a_place_that_cannot_be_written_is_named(iosonde: Iosonde, with_figure: Path) -> None:
    file = with_figure / "plan.json"
    for arguments, what in ((("--format", "md"), "the report"), (("--figures", "svg"), "the figures")):
        done = iosonde("report", with_figure, *arguments, "--output", file / "new")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: cannot write {what} `{file}/new`: ")
        assert done.stderr.splitlines()[-1] == "hint: name another place with `--output`"


def test_an_export_lists_what_it_writes(iosonde: Iosonde, first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(first.parent)
    done = iosonde("export", first, "--format", "csv")
    assert done.stdout.splitlines()[0] == "set-csv/cases.csv"
    assert done.stdout.splitlines()[-1] == "set-csv/README.md"
    assert len(pl.read_csv("set-csv/runs.csv")) == 12
    assert sorted(map(str, Path("set-csv").iterdir())) == sorted(done.stdout.splitlines())
    assert "is not empty" in iosonde("export", first, "--format", "json", "--output", first).stderr
    for format, suffix in (("fio-json", "json"), ("hdr", "hlog")):
        done = iosonde("export", first, "--format", format)
        assert f"set-{format}/c0001-r1.{suffix}" in done.stdout.splitlines()
        assert len(done.stdout.splitlines()) == 13, "a file a run, and README.md"


def test_sql_prints_csv_json_or_a_table(iosonde: Iosonde, first: Path) -> None:
    assert iosonde("sql", first, QUERY).stdout == "run_id,queue_depth,failure\nc0001-r1,1,\nc0001-r2,1,\n"
    rows = [{"run_id": run_id, "queue_depth": 1, "failure": None} for run_id in ("c0001-r1", "c0001-r2")]
    assert json.loads(iosonde("sql", first, QUERY, "--format", "json").stdout) == rows
    lines = iosonde("sql", first, QUERY, "--format", "table").stdout.splitlines()
    assert lines[0].split() == ["run_id", "queue_depth", "failure"]
    assert [line.split() for line in lines[2:]] == [["c0001-r1", "1", "-"], ["c0001-r2", "1", "-"]]
    fractions = "SELECT 1e6::DOUBLE / 3 AS a, 2::DOUBLE / 3 AS b, 799948800::DOUBLE AS c, 1e300::DOUBLE AS d"
    shown = iosonde("sql", first, fractions, "--format", "table").stdout.splitlines()[-1]
    assert shown.split() == ["333333", "0.666667", "799948800", "1e+300"], "for people"
    assert iosonde("sql", first, fractions).stdout.splitlines()[1].startswith("333333.3333333333,0.666666666"), (
        "in full"
    )
    done = iosonde("sql", first, "DELETE FROM runs")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_result_set_that_is_being_written_is_queried_and_damage_is_named(iosonde: Iosonde, tmp_path: Path) -> None:
    result_set = recorded("arms", tmp_path / "set")
    path = result_set.directory / "records/c0001-r1/record.json"
    path.write_text("{")
    with ResultSet.open(result_set.directory).lock():
        done = iosonde("sql", result_set.directory, "SELECT count(*) AS n FROM runs")
    assert done.stdout == "n\n7\n"
    assert done.stderr.startswith(f"warning: `{path}` was modified after it was written: ")


DURATION = ("--duration", "200ms", "--ramp", "0s", "--set", "interval=100ms")


@pytest.mark.needs("localedef", "charmaps")
@pytest.mark.parametrize(("language", "charmap"), [("ja_JP", "EUC-JP"), ("C", "")])
def test_reports_are_in_utf_8_in_any_locale(
    language: str, charmap: str, tmp_path: Path, iosonde_process: Iosonde
) -> None:
    locale = f"{language}.{charmap}" if charmap else language
    if charmap:
        subprocess.run(["localedef", "-i", language, "-f", charmap, tmp_path / locale], check=True)
    # Without these Python would use UTF-8 in the locale `C`, as on most machines.
    # The terminal's encoding is not what is tested.
    own = {"LC_ALL": locale, "LOCPATH": str(tmp_path), "PYTHONIOENCODING": "utf-8"}
    plain = own | {"PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    name = "here.md" if charmap else "here.html"
    recorded("arms", tmp_path / "set")
    done = iosonde_process("report", tmp_path / "set", "--output", tmp_path / name, **plain)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / name).read_text(encoding="utf-8")
    assert "µs" in page and "Âµ" not in page
    if not charmap:
        done = iosonde_process("io", "--target", "sim:pm963", *DURATION, **plain)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr


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
    assert " ".join(first) == "queue depth 1 Bandwidth 55.1 MB/s 70.5 MB/s 1.282 [1.186 .. 1.385] better"
    assert sum(row[-1:] == ["better"] for row in [first, *rest]) == 16
    text = " ".join(done.stdout.split())
    assert "choose second: higher rate and shorter tail" in text
    assert "16 values compared one by one at a false discovery rate of 5 %: 16 differ" in text
    assert "a standard deviation of 2 % is assumed" in text
    html = iosonde("compare", sets / "first", sets / "second", "--html", sets / "both.html")
    assert (html.returncode, html.stderr) == (0, f"{sets}/both.html\n")
    assert "second against first: bandwidth better in 4 of 4 cases" in (sets / "both.html").read_text()


def test_a_recommendation_of_means_says_so_where_no_case_differs_by_itself(iosonde: Iosonde, tmp_path: Path) -> None:
    result_set(tmp_path / "first", small_study(), seconds=1, calm=6)
    result_set(tmp_path / "second", small_study(), seconds=1, calm=6, speed=1.2, seed=2)
    result_set(tmp_path / "equal", small_study(), seconds=1, calm=6, seed=3)
    faster, equal = (
        " ".join(iosonde("compare", tmp_path / "first", tmp_path / name).stdout.split()) for name in ("second", "equal")
    )
    none = "16 values compared one by one at a false discovery rate of 5 %: none differs"
    assert "choose second: higher rate and shorter tail" in faster
    assert f"{none} by itself; the recommendation compares means over all cases of a workload" in faster
    assert none in equal and "none differs by itself" not in equal


def test_runs_that_the_harness_limited_and_something_disturbed_decide_nothing(iosonde: Iosonde, tmp_path: Path) -> None:
    limited = RecordVerdict(kind="harness-limited", because=["a job used all of its core"], evidence={})
    for seed, (name, speed) in enumerate((("first", 1.0), ("second", 1.3))):
        facts = {"speed": speed, "seed": seed, "disturbed": True}
        result_set(tmp_path / name, small_study(), seconds=1, verdict=lambda _: limited, **facts)
    text = " ".join(iosonde("compare", tmp_path / "first", tmp_path / "second").stdout.split())
    assert "0 of 16 values compared" in text and "choose second" not in text
    assert "Excluded: 16 values of 4 cases: all contender runs are harness-limited and undetermined" in text


def test_a_slower_target_that_the_harness_limited_is_excluded_and_a_faster_one_bounds_the_ratio(
    iosonde: Iosonde, tmp_path: Path
) -> None:
    limited = RecordVerdict(kind="harness-limited", because=["a job used all of its core"], evidence={})
    for seed, (name, speed) in enumerate((("slow", 1.0), ("fast", 1.5))):
        planned = plan(small_study(), target=f"/mnt/{name}")
        for which, verdict in (("measured", None), ("limited", limited)):
            directory = tmp_path / f"{which}-{name}"
            result_set(directory, planned, seconds=1, speed=speed, seed=seed, verdict=lambda _, v=verdict: v)
    upper = " ".join(iosonde("compare", tmp_path / "limited-slow", tmp_path / "measured-fast").stdout.split())
    assert "0 of 16 values compared" in upper and "choose" not in upper
    assert "Excluded: 16 values of 4 cases: the baseline is slower, but harness-limited" in upper
    done = iosonde("compare", tmp_path / "measured-slow", tmp_path / "limited-fast", "--html", tmp_path / "both.html")
    lower = " ".join(done.stdout.split())
    assert "choose limited-fast: higher rate" in lower and ": bandwidth at least 1.5" in lower
    assert "Excluded" not in lower and "at least 1.5" in (tmp_path / "both.html").read_text()


def test_further_sessions_of_both_systems_replace_the_assumed_variance(iosonde: Iosonde, sets: Path) -> None:
    sessions = ["--baseline", sets / "first-again", "--contender", sets / "second-again"]
    done = iosonde("compare", sets / "first", sets / "second", *sessions, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    rows = [row for row in found["cells"] if row["metric"] == "bandwidth"]
    assert {(row["repeats_baseline"], row["repeats_contender"], row["verdict"]) for row in rows} == {(6, 6, "better")}
    assert [row["ratio"] for row in rows] == [pytest.approx(1.3, rel=0.06)] * 4
    text = iosonde("compare", sets / "first", sets / "second", *sessions).stdout
    assert "is assumed" not in text
    for refused, problem in (
        (iosonde("compare", sets / "first", sets / "second", "--baseline", sets / "other"), "another-study"),
        (iosonde("compare", sets / "first", sets / "other"), "the second of `another-study`"),
        (iosonde("compare", sets / "first", sets / "empty"), "no case has a result in both"),
        (iosonde("compare", sets / "first", f"{sets}/./first"), "is both baseline and contender"),
        (iosonde("compare", sets / "first", sets / "second", "--baseline", sets / "first"), "was given twice"),
    ):
        assert refused.returncode == 1 and problem in refused.stderr


MIB = 1 << 20


@pytest.fixture(scope="module")
def fabricated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result_set(tmp_path_factory.mktemp("sets") / "set", small_study(), seconds=1).directory


COMMANDS = (
    ("report", "{set}", "--output"),
    ("report", "{set}", "--format", "md", "--output"),
    ("library", "{set}/..", "--output"),
    ("history", "{set}/..", "--output"),
    ("check", "{set}", "--baseline", "{other}", "--junit"),
    ("check", "{set}", "--baseline", "{other}", "--markdown"),
)


@pytest.mark.system
@pytest.mark.needs("root", "loop devices")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_block_device_is_no_output(
    command: tuple[str, ...], fabricated: Path, tmp_path: Path, iosonde: Iosonde, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = result_set(tmp_path / "other", small_study(), seconds=1).directory if "check" in command else ""
    with loop_devices(tmp_path, 8 * MIB) as [device]:
        content = b"years of work".ljust(8 * MIB, b"x")
        device.write_bytes(content)
        (tmp_path / "link").symlink_to(device)
        for name in (device, tmp_path / "link"):
            done = iosonde(*(each.format(set=fabricated, other=other) for each in command), name)
            assert done.returncode == (2 if "check" in command else 1)
            assert f"`{name}`: it is a block device" in done.stderr
        assert device.read_bytes() == content


@pytest.mark.parametrize("command", ["library", "history"])
def test_a_page_replaces_no_file_of_another_program(command: str, tmp_path: Path, iosonde: Iosonde) -> None:
    result_set(tmp_path / "set", small_study(), seconds=1)
    page = tmp_path / f"{command}.html"
    page.write_text("<title>My books</title>")
    done = iosonde(command, tmp_path)
    assert done.returncode == 1
    assert f"`{page}` already exists and was not written by iosonde" in done.stderr
    assert page.read_text() == "<title>My books</title>"
    page.unlink()
    for _ in range(2):
        assert iosonde(command, tmp_path).returncode == 0
    assert 'content="iosonde"' in page.read_text()


def test_a_pipe_and_a_link_are_outputs(fabricated: Path, tmp_path: Path, iosonde: Iosonde) -> None:
    (tmp_path / "page").write_text("longer than the page" * 100_000)
    (tmp_path / "link").symlink_to(tmp_path / "page")
    assert iosonde("report", fabricated, "--output", tmp_path / "link").returncode == 0
    assert (tmp_path / "page").read_text().rstrip().endswith("</html>")
    assert (tmp_path / "link").is_symlink()
    pipe, end = os.pipe()
    with os.fdopen(pipe, "rb") as reading, os.fdopen(end, "wb"):
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, MIB)
        done = iosonde("library", fabricated.parent, "--output", f"/dev/fd/{end}")
        assert done.returncode == 0, done.stderr
        assert reading.read(15) == b"<!doctype html>"
