"""The engine against memcaslap: gets per second of client CPU time, in paired, interleaved runs.

    python bench/vs_memcaslap.py [--pairs 5] [--seconds 5] [--output FILE.json]

Two comparisons with one client thread, 16 connections, keys of 20 and values of 1,024 bytes, gets only, all of them
hits: one get in flight on each connection, and 16. memcaslap sends 16 keys in one multi-get; the engine pipelines 16
gets. The engine keeps a full histogram of every interval and compares every value read with the expected one;
memcaslap does neither. memcaslap stores its records first, in the same process: these operations count as gets.

Each client has a memcached of its own with equal settings, pinned to CPU 0, the clients to the last CPU. memcaslap
(package `libmemcached-tools`) supports TCP only, the engine Unix sockets only: part of the ratio is the cost of TCP
over loopback. Prints a Markdown table with user and system time apart, so that this part shows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pairs import interleaved, provenance, ratio_of, shown, table

from iosonde.execution.engine import drive, find_engine
from iosonde.execution.environment import capture
from iosonde.execution.stop import Stop
from iosonde.workload.workload import engine_spec

CONNECTIONS = 16
WINDOW_KI = 2
"""Records of each of memcaslap's connections, in 1,024; the engine has as many records in all."""
RECORDS = CONNECTIONS * WINDOW_KI * 1024
VALUE_BYTES = 1024
KEY_BYTES = 20
SERVER = ("memcached", "-m", "512", "-t", "1", "-U", "0", "-c", "256")
CONFIGURATION = f"key\n{KEY_BYTES} {KEY_BYTES} 1\nvalue\n{VALUE_BYTES} {VALUE_BYTES} 1\ncmd\n0 0\n1 1\n"
HEAD = (
    "load",
    "gets per CPU second, engine",
    "memcaslap",
    "ratio",
    "ratio of user time",
    "gets/s, engine",
    "memcaslap",
)
START_S = 10.0


class BenchError(Exception):
    """A run did not give what it must."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run."""

    program: str
    gets: int
    seconds: float
    user_s: float
    system_s: float

    @property
    def per_cpu_second(self) -> float:
        """Gets per second of CPU time of the client."""
        return self.gets / (self.user_s + self.system_s)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings shared by both comparisons."""

    engine: Path
    scratch: Path
    port: int
    seconds: float

    def ours(self, depth: int) -> Measured:
        """The engine; its CPU time is that of the measurement."""
        stop = Stop()
        try:
            done = drive(self._spec(depth), on_event=lambda _: None, stop=stop, engine=self.engine)
        finally:
            stop.close()
        if done.result is None:
            raise BenchError(f"the engine failed: {done.failure}")
        checks = done.result["store"]["checks"]
        if any(check["missing"] or check["corrupted"] for check in checks):
            raise BenchError(f"values are missing or wrong: {checks}")
        used = done.result["process"]
        return Measured(
            program="engine",
            gets=sum(job["operations"] for job in done.result["jobs"]),
            seconds=(done.result["end_ns"] - done.result["begin_ns"]) / 1e9,
            user_s=used["user_ns"] / 1e9,
            system_s=used["system_ns"] / 1e9,
        )

    def theirs(self, depth: int) -> Measured:
        """memcaslap; its CPU time is that of its process, which stores its records first."""
        configuration = self.scratch / "memcaslap.cnf"
        configuration.write_text(CONFIGURATION)
        command = [
            *("memcaslap", f"--servers=127.0.0.1:{self.port}", "--threads=1", f"--concurrency={CONNECTIONS}"),
            *(f"--time={max(1, round(self.seconds))}s", f"--win_size={WINDOW_KI}k", f"--division={depth}"),
            f"--cfg_cmd={configuration}",
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_pin_to_last_cpu
        )
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        misses = re.search(r"^get_misses: (\d+)", output, re.MULTILINE)
        totals = re.search(r"Run time: ([\d.]+)s Ops: (\d+)", output)
        if status or totals is None or misses is None or int(misses[1]):
            raise BenchError(f"memcaslap failed, or missed records:\n{output[-2000:]}")
        return Measured(
            program="memcaslap",
            gets=int(totals[2]),
            seconds=float(totals[1]),
            user_s=used.ru_utime,
            system_s=used.ru_stime,
        )

    def _spec(self, depth: int) -> dict[str, Any]:
        stream = {
            "name": "main",
            "jobs": 1,
            "operations": [{"operation": "read", "weight": 1.0}],
            "choice": {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}},
            "direction": "forward",
            "scan_records_min": 1,
            "scan_records_max": 1,
            "batch": CONNECTIONS * depth,
            "sync": False,
            "arrival": {"kind": "closed"},
            "rate_limit": None,
            "background": False,
            "limit_bytes": None,
            "limit_operations": None,
            "cpus": [_last_cpu()],
        }
        fixed = {"kind": "fixed", "bytes": VALUE_BYTES}
        workload = {
            "kind": "kv",
            "store": {"kind": "memcached", "library": None, "options": {"connections": CONNECTIONS}},
            "target": {"kind": "socket", "path": str(self.scratch / "socket")},
            "records": {
                "count": RECORDS,
                "key_bytes": {"kind": "fixed", "bytes": KEY_BYTES},
                "value_bytes": fixed,
                "value_compression_ratio": 1.0,
                "seed": 1,
            },
            "database": {"kind": "loaded", "reload": True, "order": "sequential", "batch": 1000, "sync": False},
            "transition": {"settle": False, "reopen": False, "page_cache": "keep"},
            "streams": [stream],
            "ramp": {"duration_ns": 500_000_000, "bytes": None},
            "duration_ns": round(self.seconds * 1e9),
            "interval_ns": 1_000_000_000,
            "settle_at_end": False,
        }
        return engine_spec(workload, seed=1, run_id="bench", devices=[])


def main() -> int:
    """Run both comparisons and print the table."""
    parser = argparse.ArgumentParser(description="The engine against memcaslap, in gets per client CPU second")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    engine, rows, kept = find_engine(), [], {}
    with tempfile.TemporaryDirectory(prefix="iosonde-bench-") as name, servers(Path(name)) as port:
        bench = Bench(engine=engine, scratch=Path(name), port=port, seconds=arguments.seconds)
        for depth in (1, 16):
            load = f"{depth} get{'s' if depth > 1 else ''} in flight on each connection"
            print(load, file=sys.stderr)
            found = interleaved(lambda d=depth: bench.ours(d), lambda d=depth: bench.theirs(d), pairs=arguments.pairs)
            rows.append(_row(load, found))
            kept[load] = [[asdict(ours), asdict(theirs)] for ours, theirs in found]
    print(provenance(capture(engine), _version()))
    print()
    print(table(HEAD, rows))
    if arguments.output:
        arguments.output.write_text(json.dumps(kept, indent=1))
    return 0


def _row(load: str, found: list[tuple[Measured, Measured]]) -> list[str]:
    def middle(program: int, value: str) -> str:
        values = sorted(getattr(pair[program], value) for pair in found)
        return f"{values[len(values) // 2]:,.0f}"

    rates = [sorted(pair[program].gets / pair[program].seconds for pair in found) for program in (0, 1)]
    return [
        load,
        middle(0, "per_cpu_second"),
        middle(1, "per_cpu_second"),
        shown(ratio_of(found, lambda each: each.per_cpu_second)),
        shown(ratio_of(found, lambda each: each.gets / each.user_s)),
        *(f"{values[len(values) // 2]:,.0f}" for values in rates),
    ]


@contextmanager
def servers(scratch: Path) -> Iterator[int]:
    """Two servers with equal settings, one on a Unix socket and one on a free TCP port of loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    user = ["-u", "root"] if os.geteuid() == 0 else []
    started = [
        subprocess.Popen([*SERVER, *user, *place], preexec_fn=_pin_to_first_cpu)
        for place in (["-s", str(scratch / "socket")], ["-l", "127.0.0.1", "-p", str(port)])
    ]
    try:
        _wait_for(scratch / "socket", port)
        yield port
    finally:
        for process in started:
            process.terminate()
            process.wait()


def _wait_for(path: Path, port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
            continue
        if path.exists():
            return
    raise BenchError("memcached did not start")


def _version() -> str:
    return subprocess.run(["memcached", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _pin_to_first_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _pin_to_last_cpu() -> None:
    os.sched_setaffinity(0, {_last_cpu()})


def _last_cpu() -> int:
    return max(os.sched_getaffinity(0))


if __name__ == "__main__":
    sys.exit(main())
