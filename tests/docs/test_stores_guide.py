"""docs/stores.md lists the phases and parameters that the code has."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from command_line import CHECKOUT

from iosonde.data import shipped
from iosonde.features.key_value_stores.fields import STORES
from iosonde.features.key_value_stores.phases import PHASES
from iosonde.features.key_value_stores.workload import KV
from iosonde.units import compact_duration, compact_size

GUIDE = (CHECKOUT / "docs/stores.md").read_text()


def test_the_table_of_parameters_is_that_of_the_code() -> None:
    for name, field in KV.parameters.model_fields.items():
        row = f"| `{name}` | {_default(name, field.get_default(call_default_factory=True))} | {field.description} |"
        assert row in GUIDE, name


def test_the_table_of_phases_is_that_of_the_code() -> None:
    for name, meaning in PHASES.items():
        row = f"| `{name}` | `{meaning.operations}` | `{meaning.choice or 'as load_order'}` | {meaning.text} |"
        assert row in GUIDE, name


def test_studies_and_stores_that_it_names_exist() -> None:
    studies = set(re.findall(r"^\| `([a-z0-9]+(?:-[a-z0-9]+)?)` \| [^|]+ \|$", GUIDE, re.MULTILINE))
    assert {"symas2018", "han2021-dbbench", "ycsb", "log-device"} <= studies & set(shipped())
    assert all(f"| `{store}` |" in GUIDE for store in STORES)


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL))
def test_its_pieces_of_toml_are_parameters(text: str) -> None:
    for name, value in tomllib.loads(text)["measurement"].items():
        KV.read_value(name, value)


def _default(name: str, value: Any) -> str:
    if value in (None, [], {}):
        return "-"
    if name in KV.sizes and isinstance(value, int):
        return f"`{compact_size(value)}`"
    if name in KV.durations and isinstance(value, int):
        return f"`{compact_duration(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"
