"""KV caches as runs of a study: known results on simulated devices, system calls of each layout, and what remains."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine
from study_texts import study_text

from iosonde.engine import protocol
from iosonde.execution.session import execute
from iosonde.features.ai import kv_trace
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal

MIB = 1 << 20
SMALL = """scale = 0.001
requests = 200
warm_requests = 100
speed = 20.0
capacity = "16GiB"
interval = "100ms"
endurance = "100TBW\""""


def trace(tmp_path: Path, *requests: tuple[int, list[int]]) -> str:
    """A file with times in milliseconds and blocks."""
    path = tmp_path / "trace.jsonl"
    lines = ({"timestamp": at, "input_length": 512 * len(ids), "hash_ids": ids} for at, ids in requests)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def carried_out(study: str, target: str, place: Path, **settings: str) -> ResultSet:
    plan = expand(parse(study), open_target(target), settings=settings)
    results = execute(plan, place / "results")
    assert journal.entries() == []
    assert [record.failure for record in results.records()] == [None] * len(plan.runs)
    return results


def values(results: ResultSet) -> dict[str, float]:
    rows = run_metrics(results).filter(pl.col("operation") == "all", pl.col("stream") == "all")
    return dict(rows.select("metric", "value").iter_rows())


@pytest.mark.engine
def test_every_layout_carries_out_the_same_decisions_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    study = study_text("ai_kv_cache", SMALL, 'factors.layout = ["hashed", "flat", "renamed", "slots"]')
    records = list(carried_out(study, str(tmp_path / "data"), tmp_path).records())
    counted = ("lookups", "storage_hits", "common_hits", "stores", "evictions")
    found = {tuple(record.result["ai"]["kv_cache"][name] for name in counted) for record in records if record.result}
    assert (len(records), len(found)) == (4, 1)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.engine
def test_a_known_trace_on_a_device_of_constant_time_has_its_break_even(tmp_path: Path) -> None:
    """Ten blocks of 1 ms each from 4 threads take 3 ms, and one takes 1 ms. A block has 64 KiB, a token 128 KiB."""
    ids = list(range(10))
    path = trace(tmp_path, (0, ids), (1000, [*ids, 10]), (2000, [0, 20]))
    target = "simulated:servers=8,read=1ms,write=1ms,size=1GiB,service=constant"
    study = study_text("ai_kv_cache", 'scale = 0.001\ncapacity = "1GiB"', "")
    found = values(carried_out(study, target, tmp_path, trace=path, endurance="1000TBW"))
    assert found["kv_break_even"] == pytest.approx(11 * 65_536 / 131_072 / 4e-3)
    assert found["kv_hit_fraction"] == pytest.approx(11 / 23)
    assert found["kv_common_hit_fraction"] == pytest.approx(2 / 23)
    assert found["kv_writes_per_read"] == pytest.approx(12 / 11)
    per_day = 12 * 64 * MIB / 2 * 86_400
    assert found["kv_write_bytes_per_day"] == pytest.approx(per_day)
    assert found["kv_drive_life_years"] == pytest.approx(1e15 / per_day / 365)


DIRECTORIES = {"hashed": "[0-9]{2}/[0-9]{2}/", "flat": "", "renamed": "[0-9a-f]{3}/[0-9a-f]{2}/", "slots": ""}
"""Of a block, below `blocks`, as LMCache and vLLM name them."""


def calls_of(tmp_path: Path, layout: str, *, sync: bool) -> tuple[list[str], list[str]]:
    """Calls of the thread that loads, and of the one that stores."""
    path = trace(tmp_path, (0, [0, 1]), (300, [0, 2]))
    converted = kv_trace.converted(path, 512)
    target = tmp_path / "target"
    target.mkdir(exist_ok=True)
    load: dict[str, Any] = {
        "kind": "ai_kv_cache", "target": {"kind": "directory", "path": str(target)}, "block_bytes": 65_536,
        "trace": {"path": converted.path, "rows": 2, "digest": ""}, "capacity_blocks": 2, "layout": layout,
        "sync": sync, "is_direct": True, "threads": 1, "writers": 1, "is_parallel": False, "warm_requests": 0,
        "speed": 1.0, "duration_ns": None, "interval_ns": 100_000_000,
    }  # fmt: skip
    spec = {"protocol": protocol.VERSION, "run_id": "r", "seed": 1, "workload": load, "observe": {"block_devices": []}}
    log = tmp_path / f"strace-{layout}-{sync}"
    log.mkdir()
    traced = "openat,pread64,pwrite64,statx,newfstatat,stat,fsync,rename,renameat,renameat2,unlink,unlinkat"
    command = ["strace", "-ff", "-s", "200", "-e", f"trace={traced}", "-o", log / "of", real_engine()]
    done = subprocess.run(command, input=json.dumps(spec), capture_output=True, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "result", done.stdout
    traces = [file.read_text() for file in log.iterdir()]
    directories = {name for text in traces for name in re.findall(r'blocks/([^"]*?)[0-9a-f]{16}[.]', text)}
    assert all(re.fullmatch(DIRECTORIES[layout], name) for name in directories), directories
    of_threads = [_of_blocks(text.splitlines()) for text in traces]
    [loads] = [calls for calls in of_threads if "pread64" in calls]
    [stores] = [calls for calls in of_threads if "pwrite64" in calls]
    return loads, stores


def _of_blocks(lines: list[str]) -> list[str]:
    """Names of calls for blocks with the flags that matter; `tmp` where a file has a temporary name."""
    calls = []
    for line in lines:
        if re.search(r"[0-9a-f]{16}\.(bin|tmp)|, 65536, |^fsync", line):
            name = line.partition("(")[0].replace("renameat2", "rename").replace("newfstatat", "statx")
            flags = re.findall("O_EXCL|O_TRUNC|O_DIRECT", line)
            calls.append(" ".join([name, *(["tmp"] if ".tmp" in line else []), *flags]))
    return calls


STORE = {
    "hashed": ["statx", "openat tmp O_EXCL O_DIRECT", "pwrite64", "rename tmp"],
    "flat": ["openat O_TRUNC O_DIRECT", "pwrite64"],
    "renamed": ["statx", "openat tmp O_EXCL O_DIRECT", "pwrite64", "rename tmp"],
    "slots": ["pwrite64"],
}


@pytest.mark.system
@pytest.mark.needs("strace")
@pytest.mark.parametrize("layout", STORE)
def test_layouts_make_the_declared_system_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """Blocks 0 and 1 are stored; then 0 is loaded, and 2 replaces 1. The first of a directory is opened twice."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for sync in (False, True):
        loads, stores = calls_of(tmp_path, layout, sync=sync)
        store = list(STORE[layout])
        if sync:
            store.insert(store.index("pwrite64") + 1, "fsync")
        removal = [] if layout == "slots" else ["unlink"]
        once = [call for place, call in enumerate(stores) if not call.startswith("openat") or stores[place - 1] != call]
        assert once == [*store, *store, *removal, *store]
        look_ups = [] if layout == "slots" else ["statx"] * 3
        assert loads == [*look_ups, *([] if layout == "slots" else ["openat O_DIRECT"]), "pread64"]
