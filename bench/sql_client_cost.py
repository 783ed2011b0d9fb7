"""Cost of the engine's client for each SQL statement, against a peer that answers at once and keeps nothing.

    python bench/sql_client_cost.py --null-server PATH [--seconds 5] [--repeats 3]

PATH is `null_sql_server` (`cargo build --release -p iosonde-oltp --examples`). One terminal runs the TPC-C mix in
both protocols, with and without pipelining. CPU time is that of the terminal's thread (`getrusage(2)`), user and kernel
mode.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from shared import SECOND_NS, BenchError, options, provenance, run_engine, spec_of, table

HEAD = (
    *("CPUs", "protocol", "pipelining", "CPU a statement, µs", "kernel"),
    *("statements a transaction", "transactions a CPU s"),
)
Json = dict[str, Any]


def tpcc(kind: str, address: Json, warehouses: int, database: Json, *, check: bool = False) -> Json:
    """The workload without a measurement."""
    server = {
        "kind": kind,
        "address": address,
        "user": "bench",
        "database": "tpcc",
        "missing_database": "create",
        "connect_timeout_ns": 10**10,
    }
    return {
        "kind": "tpcc",
        "server": server,
        "warehouses": warehouses,
        "seed": 7,
        "database": database,
        "check": {"before": check, "after": False},
    }


def measurement(kind: str, *, terminals: int, seconds: float, pipelining: bool, ramp_s: float) -> Json:
    """A closed loop without think times, with go-tpc's choices of warehouse and mix."""
    return {
        "terminals": terminals,
        "home": "uniform",
        "think": "none",
        "arrival": {"kind": "closed"},
        "mix": "weighted",
        "isolation": {"postgresql": "read_committed", "mariadb": "repeatable_read"}[kind],
        "retries": 10,
        "pipelining": pipelining,
        "ramp_ns": int(ramp_s * SECOND_NS),
        "duration_ns": int(seconds * SECOND_NS),
        "interval_ns": SECOND_NS,
        "server_loss": "fail",
    }


def result_of(workload: Json) -> Json:
    """The engine's result, with another seed in each run."""
    return run_engine(spec_of(workload, seed=os.getpid()))[-1]


def main() -> None:
    given = options(__doc__, null_server=Path, seconds=5.0, repeats=3)
    print(f"{provenance(f'{given.repeats} runs of {given.seconds:g} s')}\n")
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise BenchError("this benchmark needs two CPUs")
    costs: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for kind in ("postgresql", "mariadb"):
        with null_server(given.null_server, kind) as (peer, address):
            for _ in range(given.repeats):
                for cpus in (1, 2):
                    os.sched_setaffinity(peer, {available[cpus - 1]})
                    os.sched_setaffinity(0, {available[0]})
                    for pipelining in (False, True):
                        key = (str(cpus), kind, "yes" if pipelining else "no")
                        costs.setdefault(key, []).append(cost(kind, address, given.seconds, pipelining=pipelining))
    rows = [[*key, *cells(runs)] for key, runs in costs.items()]
    for cpus in (1, 2):
        # Kernel time alone, so that its fraction is 100 %.
        floor = median(floor_us(available[:cpus]) for _ in range(given.repeats))
        rows.append([str(cpus), "send and recv", "no", f"{floor:.2f}", "100%", "", ""])
    print(table(HEAD, rows))


@contextmanager
def null_server(program: Path, kind: str) -> Iterator[tuple[int, Path]]:
    """The peer's process number and its socket."""
    with tempfile.TemporaryDirectory() as directory:
        address = Path(directory, "socket")
        peer = subprocess.Popen([program, kind, address, "4"])
        try:
            while not address.exists():
                time.sleep(0.01)
            yield peer.pid, address
        finally:
            peer.kill()
            peer.wait()


def cost(kind: str, socket_path: Path, seconds: float, *, pipelining: bool) -> tuple[float, ...]:
    """The values of a row for one terminal for some seconds."""
    workload = tpcc(kind, {"kind": "unix", "path": str(socket_path)}, 4, {"kind": "foreign"})
    loop = measurement(kind, terminals=1, seconds=seconds, pipelining=pipelining, ramp_s=0.5)
    result = result_of(workload | {"measurement": loop})
    usage = result["jobs"][0]["usage"]
    cpu_ns = usage["user_ns"] + usage["system_ns"]
    statements = result["oltp"]["counters"]["statements"]
    transactions = sum(each["completed"] for each in result["oltp"]["transactions"])
    per_transaction, per_second = statements / transactions, transactions * SECOND_NS / cpu_ns
    return cpu_ns / statements / 1e3, usage["system_ns"] / cpu_ns, per_transaction, per_second


def cells(runs: list[tuple[float, ...]]) -> list[str]:
    """The medians of the repeats."""
    return [
        f"{median(each):{form}}"
        for each, form in zip(zip(*runs, strict=True), (".2f", ".0%", ".1f", ",.0f"), strict=True)
    ]


def floor_us(cpus: list[int], round_trips: int = 50_000) -> float:
    """Kernel time of this thread for one round trip of 90 and 150 bytes over a socket pair, in microseconds."""
    ours, peers = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        os.sched_setaffinity(0, {cpus[-1]})
        while peers.recv(512):
            peers.send(bytes(150))
        os._exit(0)
    peers.close()
    os.sched_setaffinity(0, {cpus[0]})
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_stime
    for _ in range(round_trips):
        ours.send(bytes(90))
        ours.recv(512)
    used = resource.getrusage(resource.RUSAGE_THREAD).ru_stime - before
    ours.close()
    os.waitpid(child, 0)
    return used / round_trips * 1e6


if __name__ == "__main__":
    main()
