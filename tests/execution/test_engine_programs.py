"""The program `iosonde-engine-clients`: which specs need it, and how a checkout builds it when one does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import stores
from command_line import CHECKOUT
from engines import real_engine
from inline_snapshot import snapshot

from iosonde.errors import EngineError
from iosonde.execution.checks import engine_programs
from iosonde.execution.engine import drive, find_engine
from iosonde.execution.stop import Stop
from iosonde.workload import described
from iosonde.workload.workload import Engine

pytestmark = pytest.mark.engine

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
    with pytest.raises(EngineError) as error:
        engine_programs.require([spec("cassandra", tmp_path)], lambda text: None)
    shown = str(error.value).replace(str(bare), "BIN").replace(str(CHECKOUT), "CHECKOUT")
    assert shown == snapshot("""\
`iosonde-engine-clients` could not be built (exit status 101)
  by `CHECKOUT/scripts/build-clients BIN`; cargo's messages are above

hint: correct the cause that cargo names; the first build downloads crates, which requires a network; or set the environment variable `IOSONDE_ENGINE_CLIENTS` to the path of a build\
""")
    assert "failed to download" in capfd.readouterr().err
    assert [path.name for path in bare.iterdir()] == ["cargo"]


def test_without_cargo_the_error_names_what_is_missing(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError) as error:
        engine_programs.require([spec("cassandra", tmp_path)], pytest.fail)
    assert str(error.value) == snapshot("""\
`iosonde-engine-clients` cannot be built: `cargo` was not found on PATH
  needed for the stores `cassandra` and `mongodb`

hint: install Rust with `make setup`, or set the environment variable `IOSONDE_ENGINE_CLIENTS` to the path of a build\
""")


def test_a_build_that_the_variable_names_wrongly_is_not_replaced(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo(bare, Path("/nowhere"))
    monkeypatch.setenv("IOSONDE_ENGINE_CLIENTS", "/nowhere/clients")
    with pytest.raises(EngineError, match="`/nowhere/clients` is not an executable program") as error:
        engine_programs.require([spec("mongodb", bare)], pytest.fail)
    assert error.value.where == "named by the environment variable `IOSONDE_ENGINE_CLIENTS`"
