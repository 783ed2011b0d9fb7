"""The engine's TPC-C against go-tpc 1.0.12 on the same server and data, in paired, interleaved runs.

    python bench/vs_go_tpc.py --go-tpc PATH --kind postgresql --directory /tmp [--check]
    python bench/vs_go_tpc.py --go-tpc PATH --kind mariadb --directory /tmp [--check]
                              [--warehouses 4] [--terminals 8] [--seconds 15] [--pairs 7] [--separate-cpus]
                              [--output FILE.json]

Build go-tpc from the Go module proxy (`go build github.com/pingcap/go-tpc/cmd/go-tpc` at v1.0.12). The server is a
private one in DIRECTORY, with a database that fits into memory and commits that do not wait for the device, so that the
server's CPU time is the limit; both programs connect over TCP. Each loads the database in turn with as many connections
as terminals. With `--separate-cpus` the server has the last CPU to itself and the clients have the others, so that the
cost of a client does not take CPU time from the server: only then do both programs have to reach the same tpmC.

With `--check`, the consistency check of each program reads the database of the other; go-tpc's takes minutes for each
warehouse. CPU time is that of the client's process, and that of the server's control group. Without `--check` a run
takes four to six minutes with the default lengths.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oltp_specs import engine_result, foreign_run, load, spec
from pairs import interleaved, provenance, ratio_of, shown, table
from tcp_server import tcp_server

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture
from iosonde.servers.instance import Instance

SUMMARY = re.compile(r"tpmC: ([\d.]+), tpmTotal: ([\d.]+)")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run."""

    program: str
    tpmc: float
    cpu_us_per_transaction: float
    server_cpu_us_per_transaction: float


class Bench:
    """Both programs on one server."""

    def __init__(self, arguments: argparse.Namespace, server: Instance, port: int) -> None:
        self._arguments = arguments
        self._server = server
        self._port = port
        self._address = {"kind": "tcp", "host": "127.0.0.1", "port": port}

    def _server_us(self) -> float:
        """CPU time of the server so far."""
        return (self._server.group.cpu_ns() or 0) / 1e3

    def go_tpc(self, command: str, *options: str, check: bool = True) -> tuple[str, float, float]:
        """Output, CPU seconds and elapsed seconds of a command."""
        arguments = self._arguments
        flavour = (
            ["-d", "postgres", "--conn-params", "sslmode=disable"]
            if arguments.kind == "postgresql"
            else ["-d", "mysql"]
        )
        before, started = children_cpu_s(), time.monotonic()
        done = subprocess.run(
            [
                *(arguments.go_tpc, "tpcc", command, *flavour, "-H", "127.0.0.1", "-P", str(self._port)),
                *("-U", "bench", "-p", "", "-D", "tpcc"),
                *("--warehouses", str(arguments.warehouses), "-T", str(arguments.terminals), *options),
            ],
            capture_output=True,
            text=True,
        )
        if check and done.returncode:
            sys.exit(f"error: go-tpc {command} failed: {(done.stdout + done.stderr)[-500:]}")
        return done.stdout + done.stderr, children_cpu_s() - before, time.monotonic() - started

    def theirs(self) -> Measured:
        """One run of go-tpc."""
        seconds = self._arguments.seconds
        before = self._server_us()
        output, cpu_s, _ = self.go_tpc("run", "--time", f"{seconds:.0f}s")
        summary = SUMMARY.search(output)
        if summary is None:
            sys.exit(f"error: go-tpc printed no summary: {output[-500:]}")
        tpmc, transactions = float(summary[1]), float(summary[2]) / 60 * seconds
        return Measured(
            program="go-tpc",
            tpmc=tpmc,
            cpu_us_per_transaction=cpu_s / transactions * 1e6,
            server_cpu_us_per_transaction=(self._server_us() - before) / transactions,
        )

    def ours(self, *, pipelining: bool = False) -> Measured:
        """One run of the engine."""
        arguments = self._arguments
        run = foreign_run(
            arguments.kind,
            self._address,
            warehouses=arguments.warehouses,
            terminals=arguments.terminals,
            seconds=arguments.seconds,
            pipelining=pipelining,
            ramp_s=0,
        )
        before = self._server_us()
        result = engine_result(run)
        usage, oltp = result["process"], result["oltp"]
        transactions = {each["operation"]: each["completed"] for each in oltp["transactions"]}
        seconds = (result["end_ns"] - result["begin_ns"]) / 1e9
        return Measured(
            program="iosonde, pipelined" if pipelining else "iosonde",
            tpmc=transactions["new_order"] / seconds * 60,
            cpu_us_per_transaction=(usage["user_ns"] + usage["system_ns"]) / sum(transactions.values()) / 1e3,
            server_cpu_us_per_transaction=(self._server_us() - before) / sum(transactions.values()),
        )

    def loading(self) -> dict[str, Any]:
        """Seconds that loading takes, and whether each program's check passes on the other's database."""
        arguments = self._arguments
        place = (arguments.kind, self._address)
        self.go_tpc("cleanup", check=False)
        _, _, theirs_s = self.go_tpc("prepare", "--no-check")
        checked = engine_result(
            spec(*place, arguments.warehouses, {"kind": "foreign"}, check=True),
        )
        violations = sum(each["violations"] for each in checked["oltp"]["consistency"][0]["conditions"])
        self.go_tpc("cleanup")
        result = engine_result(load(*place, warehouses=arguments.warehouses, jobs=arguments.terminals))
        if arguments.check:
            self.go_tpc("check", "--check-all")
        ours_s = result["oltp"]["load"]["duration_ns"] / 1e9
        return {
            "go_tpc_load_s": theirs_s,
            "iosonde_load_s": ours_s,
            "speed_ratio": theirs_s / ours_s,
            "violations_found_in_go_tpc_database": violations,
            "go_tpc_check_of_our_database": "passed" if arguments.check else "not run",
        }


def separate_cpus(server: Instance) -> None:
    """Restrict the server to the last CPU, and this process and its children to the others."""
    *clients, last = sorted(os.sched_getaffinity(0))
    if not clients:
        sys.exit("error: `--separate-cpus` needs at least two CPUs")
    processes = [server.pid]
    while processes:
        for thread in Path(f"/proc/{processes.pop()}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {last})
            processes += map(int, (thread / "children").read_text().split())
    os.sched_setaffinity(0, clients)


def children_cpu_s() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Load, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--go-tpc", type=Path, required=True)
    parser.add_argument("--kind", choices=("postgresql", "mariadb"), required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--terminals", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument(
        "--check", action="store_true", help="run go-tpc's check, which takes minutes for each warehouse"
    )
    parser.add_argument(
        "--separate-cpus", action="store_true", help="the server on the last CPU, the clients on the others"
    )
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    print(provenance(capture(find_engine())))
    with tcp_server(arguments.kind, arguments.directory) as (server, port):
        if arguments.separate_cpus:
            separate_cpus(server)
        report(Bench(arguments, server, port), arguments)


def report(bench: Bench, arguments: argparse.Namespace) -> None:
    """Load, run in pairs, and print the ratios."""
    loading = bench.loading()
    print(json.dumps(loading, indent=1))
    pairs = interleaved(bench.ours, bench.theirs, pairs=arguments.pairs)
    figures: dict[str, Callable[[Measured], float]] = {
        "tpmC": lambda each: each.tpmc,
        "client CPU per transaction, µs": lambda each: each.cpu_us_per_transaction,
        "server CPU per transaction, µs": lambda each: each.server_cpu_us_per_transaction,
    }
    rows = []
    for name, figure in figures.items():
        ours = [figure(pair[0]) for pair in pairs]
        theirs = [figure(pair[1]) for pair in pairs]
        middle = len(pairs) // 2
        rows.append(
            (name, f"{sorted(ours)[middle]:,.0f}", f"{sorted(theirs)[middle]:,.0f}", shown(ratio_of(pairs, figure)))
        )
    print(table(("", "iosonde", "go-tpc", "ratio"), rows))
    if arguments.output:
        runs = [asdict(each) for pair in pairs for each in pair]
        kept = {"loading": loading, "runs": runs}
        arguments.output.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
