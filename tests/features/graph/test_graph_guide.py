"""docs/graph.md lists the parameters that the code has."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from command_line import CHECKOUT

from iosonde.data import shipped
from iosonde.study.model import Analysis
from iosonde.units import compact_duration, compact_size
from iosonde.workload import named

pytestmark = pytest.mark.unit

GRAPH = named("graph")
GUIDE = (CHECKOUT / "docs/graph.md").read_text()


def test_the_table_of_parameters_is_that_of_the_code() -> None:
    for name, field in GRAPH.parameters.model_fields.items():
        row = f"| `{name}` | {_default(name, field.get_default(call_default_factory=True))} | {field.description} |"
        assert row in GUIDE, name


def test_its_study_exists_and_its_analysis_can_be_read() -> None:
    assert "jo2024-pagerank" in GUIDE
    assert "jo2024-pagerank" in shipped()
    [text] = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    [each] = tomllib.loads(text)["analysis"]
    assert Analysis.model_validate(each).kind == "device_share"


def _default(name: str, value: Any) -> str:
    if value in (None, [], {}):
        return "-"
    if name in GRAPH.sizes and isinstance(value, int):
        return f"`{compact_size(value)}`"
    if name in GRAPH.durations and isinstance(value, int):
        return f"`{compact_duration(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"
