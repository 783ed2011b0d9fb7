"""Key-value runs for tests: small specs to change, and the real engine to carry them out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loop_stacks import Loops

from iosonde.engine import protocol
from iosonde.execution.engine import find_engine
from iosonde.features.key_value_stores import shim
from iosonde.study.workload import described

Spec = dict[str, Any]

SEQUENTIAL = {"kind": "sequential"}
UNIFORM = {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}}
EACH_ONCE = {"kind": "random", "coverage": "each_once", "distribution": {"kind": "uniform"}}
EMPTY = {"kind": "empty"}
EXISTING = {"kind": "existing"}
LOADED = {"kind": "loaded", "reload": False, "order": "random", "batch": 100, "sync": False}
WIREDTIGER = pytest.mark.needs("wiredtiger", "wiredtiger-header", "cc")
STORES = ("lmdb", "rocksdb", pytest.param("wiredtiger", marks=WIREDTIGER))


def stream(name: str, operation: str | dict[str, float], **changes: Any) -> Spec:
    """One job in closed loop, uniform choice; `operation` is one, or several with weights."""
    shares = {operation: 1.0} if isinstance(operation, str) else operation
    return {
        "name": name,
        "jobs": 1,
        "operations": [{"operation": share, "weight": weight} for share, weight in shares.items()],
        "choice": UNIFORM,
        "direction": "forward",
        "scan_records_min": 1,
        "scan_records_max": 1,
        "batch": 1,
        "sync": False,
        "arrival": {"kind": "closed"},
        "rate_limit": None,
        "background": False,
        "limit_bytes": None,
        "limit_operations": None,
        "cpus": [],
        **changes,
    }


def spec(store: str, target: Path | Spec, *streams: Spec, count: int = 2000, **changes: Any) -> Spec:
    """A run on records of 16 and 100 bytes, loaded first. `options`, `library`, `value_bytes` go where they belong."""
    if isinstance(target, Path):
        target = {"kind": "directory", "path": str(target)}
    workload = {
        "kind": "kv",
        "store": {"kind": store, "library": changes.pop("library", None), "options": changes.pop("options", {})},
        "target": target,
        "records": {
            "count": count,
            "key_bytes": {"kind": "fixed", "bytes": 16},
            "value_bytes": changes.pop("value_size", {"kind": "fixed", "bytes": changes.pop("value_bytes", 100)}),
            "value_compression_ratio": 1.0,
            "seed": 1,
        },
        "database": LOADED,
        "transition": {"settle": False, "reopen": False, "page_cache": "keep"},
        "streams": list(streams),
        "ramp": {"duration_ns": 0, "bytes": None},
        "duration_ns": None,
        "interval_ns": 100_000_000,
        "settle_at_end": False,
        **changes,
    }
    return {"protocol": protocol.VERSION, "run_id": "test", "seed": 1, "workload": workload}


@dataclass(frozen=True)
class Output:
    """Events of the engine."""

    events: list[Spec]

    @property
    def last(self) -> Spec:
        return self.events[-1]

    @property
    def result(self) -> Spec:
        assert self.last["event"] == "result", self.last
        return self.last

    @property
    def error(self) -> Spec:
        assert self.last["event"] == "error", self.last
        assert self.last["message"]
        assert self.last["hint"]
        return self.last

    @property
    def store(self) -> Spec:
        found: Spec = self.result["store"]
        return found

    @property
    def warnings(self) -> list[str]:
        """Codes, without that of Debian's RocksDB, which has assertions."""
        codes = [event["code"] for event in self.events if event["event"] == "warning"]
        return [code for code in codes if code != "assertions_enabled"]

    @property
    def intervals(self) -> list[Spec]:
        return [event for event in self.events if event["event"] == "interval"]

    @property
    def phases(self) -> list[tuple[str, str]]:
        edges = [(event["phase"], event["edge"]) for event in self.events if event["event"] == "phase"]
        return [phase for phase in edges if phase[1] != "progress"]

    def entries(self, stream: str, operation: str) -> list[Spec]:
        return [
            entry
            for interval in self.intervals
            for each in interval["streams"]
            if each["stream"] == stream
            for entry in each["operations"]
            if entry["operation"] == operation
        ]

    def count(self, stream: str, operation: str) -> int:
        return sum(entry["count"] for entry in self.entries(stream, operation))

    def checks(self, what: str) -> int:
        return sum(check[what] for check in self.store["checks"])


@contextmanager
def engine_for(spec: Spec) -> Iterator[tuple[list[str], list[int]]]:
    """The engine's command line, and the descriptors that it inherits: the shim that WiredTiger needs."""
    workload = spec["workload"]
    engine = str(find_engine(described(workload).engine(workload)))
    if workload["store"]["kind"] != "wiredtiger":
        yield [engine], []
        return
    with shim.opened(shim.WIREDTIGER, None) as descriptor:
        yield [engine, f"--wiredtiger-shim={descriptor}"], [descriptor]


def started(spec: Spec) -> subprocess.Popen[str]:
    """An engine that has received its spec."""
    with engine_for(spec) as (command, descriptors):
        engine = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=descriptors
        )
    assert engine.stdin
    engine.stdin.write(json.dumps(spec) + "\n")
    engine.stdin.flush()
    return engine


def carry_out(spec: Spec, *, may_abort: bool = False) -> Output:
    """`may_abort`: the store's assertions may end the engine, and print why."""
    with engine_for(spec) as (command, descriptors):
        done = subprocess.run(
            command,
            input=json.dumps(spec),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            pass_fds=descriptors,
        )
    assert not done.stderr or (may_abort and "Assertion" in done.stderr), done.stderr
    output = Output([json.loads(line) for line in done.stdout.splitlines()])
    assert done.returncode == (0 if output.last["event"] == "result" else 1), (done.returncode, output.last)
    return output


def command(*words: str | Path) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def small_file_system(path: Path, mebibytes: int) -> Iterator[Path]:
    """A file system in memory of that size."""
    path.mkdir()
    command("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", path)
    try:
        yield path
    finally:
        command("umount", "--lazy", path)  # Another process may be looking there.


@contextmanager
def loop_device(file: Path, mebibytes: int) -> Iterator[Path]:
    """A block device of that size, full of zeros."""
    with file.open("wb") as made:
        made.truncate(mebibytes << 20)
    loops = Loops(file.parent)
    try:
        yield loops.attach(file)
    finally:
        loops.close()
