"""Every module can be the first one that is imported.

A cycle may work or not, depending on its first module, and `contributed` skips what a feature's module does not have
yet. So none is allowed, with packages that are imported on the way and modules of features counted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from iosonde.features import FEATURES

PYTHON = Path(__file__).parents[2] / "python"


def parents(module: str) -> set[str]:
    """Packages that are imported before a module."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def at_import(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Nodes of code that runs when a module is imported, without functions that it calls."""
    waiting: list[ast.AST] = [*nodes]
    while waiting:
        node = waiting.pop()
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not is_for_types and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.expr_context
        ):
            yield node
            waiting += ast.iter_child_nodes(node)


def running(tree: ast.Module) -> Iterator[ast.AST]:
    """The same with functions of the module."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    waiting = list(at_import(tree.body))
    while waiting:
        yield (node := waiting.pop())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            waiting += at_import(functions.pop(node.func.id).body)


def imports(module: str, trees: Mapping[str, ast.Module], features: tuple[str, ...]) -> Iterator[str]:
    """Names that the import of a module imports; not all are modules."""
    for node in running(trees[module]):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(package), names=names):
                yield package
                origins = defining(trees[package]) if package in trees else {}
                for each in names:
                    yield f"{package}.{each.name}"
                    yield from origins.get(each.name, ())
            case ast.Call(func=ast.Name(id="contributed"), args=[ast.Constant(value=str(place)), *_]):
                yield from (f"{feature}.{place}".rstrip(".") for feature in features)


@cache
def defining(package: ast.Module) -> dict[str, list[str]]:
    """The modules from which a package has its names, also those that it imports when they are used."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(package):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                found.setdefault(each.name, []).append(node.module)
    return found


def cycle(sources: Mapping[str, str], features: tuple[str, ...] = ()) -> list[str]:
    trees = {module: ast.parse(source) for module, source in sources.items()}
    graph = {}
    for module in sources:
        found = set(imports(module, trees, features)) & set(sources)
        before = {package for each in found for package in parents(each)} - parents(module)
        graph[module] = (found | before & set(sources)) - {module} - parents(module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_have_no_cycle() -> None:
    paths = {path: path.relative_to(PYTHON).with_suffix("") for path in (PYTHON / "iosonde").rglob("*.py")}
    sources = {".".join(name.parts).removesuffix(".__init__"): path.read_text() for path, name in paths.items()}
    assert cycle(sources, FEATURES) == []


def test_cycles_are_found() -> None:
    through_modules = {"a.b": "from a.c import x", "a.c": "import a.b"}
    through_a_package = {"a.b": "from p.c import x", "p": "from p.d import y", "p.c": "", "p.d": "import a.b"}
    on_use = {"a.b": "from p import x", "p": "if TYPE_CHECKING:\n from p.d import x", "p.d": "import a.b"}
    of_a_feature = {"f.facts": "import a.b", "a.b": "def all():\n return contributed('facts', 'X')\nX = all()"}
    for sources in (through_modules, through_a_package, on_use, of_a_feature):
        assert cycle(sources, ("f",))


def test_imports_on_use_and_for_types_are_no_cycle() -> None:
    later = "if TYPE_CHECKING:\n import a.c\ndef f():\n import a.c"
    assert cycle({"a": "from a.b import x", "a.b": later, "a.c": "from a import b"}) == []
