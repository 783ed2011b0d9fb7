"""Log-structured stores start from a loaded database, or the record states that they did not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iosonde.execution import execute
from iosonde.execution.engine import without_engine
from iosonde.execution.instruments.carried_over_state import CarriedOverState
from iosonde.features.key_value_stores.database_state import EARLIER_SESSION, Databases
from iosonde.planning import expand, parse
from iosonde.results.schema import Failure
from iosonde.storage import open_target

STUDY = """
name = "stores"
title = "Stores"
question = "?"
workload = "kv"
repeats = 2
shuffle = false
[measurement]
store = "fjall"
phase = "overwrite"
records = "1k"
ramp = 0
duration = "200ms"
interval = "100ms"
[[parts]]
name = "main"
[profiles.standard]
"""


@pytest.mark.parametrize("carry_over", [False, True])
@pytest.mark.engine
def test_the_second_run_of_overwrites_is_restored_unless_it_carries_over(tmp_path: Path, carry_over: bool) -> None:
    (tmp_path / "target").mkdir()
    settings = {"carry_over": "true"} if carry_over else {}
    done = execute(expand(parse(STUDY), open_target(str(tmp_path / "target")), settings=settings), tmp_path / "set")
    first, second = done.records()
    assert (first.outcome, second.outcome) == ("complete", "complete")
    assert first.result and first.result["layout"]["written_bytes"] > 0
    assert second.result and ("restored_copied_bytes" in second.result["store"]) is not carry_over
    warned = [each.message for each in second.warnings if each.code == "carried_over_state"]
    assert (warned == []) is not carry_over
    assert all("`c0001-r1` left" in message for message in warned)


def a_run(name: str, path: Path, operation: str, *, store: str = "rocksdb", kind: str = "loaded") -> Any:
    workload = {
        "kind": "kv",
        "store": {"kind": store},
        "target": {"kind": "directory", "path": str(path)},
        "database": {"kind": kind, "reload": False},
        "streams": [{"operations": [{"operation": operation, "weight": 1.0}]}],
    }
    return SimpleNamespace(run_id=name, spec={"workload": workload})


def restores(databases: Databases, each: Any, **parameters: Any) -> tuple[bool, str]:
    spec, carried_over = databases.prepare(each, SimpleNamespace(parameters=parameters))  # type: ignore[arg-type]
    each.spec = spec
    databases.ended(each)
    return spec["workload"]["database"].get("restore", False), carried_over


def test_a_run_after_writes_is_restored_and_reads_in_a_row_are_not(tmp_path: Path) -> None:
    databases, path = Databases(), tmp_path / "db"
    kinds = ["update", "read", "read", "read_modify_write", "update", "read"]
    assert [restores(databases, a_run(f"r{number}", path, kind))[0] for number, kind in enumerate(kinds)] == [
        *(False, True, False, False, True, True)
    ]


def test_a_state_that_is_carried_over_names_the_run_that_left_it(tmp_path: Path) -> None:
    databases, path = Databases(), tmp_path / "db"
    assert restores(databases, a_run("first", path, "update"), carry_over=True) == (False, "")
    assert restores(databases, a_run("second", path, "read"), carry_over=True) == (False, "first")
    instrument = CarriedOverState(SimpleNamespace(carried_over="first"))  # type: ignore[arg-type]
    [warning] = instrument.stop(without_engine(Failure(code="", message=""))).warnings
    assert warning.code == "carried_over_state" and "`first` left" in warning.message


def test_a_run_that_loads_an_empty_database_leaves_it_loaded(tmp_path: Path) -> None:
    databases, path = Databases(), tmp_path / "db"
    restores(databases, a_run("load", path, "update", kind="empty"))
    assert restores(databases, a_run("read", path, "read")) == (False, "")


def test_databases_do_not_affect_each_other_and_trees_keep_theirs(tmp_path: Path) -> None:
    databases = Databases()
    restores(databases, a_run("a", tmp_path / "a", "update"))
    assert restores(databases, a_run("b", tmp_path / "b", "read")) == (False, "")
    restores(databases, a_run("c", tmp_path / "c", "update", store="lmdb"))
    assert restores(databases, a_run("d", tmp_path / "c", "read", store="lmdb")) == (False, "")


def test_a_database_of_an_earlier_session_counts_as_written(tmp_path: Path) -> None:
    assert restores(Databases(), a_run("a", tmp_path, "read"))[0]
    assert restores(Databases(), a_run("a", tmp_path, "read"), carry_over=True) == (False, EARLIER_SESSION)
