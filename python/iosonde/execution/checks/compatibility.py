"""Check once, before anything is written, that the engine accepts the specs of a plan.

The engine's own JSON schema (`iosonde-engine --schema`) decides: an engine of another version rejects unknown and
missing fields, run by run. An engine without a schema is not checked here; the version in `hello` is checked in every
run.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from iosonde import protocol
from iosonde.errors import EngineError
from iosonde.tools import ask
from iosonde.workload import described


def check(engine: Path, specs: Iterable[Mapping[str, Any]]) -> None:
    """Raise `EngineError` if the engine's schema does not accept one of these specs."""
    # The supervisor of external commands is part of iosonde.
    specs = [spec for spec in specs if not described(spec["workload"]).is_external]
    if not specs:
        return
    schema = _schema(engine)
    if not schema:
        return
    if schema.get("protocol") != protocol.VERSION:
        raise _differs(engine, f"it uses protocol {schema.get('protocol')}, iosonde uses {protocol.VERSION}")
    definitions = schema["spec"].get("$defs", {})
    for spec in specs:
        problem = _mismatch(spec, schema["spec"], definitions, "")
        if problem:
            raise _differs(engine, problem)


def _differs(engine: Path, how: str) -> EngineError:
    return EngineError(
        f"the engine `{engine}` is of another version than iosonde: {how}",
        where="found before anything was written",
        hint="build both from the same sources: `make setup` in a checkout, `pip install` elsewhere; if the variable "
        "`IOSONDE_ENGINE` names another build, remove it or build that again (`cargo build --release`)",
    )


@functools.cache
def _schema(engine: Path) -> dict[str, Any] | None:
    """The engine's schema; None if it prints none."""
    asked = ask(engine, "--schema")
    if asked is None:
        return None
    try:
        answer = json.loads(asked.stdout)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("spec"), dict) else None


def _mismatch(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> str:
    """The first unknown or missing field of a value; empty if there is none.

    Names and kinds are compared, not numbers: the engine checks those when it gets the spec.
    """
    schema = _resolved(schema, definitions)
    variants = [_resolved(each, definitions) for each in schema.get("oneOf") or schema.get("anyOf") or ()]
    if variants:
        fitting = [each for each in variants if _fits(value, each)]
        problems = [_mismatch(value, each, definitions, path) for each in fitting]
        return min(problems) if problems else f"it does not support `{_named(path, value)}`"
    if isinstance(value, Mapping):
        return _mismatch_of_fields(value, schema, definitions, path)
    if isinstance(value, list):
        each = (_mismatch(item, schema.get("items", {}), definitions, f"{path}[{at}]") for at, item in enumerate(value))
        return next(filter(None, each), "")
    return "" if _fits(value, schema) else f"it does not support `{_named(path, value)}`"


def _mismatch_of_fields(
    value: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> str:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"it needs `{_joined(path, name)}`, which is missing"
    for name, part in value.items():
        if name not in known and schema.get("additionalProperties") is False:
            return f"it does not support `{_joined(path, name)}`"
        problem = _mismatch(part, known.get(name, {}), definitions, _joined(path, name))
        if problem:
            return problem
    return ""


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if a value matches an alternative: `null`, a word, or an object of its `kind`."""
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    if value is None or schema.get("type") == "null":
        return value is None and "null" in schema.get("type", "null")
    if not isinstance(value, Mapping):
        return True
    words = {name: part["const"] for name, part in schema.get("properties", {}).items() if "const" in part}
    return all(value.get(name) == word for name, word in words.items())


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    return definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _named(path: str, value: Any) -> str:
    """A location in the spec with its value."""
    return f"{path}: {value['kind'] if isinstance(value, Mapping) and 'kind' in value else value}"
