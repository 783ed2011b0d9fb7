"""The engine against memcaslap: gets per second of client CPU time, in paired, interleaved runs.

    python bench/vs_memcaslap.py [--pairs 5] [--seconds 5]

Two comparisons with one client thread, 16 connections, keys of 20 and values of 1,024 bytes, gets only, all of them
hits: one get in flight on each connection, and 16. memcaslap sends 16 keys in one multi-get; the engine pipelines 16
gets. The engine keeps a full histogram of every interval and compares every value read with the expected one;
memcaslap does neither. memcaslap stores its records first, in the same process: these operations count as gets.

Each client has a memcached of its own with equal settings, pinned to CPU 0, the clients to the last CPU. memcaslap
(package `libmemcached-tools`) supports TCP only, the engine Unix sockets only: part of the ratio is the cost of TCP
over loopback. Prints a Markdown table with user and system time apart, so that this part shows.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shared import (
    RANDOM,
    SECOND_NS,
    BenchError,
    Measured,
    compared,
    interleaved,
    measured,
    medians,
    options,
    provenance,
    ratio_of,
    run_engine,
    shown,
    spec_of,
    table,
    values_checked,
)

CONNECTIONS = 16
WINDOW_KI = 2
"""Records of each of memcaslap's connections, in 1,024; the engine has as many records in all."""
VALUE_BYTES = 1024
KEY_BYTES = 20
SERVER = ("memcached", "-m", "512", "-t", "1", "-U", "0", "-c", "256")
CONFIGURATION = f"key\n{KEY_BYTES} {KEY_BYTES} 1\nvalue\n{VALUE_BYTES} {VALUE_BYTES} 1\ncmd\n0 0\n1 1\n"
HEAD = (
    *("load", "gets per CPU second, engine", "memcaslap", "ratio"),
    *("ratio of user time", "gets/s, engine", "memcaslap"),
)
CPUS = sorted(os.sched_getaffinity(0))
START_S = 10.0


def main() -> None:
    """Run both comparisons and print the table."""
    given = options(__doc__, pairs=5, seconds=5.0)
    rows = []
    with tempfile.TemporaryDirectory(prefix="iosonde-bench-") as name, servers(Path(name)) as port:
        for depth in (1, 16):
            load = f"{depth} get{'s' if depth > 1 else ''} in flight on each connection"
            spec = engine_load(Path(name), depth, given.seconds)
            pairs = interleaved(
                lambda spec=spec: measured(values_checked(run_engine(spec)[-1])),  # type: ignore[misc]
                lambda depth=depth: memcaslap(Path(name), port, depth, given.seconds),  # type: ignore[misc]
                pairs=given.pairs,
                title=load,
            )
            user = shown(ratio_of(pairs, lambda run: 1 / run.user_ns_each))
            rates = (f"{each:,.0f}" for each in medians(pairs, lambda run: run.rate))
            rows.append([load, *compared(pairs, lambda run: 1e9 / run.cpu_ns_each), user, *rates])
    version = subprocess.run(["memcached", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{provenance(version)}\n\n{table(HEAD, rows)}")


def memcaslap(scratch: Path, port: int, depth: int, seconds: float) -> Measured:
    """memcaslap; its CPU time is that of its process, which stores its records first."""
    configuration = scratch / "memcaslap.cnf"
    configuration.write_text(CONFIGURATION)
    command = [
        *("taskset", "-c", str(CPUS[-1]), "memcaslap", f"--servers=127.0.0.1:{port}", "--threads=1"),
        *(f"--concurrency={CONNECTIONS}", f"--time={max(1, round(seconds))}s", f"--win_size={WINDOW_KI}k"),
        *(f"--division={depth}", f"--cfg_cmd={configuration}"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, process.returncode, used = os.wait4(process.pid, 0)
    misses = re.search(r"^get_misses: (\d+)", output, re.MULTILINE)
    totals = re.search(r"Run time: ([\d.]+)s Ops: (\d+)", output)
    if process.returncode or totals is None or misses is None or int(misses[1]):
        raise BenchError(f"memcaslap failed, or missed records:\n{output[-2000:]}")
    return Measured(
        operations=int(totals[2]),
        seconds=float(totals[1]),
        user_ns=used.ru_utime * SECOND_NS,
        system_ns=used.ru_stime * SECOND_NS,
    )


def engine_load(scratch: Path, depth: int, seconds: float) -> dict[str, Any]:
    """The same load of the engine; its CPU time is that of the measurement."""
    stream = {
        "name": "main",
        "jobs": 1,
        "operations": [{"operation": "read", "weight": 1.0}],
        "choice": RANDOM,
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
        "cpus": [CPUS[-1]],
    }
    records = {
        "count": CONNECTIONS * WINDOW_KI * 1024,
        "key_bytes": {"kind": "fixed", "bytes": KEY_BYTES},
        "value_bytes": {"kind": "fixed", "bytes": VALUE_BYTES},
        "value_compression_ratio": 1.0,
        "seed": 1,
    }
    workload = {
        "kind": "kv",
        "store": {"kind": "memcached", "library": None, "options": {"connections": CONNECTIONS}},
        "target": {"kind": "socket", "path": str(scratch / "socket")},
        "records": records,
        "database": {"kind": "loaded", "reload": True, "order": "sequential", "batch": 1000, "sync": False},
        "transition": {"settle": False, "reopen": False, "page_cache": "keep"},
        "streams": [stream],
        "ramp": {"duration_ns": SECOND_NS // 2, "bytes": None},
        "duration_ns": round(seconds * SECOND_NS),
        "interval_ns": SECOND_NS,
        "settle_at_end": False,
    }
    return spec_of(workload)


@contextmanager
def servers(scratch: Path) -> Iterator[int]:
    """Two servers with equal settings, one on a Unix socket and one on a free TCP port of loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    user = ["-u", "root"] if os.geteuid() == 0 else []
    started = [
        subprocess.Popen(["taskset", "-c", str(CPUS[0]), *SERVER, *user, *place])
        for place in (["-s", str(scratch / "socket")], ["-l", "127.0.0.1", "-p", str(port)])
    ]
    try:
        wait_for(scratch / "socket", port)
        yield port
    finally:
        for process in started:
            process.terminate()
            process.wait()


def wait_for(path: Path, port: int) -> None:
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


if __name__ == "__main__":
    main()
