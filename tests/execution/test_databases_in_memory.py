"""A database in a file system in memory: swapped at a memory limit, loaded for each run, and removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import real_engine

from iosonde.errors import StudyError, TargetError
from iosonde.execution import execute
from iosonde.execution.checks.admission import Admission
from iosonde.features.key_value_stores.workload import KV
from iosonde.features.swap_areas.area import active
from iosonde.planning import expand, parse
from iosonde.storage import open_target

STUDY = """
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


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


@pytest.mark.system
@pytest.mark.alone
@pytest.mark.needs("root", "memory limits")
def test_lmdb_in_memory_swaps_and_nothing_remains(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    plan = expand(parse(STUDY), open_target(str(data)))
    own = Path("/dev/shm", plan.created_name)
    assert Path(plan.runs[0].spec["workload"]["target"]["path"]).parent == own
    [record] = execute(plan, tmp_path / "results").records()
    assert record.outcome == "complete", record.failure
    assert record.memory and record.result
    assert record.memory["swap_peak_bytes"] > 4 << 20
    [check] = record.result["store"]["checks"]
    assert (check["missing"], check["corrupted"]) == (0, 0)
    assert not own.exists()
    assert list(data.iterdir()) == []
    assert [each for each in active() if str(data) in each.path] == []


@pytest.mark.unit
@pytest.mark.parametrize(
    "parameters",
    [{"store": "memcached"}, {"store": "rocksdb", "read_cache": "128MiB"}, {"store": "rocksdb", "log": "apart"}],
)
def test_only_a_database_of_its_own_can_be_in_memory(parameters: dict[str, str]) -> None:
    with pytest.raises(StudyError, match="`in_memory` is for"):
        KV.build({**parameters, "in_memory": True})


@pytest.mark.unit
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
    plan = expand(study, open_target(str(data)), settings={"trace": str(trace), "store": "redb"})
    Admission.for_plan(plan, tmp_path).check_plan()
    plan.runs[0].spec["workload"]["streams"][0]["trace"]["path"] = "/etc/shadow"
    with pytest.raises(TargetError, match="names another target") as raised:
        Admission.for_plan(plan, tmp_path).check_plan()
    assert "a trace outside of the cache directory" in raised.value.where
