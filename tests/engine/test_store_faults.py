"""Faults of a store are distinguished, on the real store; databases and libraries of the user are only read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from stores import (
    EACH_ONCE,
    EMPTY,
    EXISTING,
    LOADED,
    SEQUENTIAL,
    STORES,
    Spec,
    carry_out,
    small_file_system,
    spec,
    stream,
)

READER = stream("reader", "read", choice=EACH_ONCE, limit_operations=2000)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"00000000"


def test_a_corrupted_value_is_found_counted_and_warned_of(tmp_path: Path) -> None:
    run = spec("lmdb", tmp_path, READER)
    carry_out(run)
    file = tmp_path / "database" / "data.mdb"
    content = bytearray(file.read_bytes())
    # Pages keep stale copies of records that moved; of this one there is none.
    number = next(number for number in range(2000) if content.count(key(number)) == 1)
    content[content.find(key(number)) + 16 + 50] ^= 1
    file.write_bytes(content)
    output = carry_out(run)
    assert output.store["kept"]
    assert output.checks("corrupted") == 1
    assert output.checks("values") == 2000
    (warning,) = [event for event in output.events if event["event"] == "warning"]
    assert warning["code"] == "corrupted_values"
    assert warning["message"] == f"1 of 2000 values read are corrupted or out of order, first of record {number}"


@pytest.mark.parametrize("store", STORES)
def test_iterators_and_scans_report_records_that_a_store_lost(store: str, tmp_path: Path) -> None:
    """The database claims to be complete, and records 0 to 4 are not in it."""
    carry_out(spec(store, tmp_path, READER))
    mark = (tmp_path / "iosonde-database.json").read_text()
    delete = stream("delete", "delete", choice=SEQUENTIAL, limit_operations=5)
    carry_out(spec(store, tmp_path, delete, database=EXISTING))
    (tmp_path / "iosonde-database.json").write_text(mark)
    three = {"choice": SEQUENTIAL, "scan_records_min": 3, "scan_records_max": 3, "limit_operations": 1}
    for direction, whole, missing in (("forward", 1995, 5), ("reverse", 2000, 1)):  # Whose end shows what is missing.
        walk = stream("walk", "iterate", direction=direction, limit_operations=whole)
        output = carry_out(spec(store, tmp_path, walk))
        assert (output.checks("missing"), output.warnings) == (5, ["missing_records"])
        output = carry_out(spec(store, tmp_path, stream("scan", "scan", direction=direction, **three)))
        assert output.checks("missing") == missing


@pytest.mark.needs("rocksdb")
def test_a_damaged_file_of_rocksdb_is_its_own_error(tmp_path: Path) -> None:
    transition = {"settle": True, "reopen": True, "page_cache": "keep"}
    run = spec("rocksdb", tmp_path, READER, transition=transition)
    carry_out(run)
    for file in (tmp_path / "database").glob("*.sst"):
        content = bytearray(file.read_bytes())
        content[100:200] = bytes(100)
        file.write_bytes(content)
    error = carry_out(run).error
    assert error["code"] == "store_error"
    assert error["message"].startswith("RocksDB failed to get a record: Corruption")
    assert error["context"] == "stream `reader`"


def test_a_full_map_is_distinguished_while_loading_and_while_measured(tmp_path: Path) -> None:
    options = {"mapsize": 1 << 20}
    error = carry_out(spec("lmdb", tmp_path, READER, options=options, count=100_000)).error
    assert (error["code"], error["context"]) == ("map_full", "phase `layout`")
    assert "mapsize" in error["hint"]
    writer = stream("writer", "update", choice=SEQUENTIAL, limit_operations=100_000)
    error = carry_out(spec("lmdb", tmp_path, writer, options=options, count=100_000, database=EMPTY)).error
    assert (error["code"], error["context"]) == ("map_full", "stream `writer`")


@pytest.mark.system
@pytest.mark.needs("root")
@pytest.mark.parametrize("store", STORES)
def test_a_full_disk_is_no_space(store: str, tmp_path: Path) -> None:
    options: Spec = {"mapsize": 1 << 30} if store == "lmdb" else {}
    if store == "rocksdb":
        options = {"write_buffer_size": 1 << 20}
    with small_file_system(tmp_path / "small", 24) as place:
        run = spec(store, place, READER, options=options, count=100_000, value_bytes=1000)
        error = carry_out(run, may_abort=store == "rocksdb").error
    # Debian's RocksDB may be aborted at an instant at which it has just deleted files, and the disk is not full.
    assert error["code"] == "no_space" or (store, error["message"]) == ("rocksdb", "the engine was aborted")
    # WiredTiger ends the process from any of its threads, and RocksDB, if built with assertions as Debian's is, aborts it
    # when it cannot write to its log.
    assert error["context"] in ("phase `layout`", "opening the database", "`store`", "")


def test_what_a_store_does_not_have_is_refused(tmp_path: Path) -> None:
    long_keys = spec("lmdb", tmp_path, READER)
    long_keys["workload"]["records"]["key_bytes"] = {"kind": "fixed", "bytes": 600}
    writers = [stream(name, "update", limit_operations=10, sync=sync) for name, sync in (("a", True), ("b", False))]
    for run, code, context in (
        (spec("memcached", tmp_path, READER, library="libmemcached.so"), "invalid_spec", "`store.library`"),
        (long_keys, "unsupported", "`records.key_bytes`"),
        (spec("lmdb", tmp_path, *writers), "unsupported", "`streams`"),
    ):
        error = carry_out(run).error
        assert (error["code"], error["context"]) == (code, context)
    assert carry_out(spec("lmdb", tmp_path / "nowhere", READER)).error["code"] == "vanished"


VIRTUAL: Spec = {"kind": "virtual"}


def workload(**changes: Any) -> Spec:
    return spec("null", VIRTUAL, READER, database=EXISTING, **changes)


def records(**changes: Any) -> Spec:
    run = workload()
    run["workload"]["records"] |= changes
    return run


def streams(*listed: Spec) -> Spec:
    return workload() | {"workload": workload()["workload"] | {"streams": list(listed)}}


def one(**changes: Any) -> Spec:
    return streams({**READER, **changes})


THETA_0 = {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "zipfian", "theta": 0}}
ONCE_SKEWED = {"kind": "random", "coverage": "each_once", "distribution": {"kind": "zipfian", "theta": 1}}
SHARE, ITERATE, UPDATE = ({"operation": name, "weight": 1.0} for name in ("read", "iterate", "update"))
OPEN = {"kind": "constant", "rate": 10.0}
DESCENDING = {"kind": "uniform", "min_bytes": 200, "max_bytes": 100}


@pytest.mark.parametrize(
    ("run", "context"),
    [
        (records(count=0), "`records.count`"),
        (records(key_bytes={"kind": "fixed", "bytes": 7}), "`records.key_bytes`"),
        (records(value_bytes=DESCENDING), "`records.value_bytes`"),
        (records(value_compression_ratio=0.0), "`records.value_compression_ratio`"),
        (workload(interval_ns=1), "`interval_ns`"),
        (workload(options={"cache": 1}), "`store.options.cache`"),
        (streams(READER, READER), "`streams`"),
        (one(background=True), "`streams`"),
        (one(jobs=3000, limit_operations=3000), "stream `reader`, `jobs`"),
        (one(operations=[{**SHARE, "weight": 0.0}]), "stream `reader`, `operations`"),
        (one(operations=[SHARE, ITERATE]), "stream `reader`, `operations`"),
        (one(choice=THETA_0), "stream `reader`, `choice`"),
        (one(choice=ONCE_SKEWED), "stream `reader`, `choice`"),
        (one(scan_records_min=2), "stream `reader`, `scan_records_min`"),
        (one(batch=2), "stream `reader`, `batch`"),
        (one(rate_limit=0.0), "stream `reader`, `rate_limit`"),
        (one(arrival=OPEN, rate_limit=5.0), "stream `reader`, `rate_limit`"),
        (one(arrival=OPEN, batch=2, operations=[UPDATE]), "stream `reader`, `batch`"),
        (one(limit_operations=None), "stream `reader`, `limit_operations`"),
        (one(jobs=4, limit_operations=3), "stream `reader`, `limit_operations`"),
        (spec("null", VIRTUAL, READER, database={**LOADED, "batch": 0}), "`database.batch`"),
    ],
)
def test_an_invalid_spec_is_refused_with_its_place(run: Spec, context: str) -> None:
    error = carry_out(run).error
    assert (error["code"], error["context"]) == ("invalid_spec", context)


COUNT = 5000


def owned(tmp_path: Path) -> Path:
    """A RocksDB database with a log that was not flushed, outside of iosonde's directories."""
    writer = stream("writer", "update", choice=SEQUENTIAL, limit_operations=COUNT)
    (tmp_path / "made").mkdir()
    carry_out(spec("rocksdb", tmp_path / "made", writer, database=EMPTY, count=COUNT))
    shutil.move(tmp_path / "made/database", tmp_path / "mine")
    return tmp_path / "mine"


def state(directory: Path) -> list[tuple[str, int, int, bytes]]:
    files = ((path, path.stat()) for path in sorted(directory.iterdir()))
    return [(path.name, found.st_mtime_ns, found.st_ino, path.read_bytes()) for path, found in files]


def reading(database: Path, *streams: Spec, count: int = 1000, **changes: object) -> Spec:
    transition = {"settle": False, "reopen": False, "page_cache": "drop"}
    target = {"kind": "read_only", "path": str(database)}
    return spec("rocksdb", target, *streams, count=count, database=EXISTING, transition=transition, **changes)


@pytest.mark.needs("rocksdb")
def test_a_users_database_is_read_and_neither_reads_nor_refused_writes_change_it(tmp_path: Path) -> None:
    mine = owned(tmp_path)
    before = state(mine)
    reads = stream("reads", "read", choice=EACH_ONCE, jobs=2, limit_operations=2000)
    scans = stream("scans", "scan", scan_records_min=5, scan_records_max=5, limit_operations=200)
    walk = stream("walk", "iterate", limit_operations=COUNT + 5)
    output = carry_out(reading(mine, reads, scans, walk))
    assert output.count("reads", "read") == 2000
    assert output.count("walk", "read") == COUNT + 5
    assert output.checks("missing") == output.checks("corrupted") == output.checks("values") == 0
    assert output.store["record_bytes"] == COUNT * 116
    assert output.store["database_bytes"] > 0
    for count in (10, 2 * COUNT):  # Keys are sampled, or all are read.
        few = stream("reads", "read", choice=SEQUENTIAL, limit_operations=min(count, COUNT))
        assert carry_out(reading(mine, few, count=count)).checks("missing") == 0
    error = carry_out(reading(mine, stream("writer", "update", limit_operations=10))).error
    assert (error["code"], error["context"]) == ("invalid_spec", "`streams`")
    run = reading(mine, stream("reads", "read", limit_operations=10))
    run["workload"]["store"] = {"kind": "lmdb", "library": None, "options": {}}
    assert carry_out(run).error["code"] == "unsupported"
    assert state(mine) == before


@pytest.mark.needs("mdb_stat", "lmdb")
def test_tools_of_the_system_read_databases_of_the_systems_lmdb_only(tmp_path: Path) -> None:
    found = {}
    for library in (None, "system"):
        target = tmp_path / str(library)
        target.mkdir()
        output = carry_out(spec("lmdb", target, stream("reads", "read", limit_operations=10), library=library))
        done = subprocess.run(["mdb_stat", target / "database"], capture_output=True, text=True, check=False)
        found[output.store["build"]["data_version"][0]] = (done.returncode, "Entries: 2000" in done.stdout)
    assert found["1"] == (0, True)
    assert found["3"][0] != 0, "MDB_VERSION_MISMATCH"
