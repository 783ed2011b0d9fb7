"""Acknowledged writes that stores lose when their process is killed, and values read while others are written."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from stores import EMPTY, EXISTING, SEQUENTIAL, STORES, WIREDTIGER, Spec, carry_out, spec, started, stream

COUNT = 2_000_000
"""More records than any store writes before it is killed."""
INTERVALS = 2
"""In which it writes before it is killed."""
SLOW = 100.0
"""Writes per second that fill no buffer of a process (1 MiB for RocksDB's log) before it is killed, however late that is."""

EMBEDDED = ("lmdb", "rocksdb")


def wiredtiger(options: Spec, *, sync: bool, survives: str) -> Any:
    return pytest.param("wiredtiger", options, sync, survives, marks=WIREDTIGER)


WRITES: list[Any] = [
    *((store, {}, sync, "power_loss" if sync else "process_crash") for store in EMBEDDED for sync in (False, True)),
    wiredtiger({}, sync=True, survives="power_loss"),
    wiredtiger({}, sync=False, survives="process_crash"),
    wiredtiger({"transaction_sync.method": "none"}, sync=True, survives="process_crash"),
    ("lmdb", {"MDB_NOMETASYNC": True}, True, "process_crash"),
    ("lmdb", {"MDB_NOSYNC": True}, False, "process_crash"),
    ("lmdb", {"MDB_WRITEMAP": True, "MDB_MAPASYNC": True, "mapsize": 1 << 30}, True, "process_crash"),
    ("rocksdb", {"disableWAL": True}, False, "nothing"),
    ("rocksdb", {"manual_wal_flush": True}, False, "nothing"),
    wiredtiger({"log.enabled": False}, sync=False, survives="nothing"),
]
"""Store, options, whether each write is synchronous, and what an acknowledged write survives."""


def killed(run: Spec) -> int:
    """Kill the engine in the middle of its writes -> writes that it had acknowledged by then, or more."""
    engine = started(run)
    assert engine.stdout
    acknowledged = seen = 0
    for line in engine.stdout:
        event = json.loads(line)
        assert event["event"] not in ("error", "result"), event
        if event["event"] == "interval":
            acknowledged += sum(each["count"] for output in event["streams"] for each in output["operations"])
            seen += 1
            if acknowledged and seen >= INTERVALS:
                break
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    return acknowledged


@pytest.mark.parametrize(("store", "options", "sync", "survives"), WRITES)
def test_acknowledged_writes_survive_a_kill_of_the_process_as_the_result_states(
    store: str, options: Spec, sync: bool, survives: str, tmp_path: Path
) -> None:
    for name in ("killed", "stated"):
        (tmp_path / name).mkdir()
    rate = {"rate_limit": SLOW} if survives == "nothing" else {}
    writer = stream("writer", "update", choice=SEQUENTIAL, sync=sync, limit_operations=COUNT, **rate)
    load = {"database": EMPTY, "options": options, "count": COUNT, "duration_ns": 600 * 10**9}
    acknowledged = killed(spec(store, tmp_path / "killed", writer, **load))
    reader = stream("reader", "read", choice=SEQUENTIAL, limit_operations=acknowledged)
    read = carry_out(spec(store, tmp_path / "killed", reader, database=EXISTING, options=options, count=COUNT))
    assert read.checks("corrupted") == 0
    assert read.checks("values") + read.checks("missing") == acknowledged > 0
    assert read.checks("missing") == (acknowledged if survives == "nothing" else 0)
    few = stream("writer", "update", choice=SEQUENTIAL, sync=sync, limit_operations=10)
    stated = carry_out(spec(store, tmp_path / "stated", few, database=EMPTY, options=options))
    assert stated.store["durability"] == survives


@pytest.mark.parametrize("store", STORES)
def test_reads_concurrent_with_writes_are_never_stale(store: str, tmp_path: Path) -> None:
    both = {"read": 1.0, "update": 1.0, "read_modify_write": 1.0}
    mixed = stream("mixed", both, jobs=4, limit_operations=4000, freshness=True)
    output = carry_out(spec(store, tmp_path, mixed, count=50))
    assert output.checks("values") > 1000
    assert output.checks("corrupted") == 0
    assert sum(check.get("stale", 0) for check in output.store["checks"]) == 0
    assert output.warnings == []


def test_freshness_needs_single_writes_without_deletes_and_durability_writes(tmp_path: Path) -> None:
    read = carry_out(spec("lmdb", tmp_path, stream("reader", "read", limit_operations=10)))
    assert "durability" not in read.store, "nothing was written"
    for writer in (
        stream("writer", "update", batch=2, limit_operations=10, freshness=True),
        stream("writer", "delete", limit_operations=10, freshness=True),
    ):
        error = carry_out(spec("lmdb", tmp_path, writer)).error
        assert (error["code"], error["context"]) == ("invalid_spec", "`streams`")
