"""Delay and spread of loads that engines start at an agreed instant, and of Python processes that sleep until then.

usage: python bench/start_skew.py [STARTS]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from plans import null_spec

from iosonde.execution.engine import find_engine


def engines(count: int, unix_ns: int) -> list[int]:
    """When the last job of each engine started. Their load is idle, because they share the CPUs."""
    spec = {**null_spec("skew", duration_ns=1_000_000), "start": {"kind": "at", "unix_ns": unix_ns}}
    spec["workload"]["streams"][0]["arrival"] = {"kind": "constant", "rate": 1.0}
    running = [subprocess.Popen([find_engine()], stdin=-1, stdout=-1, text=True) for _ in range(count)]
    for each in running:
        print(json.dumps(spec), file=each.stdin, flush=True)
    starts = [json.loads(each.communicate()[0].splitlines()[-1])["start"] for each in running]
    return [each["started_unix_ns"] + each["last_job_ns"] - each["started_ns"] for each in starts]


def sleepers(connections: list[Connection], unix_ns: int) -> list[int]:
    """When each process woke."""
    for each in connections:
        each.send(unix_ns)
    return [each.recv() for each in connections]


def sleeper(connection: Connection) -> None:
    """Sleep until each instant that arrives, and return when it woke."""
    while unix_ns := connection.recv():
        time.sleep((unix_ns - time.time_ns()) / 1e9)
        connection.send(time.time_ns())


def main() -> None:
    """Alternate 2 to 8 engines and as many sleepers, so that both meet the same load of the machine."""
    connections = []
    for _ in range(8):
        own, other = multiprocessing.Pipe()
        connections.append(own)
        multiprocessing.Process(target=sleeper, args=(other,), daemon=True).start()
    found: dict[str, list[tuple[float, float]]] = {"engine": [], "Python": []}
    for number in range(int(sys.argv[1]) if sys.argv[1:] else 200):
        for name, values in found.items():
            count, unix_ns = 2 + number % 7, time.time_ns() + 500_000_000
            started = engines(count, unix_ns) if name == "engine" else sleepers(connections[:count], unix_ns)
            values.append(((max(started) - unix_ns) / 1e3, (max(started) - min(started)) / 1e3))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    for name, values in found.items():
        for label, each in zip(("delay", "spread"), zip(*values, strict=True), strict=True):
            print(f"{name} {label}: p50 {statistics.median(each):.0f} us, max {max(each):.0f} us")


if __name__ == "__main__":
    main()
