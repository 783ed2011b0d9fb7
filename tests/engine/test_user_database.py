"""Databases and libraries of the user: a RocksDB database that is only read, and the system's LMDB."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from stores import EACH_ONCE, EMPTY, EXISTING, SEQUENTIAL, Spec, carry_out, spec, stream

COUNT = 5000


def owned(tmp_path: Path) -> Path:
    """A RocksDB database with a log that was not flushed, outside of iosonde's directories."""
    writer = stream("writer", "update", choice=SEQUENTIAL, limit_operations=COUNT)
    (tmp_path / "made").mkdir()
    carry_out(spec("rocksdb", tmp_path / "made", writer, database=EMPTY, count=COUNT))
    shutil.move(tmp_path / "made/database", tmp_path / "mine")
    return tmp_path / "mine"


def state(directory: Path) -> list[tuple[str, int, int, bytes]]:
    """Names, times of modification, inodes and contents."""
    return [
        (path.name, path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in sorted(directory.iterdir())
    ]


def reading(database: Path, *streams: Spec, count: int = 1000, **changes: object) -> Spec:
    transition = {"settle": False, "reopen": False, "page_cache": "drop"}
    target = {"kind": "read_only", "path": str(database)}
    return spec("rocksdb", target, *streams, count=count, database=EXISTING, transition=transition, **changes)


@pytest.mark.needs("rocksdb")
def test_a_users_database_is_read_and_nothing_in_it_changes(tmp_path: Path) -> None:
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
    assert state(mine) == before


@pytest.mark.needs("rocksdb")
@pytest.mark.parametrize("count", [10, COUNT * 2])
def test_the_requested_number_of_keys_is_sampled_or_all(count: int, tmp_path: Path) -> None:
    reads = stream("reads", "read", choice=SEQUENTIAL, limit_operations=min(count, COUNT))
    output = carry_out(reading(owned(tmp_path), reads, count=count))
    assert output.count("reads", "read") == min(count, COUNT)
    assert output.checks("missing") == 0


@pytest.mark.needs("rocksdb")
def test_writes_to_a_users_database_are_refused(tmp_path: Path) -> None:
    mine = owned(tmp_path)
    before = state(mine)
    error = carry_out(reading(mine, stream("writer", "update", limit_operations=10))).error
    assert (error["code"], error["context"]) == ("invalid_spec", "`streams`")
    assert state(mine) == before


def test_other_stores_refuse_a_users_database(tmp_path: Path) -> None:
    run = reading(tmp_path, stream("reads", "read", limit_operations=10))
    run["workload"]["store"] = {"kind": "lmdb", "library": None, "options": {}}
    assert carry_out(run).error["code"] == "unsupported"


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
