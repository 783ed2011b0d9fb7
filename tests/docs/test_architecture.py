"""ARCHITECTURE.md describes the packages, layers, crates and files that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from iosonde.features.key_value_stores.fields import STORES
from iosonde.findings import findings
from iosonde.metrics.registry import METRICS, known_names
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.study.model import ANALYSIS_KINDS
from iosonde.workload import workloads

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


def layer_of_packages() -> dict[str, int]:
    """Position of each package, the highest first."""
    return {name: row for row, names in enumerate(table("layers")) for name in names}


def test_no_module_names_one_of_a_higher_layer() -> None:
    """A name in a string would be an import that `lint-imports` does not see."""
    package, layers = ROOT / "python/iosonde", layer_of_packages()
    found = []
    for path in sorted(package.glob("*/**/*.py")):
        own = layers[path.relative_to(package).parts[0]]
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if '"iosonde.' in text else ():
            named = isinstance(node, ast.Constant) and re.match(r"iosonde\.(\w+)(\.\w+)*$", str(node.value))
            if named and layers.get(named[1], own) < own:
                found.append(f"{path}:{node.lineno}: {named[0]}")
    assert found == []


def test_every_package_and_module_is_a_layer() -> None:
    package = ROOT / "python/iosonde"
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert {name for row in table("layers") for name in row} == modules | folders


def test_the_crates_are_those_of_the_workspace() -> None:
    assert {name for row in table("crates") for name in row} == {
        path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")
    }


def test_every_package_has_a_paragraph() -> None:
    described = {name for heading in re.findall(r"^### (.+)$", TEXT, re.MULTILINE) for name in heading.split(", ")}
    assert {path.parent.name for path in (ROOT / "python/iosonde").glob("*/__init__.py")} - described == set()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", TEXT)) - {"crates/kv-NAME"}))
def test_every_path_exists(path: str) -> None:
    assert any((base / path).exists() for base in (ROOT, ROOT / "python/iosonde"))


def test_the_example_study_expands() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    plan = expand(parse(text), open_target("null:2GiB"), profile="quick")
    assert len(plan.runs) == 12


# Worked examples: each names the places of one addition. What is registered there is compared with what exists.


def example(heading: str) -> str:
    """The text of a worked example."""
    found = re.search(rf"^### {heading}\n(.*?)(?=^### |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no example `{heading}`"
    return found[1]


def test_a_metric_is_one_definition() -> None:
    """Its name reaches SQL, exports and comparisons from the registry, and the page of metrics describes it."""
    page = (ROOT / "docs/metrics.md").read_text()
    assert "tests/metrics" in example("Add a metric")
    assert set(METRICS) <= set(known_names())
    assert [name for name in METRICS if f"`{name}`" not in page] == []


def test_a_question_is_one_file_and_its_name() -> None:
    assert "`findings/questions/`" in example("Add a question")
    assert set(ANALYSIS_KINDS) == set(findings._QUESTIONS)
    modules = {kind.find.__module__ for kind in findings._QUESTIONS.values()}
    assert {module.rpartition(".")[0] for module in modules if ".features." not in module} == {
        "iosonde.findings.questions"
    }
    assert all((ROOT / "python" / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_a_store_is_one_crate_and_its_registrations() -> None:
    assert "`crates/kv-NAME`" in example("Add a store")
    arms = "".join((ROOT / "crates/engine/src" / name).read_text() for name in ("stores.rs", "clients.rs"))
    variants = (ROOT / "crates/protocol/src/kv.rs").read_text()
    stores = set(STORES) - {"null"}
    assert stores == {path.name.removeprefix("kv-") for path in (ROOT / "crates").glob("kv-*")}
    for store in stores:
        assert f"StoreKind::{store.capitalize()} =>" in arms, store
        assert re.search(rf"^    {store.capitalize()}\b", variants, re.MULTILINE), store


def test_a_workload_is_a_folder_and_a_variant() -> None:
    spec = (ROOT / "crates/protocol/src/spec.rs").read_text()
    (variants,) = re.findall(r"^pub enum Workload \{\n(.*?)^\}", spec, re.MULTILINE | re.DOTALL)
    names = set(workloads())
    of_engine = {name.lower() for name in re.findall(r"^    (\w+)\(", variants, re.MULTILINE)}
    assert names == of_engine | {"command"}, "`supervisor` is the engine of commands"


NAMES_OF_WORKLOADS = {
    "plan/commands.py": "consent to external commands, in a package below the workloads",
    "planning/device_state.py": "states of devices follow from parameters of block I/O",
    "protocol/validation.py": "specs of commands have a schema of their own, in a package below the workloads",
}
"""Files outside of `workload` and features that compare once with the name of a workload, and why."""


NAMED = "|".join(workloads())
COMPARISON = re.compile(
    rf"""(?:workload|load|\bkind)\w*\b[^\n=]{{0,12}}(?: [!=]= |\bin |is_in\(|\.(?:eq|ne)\()\(*["'](?:{NAMED})["']"""
    r"|isinstance\([^\n]*(?:Block|Kv|Oltp|Tpcc|Commit|Paging|Graph|Objects|Command)(?:Param|Desc|Field)"
)


def test_packages_decide_by_what_a_workload_declares_and_not_by_its_name() -> None:
    package = ROOT / "python/iosonde"
    found = {
        str(path.relative_to(package)): len(lines)
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in ("workload", "features")
        and (lines := COMPARISON.findall(path.read_text()))
    }
    assert found == dict.fromkeys(NAMES_OF_WORKLOADS, 1)
    for line in (
        "workload['kind'] == 'block'",
        "record.spec['workload']['kind'] in ('kv', 'graph')",
        "self.facts.spec['workload'].get('kind') == 'kv'",
        "study.workload_of(part) != 'command'",
        "pl.col('workload').is_in(('tpcc', 'commit'))",
        "isinstance(stream, KvParameters)",
    ):
        assert COMPARISON.search(line), line
