"""ARCHITECTURE.md describes the packages, layers, crates and files that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from iosonde.features import FEATURES
from iosonde.metrics.registry import METRICS, known_names
from iosonde.planning import expand, parse
from iosonde.storage import open_target

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def table(name: str) -> list[list[str]]:
    """The names in the first column of a marked table, row by row."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", TEXT, re.DOTALL)
    assert found, f"no table `{name}`"
    return [re.findall(r"`([\w-]+)`", row.split("|")[1]) for row in found[1].splitlines()[2:]]


def test_the_packages_are_listed_in_the_order_that_import_linter_enforces() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [each for each in settings["contracts"] if each.get("containers") == ["iosonde"]]
    assert table("layers") == [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def test_every_package_and_module_is_a_layer() -> None:
    package = ROOT / "python/iosonde"
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert {name for row in table("layers") for name in row} == modules | folders


def test_the_crates_are_those_of_the_workspace() -> None:
    assert {name for row in table("crates") for name in row} == {
        path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")
    }


def test_the_features_are_those_that_are_registered() -> None:
    assert {f"iosonde.features.{name}" for row in table("features") for name in row} == set(FEATURES)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", TEXT))))
def test_every_path_exists(path: str) -> None:
    assert any((base / path).exists() for base in (ROOT, ROOT / "python/iosonde"))


def test_the_example_study_expands() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    plan = expand(parse(text), open_target("null:2GiB"), profile="quick")
    assert len(plan.runs) == 12


def test_every_metric_is_known_by_name_and_described() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    assert set(METRICS) <= set(known_names())
    assert [name for name in METRICS if f"`{name}`" not in page] == []
