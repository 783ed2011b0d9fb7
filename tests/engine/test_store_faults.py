"""Faults of a store are distinguished, on the real store."""

from __future__ import annotations

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


@pytest.mark.needs("rocksdb")
def test_a_lost_record_gives_a_warning(tmp_path: Path) -> None:
    """The database is marked as complete, but the store has lost the second half."""
    run = spec("rocksdb", tmp_path, READER)
    carry_out(run)
    mark = (tmp_path / "iosonde-database.json").read_text()
    delete = stream("delete", "delete", choice=SEQUENTIAL, limit_operations=1)
    carry_out(spec("rocksdb", tmp_path, delete, database=EXISTING))
    (tmp_path / "iosonde-database.json").write_text(mark)
    output = carry_out(run)
    assert output.checks("missing") == 1
    assert output.warnings == ["missing_records"]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_iterators_and_scans_report_records_that_a_store_lost(store: str, direction: str, tmp_path: Path) -> None:
    """The database claims to be complete, and records 0 to 4 are not in it."""
    run = spec(store, tmp_path, READER)
    carry_out(run)
    mark = (tmp_path / "iosonde-database.json").read_text()
    delete = stream("delete", "delete", choice=SEQUENTIAL, limit_operations=5)
    carry_out(spec(store, tmp_path, delete, database=EXISTING))
    (tmp_path / "iosonde-database.json").write_text(mark)
    whole = 1995 if direction == "forward" else 2000  # Whose end shows what is missing there.
    walk = stream("walk", "iterate", direction=direction, limit_operations=whole)
    output = carry_out(spec(store, tmp_path, walk))
    assert output.checks("missing") == 5
    assert output.warnings == ["missing_records"]
    scan = stream(
        "scan",
        "scan",
        choice=SEQUENTIAL,
        direction=direction,
        scan_records_min=3,
        scan_records_max=3,
        limit_operations=1,
    )
    output = carry_out(spec(store, tmp_path, scan))
    assert output.checks("missing") == (5 if direction == "forward" else 1)


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
    assert error["code"] == "no_space"
    # WiredTiger ends the process from any of its threads, and RocksDB, if built with assertions as Debian's is, aborts it
    # when it cannot write to its log.
    assert error["context"] in ("phase `layout`", "opening the database", "`store`", "")


def refused(library: Path | str, tmp_path: Path) -> Spec:
    target = tmp_path / "target"
    target.mkdir()
    error = carry_out(spec("rocksdb", target, READER, library=str(library))).error
    assert error["code"] == "library"
    assert error["context"] == "`store.library`"
    assert list(target.iterdir()) == []
    return error


def test_a_library_of_another_kind_is_refused(tmp_path: Path) -> None:
    assert "is not RocksDB" in refused("libc.so.6", tmp_path)["message"]


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "librocksdb.so").write_text("#!/bin/sh\n")
    assert "cannot be loaded" in refused(tmp_path / "librocksdb.so", tmp_path)["message"]


def test_a_library_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "librocksdb.so", tmp_path)["message"]


def test_a_library_that_lacks_a_function_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "old.c").write_text("void rocksdb_open(void) {}\nvoid rocksdb_close(void) {}\n")
    library = tmp_path / "librocksdb.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "old.c"], check=True)
    message = refused(library, tmp_path)["message"]
    assert "lacks" in message
    assert "`rocksdb_open_for_read_only`" in message


def test_a_library_for_a_store_that_has_none_is_refused(tmp_path: Path) -> None:
    error = carry_out(spec("redb", tmp_path, READER, library="libredb.so")).error
    assert (error["code"], error["context"]) == ("invalid_spec", "`store.library`")


def test_keys_longer_than_a_store_allows_are_unsupported(tmp_path: Path) -> None:
    run = spec("lmdb", tmp_path, READER)
    run["workload"]["records"]["key_bytes"] = {"kind": "fixed", "bytes": 600}
    error = carry_out(run).error
    assert (error["code"], error["context"]) == ("unsupported", "`records.key_bytes`")


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    assert carry_out(spec("lmdb", tmp_path / "nowhere", READER)).error["code"] == "vanished"


def test_writers_of_lmdb_must_agree_on_durability(tmp_path: Path) -> None:
    writers = [stream(name, "update", limit_operations=10, sync=sync) for name, sync in (("a", True), ("b", False))]
    error = carry_out(spec("lmdb", tmp_path, *writers)).error
    assert (error["code"], error["context"]) == ("unsupported", "`streams`")


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
SHARE = {"operation": "read", "weight": 1.0}


@pytest.mark.parametrize(
    ("run", "context", "message"),
    [
        (records(count=0), "`records.count`", "0 records"),
        (records(key_bytes={"kind": "fixed", "bytes": 7}), "`records.key_bytes`", "keys of 7 bytes"),
        (records(value_bytes={"kind": "fixed", "bytes": 15}), "`records.value_bytes`", "values of 15 bytes"),
        (
            records(value_bytes={"kind": "uniform", "min_bytes": 200, "max_bytes": 100}),
            "`records.value_bytes`",
            "at least 200 and at most 100",
        ),
        (records(value_bytes={"kind": "weighted", "sizes": []}), "`records.value_bytes`", "without a size"),
        (records(value_compression_ratio=0.0), "`records.value_compression_ratio`", "compressed to 0"),
        (workload(interval_ns=1), "`interval_ns`", "1 ns"),
        (workload(options={"cache": 1}), "`store.options.cache`", "no option `cache`"),
        (streams(), "`streams`", "must have a stream"),
        (streams(READER, READER), "`streams`", "must differ; got `reader` twice"),
        (one(background=True), "`streams`", "background"),
        (one(jobs=0), "stream `reader`, `jobs`", "got 0"),
        (one(jobs=3000, limit_operations=3000), "stream `reader`, `jobs`", "3000 jobs for 2000 records"),
        (one(operations=[]), "stream `reader`, `operations`", "without operations"),
        (one(operations=[{**SHARE, "weight": 0.0}]), "stream `reader`, `operations`", "without operations"),
        (
            one(operations=[SHARE, {"operation": "iterate", "weight": 1.0}]),
            "stream `reader`, `operations`",
            "`iterate` beside",
        ),
        (one(choice=THETA_0), "stream `reader`, `choice`", "skew of 0"),
        (one(choice=ONCE_SKEWED), "stream `reader`, `choice`", "each record once"),
        (one(scan_records_min=0), "stream `reader`, `scan_records_min`", "scans of 0"),
        (one(scan_records_min=2), "stream `reader`, `scan_records_min`", "scans of 2 to 1"),
        (one(batch=2), "stream `reader`, `batch`", "operations that read"),
        (one(batch=0), "stream `reader`, `batch`", "batch of 0"),
        (one(rate_limit=0.0), "stream `reader`, `rate_limit`", "0 records per second"),
        (one(arrival={"kind": "constant", "rate": -1.0}), "stream `reader`, `arrival`", "-1"),
        (
            one(arrival={"kind": "constant", "rate": 10.0}, rate_limit=5.0),
            "stream `reader`, `rate_limit`",
            "open loop with a limit",
        ),
        (
            one(
                arrival={"kind": "constant", "rate": 10.0},
                batch=2,
                operations=[{"operation": "update", "weight": 1.0}],
            ),
            "stream `reader`, `batch`",
            "open loop in batches",
        ),
        (one(limit_operations=None), "stream `reader`, `limit_operations`", "must end"),
        (one(jobs=4, limit_operations=3), "stream `reader`, `limit_operations`", "each job an operation"),
        (
            workload() | {"workload": workload()["workload"] | {"database": {**LOADED, "batch": 0}}},
            "`database.batch`",
            "batch of 0",
        ),
    ],
)
def test_an_invalid_spec_is_refused_with_its_place(run: Spec, context: str, message: str) -> None:
    error = carry_out(run).error
    assert error["code"] == "invalid_spec"
    assert error["context"] == context
    assert message in error["message"]
