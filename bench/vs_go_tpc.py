"""The engine's TPC-C against go-tpc 1.0.12 on the same server and data, in paired, interleaved runs.

    python bench/vs_go_tpc.py --go-tpc PATH --kind postgresql|mariadb --directory /tmp [--check]
                              [--warehouses 4] [--terminals 8] [--seconds 15] [--pairs 7] [--separate-cpus]

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
import os
import re
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from shared import BenchError, compared, interleaved, measured, options, provenance, table
from sql_client_cost import Json, measurement, result_of, tpcc

from iosonde.storage.safety import journal
from iosonde.study import servers
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.server import Address, Installation, Instance, Place, Server, Settings

SETTINGS: dict[str, Settings] = {
    "postgresql": {"shared_buffers": "1GB", "max_connections": 100, "max_wal_size": "8GB", "synchronous_commit": "off"},
    "mariadb": {
        "innodb_buffer_pool_size": "1G",
        "innodb_log_file_size": "1G",
        "innodb_flush_log_at_trx_commit": 2,
        "max_connections": 100,
    },
}
"""The database fits into memory and commits do not wait for the device, so that the server's CPU time is the limit."""
ACCOUNTS = {
    "postgresql": ["CREATE USER bench SUPERUSER"],
    "mariadb": ["CREATE USER bench", "GRANT ALL ON *.* TO bench"],
}
LISTEN = {
    "postgresql": ["-c", "listen_addresses=127.0.0.1", "-c", "port={port}"],
    "mariadb": ["--skip-networking=0", "--bind-address=127.0.0.1", "--port={port}"],
}
DIALECT = {"postgresql": ["-d", "postgres", "--conn-params", "sslmode=disable"], "mariadb": ["-d", "mysql"]}
SUMMARY = re.compile(r"tpmC: ([\d.]+), tpmTotal: ([\d.]+)")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run; CPU time is that of a transaction, in microseconds."""

    tpmc: float
    client_us: float
    server_us: float


class Bench:
    """Both programs on one server."""

    def __init__(self, given: argparse.Namespace, server: Instance, port: int) -> None:
        self._given, self._server, self._port = given, server, port

    def _workload(self, database: Json, *, check: bool = False) -> Json:
        address = {"kind": "tcp", "host": "127.0.0.1", "port": self._port}
        return tpcc(self._given.kind, address, self._given.warehouses, database, check=check)

    def _server_us(self) -> float:
        """CPU time of the server so far."""
        return (self._server.group.cpu_ns() or 0) / 1e3

    def go_tpc(self, command: str, *settings: str, check: bool = True) -> tuple[str, float, float]:
        """Output, CPU seconds and elapsed seconds of a command."""
        given = self._given
        before, started = children_cpu_s(), time.monotonic()
        whole = [
            *(given.go_tpc, "tpcc", command, *DIALECT[given.kind], "-H", "127.0.0.1", "-P", str(self._port)),
            *("-U", "bench", "-p", "", "-D", "tpcc"),
            *("--warehouses", str(given.warehouses), "-T", str(given.terminals), *settings),
        ]
        done = subprocess.run(whole, capture_output=True, text=True)
        if check and done.returncode:
            raise BenchError(f"go-tpc {command} failed: {(done.stdout + done.stderr)[-500:]}")
        return done.stdout + done.stderr, children_cpu_s() - before, time.monotonic() - started

    def theirs(self) -> Run:
        """One run of go-tpc."""
        seconds, before = self._given.seconds, self._server_us()
        output, cpu_s, _ = self.go_tpc("run", "--time", f"{seconds:.0f}s")
        summary = SUMMARY.search(output)
        if summary is None:
            raise BenchError(f"go-tpc printed no summary: {output[-500:]}")
        transactions = float(summary[2]) / 60 * seconds
        used_us = self._server_us() - before
        return Run(tpmc=float(summary[1]), client_us=cpu_s * 1e6 / transactions, server_us=used_us / transactions)

    def ours(self) -> Run:
        """One run of the engine."""
        given, before = self._given, self._server_us()
        loop = measurement(given.kind, terminals=given.terminals, seconds=given.seconds, pipelining=False, ramp_s=0)
        result = result_of(self._workload({"kind": "foreign"}) | {"measurement": loop})
        completed = {each["operation"]: each["completed"] for each in result["oltp"]["transactions"]}
        found, transactions = measured(result), sum(completed.values())
        return Run(
            tpmc=completed["new_order"] / found.seconds * 60,
            client_us=(found.user_ns + found.system_ns) / transactions / 1e3,
            server_us=(self._server_us() - before) / transactions,
        )

    def load(self) -> list[str]:
        """Load with each program, the engine last; lines on the time and on the checks of the other's database."""
        self.go_tpc("cleanup", check=False)
        _, _, theirs_s = self.go_tpc("prepare", "--no-check")
        checked = result_of(self._workload({"kind": "foreign"}, check=True))
        violations = sum(each["violations"] for each in checked["oltp"]["consistency"][0]["conditions"])
        self.go_tpc("cleanup")
        database = {"kind": "loaded", "reload": True, "jobs": self._given.terminals}
        ours_s = result_of(self._workload(database))["oltp"]["load"]["duration_ns"] / 1e9
        if self._given.check:
            self.go_tpc("check", "--check-all")
        return [
            f"- loading: engine {ours_s:.1f} s, go-tpc {theirs_s:.1f} s ({theirs_s / ours_s:.1f} times as fast)",
            f"- violations found in the database of go-tpc: {violations}",
            f"- go-tpc's check of the engine's database: {'passed' if self._given.check else 'not run'}",
        ]


def separate_cpus(server: Instance) -> None:
    """Restrict the server to the last CPU, and this process and its children to the others."""
    *clients, last = sorted(os.sched_getaffinity(0))
    if not clients:
        raise BenchError("`--separate-cpus` needs at least two CPUs")
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


@contextmanager
def tcp_server(kind: str, directory: Path) -> Iterator[tuple[Instance, int]]:
    """A private server and its port: its user `bench` has no password, its empty database is `tpcc`.

    Its data are in a new directory below `directory`, which the server's user can enter.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    server = on_port(servers.named(kind), port)
    with tempfile.TemporaryDirectory(prefix="iosonde-bench-", dir=directory) as name:
        place = Path(name)
        place.chmod(0o711)
        directories = Directories(
            own=place / "iosonde-00000000", name=f"{kind}-00000000", template_name="template-00000000"
        )
        instance = Instance(server, directories, SETTINGS[kind], None)
        try:
            instance.provision()
            instance.start()
            connection = instance.connect()
            for statement in ACCOUNTS[kind]:
                connection.rows(statement)
            instance.database_server.create_database(connection, "tpcc")
            connection.close()
            yield instance, port
        finally:
            instance.remove()
            journal.remove(directories.own)


def on_port(server: Server, port: int) -> Server:
    """The same server, which also listens on 127.0.0.1."""
    base = type(server)

    class OnPort(base):  # type: ignore[misc, valid-type]
        name: ClassVar[str] = server.name

        def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
            """With networking."""
            listen = [each.format(port=port) for each in LISTEN[server.name]]
            return [*super().command(installation, place, settings), *listen]

        def address(self, place: Place, database: str = "") -> Address:
            """PostgreSQL's socket is named after the port."""
            found = super().address(place, database)
            return replace(found, port=port) if server.name == "postgresql" else found

    return OnPort()


def main() -> None:
    """Load, compare, print."""
    given = options(
        __doc__,
        go_tpc=Path,
        kind=("postgresql", "mariadb"),
        directory=Path,
        warehouses=4,
        terminals=8,
        seconds=15.0,
        pairs=7,
        check=False,
        separate_cpus=False,
    )
    print(
        provenance(
            f"{given.warehouses} warehouses, {given.terminals} terminals, {given.pairs} pairs of {given.seconds:g} s"
        )
    )
    with tcp_server(given.kind, given.directory) as (server, port):
        if given.separate_cpus:
            separate_cpus(server)
        bench = Bench(given, server, port)
        print("", *bench.load(), "", sep="\n")
        pairs = interleaved(bench.ours, bench.theirs, pairs=given.pairs)
    rows = [
        ["tpmC", *compared(pairs, lambda run: run.tpmc)],
        ["client CPU per transaction, µs", *compared(pairs, lambda run: run.client_us)],
        ["server CPU per transaction, µs", *compared(pairs, lambda run: run.server_us)],
    ]
    print(table(("", "iosonde", "go-tpc", "ratio"), rows))


if __name__ == "__main__":
    main()
