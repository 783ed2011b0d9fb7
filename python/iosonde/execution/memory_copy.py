"""Memory copy throughput of this machine: the upper limit of buffered I/O, which copies every byte once.

As many threads as the load has jobs, but no more than there are processors, copy blocks larger than any cache for a
fraction of a second; the best of three passes counts, because other work only makes it slower. It is remembered next to
the harness's own cost, for each model of the processor and number of threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from iosonde.cache import cache_directory, remember
from iosonde.workload import described

BLOCK_BYTES = 64 << 20
PASSES = 3
COPIES = 2
"""Of each thread in a pass: 128 MiB take some ten milliseconds."""


def bytes_per_second(spec: Mapping[str, Any], cpu_model: str) -> float | None:
    """Return it for a spec of block I/O that goes through the page cache of a real target; None for others.

    Bytes copied, not bytes moved: a copy reads and writes each.
    """
    workload = spec["workload"]
    if not described(workload).moves_blocks or workload["target"]["kind"] == "virtual":
        return None
    buffered = [stream["jobs"] for stream in workload["streams"] if stream.get("io_mode") == "buffered"]
    if not buffered:
        return None
    threads = min(sum(buffered), len(os.sched_getaffinity(0)))
    path = _path(cpu_model, threads)
    with suppress(OSError, ValueError, KeyError):
        return float(json.loads(path.read_bytes())["bytes_per_second"])
    found = measure(threads)
    remember(path, json.dumps({"cpu": cpu_model, "threads": threads, "bytes_per_second": found}).encode())
    return found


def measure(threads: int, *, block_bytes: int = BLOCK_BYTES) -> float:
    """Return bytes copied per second by this many threads together: the best of three passes."""
    buffers = [(np.ones(block_bytes, dtype=np.uint8), np.ones(block_bytes, dtype=np.uint8)) for _ in range(threads)]
    return max(_pass(buffers) for _ in range(PASSES))


def _pass(buffers: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> float:
    start = threading.Barrier(len(buffers) + 1)

    def copy(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
        start.wait()
        for _ in range(COPIES):
            np.copyto(target, source)  # Without the interpreter's lock.

    workers = [threading.Thread(target=copy, args=pair) for pair in buffers]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    copied = COPIES * sum(source.nbytes for source, _ in buffers)
    return copied / (time.perf_counter() - began)


def _path(cpu_model: str, threads: int) -> Path:
    key = hashlib.sha256(f"{cpu_model}/{threads}".encode()).hexdigest()[:16]
    return cache_directory() / "harness" / f"memory-copy-{key}.json"
