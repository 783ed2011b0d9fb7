"""docs/databases.md lists the parameters, studies and failures that the code has."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from command_line import CHECKOUT

from iosonde import servers
from iosonde.data import shipped
from iosonde.units import compact_duration, compact_size
from iosonde.workload import named

GUIDE = (CHECKOUT / "docs/databases.md").read_text()


@pytest.mark.parametrize("name", ["tpcc", "commit"])
def test_the_tables_of_parameters_are_those_of_the_code(name: str) -> None:
    workload = named(name)
    for name, field in workload.parameters.model_fields.items():
        default = _default(workload, name, field.get_default(call_default_factory=True))
        assert f"| `{name}` | {default} | {field.description} |" in GUIDE, name


def test_studies_and_servers_that_it_names_exist() -> None:
    studies = set(re.findall(r"^\| `([a-z0-9-]+)` \| [^|]+ \|$", GUIDE, re.MULTILINE))
    assert {"oltp", "han2021-tpcc", "jo2024-postgresql", "jo2024-postgresql-log"} <= studies & set(shipped())
    assert {"commit-latency", "durability"} <= studies & set(shipped())
    assert all(f"| `{name}` | " in GUIDE for name in servers.NAMES)


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL))
def test_its_pieces_of_toml_are_parameters(text: str) -> None:
    for name, value in tomllib.loads(text)["measurement"].items():
        named("tpcc").read_value(name, value)


def _default(workload: Any, name: str, value: Any) -> str:
    if value in (None, [], {}):
        return "-"
    if name in workload.sizes and isinstance(value, int):
        return f"`{compact_size(value)}`"
    if name in workload.durations and isinstance(value, int):
        return f"`{compact_duration(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"
