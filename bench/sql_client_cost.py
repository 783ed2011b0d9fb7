"""Cost of the engine's client for each SQL statement, against a peer that answers at once and keeps nothing.

    python bench/sql_client_cost.py --null-server PATH [--seconds 5] [--repeats 3] [--output FILE.json]

PATH is `null_sql_server` (`cargo build --release -p iosonde-oltp --examples`). One terminal runs the TPC-C mix in
both protocols, with and without pipelining. CPU time is that of the terminal's thread (`getrusage(2)`), user and kernel
mode.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from oltp_specs import engine_result, foreign_run, unix
from pairs import provenance, table

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture

HEAD = (
    "CPUs",
    "protocol",
    "pipelining",
    "CPU a statement, µs",
    "kernel",
    "statements a transaction",
    "transactions a CPU s",
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One run."""

    cpus: int
    protocol: str
    pipelining: bool
    cpu_us_per_statement: float
    kernel_fraction: float
    statements_per_transaction: float
    transactions_per_cpu_second: float


def main() -> None:
    """Measure, print a table, keep every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null-server", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    print(provenance(capture(find_engine())))
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        sys.exit("error: this benchmark needs two CPUs")
    costs = []
    for protocol in ("postgresql", "mariadb"):
        with null_server(arguments.null_server, protocol) as (peer, address):
            for _ in range(arguments.repeats):
                for cpus in (1, 2):
                    os.sched_setaffinity(peer, {available[cpus - 1]})
                    os.sched_setaffinity(0, {available[0]})
                    for pipelining in (False, True):
                        costs.append(cost(cpus, protocol, address, pipelining, arguments.seconds))
    floors = [(cpus, median(floor_us(available[:cpus]) for _ in range(arguments.repeats))) for cpus in (1, 2)]
    print(table(HEAD, [*rows(costs), *floor_rows(floors)]))
    if arguments.output:
        kept = {"runs": list(map(asdict, costs)), "send_and_recv_kernel_us": dict(floors)}
        arguments.output.write_text(json.dumps(kept, indent=1))


@contextmanager
def null_server(program: Path, protocol: str) -> Iterator[tuple[int, Path]]:
    """The peer's process number and its socket."""
    with tempfile.TemporaryDirectory() as directory:
        address = Path(directory, "socket")
        peer = subprocess.Popen([program, protocol, address, "4"])
        try:
            while not address.exists():
                time.sleep(0.01)
            yield peer.pid, address
        finally:
            peer.kill()
            peer.wait()


def cost(cpus: int, protocol: str, address: Path, pipelining: bool, seconds: float) -> Cost:
    """One terminal for some seconds."""
    spec = foreign_run(protocol, unix(address), warehouses=4, terminals=1, seconds=seconds, pipelining=pipelining)
    result = engine_result(spec)
    usage: dict[str, Any] = result["jobs"][0]["usage"]
    cpu_ns = usage["user_ns"] + usage["system_ns"]
    statements = result["oltp"]["counters"]["statements"]
    transactions = sum(each["completed"] for each in result["oltp"]["transactions"])
    return Cost(
        cpus=cpus,
        protocol=protocol,
        pipelining=pipelining,
        cpu_us_per_statement=cpu_ns / statements / 1e3,
        kernel_fraction=usage["system_ns"] / cpu_ns,
        statements_per_transaction=statements / transactions,
        transactions_per_cpu_second=transactions / (cpu_ns / 1e9),
    )


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


def floor_rows(floors: list[tuple[int, float]]) -> list[tuple[str, ...]]:
    """Kernel time alone, so that its fraction is 100 %."""
    return [(str(cpus), "send and recv", "no", f"{us:.2f}", "100%", "", "") for cpus, us in floors]


def rows(costs: list[Cost]) -> list[tuple[str, ...]]:
    """The median of the repeats of each combination."""
    found: list[tuple[str, ...]] = []
    for combination in dict.fromkeys((each.cpus, each.protocol, each.pipelining) for each in costs):
        cpus, protocol, pipelining = combination
        same = [each for each in costs if (each.cpus, each.protocol, each.pipelining) == combination]
        found.append(
            (
                str(cpus),
                protocol,
                "yes" if pipelining else "no",
                f"{median(each.cpu_us_per_statement for each in same):.2f}",
                f"{median(each.kernel_fraction for each in same):.0%}",
                f"{median(each.statements_per_transaction for each in same):.1f}",
                f"{median(each.transactions_per_cpu_second for each in same):,.0f}",
            )
        )
    return found


if __name__ == "__main__":
    main()
