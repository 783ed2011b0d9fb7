"""Acknowledged writes that stores lose when their process is killed, and values read while others are written."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from stores import EMPTY, EXISTING, SEQUENTIAL, STORES, WIREDTIGER, Spec, carry_out, spec, started, stream

COUNT = 2_000_000
"""More records than any store writes before it is killed."""
SECONDS = 0.7
SLOW = 1000.0
"""Writes per second that fill no buffer of a process (1 MiB for RocksDB's log) before it is killed, however late that is."""

EMBEDDED = ("lmdb", "rocksdb", "redb", "fjall")


def wiredtiger(options: Spec, *, sync: bool, survives: str) -> Any:
    return pytest.param("wiredtiger", options, sync, survives, marks=WIREDTIGER)


SURVIVING: list[Any] = [
    *((store, {}, sync, "power_loss" if sync else "process_crash") for store in EMBEDDED for sync in (False, True)),
    wiredtiger({}, sync=True, survives="power_loss"),
    wiredtiger({}, sync=False, survives="process_crash"),
    wiredtiger({"transaction_sync.method": "none"}, sync=True, survives="process_crash"),
    ("lmdb", {"MDB_NOMETASYNC": True}, True, "process_crash"),
    ("lmdb", {"MDB_NOSYNC": True}, False, "process_crash"),
    ("lmdb", {"MDB_WRITEMAP": True, "MDB_MAPASYNC": True, "mapsize": 1 << 30}, True, "process_crash"),
]
KEEPING_IN_MEMORY: list[tuple[str, Spec, bool]] = [
    ("redb", {"durability": "none"}, False),
    ("rocksdb", {"disableWAL": True}, False),
    ("rocksdb", {"manual_wal_flush": True}, False),
]
"""Options that keep acknowledged writes in the process."""
LOSING: list[Any] = [*KEEPING_IN_MEMORY, pytest.param("wiredtiger", {"log.enabled": False}, False, marks=WIREDTIGER)]


def load(store: str, target: Path, options: Spec, *, sync: bool, **changes: Any) -> Spec:
    writer = stream("writer", "update", choice=SEQUENTIAL, sync=sync, limit_operations=COUNT, **changes)
    return spec(store, target, writer, database=EMPTY, options=options, count=COUNT, duration_ns=60 * 10**9)


def killed(run: Spec) -> int:
    """Kill the engine in the middle of its writes -> writes that it had acknowledged by then, or more."""
    engine = started(run)
    assert engine.stdout
    acknowledged, deadline = 0, time.monotonic() + 300
    began = None
    for line in engine.stdout:
        event = json.loads(line)
        assert event["event"] != "error", event
        if event["event"] == "interval":
            began = began or time.monotonic()
            acknowledged += sum(each["count"] for output in event["streams"] for each in output["operations"])
            if (acknowledged and time.monotonic() > began + SECONDS) or time.monotonic() > deadline:
                break
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    return acknowledged


def lost(store: str, target: Path, options: Spec, *, sync: bool, **changes: Any) -> tuple[int, int]:
    """Acknowledged writes, and those that are not found after the process was killed."""
    acknowledged = killed(load(store, target, options, sync=sync, **changes))
    reader = stream("reader", "read", choice=SEQUENTIAL, limit_operations=acknowledged)
    read = carry_out(spec(store, target, reader, database=EXISTING, options=options, count=COUNT))
    assert read.checks("corrupted") == 0
    assert read.checks("values") + read.checks("missing") == acknowledged
    return acknowledged, read.checks("missing")


@pytest.mark.parametrize(("store", "options", "sync", "survives"), SURVIVING)
def test_acknowledged_writes_survive_a_kill_of_the_process(
    store: str, options: Spec, sync: bool, survives: str, tmp_path: Path
) -> None:
    acknowledged, missing = lost(store, tmp_path, options, sync=sync)
    assert acknowledged > 0
    assert missing == 0, f"{missing} of {acknowledged} acknowledged writes are lost"


@pytest.mark.parametrize(("store", "options", "sync"), LOSING)
def test_options_that_keep_writes_in_the_process_lose_them(
    store: str, options: Spec, sync: bool, tmp_path: Path
) -> None:
    acknowledged, missing = lost(store, tmp_path, options, sync=sync, rate_limit=SLOW)
    assert 0 < missing == acknowledged


@pytest.mark.parametrize(
    ("store", "options", "sync", "survives"),
    [
        *SURVIVING,
        *((store, options, sync, "nothing") for store, options, sync in KEEPING_IN_MEMORY),
        wiredtiger({"log.enabled": False}, sync=False, survives="nothing"),
        wiredtiger({"log_flush": False}, sync=False, survives="nothing"),
    ],
)
def test_the_result_states_what_writes_survive(
    store: str, options: Spec, sync: bool, survives: str, tmp_path: Path
) -> None:
    writer = stream("writer", "update", choice=SEQUENTIAL, sync=sync, limit_operations=10)
    output = carry_out(spec(store, tmp_path, writer, database=EMPTY, options=options))
    assert output.store["durability"] == survives


def test_runs_without_writes_have_no_durability(tmp_path: Path) -> None:
    output = carry_out(spec("lmdb", tmp_path, stream("reader", "read", limit_operations=10)))
    assert "durability" not in output.store


@pytest.mark.parametrize("store", STORES)
def test_reads_concurrent_with_writes_are_never_stale(store: str, tmp_path: Path) -> None:
    both = {"read": 1.0, "update": 1.0, "read_modify_write": 1.0}
    mixed = stream("mixed", both, jobs=4, limit_operations=4000, freshness=True)
    output = carry_out(spec(store, tmp_path, mixed, count=50))
    assert output.checks("values") > 1000
    assert output.checks("corrupted") == 0
    assert sum(check.get("stale", 0) for check in output.store["checks"]) == 0
    assert output.warnings == []


def test_freshness_needs_single_writes_without_deletes(tmp_path: Path) -> None:
    for writer in (
        stream("writer", "update", batch=2, limit_operations=10, freshness=True),
        stream("writer", "delete", limit_operations=10, freshness=True),
    ):
        error = carry_out(spec("lmdb", tmp_path, writer)).error
        assert (error["code"], error["context"]) == ("invalid_spec", "`streams`")
