"""The rules that `tests/tiers.py` cannot enforce while tests run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from command_line import CHECKOUT
from needs import CAPABILITIES, lacking
from tiers import LONG_FILES

from iosonde.tools import ESSENTIAL, GUEST_TOOLS, LIBRARY_DIRECTORIES, TOOLS

SKIPS = {"skip", "skipif", "importorskip", "xfail"}
CALLS = set(
    ["run", "Popen", "check_output", "check_call", "call", "find", "require", "find_tool", "which", "command", "_run"]
)
NO_PROGRAMS = {"control", "ours", "theirs"}
"""First arguments of other functions with such a name."""
SOURCES = [path for folder in ("python", "tests", "bench") for path in sorted((CHECKOUT / folder).rglob("*.py"))]


def test_a_test_is_skipped_only_by_its_declared_needs() -> None:
    """A skip in a test's body would be a second way. `tiers.py` also has the one for a paused machine."""
    found = [
        f"{path.relative_to(CHECKOUT)}:{node.lineno}"
        for path in SOURCES
        if path.is_relative_to(CHECKOUT / "tests") and path.name not in ("tiers.py", Path(__file__).name)
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in SKIPS and ast.unparse(node).startswith("pytest.")
    ]
    assert found == []


def test_scripts_test_collects_every_test_of_the_lab() -> None:
    """It collects `tests/lab` alone for that tier."""
    of_lab = ("mark.lab", "machine_image", "guest_report")
    tests = [path for path in SOURCES if path.name.startswith("test_") and path.name != Path(__file__).name]
    found = {path.parent.name for path in tests if any(name in path.read_text() for name in of_lab)}
    assert found == {"lab"}


def test_files_that_are_started_first_exist() -> None:
    assert [name for name in LONG_FILES if not (CHECKOUT / "tests" / name).is_file()] == []


def test_every_declared_need_exists() -> None:
    declared = {
        argument.value
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "needs"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    assert declared
    assert {need for need in declared if need.partition(" of ")[0] not in {*TOOLS, *CAPABILITIES}} == set()


def test_a_need_that_is_not_met_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking.cache_clear()
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert lacking("mkfs.xfs") == "`mkfs.xfs` is not installed: install the package `xfsprogs`"
    lacking.cache_clear()


def test_every_program_that_code_calls_is_listed() -> None:
    """So that setup installs it and `iosonde doctor` names it: each literal program name in a call that starts one."""
    listed = {*TOOLS, *ESSENTIAL, *GUEST_TOOLS, *NO_PROGRAMS}
    found = {
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in SOURCES
        for name in called(path)
        if name not in listed and not any(each.startswith(name) for each in listed if name.endswith("."))
    }
    assert found == set()


def called(path: Path) -> Iterator[str]:
    """First words of commands: `run("mkfs.ext4", ...)`, `Popen(["unshare", ...])`; of `f"mkfs.{kind}"` the constant part."""
    for node in nodes(path):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function not in CALLS or (isinstance(node.func, ast.Attribute) and not starts_programs(node.func.value)):
            continue
        first: ast.expr = node.args[0]
        while isinstance(first, ast.List | ast.Tuple | ast.Starred):
            first = first.value if isinstance(first, ast.Starred) else first.elts[0] if first.elts else ast.Constant("")
        if isinstance(first, ast.JoinedStr):
            first = first.values[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and is_program(first.value):
            yield first.value


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


def starts_programs(module: ast.expr) -> bool:
    """Return True if `module.run(...)` starts a program, and not a browser, an engine or a string."""
    return ast.unparse(module) in ("subprocess", "tools", "shutil", "loops")


def is_program(word: str) -> bool:
    """Names of programs have no spaces and no capitals; a path is a program of a test's own."""
    return bool(word) and word == word.lower() and all(each.isalnum() or each in "._-" for each in word)


def test_libraries_are_looked_for_where_the_engine_finds_them() -> None:
    listed = (CHECKOUT / "crates/kv/src/library_directories.txt").read_text().split()
    assert list(LIBRARY_DIRECTORIES) == listed


def test_text_of_other_programs_is_never_decoded_by_the_locale() -> None:
    """Ruff's PLW1514 covers files, not pipes."""
    by_locale = [
        f"{path.relative_to(CHECKOUT)}:{call.lineno}"
        for path in SOURCES
        if path.is_relative_to(CHECKOUT / "python")
        for call in nodes(path)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg in ("text", "universal_newlines") and getattr(keyword.value, "value", None) is True
    ]
    assert by_locale == []
