"""Databases from run to run: loaded, restored or carried over, and in a file system in memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiers import skip_for_busy_machine

from iosonde.errors import StudyError, TargetError
from iosonde.execution.admission import Admission
from iosonde.execution.session import execute
from iosonde.features.key_value_stores.run import EARLIER_SESSION, Databases
from iosonde.features.key_value_stores.workload import KV
from iosonde.features.swap_areas.area import active
from iosonde.planning import expand, parse
from iosonde.storage import open_target

STUDY = """
name = "stores"
title = "Stores"
question = "?"
workload = "kv"
repeats = 2
shuffle = false
measurement = { store = "rocksdb", phase = "overwrite", records = "1k", ramp = 0, duration = "200ms", interval = "100ms" }
[[parts]]
name = "main"
[profiles.standard]
"""


@pytest.mark.needs("rocksdb")
@pytest.mark.parametrize("carry_over", [False, True])
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
    spec, warnings = databases.prepare(each, SimpleNamespace(parameters=parameters))  # type: ignore[arg-type]
    assert {warning.code for warning in warnings} <= {"carried_over_state"}
    each.spec = spec
    databases.ended(each)
    return spec["workload"]["database"].get("restore", False), "".join(
        warning.message.split("`")[1] for warning in warnings
    )


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


def test_databases_do_not_affect_each_other_and_trees_and_new_ones_are_not_restored(tmp_path: Path) -> None:
    databases = Databases()
    restores(databases, a_run("a", tmp_path / "a", "update"))
    assert restores(databases, a_run("b", tmp_path / "b", "read")) == (False, "")
    restores(databases, a_run("c", tmp_path / "c", "update", store="lmdb"))
    assert restores(databases, a_run("d", tmp_path / "c", "read", store="lmdb")) == (False, "")
    restores(databases, a_run("load", tmp_path / "e", "update", kind="empty"))
    assert restores(databases, a_run("read", tmp_path / "e", "read")) == (False, "")


def test_a_database_of_an_earlier_session_counts_as_written(tmp_path: Path) -> None:
    assert restores(Databases(), a_run("a", tmp_path, "read"))[0]
    assert restores(Databases(), a_run("a", tmp_path, "read"), carry_over=True) == (False, EARLIER_SESSION)


IN_MEMORY = """
name = "memories"
title = "Memories"
question = "?"
workload = "kv"
repeats = 1
[measurement]
store = "lmdb"
in_memory = true
records = 16000
value_size = 4000
value_compression_ratio = 1.0
memory_limit = "60MiB"
swap = "target"
swap_size = "256MiB"
duration = "500ms"
interval = "100ms"
[[parts]]
[profiles.standard]
"""


@pytest.mark.system
@pytest.mark.alone
@pytest.mark.needs("root", "memory limits")
def test_lmdb_in_memory_swaps_and_nothing_remains(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    plan = expand(parse(IN_MEMORY), open_target(str(data)))
    own = Path("/dev/shm", plan.created_name)
    assert Path(plan.runs[0].spec["workload"]["target"]["path"]).parent == own
    [record] = execute(plan, tmp_path / "results").records()
    assert record.memory and record.memory["swap_peak_bytes"] > 4 << 20
    assert not own.exists()
    assert list(data.iterdir()) == []
    assert [each for each in active() if str(data) in each.path] == []
    if record.failure and record.failure.code == "out_of_memory":
        # The kernel gives up on a group although its swap area has room; a full one would be a fault of the plan.
        assert record.memory["swap_peak_bytes"] < 128 << 20
        skip_for_busy_machine(record.failure.message)
    assert record.outcome == "complete", record.failure
    assert record.result
    [check] = record.result["store"]["checks"]
    assert (check["missing"], check["corrupted"]) == (0, 0)


def test_only_a_database_of_its_own_can_be_in_memory() -> None:
    for parameters in ({"store": "memcached"}, {"store": "rocksdb", "log": "apart"}):
        with pytest.raises(StudyError, match="`in_memory` is for"):
            KV.build({**parameters, "in_memory": True})


def test_a_spec_with_a_trace_outside_of_the_cache_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan may come from somebody else, and names a file that the engine opens."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trace = tmp_path / "trace.csv"
    trace.write_text("time,operation,key,value_size\n0,get,k,100\n")
    study = parse('name = "t"\ntitle = "T"\nquestion = "?"\nworkload = "kv"\n[measurement]\nphase = "trace"\n'
                  '[[parts]]\n[profiles.standard]\n')  # fmt: skip
    data = tmp_path / "data"
    data.mkdir()
    plan = expand(study, open_target(str(data)), settings={"trace": str(trace), "store": "lmdb"})
    Admission.for_plan(plan, tmp_path).check_plan()
    plan.runs[0].spec["workload"]["streams"][0]["trace"]["path"] = "/etc/shadow"
    with pytest.raises(TargetError, match="names another target") as raised:
        Admission.for_plan(plan, tmp_path).check_plan()
    assert "a trace outside of the cache directory" in raised.value.where
