"""Purge of files: blocks that only the file system has freed are reported."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fills import fills
from mounted import LoopFileSystem

from iosonde.execution import execute
from iosonde.planning import expand
from iosonde.storage import open_target

pytestmark = [pytest.mark.system, pytest.mark.needs("root")]

SETTINGS = {"purge": "trim", "span": "4MiB", "io_mode": "buffered"}


def warnings(directory: Path, results: Path) -> list[str]:
    """Warnings about the purges of a study."""
    plan = expand(fills(50), open_target(str(directory)), settings=SETTINGS)
    records = execute(plan, results).records()
    assert {(record.outcome, record.failure) for record in records} == {("complete", None)}
    return [each.message for record in records for each in record.warnings if each.code == "not_discarded"]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A file system without FITRIM."""
    directory = tmp_path / "memory"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)


def test_blocks_that_were_discarded_have_no_warning(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    assert warnings(loop_file_system().directory, tmp_path / "set") == []


def test_blocks_that_were_not_discarded_have_a_warning(memory: Path, tmp_path: Path) -> None:
    assert warnings(memory, tmp_path / "set") == [
        "the purge freed the files' blocks but did not discard them on the device: FITRIM failed "
        "(Inappropriate ioctl for device)"
    ]
