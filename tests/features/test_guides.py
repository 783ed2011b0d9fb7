"""Guides of features list the parameters, studies, analyses and failures that the code has."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from command_line import CHECKOUT
from parameter_texts import descriptions

from iosonde.data import adapters, shipped
from iosonde.features.external_commands.workload import AT_START
from iosonde.features.swap_areas.setup import SwapParameters
from iosonde.planning import load
from iosonde.study import servers
from iosonde.study.model import Analysis
from iosonde.study.workload import named
from iosonde.units import compact_duration, compact_size

pytestmark = pytest.mark.unit

GUIDES = {
    name: (CHECKOUT / f"docs/{name}.md").read_text()
    for name in ("ai", "databases", "graph", "paging", "commands", "studies")
}
STUDIES = {
    "databases": {
        *("oltp", "han2021-tpcc", "jo2024-postgresql", "jo2024-postgresql-log", "commit-latency", "durability"),
    },
    "ai": {"ai-weights", "ai-kv-cache", "ai-vector", "ai-ingest"},
    "graph": {"jo2024-pagerank"},
    "paging": {"paging", "jo2024-swap"},
    "commands": set(adapters()),
}


def pieces(guide: str) -> list[dict[str, Any]]:
    """Its examples of TOML."""
    return [tomllib.loads(text) for text in re.findall(r"^```toml\n(.*?)^```", GUIDES[guide], re.MULTILINE | re.DOTALL)]


def default_text(workload: Any, name: str) -> str:
    value = workload.parameters.model_fields[name].get_default(call_default_factory=True)
    if workload.name == "command":
        return "`none`" if value is None else f"`{shown(workload, name, value)}`"
    return "-" if value in (None, [], {}) else f"`{shown(workload, name, value)}`"


def shown(workload: Any, name: str, value: Any) -> str:
    if name in workload.durations and isinstance(value, int):
        return compact_duration(value)
    if name in workload.sizes and isinstance(value, int):
        return compact_size(value)
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | list | dict) else str(value)


@pytest.mark.parametrize(
    ("guide", "name"),
    [
        ("databases", "tpcc"),
        ("databases", "commit"),
        ("graph", "graph"),
        ("paging", "paging"),
        ("commands", "command"),
        ("ai", "ai_weights"),
        ("ai", "ai_vector"),
        ("ai", "ai_ingest"),
        ("ai", "ai_kv_cache"),
    ],
)
def test_the_tables_of_parameters_are_those_of_the_code(guide: str, name: str) -> None:
    workload = named(name)
    for parameter, description in descriptions(workload.parameters).items():
        row = f"| `{parameter}` | {default_text(workload, parameter)} | {description} |"
        assert row in GUIDES[guide], parameter


@pytest.mark.parametrize("guide", STUDIES)
def test_studies_that_they_name_exist(guide: str) -> None:
    assert all(name in GUIDES[guide] for name in STUDIES[guide])
    assert STUDIES[guide] <= {*shipped(), *adapters()}


def test_other_tables_are_those_of_the_code() -> None:
    assert all(f"| `{name}` | " in GUIDES["databases"] for name in servers.NAMES)
    for name, description in descriptions(SwapParameters).items():
        assert all(f"| `{name}` | {description} |" in GUIDES[guide] for guide in ("paging", "studies")), name
    for name, text in AT_START.items():
        assert f"| `{{{name}}}` | {text} |" in GUIDES["commands"], name
    for name in adapters():
        assert f"| `{name}` | {load(name).title} |" in GUIDES["commands"]


def test_the_failures_of_commands_are_those_of_the_supervisor() -> None:
    sources = [file.read_text() for file in (CHECKOUT / "python/iosonde/supervisor").glob("*.py")]
    codes = set(re.findall(r'FailedError\(\s*"([a-z_]+)"', "".join(sources))) | {"killed", "crashed"}
    listed = set(re.findall(r"`([a-z_]+)`", " ".join(re.findall(r"^\| (`.*?) \|", GUIDES["commands"], re.MULTILINE))))
    assert codes - {"not_started", "not_killed", "io", "wrong_target"} <= listed


def test_examples_are_parameters_and_analyses() -> None:
    for piece in pieces("databases"):
        for name, value in piece["measurement"].items():
            named("tpcc").read_value(name, value)
    kinds = [
        Analysis.model_validate(each).kind for guide in ("graph", "paging") for piece in pieces(guide)
        for each in piece["analysis"]
    ]  # fmt: skip
    assert set(kinds) == {"device_share", "fault_overhead", "mapped_reads"}
