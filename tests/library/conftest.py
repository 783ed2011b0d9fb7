"""Result sets of libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabricate import plan, result_set, small_study


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two result sets of the same plan, as of two hosts: records differ."""
    root = tmp_path_factory.mktemp("made")
    planned = plan(small_study(), repeats=1)
    result_set(root / "host-a/results", planned, seconds=1)
    result_set(root / "host-b/results", planned, seconds=1, seed=2)
    return root
