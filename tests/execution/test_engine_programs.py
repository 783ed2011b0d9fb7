"""Programs of the engine: which specs need which, how a checkout builds one, and programs of other versions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import stores
from command_line import CHECKOUT
from engines import FAKE, real_engine
from inline_snapshot import snapshot

import iosonde
from iosonde.data import shipped
from iosonde.errors import EngineError, IosondeError, ResultsError
from iosonde.execution import execute, resume
from iosonde.execution.checks import compatibility, engine_programs
from iosonde.execution.engine import drive, find_engine
from iosonde.execution.stop import Stop
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.protocol import VERSION
from iosonde.results.result_set import ResultSet
from iosonde.storage import open_target
from iosonde.workload import described
from iosonde.workload.workload import Engine

CLIENTS: Engine = "iosonde-engine-clients"
CARGO = """\
#!/bin/sh
echo "cargo $*" >>{log}
[ {status} = 0 ] || {{ echo 'error: failed to download' >&2; exit {status}; }}
mkdir -p "$CARGO_TARGET_DIR/release"
cp {program} "$CARGO_TARGET_DIR/release/iosonde-engine-clients"
"""
"""In the place of a compiler that takes minutes: it copies the program that setup has built."""


def spec(store: str, directory: Path) -> dict[str, Any]:
    return stores.spec(store, directory, stores.stream("main", "read", limit_operations=1))


def program_of(spec: dict[str, Any]) -> Engine:
    return described(spec["workload"]).engine(spec["workload"])


@pytest.fixture
def built() -> Path:
    """The program that setup has built."""
    return find_engine(CLIENTS)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment whose Python has no programs next to it, with a place for `cargo`."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
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


def cargo(binaries: Path, program: Path, *, status: int = 0) -> Path:
    """Install a `cargo`; returns the file with its calls."""
    log = binaries.parent / "calls"
    script = binaries / "cargo"
    script.write_text(CARGO.format(log=log, program=program, status=status))
    script.chmod(0o755)
    return log


def test_each_store_is_in_the_program_that_its_specs_name() -> None:
    found: dict[str, set[str]] = {}
    for program in get_args(Engine):
        printed = subprocess.run([find_engine(program), "--schema"], capture_output=True, check=True).stdout
        for store in json.loads(printed)["store_options"]:
            found.setdefault(store, set()).add(program)
    assert len(found) > 6
    assert found == {store: {program_of(spec(store, Path("/nowhere")))} for store in found}


@pytest.mark.parametrize(("program", "store"), [("iosonde-engine", "mongodb"), (CLIENTS, "redb")])
def test_a_program_without_the_store_refuses_the_spec_and_names_the_other(
    program: Engine, store: str, tmp_path: Path
) -> None:
    done = drive(spec(store, tmp_path), on_event=lambda event: None, stop=Stop(), engine=find_engine(program))
    assert done.failure is not None
    other = next(each for each in get_args(Engine) if each != program)
    assert (done.failure.code, done.failure.hint) == ("unsupported", f"use `{other}`")


def test_a_session_on_other_stores_needs_one_program(bare: Path) -> None:
    cargo(bare, Path("/nowhere"), status=1)
    engine_programs.require([spec("redb", bare)], pytest.fail)
    assert engine_programs.clients_of([spec("redb", bare)]) == {}


def test_a_checkout_builds_the_program_once_when_a_study_needs_it(built: Path, bare: Path, tmp_path: Path) -> None:
    log, notes = cargo(bare, built), []
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
    cargo(bare, Path("/nowhere"), status=101)
    with pytest.raises(EngineError, match=r"`iosonde-engine-clients` could not be built \(exit status 101\)"):
        engine_programs.require([spec("cassandra", tmp_path)], lambda text: None)
    assert "failed to download" in capfd.readouterr().err
    assert [path.name for path in bare.iterdir()] == ["cargo"]


def test_a_build_that_the_variable_names_wrongly_is_not_replaced(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo(bare, Path("/nowhere"))
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
    understood = 0
    for name in shipped():
        for target in ("sim:pm963", str(tmp_path)):
            try:
                plan = expand(load(name), open_target(target), profile="quick", repeats=1)
            except IosondeError:
                continue  # It needs devices, or a target of another kind.
            compatibility.check(real_engine(), plan.specs())
            understood += 1
            break
    assert understood > len(shipped()) / 2


def test_an_older_engine_is_refused_before_there_is_a_result_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(another(tmp_path, without_active)))
    with pytest.raises(EngineError) as error:
        execute(short_plan(), tmp_path / "results")
    assert str(error.value).replace(str(tmp_path), "BIN") == snapshot("""\
the engine `BIN/iosonde-engine` is of another version than iosonde: it does not support `workload.streams[0].active`
  found before anything was written

hint: build both from the same sources: `make setup` in a checkout, `pip install` elsewhere; if the variable `IOSONDE_ENGINE` names another build, remove it or build that again (`cargo build --release`)\
""")
    assert not (tmp_path / "results").exists()


def test_a_study_that_was_started_is_not_resumed_with_an_older_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = execute(short_plan(), tmp_path / "results", time_limit_s=0)
    left = len(started.missing_runs(retry_failed=False))
    assert left
    monkeypatch.setenv("IOSONDE_ENGINE", str(another(tmp_path, without_active)))
    with pytest.raises(EngineError, match="of another version"):
        resume(tmp_path / "results")
    assert len(started.missing_runs(retry_failed=False)) == left


def test_a_plan_for_another_protocol_is_not_read(tmp_path: Path) -> None:
    plan = short_plan()
    runs = [run.model_copy(update={"spec": {**run.spec, "protocol": 1}}) for run in plan.runs]
    older = plan.model_copy(update={"runs": runs})
    ResultSet.create(tmp_path / "results", older)
    with pytest.raises(ResultsError) as error:
        iosonde.load(tmp_path / "results")
    assert f"`protocol` of a spec is 1, this iosonde reads {VERSION}" in error.value.where


def lacks_a_backend(schema: dict[str, Any]) -> None:
    backends = schema["spec"]["$defs"]["Backend"]["oneOf"]
    backends[:] = [each for each in backends if each["properties"]["kind"]["const"] != "null"]


def lacks_a_word(schema: dict[str, Any]) -> None:
    modes = schema["spec"]["$defs"]["IoMode"]["oneOf"]
    modes[:] = [each for each in modes if each["const"] != "direct"]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda schema: schema.update(protocol=99), f"it uses protocol 99, iosonde uses {VERSION}"),
        (lambda schema: schema["spec"]["required"].append("zones"), "it needs `zones`, which is missing"),
        (without_active, "it does not support `workload.streams[0].active`"),
        (lacks_a_backend, "it does not support `workload.backend: null`"),
        (lacks_a_word, "it does not support `workload.streams[0].io_mode: direct`"),
    ],
)
def test_the_differences_are_named(tmp_path: Path, change: Callable[[dict[str, Any]], Any], difference: str) -> None:
    with pytest.raises(EngineError) as error:
        compatibility.check(another(tmp_path, change), short_plan().specs())
    assert error.value.what.endswith(difference)


def test_an_engine_without_a_schema_is_not_checked() -> None:
    compatibility.check(FAKE, short_plan().specs())
