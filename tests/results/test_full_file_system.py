"""A file system without space for the records: an error that names it, and nothing lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Iosonde
from made_sets import measured
from plans import a_record, hand_plan, tables

from iosonde.errors import ResultsError
from iosonde.results import ResultSet

pytestmark = [pytest.mark.system, pytest.mark.needs("root", "mount", "umount")]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)


def fill(directory: Path) -> None:
    """Use the remaining space."""
    with (directory / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 4096)
        except OSError:
            pass


def test_a_result_set_is_not_created_without_space(small: Path) -> None:
    fill(small)
    with pytest.raises(ResultsError, match=r"cannot create the result set .*: No space left on device"):
        ResultSet.create(small / "set", hand_plan())


def test_a_record_without_space_is_an_error_and_earlier_ones_are_kept(small: Path) -> None:
    directory = measured(small / "set")
    result_set = ResultSet.open(directory)
    run = result_set.plan.runs[0].model_copy(update={"run_id": "c0001-r9"})
    with pytest.raises(ResultsError, match="cannot write the record"), result_set.lock():
        fill(small)
        assert result_set._writable
        result_set._writable.reserve.release()
        fill(small)
        result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
    assert len(ResultSet.open(directory).records()) == 4


def test_run_and_resume_without_space_print_an_error_and_no_traceback(small: Path, iosonde: Iosonde) -> None:
    directory = measured(small / "set")
    fill(small)
    for arguments in (
        ("resume", directory, "--retry-failed", "--no-report"),
        ("run", "quick", "--target", "null:1TiB", "--output", small / "other", "--no-report"),
        ("report", directory),
        ("export", directory, "--format", "csv", "--output", small / "export"),
    ):
        done = iosonde(*arguments)
        assert "Traceback" not in done.stderr, arguments
        assert done.returncode != 0, (arguments, done.stderr)
        assert "o space left" in done.stderr, (arguments, done.stderr)
