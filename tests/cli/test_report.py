"""`report`, `export` and `sql` on a recorded result set."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import polars as pl
import pytest
from command_line import Iosonde
from inline_snapshot import snapshot
from recordings import recorded

from iosonde.results import ResultSet
from iosonde.results.export import failure_text

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


def test_markdown_and_figures_are_written_to_the_given_path(
    iosonde: Iosonde, with_figure: Path, tmp_path: Path
) -> None:
    done = iosonde("report", with_figure, "--format", "md", "--output", tmp_path / "new" / "report.md")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/new/report.md\n", "")
    figures = list((tmp_path / "new" / "figures").glob("*.svg"))
    written = iosonde("report", with_figure, "--figures", "pdf", "--output", tmp_path / "figures").stdout.splitlines()
    assert len(written) == len(figures) > 0
    assert all(Path(line).read_bytes().startswith(b"%PDF") for line in written)


def test_several_result_sets_make_one_report(iosonde: Iosonde, first: Path, tmp_path: Path) -> None:
    second = recorded("arms", tmp_path / "second").directory
    assert iosonde("report", first, second, "-o", tmp_path / "both.html").returncode == 0
    page = (tmp_path / "both.html").read_text()
    assert "Reads and writes" in page and "Seeded" in page


def test_another_format_is_refused_with_those_there_are(iosonde: Iosonde, first: Path) -> None:
    refused = iosonde("report", first, "--format", "pdf")
    assert refused.returncode == 2
    assert "'pdf' is not one of 'html', 'md'" in refused.stderr


@pytest.mark.parametrize("command", [("report",), ("resume",), ("export", "--format", "csv"), ("compare",)])
def test_a_directory_that_is_no_result_set_is_named(command: tuple[str, ...], iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde(command[0], tmp_path, *command[1:])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: `{tmp_path}` is not a result set\n")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--output",), "the report"),
        (("--format", "md", "--output"), "the report"),
        (("--figures", "svg", "--output"), "the figures"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(
    iosonde: Iosonde, with_figure: Path, arguments: tuple[str, ...], what: str
) -> None:
    file = with_figure / "plan.json"
    done = iosonde("report", with_figure, *arguments, file / "new")
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


def test_a_full_disk_is_named_without_the_json_of_duckdb() -> None:
    text = (
        'IO Error: Async write failed for range [offset=4043, size=543]: {"exception_type":"IO","exception_message":'
        '"Could not write file \\"/mnt/full/.tmp-runs.csv\\": No space left on device","errno":"28"}'
    )
    expected = "Could not write file `/mnt/full/.tmp-runs.csv`: No space left on device"
    assert failure_text(duckdb.IOException(text)) == expected
    assert failure_text(duckdb.IOException("IO Error: no such place\nmore")) == "IO Error: no such place"


def test_sql_prints_csv_json_or_a_table(iosonde: Iosonde, first: Path) -> None:
    assert iosonde("sql", first, QUERY).stdout == "run_id,queue_depth,failure\nc0001-r1,1,\nc0001-r2,1,\n"
    rows = [{"run_id": run_id, "queue_depth": 1, "failure": None} for run_id in ("c0001-r1", "c0001-r2")]
    assert json.loads(iosonde("sql", first, QUERY, "--format", "json").stdout) == rows
    assert iosonde("sql", first, QUERY, "--format", "table").stdout == snapshot("""\
run_id     queue_depth   failure
────────────────────────────────
c0001-r1             1   -
c0001-r2             1   -
""")
    done = iosonde("sql", first, "DELETE FROM runs")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_result_set_is_queried_while_it_is_written_and_damaged_files_are_named(
    iosonde: Iosonde, tmp_path: Path
) -> None:
    result_set = recorded("arms", tmp_path / "set")
    path = result_set.directory / "records/c0001-r1/record.json"
    path.write_text("{")
    with ResultSet.open(result_set.directory).lock():
        done = iosonde("sql", result_set.directory, "SELECT count(*) AS n FROM runs")
    assert done.stdout == "n\n7\n"
    assert done.stderr.startswith(f"warning: `{path}` was modified after it was written: ")
