"""What the engine's client costs for each SQL statement, against a peer that answers at once and keeps nothing.

    python bench/sql_client_cost.py --null-server PATH [--seconds 5] [--repeats 3] [--output FILE.json]

PATH is `iosonde-null-sql-server` (`cargo build --release -p iosonde-oltp --bins`). One terminal runs the TPC-C mix in
both protocols, with and without pipelining. CPU time is that of the terminal's thread (`getrusage(2)`), user and kernel
mode.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from oltp_specs import engine_result, foreign_run, unix
from pairs import provenance, table

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture

HEAD = ("protocol", "pipelining", "CPU a statement, µs", "kernel", "statements a transaction", "transactions a CPU s")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One run."""

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
    costs = []
    for protocol in ("postgresql", "mariadb"):
        with tempfile.TemporaryDirectory() as directory:
            socket = Path(directory, "socket")
            peer = subprocess.Popen([arguments.null_server, protocol, socket, "4"])
            try:
                while not socket.exists():
                    time.sleep(0.01)
                for _ in range(arguments.repeats):
                    costs += [cost(protocol, socket, pipelining, arguments.seconds) for pipelining in (False, True)]
            finally:
                peer.kill()
                peer.wait()
    print(table(HEAD, rows(costs)))
    if arguments.output:
        arguments.output.write_text(json.dumps({"runs": list(map(asdict, costs))}, indent=1))


def cost(protocol: str, socket: Path, pipelining: bool, seconds: float) -> Cost:
    """One terminal for some seconds."""
    spec = foreign_run(protocol, unix(socket), warehouses=4, terminals=1, seconds=seconds, pipelining=pipelining)
    result = engine_result(spec)
    usage: dict[str, Any] = result["jobs"][0]["usage"]
    cpu_ns = usage["user_ns"] + usage["system_ns"]
    statements = result["oltp"]["counters"]["statements"]
    transactions = sum(each["completed"] for each in result["oltp"]["transactions"])
    return Cost(
        protocol=protocol,
        pipelining=pipelining,
        cpu_us_per_statement=cpu_ns / statements / 1e3,
        kernel_fraction=usage["system_ns"] / cpu_ns,
        statements_per_transaction=statements / transactions,
        transactions_per_cpu_second=transactions / (cpu_ns / 1e9),
    )


def rows(costs: list[Cost]) -> list[tuple[str, ...]]:
    """The median of the repeats of each combination."""
    found: list[tuple[str, ...]] = []
    for protocol, pipelining in dict.fromkeys((each.protocol, each.pipelining) for each in costs):
        same = [each for each in costs if (each.protocol, each.pipelining) == (protocol, pipelining)]
        found.append(
            (
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
