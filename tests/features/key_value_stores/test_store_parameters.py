"""Parameters of key-value stores: what may be written, what it becomes, what it costs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from jsonschema_rs import Draft202012Validator
from stores import WIREDTIGER
from study_texts import study_text

from iosonde.engine.protocol.validation import mismatch_of_spec
from iosonde.errors import StudyError
from iosonde.features.key_value_stores.parameters import LOADS, PHASES, STORES, KvParameters
from iosonde.features.key_value_stores.workload import KV
from iosonde.planning import parse
from iosonde.storage import open_target


@pytest.fixture
def directory(reachable: Path) -> str:
    return str(reachable)


def refusal(**parameters: Any) -> str:
    with pytest.raises(StudyError) as caught:
        KV.build(parameters)
    return str(caught.value)


def fitted(target: str = "null:1TiB", **parameters: Any) -> KvParameters:
    opened = open_target(target)
    return KV.fit({"main": KV.build(parameters)}, opened, room_bytes=opened.free_bytes())["main"]


def workload(target: str = "null:1TiB", **parameters: Any) -> dict[str, Any]:
    spec = KV.resolve({"main": KV.build(parameters)}, open_target(target), seed=7, run_id="c0001-r1")
    found: dict[str, Any] = spec["workload"]
    return found


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = subprocess.run([real_engine(), "--schema"], capture_output=True, check=True).stdout
    return Draft202012Validator(json.loads(schema)["spec"])


MARKS = {"wiredtiger": WIREDTIGER, "cassandra": pytest.mark.needs("java", "cassandra")}

ORDERED = ("readseq", "readreverse", "seekrandom", "ycsb_e")
"""Phases that a store without order cannot carry out."""

REFUSED = {
    **{("memcached", phase): "has no order" for phase in ORDERED},
    **{("cassandra", phase): "orders records by the hash of their keys" for phase in ORDERED},
    ("cassandra", "trace"): "a trace cannot be replayed",
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    "store", [pytest.param(store, marks=MARKS[store]) if store in MARKS else store for store in STORES]
)
@pytest.mark.engine
def test_every_phase_of_every_store_becomes_a_spec_that_the_engine_knows(
    phase: str, store: str, directory: str, validator: Draft202012Validator
) -> None:
    if (store, phase) in REFUSED:
        with pytest.raises(StudyError, match=REFUSED[store, phase]):
            KV.build({"phase": phase, "store": store})
        return
    trace = Path(directory, "trace.csv")
    trace.write_text("time,operation,key,value_size\n0,get,k,100\n")
    named = {"trace": str(trace)} if phase == "trace" else {}
    named |= {"server_url": "mongodb://127.0.0.1:1"} if store == "mongodb" else {}
    stream = KV.build({"phase": phase, "store": store, **named})
    spec = KV.resolve({"main": stream}, open_target(directory), seed=7, run_id="c0001-r1")
    assert [error.message for error in validator.iter_errors(spec)] == []
    assert spec["workload"]["store"]["kind"] == store


@pytest.mark.parametrize("phase", LOADS)
def test_a_load_starts_empty_and_writes_every_record(phase: str) -> None:
    found = workload(phase=phase, records="20k")
    assert found["database"] == {"kind": "empty"}
    assert found["duration_ns"] is None
    assert [stream["limit_operations"] for stream in found["streams"]] == [20_000]
    other = workload(phase="readrandom")
    assert (other["database"]["kind"], other["duration_ns"]) == ("loaded", 10 * 10**9)


def test_reading_while_writing_is_readers_and_one_writer_in_the_background() -> None:
    readers, writer = workload(phase="readwhilewriting", jobs=16, write_rate="10k")["streams"]
    assert (readers["name"], readers["jobs"], readers["background"]) == ("readers", 16, False)
    assert (writer["name"], writer["jobs"], writer["background"]) == ("writer", 1, True)
    assert (readers["rate_limit"], writer["rate_limit"]) == (None, 10_000)
    _, timed = workload(phase="readwhilewriting", write_rate=500, write_arrival="poisson")["streams"]
    assert timed["arrival"] == {"kind": "poisson", "rate": 500} and timed["rate_limit"] is None


def test_ycsb_mixes_are_those_of_its_core_workloads_unless_a_parameter_overrides_them() -> None:
    mixes = {
        letter: {
            share["operation"]: share["weight"]
            for share in workload(phase=f"ycsb_{letter}")["streams"][0]["operations"]
        }
        for letter in "abcdef"
    }
    assert mixes == {
        "a": {"read": 50, "update_field": 50},
        "b": {"read": 95, "update_field": 5},
        "c": {"read": 1},
        "d": {"read": 95, "insert": 5},
        "e": {"scan": 95, "insert": 5},
        "f": {"read": 50, "read_modify_write": 50},
    }
    choices = {letter: workload(phase=f"ycsb_{letter}")["streams"][0]["choice"] for letter in "ad"}
    assert [each["distribution"]["kind"] for each in choices.values()] == ["scrambled_zipfian", "latest"]

    [stream] = workload(phase="ycsb_a", operations="read/3:delete/1", choice="uniform", scan_records="5")["streams"]
    assert stream["operations"] == [{"operation": "read", "weight": 3}, {"operation": "delete", "weight": 1}]
    assert stream["choice"]["distribution"] == {"kind": "uniform"}
    assert (stream["scan_records_min"], stream["scan_records_max"]) == (5, 5)


def test_sizes_are_fixed_a_range_a_mix_or_follow_a_pareto_distribution() -> None:
    records = workload(key_size="16..32", value_size="100/70:4000/30")["records"]
    assert records["key_bytes"] == {"kind": "uniform", "min_bytes": 16, "max_bytes": 32}
    assert records["value_bytes"]["sizes"] == [{"bytes": 100, "weight": 70}, {"bytes": 4000, "weight": 30}]
    assert KV.build({"key_size": "16..32", "value_size": "100/70:4000/30"}).record_bytes == 24 + 1270
    assert workload(value_size="pareto:214.476:0.348238")["records"]["value_bytes"] == {
        "kind": "pareto", "scale": 214.476, "shape": 0.348238, "min_bytes": 16, "max_bytes": 1 << 20,
    }  # fmt: skip
    mean = KV.build({"value_size": "pareto:214.476:0.348238:1MiB", "key_size": 16}).record_bytes - 16
    assert 325 <= mean <= 335  # 214.476 / (1 - 0.348238) = 329 without limits.
    [stream] = workload(choice="zipfian:0.99:250")["streams"]
    assert stream["choice"]["distribution"] == {"kind": "zipfian", "theta": 0.99, "churn": 250}


def test_only_the_options_of_the_store_that_is_measured_are_given(directory: str) -> None:
    options = {
        "lmdb": {"mapsize": "1GiB"},
        "rocksdb": "write_buffer_size=64MiB;use_direct_reads=true;compression=kZSTD",
    }
    assert workload(directory, store="lmdb", **options)["store"]["options"] == {"mapsize": 1 << 30}
    assert workload(directory, store="rocksdb", **options)["store"]["options"] == {
        "write_buffer_size": 64 << 20,
        "use_direct_reads": True,
        "compression": "kZSTD",
    }
    nested = {"compaction_options_universal": "{size_ratio=2;max_merge_width={x=1};}", "some_new_feature": True}
    built = KV.build({"store": "rocksdb", "rocksdb": nested})
    assert built.options == nested, "braces are one value, and unknown names are left to the library"


def test_the_map_of_lmdb_has_room_for_the_inserts_of_a_run_and_fits_the_file_system(directory: str) -> None:
    growing = {"store": "lmdb", "phase": "ycsb_d", "records": "5000", "ramp": "2s"}
    gib_per_s = 2
    shorter, longer = (
        workload(directory, **growing, duration=duration)["store"]["options"]["mapsize"] for duration in ("1s", "61s")
    )
    assert shorter > 3 * gib_per_s << 30
    assert longer - shorter == 60 * gib_per_s << 30
    assert workload(directory, **growing, duration="1000h")["store"]["options"]["mapsize"] == 1 << 46, "the largest map"
    for fixed in ({"mapsize": 1 << 30}, {"MDB_WRITEMAP": True}):
        assert workload(directory, **growing, duration="1s", lmdb=fixed)["store"]["options"] == fixed
    assert workload(directory, store="lmdb", phase="ycsb_a")["store"]["options"] == {}
    # Else every such run would fail: the file is as large as the map, 4 times the records unless the study sets it.
    for sizes in ({"records": "1G"}, {"lmdb": {"mapsize": "60TiB", "MDB_WRITEMAP": True}}):
        with pytest.raises(StudyError, match="with `MDB_WRITEMAP` the map needs "):
            workload(directory, **{"store": "lmdb", "lmdb": {"MDB_WRITEMAP": True}, **sizes})


def test_different_databases_have_different_directories(directory: str) -> None:
    same, other = (
        ({}, {"jobs": 2}, {"phase": "load"}),
        ({"records": 5}, {"store": "rocksdb"}, {"lmdb": {"mapsize": 1}}),
    )
    names = [Path(workload(directory, **each)["target"]["path"]).name for each in (*same, *other)]
    assert names[0] == names[1] == names[2], "the same records in the same store"
    assert len(set(names)) == 4


def test_specs_of_stores_of_earlier_versions_stay_readable(directory: str) -> None:
    whole = KV.resolve({"main": KV.build({})}, open_target(directory), seed=1, run_id="r")
    for kind, found in (("redb", ""), ("fjall", ""), ("leveldb", "in a spec: ")):
        workload = {**whole["workload"], "store": {**whole["workload"]["store"], "kind": kind}}
        assert mismatch_of_spec({**whole, "workload": workload})[: len("in a spec: ")] == found


def test_a_load_costs_its_records_and_reads_write_nothing(directory: str) -> None:
    load = KV.cost({"main": fitted(directory, phase="load", records="1M")})
    assert load.write_bytes == 10**6 * 116
    assert KV.cost({"main": fitted(directory, phase="readrandom")}).write_bytes == 0
    assert KV.cost({"main": fitted(directory, phase="overwrite")}).write_bytes is None


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"phase": "readradom"}, "did you mean `readrandom`?"),
        ({"records": 0}, "above 0"),
        ({"key_size": 7}, "at least 8 B"),
        ({"value_size": "32..16"}, "begins above its end"),
        ({"operations": "read/95:writ/5"}, "`writ` is not an operation"),
        ({"rocksdb": {"db_log_dir": ".."}}, "option `db_log_dir` names a place, which the engine decides"),
        ({"rocksdb": {"ttl": "0;wal_dir=wal"}}, "option `ttl` has more than one value"),
        ({"rocksdb": {"wal_dir=wal;ttl": 0}}, "option `wal_dir=wal;ttl` is not a name"),
        ({"log": "apart"}, "lmdb has no separate log"),
        ({"user_database": "/db", "store": "rocksdb", "settle": True}, "is read-only"),
        ({"user_database": "/db", "store": "rocksdb", "phase": "overwrite"}, "`user_database` is for reads"),
        ({"freshness": True, "phase": "overwrite", "batch": 2}, "needs single writes"),
        ({"rocksdb": {"write_bufer_size": 1}}, "`rocksdb` has no option `write_bufer_size`; the nearest name is "
         "`write_buffer_size`"),
        ({"phase": "overwrite", "arrival": "constant", "rate": 5, "batch": 2}, "one operation at a time"),
        ({"batch": 2}, "`batch` is for operations that write"),
        ({"duration": "none"}, "it would never end"),
        *[({"value_size": f"pareto:{shape}"}, "value_size") for shape in ("1", "0:0.3", "100:1", "100:0.3:8B")],
        ({"store": "cassandra", "sync": True}, "acknowledges writes before they are synced"),
        ({"store": "memcached", "sync": True}, "keeps nothing across a restart"),
    ],
)  # fmt: skip
def test_invalid_combinations_are_refused(parameters: dict[str, Any], text: str) -> None:
    assert text in refusal(**parameters)


def test_streams_that_run_together_have_one_database(directory: str) -> None:
    target = open_target(directory)
    several = {
        "reader": KV.build({"phase": "readrandom"}),
        "writer": KV.build({"phase": "overwrite", "store": "rocksdb"}),
    }
    with pytest.raises(StudyError, match="streams that run together differ in `store`"):
        KV.fit(several, target, room_bytes=target.free_bytes())
    behind = {"writer": KV.build({"phase": "overwrite", "background": True})}
    with pytest.raises(StudyError, match="nothing ends the run"):
        KV.fit(behind, target, room_bytes=target.free_bytes())


PLACES = {
    **dict.fromkeys(("log_target", "read_cache_target", "user_database", "options_file", "trace"), "x"),
    "library": "./librocksdb.so",
}
"""Parameters that only the command line may set."""


@pytest.mark.parametrize("name", PLACES)
def test_a_study_cannot_name_files_directories_or_code(name: str) -> None:
    """A study from somebody else loaded a library, and wrote to a directory, that the user had not named."""
    text = study_text("kv", f'store = "rocksdb"\n{name} = "{PLACES[name]}"')
    with pytest.raises(StudyError, match="is a path and cannot be set in a study") as caught:
        parse(text)
    assert f"--set {name}=..." in caught.value.hint
    assert parse(text.replace(f'{name} = "{PLACES[name]}"', 'library = "librocksdb.so.7"'))


OPTIONS = """
[DBOptions]
  max_background_jobs=4
  wal_dir=/srv/db
[CFOptions "default"]
  write_buffer_size=67108864
  compression=kNoCompression
  compression_opts={window_bits=-14;level=32767;}
[TableOptions/BlockBasedTable "default"]
  block_size=8192
[CFOptions "other"]
  write_buffer_size=1
"""


def test_an_options_file_is_read_and_options_override_it(tmp_path: Path, directory: str) -> None:
    (tmp_path / "OPTIONS-000007").write_text(OPTIONS)
    options = {"options_file": str(tmp_path / "OPTIONS-000007"), "rocksdb": {"compression": "kLZ4Compression"}}
    found = workload(directory, store="rocksdb", **options)
    assert found["store"]["options"] == {
        "max_background_jobs": 4,
        "write_buffer_size": 67108864,
        "compression": "kLZ4Compression",
        "compression_opts": "{window_bits=-14;level=32767;}",
        "block_size": 8192,
    }
    (tmp_path / "empty").write_text("hello")
    for name, message in {"missing": "No such file", "empty": "has no options of RocksDB"}.items():
        with pytest.raises(StudyError, match=message):
            workload(directory, store="rocksdb", options_file=str(tmp_path / name))


def test_a_users_database_becomes_a_read_only_target(directory: str) -> None:
    found = workload(directory, store="rocksdb", user_database=directory, phase="readrandom")
    assert found["target"] == {"kind": "read_only", "path": directory}
    assert found["database"] == {"kind": "existing"}
    stream = KV.build({"store": "rocksdb", "user_database": directory})
    assert KV.files({"main": stream}) == {}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("store", "phase", "expected"),
    [("rocksdb", "overwrite", True), ("rocksdb", "readrandom", False), ("lmdb", "overwrite", False)],
)
def test_log_structured_stores_keep_a_checkpoint_before_writes(
    store: str, phase: str, expected: bool, directory: str
) -> None:
    assert workload(directory, store=store, phase=phase)["database"].get("checkpoint", False) is expected
    carried = workload(directory, store=store, phase=phase, carry_over=True)
    assert "checkpoint" not in carried["database"]
