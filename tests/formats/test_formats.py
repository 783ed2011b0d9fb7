"""This version reads what 0.1.0 wrote: result sets, specs and events of the protocol, studies.

`tests/formats/0.1.0` was written by that version and never changes. How a format may change: CONTRIBUTING.md, Formats.
"""

from __future__ import annotations

import copy
import hashlib
import json
import lzma
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT, Iosonde
from engines import clients_engine, real_engine
from plans import sign, sign_plan
from schemas import Comparison, present

from iosonde.engine.protocol import schema
from iosonde.engine.protocol.validation import COMMAND_SPEC, event_parser, mismatch_of_spec, unsupported
from iosonde.errors import ResultsError, StudyError
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.planning import load, parse
from iosonde.results import ResultSet
from iosonde.study.load import read_parameter
from iosonde.study.workload import workloads

FROZEN = Path(__file__).with_name("0.1.0")
MANIFEST_SHA256 = "357ee391a89dfa764c7862d55088bb2131e6e7c64e867f358ded8489d1db3a6f"


def test_the_frozen_files_are_unchanged() -> None:
    manifest = (FROZEN / "SHA256SUMS").read_bytes()
    sums = dict(reversed(line.split("  ")) for line in manifest.decode().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FROZEN.iterdir()}
    assert found.pop("SHA256SUMS") == MANIFEST_SHA256 and found == sums, (
        "files of 0.1.0 must never change, since users have such files. To change a format, raise its version, keep "
        "the reader of the old one, add a directory with files of the new one, and a line to CHANGELOG.md"
    )


def text(name: str) -> str:
    return lzma.decompress((FROZEN / name).read_bytes()).decode()


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text(name).splitlines()]


@pytest.mark.system
def test_programs_print_the_version_of_the_changelog(iosonde: Iosonde) -> None:
    version = tomllib.loads((CHECKOUT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert f"\n## {version} (" in (CHECKOUT / "CHANGELOG.md").read_text()
    assert iosonde("--version").stdout == f"iosonde {version}\n"
    for engine in (real_engine(), clients_engine()):
        printed = subprocess.run([engine, "--version"], capture_output=True, text=True, check=True).stdout
        assert printed == f"{engine.name} {version}\n"


# Schemas


def frozen_schemas() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text("schemas.json.xz"))
    return found


@pytest.mark.parametrize("name", ["result set", "protocol", "study"])
def test_a_format_of_the_same_version_reads_everything_that_it_has_read(name: str) -> None:
    old, new = frozen_schemas()[name], present()[name]
    assert new["version"] >= old["version"]
    if new["version"] == old["version"]:
        differences = Comparison(old["types"], new["types"]).differences()
        assert not differences, "a new version of the format is required: CONTRIBUTING.md, Formats"


def without(kinds: list[Any], word: str) -> dict[str, Any]:
    """Alternatives without the one that has this word."""
    return {"oneOf": [each for each in kinds if word not in json.dumps(each)]}


@pytest.mark.parametrize(
    ("name", "change", "difference"),
    [
        ("protocol", lambda of: of["Stream"]["properties"].pop("queue_depth"), "Stream.queue_depth: removed"),
        ("result set", lambda of: of["Record"].update(properties={}, required=[]), "Record.run_id: removed"),
        ("result set", lambda of: of.pop("record part swap"), "record part swap: removed"),
        ("protocol", lambda of: of["Spec"]["required"].append("observe"), "Spec.observe: required"),
        ("result set", lambda of: of["table usage"]["required"].append("zones"), "table usage.zones: required"),
        ("protocol", lambda of: of["Ramp"]["properties"]["bytes"].update(type="integer"), "Ramp.bytes: `null` removed"),
        (
            "protocol",
            lambda of: of["Stream"]["properties"]["jobs"].update(format="uint16"),
            "Stream.jobs: `format` narrowed",
        ),
        ("study", lambda of: of["Study"]["properties"]["seed"].update(minimum=2), "Study.seed: `minimum` narrowed"),
        ("study", lambda of: of["Study"]["properties"]["repeats"].update(default=5), "Study.repeats: default changed"),
        (
            "study",
            lambda of: of["Study.Level"]["properties"]["label"].update(pattern="a"),
            "Study.Level.label: `pattern` narrowed",
        ),
        (
            "study",
            lambda of: of["parameters block"]["properties"]["access"]["enum"].remove("aging"),
            "parameters block.access: `aging` removed",
        ),
        (
            "protocol",
            lambda of: of["Backend"].update(without(of["Backend"]["oneOf"], "libaio")),
            "Backend: `libaio` removed",
        ),
        ("protocol", lambda of: of["Event"].update(without(of["Event"]["oneOf"], "Ready")), "Event: `ready` removed"),
        (
            "protocol",
            lambda of: of["Command"].update(without(of["Command"]["oneOf"], "stop")),
            "Command: `stop` removed",
        ),
    ],
)
def test_a_change_that_old_files_do_not_survive_is_found(
    name: str, change: Callable[[dict[str, Any]], object], difference: str
) -> None:
    old = frozen_schemas()[name]["types"]
    new = copy.deepcopy(old)
    change(new)
    assert difference in Comparison(old, new).differences()


def test_optional_fields_further_values_and_wider_types_are_compatible() -> None:
    for each in frozen_schemas().values():
        assert Comparison(each["types"], each["types"]).differences() == []
    old = frozen_schemas()["protocol"]["types"]
    new = copy.deepcopy(old)
    new["Stream"]["properties"] |= {"zones": {"type": "integer"}, "jobs": {"type": ["integer", "null"]}}
    new["Layout"]["oneOf"].append({"const": "sparse", "type": "string"})
    new["Zone"] = {"type": "object"}
    assert Comparison(old, new).differences() == []


# Nothing is left out of the frozen files.


def names_in(value: Any) -> Iterator[str]:
    """All keys and texts of a value."""
    if isinstance(value, Mapping):
        yield from value
        value = value.values()
    if isinstance(value, str):
        yield value
    elif not isinstance(value, int | float | None):
        for each in value:
            yield from names_in(each)


def names_of(types: Mapping[str, Any]) -> Iterator[str]:
    """All fields and constants of types."""
    for each in types.values():
        if isinstance(each, Mapping):
            yield from each.get("properties", {}) if isinstance(each.get("properties", {}), Mapping) else ()
            yield from names_of(each)
        elif isinstance(each, list):
            yield from names_of(dict(enumerate(each)))
    if isinstance(types.get("const"), str):
        yield types["const"]


def test_specs_and_events_have_every_field_and_value_of_the_protocol() -> None:
    kinds = {
        name: each for name, each in frozen_schemas()["protocol"]["types"].items() if not name.startswith("options ")
    }
    assert set(names_of(kinds)) - {"stop", "start"} <= {
        *names_in(lines("specs.jsonl.xz")),
        *names_in(lines("events.jsonl.xz")),
    }


def test_the_studies_have_every_key_and_parameter() -> None:
    keys = {name for each in frozen_schemas()["study"]["types"].values() for name in each.get("properties", {})}
    written = {name for file in FROZEN.glob("*.toml") for name in names_in(tomllib.loads(file.read_text()))}
    places = {name for each in workloads().values() for name in each.places}
    assert keys - places - {"repeats_until"} <= written  # `repeats_until` is read from `repeats = "until"`.


# Studies


@pytest.mark.parametrize("name", ["study", "command"])
def test_every_key_and_parameter_of_a_study_still_means_the_same(name: str) -> None:
    study = load(FROZEN / f"{name}.toml")
    values = {
        part.name: {
            each: read_parameter(study.workload_of(part), each, value) for each, value in part.measurement.items()
        }
        for part in study.parts
    }
    now = json.loads(json.dumps({"study": study.model_dump(mode="json"), "parameters": values}, default=vars))
    assert lost(json.loads(text(f"{name}.json.xz")), now, name) == []


def lost(old: Any, new: Any, at: str) -> list[str]:
    """Places where a value is not what it was; later versions may have further keys."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            each for key in old for each in (lost(old[key], new[key], f"{at}.{key}") if key in new else [f"{at}.{key}"])
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            each for place, (a, b) in enumerate(zip(old, new, strict=True)) for each in lost(a, b, f"{at}[{place}]")
        ]
    return [] if old == new else [f"{at}: {old} is {new}"]


def test_a_study_of_a_newer_format_is_refused() -> None:
    with pytest.raises(StudyError) as error:
        parse('zones = 1\nformat = 2\nname = "future"\n', name="future.toml")
    assert error.value.what == "the study has format 2; this iosonde reads format 1"
    assert error.value.where == "at `format`, line 2 of `future.toml`"
    assert "newer version" in error.value.hint


# Protocol


def test_specs_are_read_and_have_nothing_that_an_engine_must_refuse() -> None:
    for number, spec in enumerate(lines("specs.jsonl.xz")):
        of_command = spec["workload"]["kind"] == "command"  # Of the supervisor, not of the engine.
        whole = {**(COMMAND_SPEC if of_command else schema()["Spec"]), "$defs": schema()}
        assert (number, mismatch_of_spec(spec), unsupported(spec, whole)) == (number, "", "")


def test_events_are_read() -> None:
    read = event_parser(of_command=False)
    kinds = {read(line.encode())["event"] for line in text("events.jsonl.xz").splitlines()}
    assert len(kinds) == 10


@pytest.mark.engine
def test_the_output_of_an_engine_of_0_1_0_is_a_run(tmp_path: Path) -> None:
    spec, output = lines("specs.jsonl.xz")[8], text("events.jsonl.xz").splitlines(keepends=True)[:7]
    (tmp_path / "events").write_text("".join(output))
    replayed = tmp_path / "engine"
    replayed.write_text(f"#!/bin/sh\nexec cat {tmp_path}/events\n")
    replayed.chmod(0o755)
    for engine in (replayed, real_engine().absolute()):  # On a virtual clock, the engine of today measures the same.
        stop = Stop()
        try:
            done = drive(spec, stop=stop, engine=engine)
        finally:
            stop.close()
        assert (done.failure, done.result and done.result["outcome"]) == (None, "complete")
        measured = done.intervals.filter(done.intervals["phase"] == "measure")
        assert sorted(measured.select("operation", "count", "bytes").rows()) == [("write", 4000, 16_384_000)] * 4


# Result sets


@pytest.fixture
def result_sets(tmp_path: Path) -> Path:
    """`measured`: a file, verification, a store, a requirement; `decided`: a search, rounds; `arms`: an A/B run."""
    shutil.unpack_archive(FROZEN / "results.tar.xz", tmp_path)
    return tmp_path


METRICS: dict[tuple[str, str, str, str], float] = {
    ("measured", "c0001-r1", "bandwidth", "write"): 2250378.3105154075,
    ("measured", "c0001-r1", "durable_write_ns_mean", "write"): 1825890.61,
    ("measured", "c0001-r1", "completion_latency_ns_p50", "flush"): 44832.0,
    ("measured", "c0001-r1", "verified_bytes", "all"): 8388608.0,
    ("measured", "c0001-r1", "wrong_sectors", "all"): 0.0,
    ("measured", "c0003-r1", "iops", "read"): 12126.020028386572,
    ("measured", "c0003-r1", "completion_latency_ns_p90", "read"): 5722112.0,
    ("measured", "c0003-r1", "mean_in_flight", "all"): 18.337285247089568,
    ("measured", "c0004-r1", "database_bytes", "all"): 114688.0,
    ("measured", "c0004-r1", "values_missing", "all"): 0.0,
    ("decided", "c0000-r1", "iops", "all"): 10000.0,
    ("decided", "c0001-p01-r1", "response_latency_ns_p99", "read"): 100000.0,
    ("decided", "c0001-p02-r1", "response_latency_ns_p99", "read"): 37191680.0,
    ("decided", "c0002-a1-round002-01-r1", "bandwidth", "write"): 40960000.0,
    ("arms", "c0001-r1", "iops", "read"): 49327.81367746439,
    ("arms", "c0002-r2", "completion_latency_ns_mean", "write"): 10073.561264822134,
}
"""Result set, run, metric, operation."""


def test_facts_and_metrics_of_result_sets_are_the_same(result_sets: Path) -> None:
    sets = {name: ResultSet.open(result_sets / name) for name in ("measured", "decided", "arms")}
    assert [each.problems for each in sets.values()] == [[], [], []]
    found = {
        (name, *row[:3]): row[3]
        for name, each in sets.items()
        for row in each.sql("SELECT run_id, metric, operation, value FROM metrics").rows()
    }
    assert {key: found.get(key) for key in METRICS} == pytest.approx(METRICS, rel=1e-9)
    records = {record.run_id: record for record in sets["measured"].records()}
    assert {run_id: record.ended for run_id, record in records.items()} == {
        "c0001-r1": ("complete", "", "undetermined", False),
        "c0002-r1": ("complete", "", "undetermined", False),
        "c0003-r1": ("complete", "", "undetermined", False),
        "c0004-r1": ("complete", "", "cache-served", False),
        "c0005-r1": ("failed", "unsupported", "", False),
    }
    verified = records["c0001-r1"].result
    assert verified and verified["verification"]["checked_bytes"] == 8 << 20
    assert [each.code for each in records["c0004-r1"].warnings] == ["writes_to_memory", "core_saturated", "other_io"]
    assert [arm.plan.target for arm in sets["arms"].arms()] == ["sim:p900", "sim:p900*2,raid=0,chunk=512KiB"]
    assert [each.level for each in sets["measured"].study.requirement] == ["required"]


def test_every_command_that_reads_result_sets_reads_them(result_sets: Path, iosonde: Iosonde) -> None:
    measured, kinds = result_sets / "measured", ("csv", "parquet", "json", "fio-json", "hdr")
    commands: list[tuple[str | Path, ...]] = [
        *(("report", result_sets / name) for name in ("measured", "decided", "arms")),
        *(("export", measured, "--format", kind, "-o", result_sets / kind) for kind in kinds),
        ("report", measured, "--format", "md"),
        ("compare", result_sets / "arms"),
        ("sql", measured, "SELECT count(*) FROM histograms"),
    ]
    for command in commands:
        done = iosonde(*command)
        assert (command, done.returncode, done.stderr.count("damaged")) == (command, 0, 0), done.stderr
    listed = json.loads(iosonde("library", result_sets, "--json").stdout)
    assert sorted(Path(each["path"]).name for each in listed["result_sets"]) == ["arms", "decided", "measured"]
    shutil.copytree(result_sets / "decided", result_sets / "baseline")
    checked = iosonde("check", result_sets / "decided", "--baseline", result_sets / "baseline")
    assert (checked.returncode, checked.stderr) == (0, "")
    shutil.copytree(measured, result_sets / "contender")
    compared = iosonde("compare", measured, result_sets / "contender")
    assert (compared.returncode, compared.stderr) == (0, "")


@pytest.mark.engine
def test_a_study_that_0_1_0_has_started_is_continued(result_sets: Path, iosonde: Iosonde) -> None:
    before = ResultSet.open(result_sets / "decided").sql("SELECT case_id, iops FROM runs ORDER BY 1").rows()
    shutil.rmtree(result_sets / "decided/records/c0001-p02-r1")
    done = iosonde("resume", result_sets / "decided", "--no-report", "--quiet")
    assert done.returncode == 0, done.stderr
    after = ResultSet.open(result_sets / "decided")
    assert after.problems == [] and after.sql("SELECT case_id, iops FROM runs ORDER BY 1").rows() == before


# Result sets of newer versions


def test_a_plan_that_only_its_writer_can_read_names_it(result_sets: Path) -> None:
    plan, form = result_sets / "arms/plan.json", result_sets / "arms/format.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "zones": 1}))
    form.write_text(json.dumps({**json.loads(form.read_text()), "iosonde": "9.1.0"}))
    sign_plan(result_sets / "arms")
    with pytest.raises(ResultsError) as error:
        ResultSet.open(result_sets / "arms")
    assert error.value.what.startswith(f"`{plan}` was written by iosonde 9.1.0 and cannot be read by ")
    assert error.value.where.startswith("zones: ")
    assert error.value.hint == "use the iosonde that wrote it, or a newer one"


@pytest.mark.parametrize(("key", "change"), [("format", {"format": 2}), ("protocol", {"spec": {"protocol": 9}})])
def test_a_record_of_a_newer_version_is_named_and_skipped(key: str, change: dict[str, Any], result_sets: Path) -> None:
    file = result_sets / "arms/records/c0001-r1/record.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    sign(file.parent)
    opened = ResultSet.open(result_sets / "arms")
    newer, ours = (2, 1) if key == "format" else (9, 2)
    assert opened.problems == [f"`{file}` has {key} {newer}; this iosonde reads {key} {ours}: use a newer iosonde"]
    assert len(opened.records()) == 3
