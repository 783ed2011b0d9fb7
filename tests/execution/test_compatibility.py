"""An engine of other sources is reported once, before anything is written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines import FAKE, real_engine
from inline_snapshot import snapshot

import iosonde
from iosonde.data import shipped
from iosonde.errors import EngineError, IosondeError, ResultsError
from iosonde.execution import execute, resume
from iosonde.execution.checks import compatibility
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.protocol import VERSION
from iosonde.results.result_set import ResultSet
from iosonde.storage import open_target


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


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
    understood = 0
    for name in shipped():
        for target in ("null:4TiB", "sim:pm963", str(tmp_path)):
            try:
                plan = expand(load(name), open_target(target), profile="quick")
            except IosondeError:
                continue  # It needs devices, or a target of another kind.
            compatibility.check(real_engine(), plan.specs())
            understood += 1
    assert understood > len(shipped())


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
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
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
