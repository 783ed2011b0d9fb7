"""docs/paging.md lists the parameters that the code has."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from command_line import CHECKOUT

from iosonde.data import shipped
from iosonde.features.swap_areas.setup import SwapParameters
from iosonde.study.model import Analysis
from iosonde.units import compact_duration, compact_size
from iosonde.workload import named

pytestmark = pytest.mark.unit

PAGING = named("paging")
GUIDE = (CHECKOUT / "docs/paging.md").read_text()
STUDIES = (CHECKOUT / "docs/studies.md").read_text()


def test_the_table_of_parameters_is_that_of_the_code() -> None:
    for name, field in PAGING.parameters.model_fields.items():
        row = f"| `{name}` | {_default(name, field.get_default(call_default_factory=True))} | {field.description} |"
        assert row in GUIDE, name


def test_the_table_of_swap_is_that_of_the_code() -> None:
    for name, field in SwapParameters.model_fields.items():
        row = f"| `{name}` | {field.description} |"
        assert row in GUIDE, name
        assert row in STUDIES, name


def test_studies_that_it_names_exist() -> None:
    assert {"paging", "jo2024-swap"} <= set(shipped())


def test_its_analysis_can_be_read() -> None:
    for text in re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL):
        for each in tomllib.loads(text)["analysis"]:
            assert Analysis.model_validate(each).kind in ("fault_overhead", "mapped_reads")


def _default(name: str, value: Any) -> str:
    if value in (None, [], {}):
        return "-"
    if name in PAGING.sizes and isinstance(value, int):
        return f"`{compact_size(value)}`"
    if name in PAGING.durations and isinstance(value, int):
        return f"`{compact_duration(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"
