"""Specs of transactional runs for the benchmarks, and running the engine on them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from iosonde import protocol
from iosonde.execution.engine import find_engine

JsonObject = dict[str, Any]


def unix(socket: Path) -> JsonObject:
    """The address of a Unix socket."""
    return {"kind": "unix", "path": str(socket)}


def foreign_run(
    kind: str,
    address: JsonObject,
    *,
    warehouses: int,
    terminals: int,
    seconds: float,
    pipelining: bool,
    ramp_s: float = 0.5,
) -> JsonObject:
    """A closed loop without think times on a database that is there, with go-tpc's choices of warehouse and mix."""
    measurement = {
        "terminals": terminals,
        "home": "uniform",
        "think": "none",
        "arrival": {"kind": "closed"},
        "mix": "weighted",
        "isolation": {"postgresql": "read_committed", "mariadb": "repeatable_read"}[kind],
        "retries": 10,
        "pipelining": pipelining,
        "ramp_ns": int(ramp_s * 1e9),
        "duration_ns": int(seconds * 1e9),
        "interval_ns": 10**9,
        "server_loss": "fail",
    }
    return spec(kind, address, warehouses, {"kind": "foreign"}, check=False) | {"measurement": measurement}


def load(kind: str, address: JsonObject, *, warehouses: int, jobs: int, check: bool = False) -> JsonObject:
    """Loading from scratch."""
    return spec(kind, address, warehouses, {"kind": "loaded", "reload": True, "jobs": jobs}, check=check)


def spec(kind: str, address: JsonObject, warehouses: int, database: JsonObject, *, check: bool) -> JsonObject:
    """The workload without a measurement."""
    return {
        "kind": "tpcc",
        "server": {
            "kind": kind,
            "address": address,
            "user": "bench",
            "database": "tpcc",
            "missing_database": "create",
            "connect_timeout_ns": 10**10,
        },
        "warehouses": warehouses,
        "seed": 7,
        "database": database,
        "check": {"before": check, "after": False},
    }


def engine_result(workload: JsonObject) -> JsonObject:
    """The engine's result; its own error ends the benchmark."""
    whole = {"protocol": protocol.VERSION, "run_id": "bench", "seed": os.getpid(), "workload": workload}
    done = subprocess.run([find_engine()], input=json.dumps(whole), capture_output=True, text=True)
    last: JsonObject = json.loads(done.stdout.splitlines()[-1])
    if last["event"] != "result":
        raise SystemExit(f"error: {last['message']}\n\nhint: {last['hint']}")
    return last
