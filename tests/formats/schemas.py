"""Schemas of the formats that iosonde writes and reads, and how those of two versions may differ.

`python tests/formats/schemas.py` prints those of this version, as `tests/formats/VERSION/schemas.json` keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from iosonde.base.features import contributed
from iosonde.engine import protocol
from iosonde.engine.protocol.validation import COMMAND_SPEC
from iosonde.plan import Plan
from iosonde.results import schema as results
from iosonde.results import shapes
from iosonde.study import model, setup
from iosonde.study.workload import workloads

Schema = Mapping[str, Any]
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def present() -> dict[str, dict[str, Any]]:
    """Each format with its version and the schemas of its types: of a study also the parameters that it may set."""
    settings = {**shapes.SETTINGS, **dict(contributed("procedures", "SETTINGS", tuple))}
    of_results = {
        **{"Plan": Plan, "Record": results.Record},
        **{f"procedure {name}": kind for name, kind in settings.items()},
        **{f"record {name}": kind for name, kind in shapes.SHAPES.items()},
        **{f"record part {kind.name}": kind for kind in contributed("record", "PARTS")},
        **{f"setup part {kind.part}": kind for kind in contributed("setup", "PARTS")},
    }
    of_studies = {
        "Study": model.Study,
        **{f"parameters {name}": each.parameters for name, each in workloads().items()},
        **{f"parameters {kind.__name__}": kind for kind in dict.fromkeys(setup.MODELS.values())},
    }
    kinds = dict(protocol.schema())
    version, options = kinds.pop("protocol"), kinds.pop("store_options")
    del kinds["store_constants"]
    of_stores = {f"options {store}": {"enum": names} for store, names in options.items()}
    return {
        "result set": {"version": results.FORMAT, "types": {**_of_models(of_results), **_of_tables()}},
        "protocol": {"version": version, "types": {**kinds, **of_stores, "Spec of a command": COMMAND_SPEC}},
        "study": {"version": model.FORMAT, "types": _of_models(of_studies)},
    }


def _of_models(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas by name; their definitions are types of their own, `NAME.DEFINITION`, since some share their names."""
    found = {}
    for name, kind in kinds.items():
        whole = TypeAdapter(kind).json_schema(ref_template=f"{name}.{{model}}")
        found |= {f"{name}.{inner}": each for inner, each in whole.pop("$defs", {}).items()}
        found[name] = whole
    return {name: _plain(each) for name, each in found.items()}


def _plain(part: Any, *, are_names: bool = False) -> Any:
    """A schema without texts for people. Properties may be called like these, so names of properties are kept."""
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    kept = {name: each for name, each in part.items() if are_names or name not in ("title", "description")}
    return {
        name: each if name == "default" else _plain(each, are_names=name == "properties") for name, each in kept.items()
    }


def _of_tables() -> dict[str, Any]:
    """A stored table is read with exactly its columns, so a new column is as a required field."""
    return {
        f"table {name}": _table({column: str(kind) for column, kind in each.schema.items()})
        for name, each in results.STORED_TABLES.items()
    }


def _table(columns: Mapping[str, str]) -> dict[str, Any]:
    kinds = {name: {"const": kind} for name, kind in columns.items()}
    return {"type": "object", "properties": kinds, "required": list(columns)}


class Comparison:
    """Differences because of which something of the types `old` is not of the types `new`, or means something else."""

    def __init__(self, old: Mapping[str, Schema], new: Mapping[str, Schema]) -> None:
        self.old, self.new = old, new
        self._known: dict[tuple[str, str], list[str]] = {}

    def differences(self) -> list[str]:
        """Everything that was removed, renamed, narrowed or made required, with its place."""
        removed = [f"{name}: removed" for name in self.old if name not in self.new]
        kept = (self._of_parts(each, self.new[name], name) for name, each in self.old.items() if name in self.new)
        return list(dict.fromkeys([*removed, *(each for found in kept for each in found)]))

    def _of_parts(self, old: Schema, new: Schema, at: str) -> list[str]:
        """Each alternative of the old part must be one of the new part."""
        pair = str(old.get("$ref")), str(new.get("$ref"))
        if "$ref" in old and "$ref" in new:
            if pair in self._known:  # Compared before, or the comparison is within it.
                return self._known[pair]
            self._known[pair], at = [], pair[0]
        found: list[str] = []
        ours = list(_alternatives(new, self.new))
        for each in _alternatives(old, self.old):
            alike = [self._of_alternatives(each, other, at) for other in ours if _are_alike(each, other)]
            found += min(alike, key=len) if alike else [f"{at}: `{_name(each)}` removed"]
        if "$ref" in old and "$ref" in new:
            self._known[pair] = found
        return found

    def _of_alternatives(self, old: Schema, new: Schema, at: str) -> list[str]:
        found = [f"{at}: `{word}` narrowed" for word in _narrowed(old, new)]
        known, fields = old.get("properties", {}), new.get("properties", {})
        for name, field in known.items():
            if name not in fields:
                found.append(f"{at}.{name}: removed")
                continue
            found += self._of_parts(field, fields[name], f"{at}.{name}")
            if field.get("default") != fields[name].get("default", field.get("default")):
                found.append(f"{at}.{name}: default changed")
        required = (name for name in new.get("required", ()) if name not in old.get("required", ()))
        found += [f"{at}.{name}: required" for name in required]
        for word in ("items", "additionalProperties"):
            if isinstance(new.get(word), dict):
                inner = old.get(word)
                found += self._of_parts(inner if isinstance(inner, dict) else {}, new[word], f"{at}[]")
        for number, (inner, ours) in enumerate(
            zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=False)
        ):
            found += self._of_parts(inner, ours, f"{at}[{number}]")
        return found


def _alternatives(part: Any, kinds: Mapping[str, Schema]) -> Iterator[Schema]:
    """A part as parts without references and choices."""
    if not isinstance(part, Mapping):  # `true`: anything.
        yield {}
        return
    rest = {name: each for name, each in part.items() if name not in ("$ref", "oneOf", "anyOf", "enum")}
    choices = [kinds[part["$ref"]]] if "$ref" in part else part.get("oneOf") or part.get("anyOf")
    if choices:
        for each in choices:
            yield from (_merged(found, rest) for found in _alternatives(each, kinds))
    elif "enum" in part:
        yield from ({"const": each} for each in part["enum"])
    elif isinstance(part.get("type"), list):
        yield from ({**part, "type": each} for each in part["type"])
    else:
        yield part


def _merged(part: Schema, further: Schema) -> Schema:
    fields = {**part.get("properties", {}), **further.get("properties", {})}
    required = [*part.get("required", ()), *further.get("required", ())]
    return {**further, **part, **({"properties": fields, "required": required} if fields else {})}


def _are_alike(old: Schema, new: Schema) -> bool:
    """Return True if a value of the old part may be of the new part at all: by type, constant, and tag of an object."""
    if "const" in new:
        return "const" in old and old["const"] == new["const"]
    if "const" in old:
        return new.get("type") in (None, _JSON_TYPES[type(old["const"])])
    if _tags(old) != _tags(new):
        return False
    return new.get("type") in (None, old.get("type")) or (old.get("type"), new.get("type")) == ("integer", "number")


def _tags(part: Schema) -> dict[str, Any]:
    """Constants that distinguish alternatives."""
    fields = part.get("properties", {})
    return {name: each["const"] for name, each in fields.items() if "const" in each and name in ("kind", "event")}


def _name(part: Schema) -> str:
    return str(part["const"] if "const" in part else next(iter(_tags(part).values()), part.get("type", "anything")))


def _bits(part: Schema) -> int:
    return int(str(part.get("format", "uint1024")).removeprefix("uint"))


def _narrowed(old: Schema, new: Schema) -> Iterator[str]:
    """Restrictions of the new part that values of the old part may violate."""
    yield from (word for word in _LOWER if word in new and "const" not in old and old.get(word, -1e300) < new[word])
    yield from (word for word in _UPPER if word in new and "const" not in old and old.get(word, 1e300) > new[word])
    if old.get("type") == new.get("type") == "integer" and _bits(old) > _bits(new):
        yield "format"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield "pattern"
    if new.get("additionalProperties") is False and old.get("additionalProperties") is not False and "type" in old:
        yield "additionalProperties"
    if "prefixItems" in new and len(old.get("prefixItems", ())) != len(new["prefixItems"]):
        yield "prefixItems"


if __name__ == "__main__":
    print(json.dumps(present(), separators=(",", ":"), sort_keys=True))
