"""docs/protocol.md is correct: its examples run, and its tables are complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from buckets import bucket_of
from engines import real_engine
from jsonschema_rs import Draft202012Validator

from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.results.column import lower_ns, midpoint_ns, width_ns

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/protocol.md").read_text()
MIB = 1 << 20


@dataclass(frozen=True)
class Block:
    """A fenced example: its language with what it is (`json spec`), and its text."""

    kind: str
    text: str
    line: int


BLOCKS = [
    Block(match[1].strip(), match[2], TEXT[: match.start()].count("\n") + 1)
    for match in re.finditer(r"^```(.+)\n((?:.*\n)*?)```$", TEXT, re.MULTILINE)
]


def blocks(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]


@cache
def schema() -> dict[str, Any]:
    printed = subprocess.run([real_engine(), "--schema"], capture_output=True, check=True).stdout
    return json.loads(printed)


@cache
def validator(part: str) -> Draft202012Validator:
    """The schema without room for fields that it does not name: a reader ignores them, an example must have none."""
    strict = json.loads(json.dumps(schema()[part]))
    variants = [variant for variant in strict.get("oneOf", []) if "$ref" in variant]
    whole_events = {variant["$ref"].rpartition("/")[2] for variant in variants}
    for variant in variants:
        variant["unevaluatedProperties"] = False
    for name, definition in strict.get("$defs", {}).items():
        if "properties" in definition and name not in whole_events:
            definition["additionalProperties"] = False
    return Draft202012Validator(strict)


def validate(value: Any, part: str) -> None:
    validator(part).validate(value)


def test_every_example_is_of_a_kind_that_is_tested() -> None:
    assert {block.kind for block in BLOCKS} == {"json spec", "json event", "json command", "sh", "python", "console"}


@pytest.mark.parametrize("part", ["spec", "event", "command"])
@pytest.mark.engine
def test_json_examples_are_valid(part: str) -> None:
    for block in blocks(f"json {part}"):
        validate(json.loads(block.text), part)


@pytest.mark.engine
def test_every_event_has_an_example() -> None:
    shown = {json.loads(block.text)["event"] for block in blocks("json event")}
    assert shown == {variant["properties"]["event"]["const"] for variant in schema()["event"]["oneOf"]}


# Tables are complete.


@pytest.mark.engine
def test_the_tables_list_every_type_field_and_value_and_no_other() -> None:
    assert documented() == in_schema()


def documented() -> dict[str, dict[str, set[str]]]:
    """Type -> name -> fields in the next column, of all tables whose head names a type."""
    found: dict[str, dict[str, set[str]]] = {}
    for table in re.finditer(r"^\| `([A-Z]\w*(?:\.\w+)?)` \|(.*)\n\|[-|: ]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE):
        rows = [row.strip("|").split("|") for row in table[3].splitlines()]
        has_fields = table[2].strip().startswith("fields")
        assert table[1] not in found, f"two tables of {table[1]}"
        found[table[1]] = {ticked(row[0]).pop(): ticked(row[1]) if has_fields else set() for row in rows}
    return found


def ticked(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def in_schema() -> dict[str, dict[str, set[str]]]:
    types: dict[str, dict[str, set[str]]] = {}
    for part in ("spec", "event", "command"):
        whole = {name: value for name, value in schema()[part].items() if name != "$defs"}
        for name, definition in {whole["title"]: whole, **schema()[part].get("$defs", {})}.items():
            types[name] = names_of(definition)
    # Workloads have too many fields for a cell, so each has a table of its own.
    for workload, fields in types["Workload"].items():
        types[f"Workload.{workload}"] = {field: set() for field in fields}
    types["Workload"] = {workload: set() for workload in types["Workload"]}
    return types


def names_of(definition: dict[str, Any]) -> dict[str, set[str]]:
    """The fields of a type, or its values, or its variants with their fields."""
    if "enum" in definition:
        return {value: set() for value in definition["enum"]}
    if "oneOf" not in definition:
        return {field: set() for field in definition["properties"]}
    return dict(variant_of(variant) for variant in definition["oneOf"])


def variant_of(variant: dict[str, Any]) -> tuple[str, set[str]]:
    if "const" in variant:
        return variant["const"], set()
    tag = next((name for name, of in variant["properties"].items() if "const" in of), None)
    if tag is None:  # `{"start": {...}}`
        ((name, of),) = variant["properties"].items()
        return name, set(of["properties"])
    return variant["properties"][tag]["const"], set(variant["properties"]) - {tag}


def listed_under(head: str) -> set[str]:
    table = re.search(rf"^\| {head} \| meaning \|\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table
    return {ticked(row.split("|")[1]).pop() for row in table[1].splitlines()}


@pytest.mark.engine
def test_all_failure_codes_are_listed_and_no_other_is_reported() -> None:
    described = schema()["event"]["$defs"]["Failure"]["properties"]["code"]["description"]
    names = re.search(r"pub fn name\(self\).*?\n    }\n", (ROOT / "crates/harness/src/error.rs").read_text(), re.DOTALL)
    assert names
    codes = set(re.findall(r'=> "(\w+)"', names[0])) | {"wrong_target"}
    assert codes == listed_under("failure") == ticked(described)


def test_all_warning_codes_are_listed() -> None:
    sources = [path.read_text() for path in (ROOT / "crates").glob("*/src/**/*.rs")]
    codes = {code for text in sources for code in re.findall(r'Warning \{\s*code: "(\w+)"', text)}
    assert codes
    assert listed_under("warning") == codes


# Histograms.


def numbers(row: str) -> list[int]:
    return [int(cell.strip().replace(",", "")) for cell in row.strip("|").split("|")]


def test_the_table_of_buckets_is_right() -> None:
    table = re.search(r"^\| value \(ns\) .*\n\|[-|:]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table
    for row in table[1].splitlines():
        value, bucket, first, last, middle = numbers(row)
        assert bucket == bucket_of([value])[0]
        assert [first, last - first + 1, middle] == [lower_ns(bucket), width_ns(bucket), midpoint_ns(bucket)]


# Examples run.


@pytest.mark.engine
def test_the_shell_commands_run(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(blocks("json spec")[0].text)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "iosonde-engine").symlink_to(real_engine())
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for block in blocks("sh"):
        shell = ["bash", "-euo", "pipefail", "-c", block.text]
        done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"line {block.line}: {done.stderr}{done.stdout[-2000:]}"
        assert done.stdout or "schema.json" in block.text
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    for event in events:
        validate(event, "event")
    kinds = [event["event"] for event in events if event.get("edge") != "progress"]  # Sent if a phase takes a second.
    assert kinds == ["hello", "phase", "phase", *["interval"] * 3, "result"]
    assert json.loads((tmp_path / "schema.json").read_text()) == schema()


@pytest.mark.engine
def test_every_spec_but_those_of_servers_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    specs = [json.loads(block.text) for block in blocks("json spec")]
    carried_out = [spec for spec in specs if "server" not in spec["workload"]]
    assert len(carried_out) > 2
    operations = 0
    for spec in carried_out:
        done, events = carry_out(spec, real_engine().absolute())
        for event in events:
            validate(event, "event")
        assert done.failure is None
        assert done.result and done.result["outcome"] == "complete"
        assert counted(done) == sum(job["operations"] for job in done.result["jobs"])
        operations += counted(done)
    assert operations, "one of them alone may have had no CPU for the time of its measurement"


def front_to_back(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """The first spec of the page as the example engine takes it, and that engine."""
    (program,) = blocks("python")
    engine = tmp_path / "front-to-back"
    engine.write_text(program.text)
    engine.chmod(0o755)
    data = tmp_path / "data"
    data.write_bytes(bytes(MIB))
    spec: dict[str, Any] = json.loads(blocks("json spec")[0].text)
    workload = spec["workload"]
    workload["target"] = {"kind": "file", "path": str(data), "size_bytes": MIB}
    workload["streams"][0]["access"] = {"kind": "sequential"}
    workload.update(duration_ns=300_000_000, interval_ns=100_000_000)
    return spec, engine


@pytest.mark.engine
def test_the_example_engine_completes_a_run_and_stops_on_request(tmp_path: Path) -> None:
    spec, engine = front_to_back(tmp_path)
    done, events = carry_out(spec, engine)
    assert done.failure is None
    for event in events:
        validate(event, "event")
    assert done.result
    assert counted(done) == done.result["jobs"][0]["operations"] > 0
    # Of 100 ms each in 300 ms; on a busy machine they take longer, and are fewer.
    assert done.intervals["interval"].to_list() == list(range(len(done.intervals)))
    assert 1 <= len(done.intervals) <= 3
    assert done.child["exit_status"] == 0
    spec["workload"]["duration_ns"] = 3600 * 10**9
    stopped, _ = carry_out(spec, engine, stop_at="interval")
    assert stopped.result and stopped.result["outcome"] == "stopped"


def carry_out(spec: dict[str, Any], engine: Path, *, stop_at: str = "") -> tuple[EngineRun, list[dict[str, Any]]]:
    stop, events = Stop(), []

    def note(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == stop_at:
            stop.set()

    try:
        return drive(spec, on_event=note, stop=stop, engine=engine), events
    finally:
        stop.close()


def counted(done: EngineRun) -> int:
    measured = done.intervals.filter(done.intervals["phase"] == "measure")
    return int(measured["count"].sum())
