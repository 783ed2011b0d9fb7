from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loop_stacks import Loops


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Loops]:
    made = Loops(tmp_path)
    yield made
    made.close()
