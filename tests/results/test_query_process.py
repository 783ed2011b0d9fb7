"""Queries without end, and larger than the machine: limited in memory and temporary files, and stopped at any time."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from made_sets import measured
from plans import sign

from iosonde.errors import ResultsError
from iosonde.results import ResultSet, query, query_process

pytestmark = pytest.mark.engine

MAIN = [sys.executable, "-P", "-c", "from iosonde.cli import main; main()"]

WITHOUT_END = "SELECT count(*) FROM range(1000000000) AS a, range(1000000000) AS b"
LONG_CHUNK = "SELECT repeat('a', 1000000) FROM range(1000000)"
"""DuckDB does not look at interrupts while it computes a chunk, which takes minutes here."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("query") / "set")


def test_too_large_answers_and_temporary_files_are_errors(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It filled the directory of temporary files: 25 GB of them were found."""
    monkeypatch.setattr(query, "_MOST_TEMPORARY_BYTES", 1 << 20)
    with pytest.raises(ResultsError, match="query result exceeds 1 MiB"):
        ResultSet.open(directory).sql("SELECT range, hash(range) FROM range(1000000000000)")
    monkeypatch.setattr(query, "_MOST_MEMORY_BYTES", 64 << 20)
    with pytest.raises(ResultsError, match="max_temp_directory_size"):
        ResultSet.open(directory).sql("SELECT hash(range) AS h FROM range(100000000) ORDER BY h")


def test_memory_beyond_the_limit_ends_the_query(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_process, "MOST_MEMORY_BYTES", 300 << 20)
    with pytest.raises(ResultsError, match="needs more than 300 MiB of memory"):
        query_process.answer("SELECT range(100000000) FROM range(1000)", directory=directory)


def test_a_table_that_fills_the_memory_ends_the_command(directory: Path, tmp_path: Path) -> None:
    """768 MiB of text in a file of some KiB."""
    received = shutil.copytree(directory, tmp_path / "received")
    [record, *_] = sorted((received / "records").iterdir())
    rows = pl.read_parquet(record / "histograms.parquet").head(1)
    long = rows.with_columns(stream=pl.lit("a" * (16 << 20))).select(pl.all().repeat_by(48).explode())
    long.select(rows.columns).write_parquet(record / "histograms.parquet", compression="zstd")
    sign(record)
    assert (record / "histograms.parquet").stat().st_size < 1 << 20
    limited = "import iosonde.cli as cli; cli.available_bytes = lambda: 600 << 20; cli.main()"
    command = [sys.executable, "-P", "-c", limited, "report", str(received), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    problem = "error: the result sets need more than 450 MiB of memory"
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, problem)


@pytest.mark.parametrize(("text", "number"), [(WITHOUT_END, signal.SIGINT), (LONG_CHUNK, signal.SIGTERM)])
def test_a_signal_ends_a_query_and_its_files(
    text: str, number: signal.Signals, directory: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*MAIN, "sql", str(directory), text], env={**os.environ, "TMPDIR": str(tmp_path)}, process_group=0
    )
    try:
        child = _child_that_computes(process, tmp_path)
        process.send_signal(number)
        assert process.wait(300) == 130
    finally:
        process.kill()
        process.wait()
    assert list(tmp_path.iterdir()) == []
    assert not Path(f"/proc/{child}").exists()


def test_the_query_ends_with_a_killed_iosonde(directory: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*MAIN, "sql", str(directory), LONG_CHUNK], env={**os.environ, "TMPDIR": str(tmp_path)}, process_group=0
    )
    child = os.pidfd_open(_child_that_computes(process, tmp_path))
    try:
        process.kill()
        process.wait()
        readable, _, _ = select.select([child], [], [], 60)
        assert readable, "it still runs"
    finally:
        os.close(child)


@pytest.mark.parametrize("command", [["sql", ".", "SELECT 1"], ["library", "."]], ids=["sql", "library"])
def test_nothing_is_imported_from_the_working_directory(command: list[str], directory: Path, tmp_path: Path) -> None:
    """`python -m` imports from there first, so a directory from somebody else ran code when its index was built."""
    for number in range(3):
        shutil.copytree(directory, tmp_path / f"set{number}")
    place = tmp_path / "set0" if command[0] == "sql" else tmp_path
    for name in ("polars", "iosonde", "json"):
        (place / f"{name}.py").write_text("import os; os.mkdir('executed')")
    several = (
        "import iosonde.collections.library.indexing as each; each.ALONE = 1; from iosonde.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", several, *command], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (place / "executed").exists()


def _child_that_computes(process: subprocess.Popen[bytes], temporary: Path) -> int:
    """The process number of the query, once it has connected."""
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children and any(temporary.glob("iosonde-*/iosonde-*")):
            return int(children[0])
        time.sleep(0.01)
    raise AssertionError(f"it exited with {process.returncode}")
