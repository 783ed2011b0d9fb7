"""The warning about swap of other processes, and runs whose own files may be swapped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import RunContext
from iosonde.features.swap_areas.area import AreaReading
from iosonde.features.swap_areas.instruments import SwapAreas

pytestmark = pytest.mark.unit

MIB = 1 << 20


def codes(parameters: dict[str, Any], *, used_bytes: int) -> list[str]:
    instrument = SwapAreas(cast("RunContext", SimpleNamespace(parameters=parameters)))
    found = AreaReading(kind="file", path="/a", size_bytes=512 * MIB, priority=1, used_bytes=used_bytes, others=[])
    instrument._area = cast("Any", SimpleNamespace(reading=lambda: found))
    return [each.code for each in instrument.stop(cast("EngineRun", None)).warnings]


def test_swap_that_remains_in_use_after_the_run_belongs_to_other_processes() -> None:
    assert codes({}, used_bytes=100 * MIB) == ["foreign_swap"]
    assert codes({}, used_bytes=MIB) == []


def test_swapped_files_of_a_database_in_memory_are_the_runs_own() -> None:
    assert codes({"in_memory": True}, used_bytes=100 * MIB) == []
