"""Pages list the verdicts, warnings, numbers, phases, parameters and fields of models of the code."""

from __future__ import annotations

import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from parameter_texts import descriptions

from iosonde.base.features import contributed
from iosonde.features.key_value_stores.parameters import PHASES
from iosonde.features.key_value_stores.workload import KV
from iosonde.features.simulated_drives.model import Buffer, Interface, Limit, Media, Slc, Translation
from iosonde.findings import questions
from iosonde.metrics.verdict.evidence import Evidence
from iosonde.metrics.verdict.rules import rules
from iosonde.metrics.verdict.verdict import KINDS, MEANING
from iosonde.units import compact_duration, compact_size

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/warnings.md").read_text()


def rows_under(head: str) -> list[list[str]]:
    table = re.search(rf"^\| {re.escape(head)} \|\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table, f"no table `{head}`"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


def test_the_page_lists_exactly_the_warnings_with_rule_and_hint() -> None:
    documented = rows_under("warning | points to | given when | what to do")
    points = {"note": "-"}
    assert [[code, points_to, hint] for code, points_to, _, hint in documented] == [
        [f"`{kind.code}`", points.get(kind.points_to, kind.points_to), kind.hint] for kind in rules().values()
    ]
    assert all(when for _, _, when, _ in documented)


@pytest.mark.parametrize(
    ("place", "biases"),
    [
        ("of the second row are", {"slower"}),
        ("of the third row are", {"faster", "faster reads"}),
        ("of the first row are", {"none"}),
    ],
)
def test_the_warnings_that_bias_a_requirement_are_listed_by_their_direction(place: str, biases: set[str]) -> None:
    text = (ROOT / "docs/requirements.md").read_text().partition(place)[2].partition(". ")[0].partition(" where ")[0]
    assert re.findall(r"`(\w+)`", text) == sorted(
        (kind.code for kind in rules().values() if kind.bias in biases),
        key=lambda code: rules()[code].bias == "faster reads",
    )


def test_every_verdict_and_number_is_explained() -> None:
    assert rows_under("verdict | meaning") == [[f"`{kind}`", MEANING[kind]] for kind in KINDS]
    kinds = (Evidence, *contributed("verdict", "EVIDENCE", type))
    numbers = [name for kind in kinds for name, value in vars(kind).items() if isinstance(value, cached_property)]
    assert [row[0] for row in rows_under("number | meaning")] == [f"`{name}`" for name in numbers]


STORES_GUIDE = (CHECKOUT / "docs/stores.md").read_text()


def test_the_table_of_parameters_is_that_of_the_code() -> None:
    described = descriptions(KV.parameters)
    for name, field in KV.parameters.model_fields.items():
        row = f"| `{name}` | {_default(name, field.get_default(call_default_factory=True))} | {described[name]} |"
        assert row in STORES_GUIDE, name


def test_the_table_of_phases_is_that_of_the_code() -> None:
    for name, meaning in PHASES.items():
        row = f"| `{name}` | `{meaning.operations}` | `{meaning.choice or 'as load_order'}` | {meaning.text} |"
        assert row in STORES_GUIDE, name


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", STORES_GUIDE, re.MULTILINE | re.DOTALL))
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


SIMULATION = (CHECKOUT / "docs/simulation.md").read_text()


def fields_under(heading: str) -> list[str]:
    section = SIMULATION.partition(f"# {heading}\n")[2].partition("\n#")[0]
    cells = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall("`(.*?)`", cell)]


def test_the_page_of_simulated_drives_lists_the_fields_of_a_model_and_of_a_rate_limit() -> None:
    tables = {"media": Media, "translation": Translation, "buffer": Buffer, "interface": Interface}
    fields = [f"{table}.{name}" for table, model in tables.items() for name in model.model_fields]
    place = fields.index("translation.slc")
    fields[place : place + 1] = [f"translation.slc.{name}" for name in Slc.model_fields]
    assert sorted(fields_under("Fields of a model")) == sorted(fields)
    assert sorted(fields_under("Rate limits")) == sorted(Limit.model_fields)


def test_the_names_of_questions_that_are_read_from_their_sources_are_those_of_all_questions() -> None:
    assert questions.names() == {name: kind.needs_device_part for name, kind in questions.kinds().items()}
