from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest
from plans import a_record, hand_plan, tables
from typer.testing import CliRunner

from iosonde.cli import app
from iosonde.errors import ResultsError
from iosonde.results import ResultSet
from iosonde.results.export import failure_text


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    result_set = ResultSet.create(tmp_path / "set", hand_plan())
    with result_set.lock():
        run = result_set.plan.runs[0]
        result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
    monkeypatch.chdir(tmp_path)
    return result_set.directory


def test_written_files_are_listed(directory: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(directory), "--format", "csv"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "set-csv/cases.csv"
    assert done.stdout.splitlines()[-1] == "set-csv/README.md"
    assert pl.read_csv("set-csv/runs.csv")["run_id"].to_list() == ["c0001-r1"]
    assert sorted(map(str, Path("set-csv").iterdir())) == sorted(done.stdout.splitlines())


def test_a_directory_that_is_not_empty_is_refused(directory: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(directory), "--format", "json", "--output", str(directory)])
    assert isinstance(done.exception, ResultsError)


def test_a_full_disk_is_named_without_the_json_of_duckdb() -> None:
    text = (
        'IO Error: Async write failed for range [offset=4043, size=543]: {"exception_type":"IO","exception_message":'
        '"Could not write file \\"/mnt/full/.tmp-runs.csv\\": No space left on device","errno":"28"}'
    )
    expected = "Could not write file `/mnt/full/.tmp-runs.csv`: No space left on device"
    assert failure_text(duckdb.IOException(text)) == expected
    assert failure_text(duckdb.IOException("IO Error: no such place\nmore")) == "IO Error: no such place"


@pytest.mark.parametrize(("format", "suffix"), [("fio-json", "json"), ("hdr", "hlog")])
def test_formats_of_other_tools_have_one_file_a_run(directory: Path, format: str, suffix: str) -> None:
    done = CliRunner().invoke(app, ["export", str(directory), "--format", format])
    assert done.stdout.splitlines() == [f"set-{format}/c0001-r1.{suffix}", f"set-{format}/README.md"]
