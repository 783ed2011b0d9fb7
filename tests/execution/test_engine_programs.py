"""Programs of the engine: which specs need which, how a checkout builds one, and programs of other versions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import stores
from command_line import CHECKOUT
from engines import FAKE, clients_engine, real_engine

import iosonde
from iosonde.data import shipped
from iosonde.engine.protocol import VERSION
from iosonde.errors import EngineError, IosondeError, ResultsError
from iosonde.execution import engine_programs
from iosonde.execution.session import execute, resume
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.results.result_set import ResultSet
from iosonde.storage import open_target
from iosonde.study.workload import described
from iosonde.study.workload.workload import Engine

CLIENTS: Engine = "iosonde-engine-clients"
CARGO = """\
#!/bin/sh
echo "cargo $*" >>{log}
[ {status} = 0 ] || {{ echo 'error: failed to download' >&2; exit {status}; }}
mkdir -p "$CARGO_TARGET_DIR/release"
cp "$BUILT" "$CARGO_TARGET_DIR/release/iosonde-engine-clients"
"""
"""In the place of a compiler that takes minutes: it copies a program whose schema is the same."""


def spec(store: str, directory: Path) -> dict[str, Any]:
    return stores.spec(store, directory, stores.stream("main", "read", limit_operations=1))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment whose Python has no programs next to it, with a place for `cargo`."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    monkeypatch.setenv("BUILT", str(real_engine()))
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.delenv("IOSONDE_ENGINE_CLIENTS", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("sys.executable", str(binaries / "python3"))
    target = tmp_path / "target"
    target.mkdir()
    # Otherwise `scripts/own-build` makes Cargo compile this checkout again.
    (target / "iosonde-checkout").write_text(f"{CHECKOUT}\n")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(target))
    return binaries


def cargo(binaries: Path, *, status: int = 0) -> Path:
    log = binaries.parent / "calls"
    script = binaries / "cargo"
    script.write_text(CARGO.format(log=log, status=status))
    script.chmod(0o755)
    return log


@pytest.mark.system
def test_each_store_is_in_the_program_that_its_specs_name() -> None:
    found: dict[str, set[str]] = {}
    programs = {"iosonde-engine": real_engine(), CLIENTS: clients_engine()}
    assert set(programs) == set(get_args(Engine))
    for program, path in programs.items():
        printed = subprocess.run([path, "--schema"], capture_output=True, check=True).stdout
        for store in json.loads(printed)["store_options"]:
            found.setdefault(store, set()).add(program)
    assert len(found) == 6
    for store, names in found.items():
        workload = spec(store, Path("/nowhere"))["workload"]
        assert names == {described(workload).engine(workload)}


def test_a_checkout_builds_the_program_once_when_a_study_needs_it(bare: Path, tmp_path: Path) -> None:
    log, notes = cargo(bare), []
    engine_programs.require([spec("lmdb", bare)], pytest.fail)
    assert engine_programs.clients_of([spec("lmdb", bare)]) == {}, "other stores are in the first program"
    specs = [spec("mongodb", tmp_path)]
    for _ in range(2):
        engine_programs.require(specs, notes.append)
    assert log.read_text().splitlines() == [
        "cargo build --release --locked --package iosonde-engine --no-default-features --features clients"
    ]
    assert len(notes) == 1 and f"building `{CLIENTS}`" in notes[0] and str(bare) in notes[0]
    assert engine_programs.clients_of(specs) == {CLIENTS: bare / CLIENTS}
    assert sorted(path.name for path in bare.iterdir()) == ["cargo", CLIENTS]


def test_a_failed_build_is_an_error_that_leaves_nothing(bare: Path, tmp_path: Path, capfd: Any) -> None:
    cargo(bare, status=101)
    with pytest.raises(EngineError, match=r"`iosonde-engine-clients` could not be built \(exit status 101\)"):
        engine_programs.require([spec("cassandra", tmp_path)], lambda text: None)
    assert "failed to download" in capfd.readouterr().err
    assert [path.name for path in bare.iterdir()] == ["cargo"]


def test_a_build_that_the_variable_names_wrongly_is_not_replaced(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo(bare)
    monkeypatch.setenv("IOSONDE_ENGINE_CLIENTS", "/nowhere/clients")
    with pytest.raises(EngineError, match="`/nowhere/clients` is not an executable program") as error:
        engine_programs.require([spec("mongodb", bare)], pytest.fail)
    assert error.value.where == "named by the environment variable `IOSONDE_ENGINE_CLIENTS`"


def another(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The real engine, as if it had been built from sources with another protocol."""
    schema = json.loads(subprocess.run([real_engine(), "--schema"], capture_output=True, check=True).stdout)
    change(schema)
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    engine = tmp_path / "iosonde-engine"
    engine.write_text(f'#!/bin/sh\n[ "$1" = --schema ] && exec cat {tmp_path}/schema.json\nexec {real_engine()} "$@"\n')
    engine.chmod(0o755)
    return engine


def short_plan(target: str = "null:1GiB") -> Plan:
    study = load("quick")
    return expand(study, open_target(target), profile="quick", repeats=1)


def without_active(schema: dict[str, Any]) -> None:
    del schema["spec"]["$defs"]["Stream"]["properties"]["active"]


def test_every_shipped_study_is_understood(tmp_path: Path) -> None:
    """Those that need devices, servers or commands of their own are planned where these are tested."""
    understood, names = 0, sorted(shipped())
    for name in names:
        for target in ("sim:pm963", str(tmp_path)):
            with suppress(IosondeError):  # It needs devices, or a target of another kind.
                plan = expand(load(name), open_target(target), profile="quick", repeats=1)
                engine_programs.check(real_engine(), plan.specs())
                understood += 1
                break
    assert understood > len(names) / 2


def test_an_older_engine_neither_starts_nor_resumes_a_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = execute(short_plan(), tmp_path / "started", time_limit_s=0)
    left = len(started.missing_runs(retry_failed=False))
    assert left
    monkeypatch.setenv("IOSONDE_ENGINE", str(another(tmp_path, without_active)))
    with pytest.raises(EngineError, match="is of another version than iosonde: it does not support"):
        execute(short_plan(), tmp_path / "results")
    assert not (tmp_path / "results").exists()
    with pytest.raises(EngineError, match="of another version"):
        resume(tmp_path / "started")
    assert len(started.missing_runs(retry_failed=False)) == left


def test_a_plan_for_another_protocol_is_not_read(tmp_path: Path) -> None:
    plan = short_plan()
    runs = [run.model_copy(update={"spec": {**run.spec, "protocol": 1}}) for run in plan.runs]
    older = plan.model_copy(update={"runs": runs})
    ResultSet.create(tmp_path / "results", older)
    with pytest.raises(ResultsError) as error:
        iosonde.load(tmp_path / "results")
    assert f"`protocol` of a spec is 1, this iosonde reads {VERSION}" in error.value.where


def lacks_a_word(schema: dict[str, Any]) -> None:
    modes = schema["spec"]["$defs"]["IoMode"]["oneOf"]
    modes[:] = [each for each in modes if each["const"] != "direct"]


def with_zones(schema: dict[str, Any]) -> None:
    schema["spec"]["properties"]["zones"] = {"type": "string"}
    schema["spec"]["required"].append("zones")


def lacks_a_kind(schema: dict[str, Any]) -> None:
    kinds = schema["spec"]["$defs"]["Access"]["oneOf"]
    kinds[:] = [each for each in kinds if each["properties"]["kind"]["const"] != "random"]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda schema: schema.update(protocol=99), f"it uses protocol 99, iosonde uses {VERSION}"),
        (with_zones, "it needs `zones`, which is missing"),
        (lacks_a_kind, "it does not support `workload.streams[0].access: random`"),
        (without_active, "it does not support `workload.streams[0].active`"),
        (lacks_a_word, "it does not support `workload.streams[0].io_mode: direct`"),
    ],
)
def test_the_differences_are_named(tmp_path: Path, change: Callable[[dict[str, Any]], Any], difference: str) -> None:
    with pytest.raises(EngineError) as error:
        engine_programs.check(another(tmp_path, change), short_plan().specs())
    assert error.value.what.endswith(difference)


def test_an_engine_without_a_schema_is_not_checked() -> None:
    engine_programs.check(FAKE, short_plan().specs())
