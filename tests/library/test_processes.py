"""Result sets are summarised by several processes at the same time."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from iosonde.library import indexing

pytestmark = pytest.mark.engine

PRINTS_MUCH_AND_WAITS = """
import json, pathlib, sys, time
root, directories, _ = json.load(sys.stdin)
for directory in directories:
    print(json.dumps([None, directory + "x" * 1_000_000]), flush=True)
pathlib.Path(root, f"printed-{len(directories)}").touch()
deadline = time.monotonic() + 300
while len(list(pathlib.Path(root).glob("printed-*"))) < 2:
    if time.monotonic() > deadline:
        sys.exit(1)
    time.sleep(0.01)
"""


def test_no_process_waits_until_the_output_of_another_was_read(tmp_path: Path) -> None:
    """Each prints more than a pipe holds, and ends once both have printed everything."""
    directories = [tmp_path / name for name in ("a", "b", "c")]
    with patch.object(indexing, "module_command", return_value=[sys.executable, "-c", PRINTS_MUCH_AND_WAITS]):
        found = list(indexing._by_processes(tmp_path, directories, None, 2))
    assert sorted(Path(problem.rstrip("x")).name for _, problem in found) == ["a", "b", "c"]
    assert all(summary is None for summary, _ in found)
