"""CPU cost of each I/O in the harness itself, calibrated on the null backend once per machine, engine and shape.

A *shape* is what the cost depends on: access pattern, queue depth, mixed operations or sizes. A study has a few; each
takes 60 ms and is cached in `$XDG_CACHE_HOME/iosonde/harness/`. CPU time does not depend on other load. It includes
choosing, timing and recording an I/O, but not filling the blocks that are written. For buffered I/O the memory copy
throughput of this machine is recorded as well, the upper limit of what copies every byte once.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from iosonde.base.cache import cache_directory, remember
from iosonde.errors import EngineError
from iosonde.execution.conversation import Timeouts
from iosonde.execution.engine import ENGINE, drive
from iosonde.execution.stop import Stop
from iosonde.study.workload import described
from iosonde.study.workload.block.backends import VIRTUAL

DURATION_NS = 60_000_000
INTERVAL_NS = 100_000_000
DEPTHS = (1, 4, 16, 64)
"""Queue depths that are calibrated: a stream uses the largest one that does not exceed its own."""

BLOCK_BYTES = 64 << 20
PASSES = 3
COPIES = 2
"""Of each thread in a pass: 128 MiB take some ten milliseconds."""

_TIMEOUTS = Timeouts(hello_s=60, silence_s=60)

Json = Mapping[str, Any]


class Harness:
    """The costs on this machine, with this engine."""

    def __init__(self, *, engine: Path, environment: Json, stop: Stop) -> None:
        self._engine = engine
        self._stop = stop
        self._who = {
            "engine_sha256": (environment.get("software") or {}).get("engine_sha256"),
            "cpu": (environment.get("cpu") or {}).get("model"),
        }
        self._is_ours = str((environment.get("software") or {}).get("engine")).startswith(ENGINE)
        self._known: dict[str, Json | None] = {}

    def learn(self, specs: Iterable[Json]) -> None:
        """Measure the shapes of these specs that are not in the cache, so that no run waits for it."""
        for spec in specs:
            if self._stop.is_set():
                return
            self.costs(spec)

    def costs(self, spec: Json) -> dict[str, Any] | None:
        """Cost of an I/O of each stream, for the record; None for other engines and for virtual backends."""
        workload = spec["workload"]
        if not self._is_ours or described(workload).io != "blocks" or workload["backend"]["kind"] in VIRTUAL:
            return None  # Without a device there is nothing that the harness could take time from.
        costs = {stream["name"]: self._cost(spec, stream) for stream in workload["streams"]}
        if not any(costs.values()):
            return None
        # Upper bound of copying through the page cache, for buffered I/O.
        speed = memory_copy_bytes_per_second(spec, str(self._who["cpu"]))
        copying = {} if speed is None else {"memory_copy_bytes_per_second": round(speed)}
        return {**self._who, "streams": costs, **copying}

    def _cost(self, spec: Json, stream: Json) -> Json | None:
        shape = shape_of(stream)
        if shape not in self._known:
            path = _file(json.dumps([self._who, shape], sort_keys=True))
            cost = self._remembered(path, shape)
            if cost is None and (cost := self._measure(shape, spec, stream)):
                # One that cannot be written is measured again next time.
                remember(path, json.dumps({**self._who, **cost}, indent=1).encode())
            self._known[shape] = cost
        return self._known[shape]

    def _measure(self, shape: str, spec: Json, stream: Json) -> Json | None:
        try:
            done = drive(
                null_spec(spec, stream), on_event=lambda _: None, stop=self._stop, engine=self._engine,
                timeouts=_TIMEOUTS,
            )  # fmt: skip
        except (EngineError, OSError):
            return None
        if done.result is None or done.result["outcome"] != "complete":
            return None
        (job,) = done.result["jobs"]
        if not job["operations"]:
            return None
        cpu_ns = job["usage"]["user_ns"] + job["usage"]["system_ns"]
        return {
            "shape": shape,
            "ns_per_io": round(cpu_ns / job["operations"], 2),
            "operations": job["operations"],
            "measured_at": datetime.now().astimezone().isoformat(timespec="seconds"),
        }

    def _remembered(self, path: Path, shape: str) -> Json | None:
        with suppress(OSError, ValueError):
            found = json.loads(path.read_bytes())
            if found["shape"] == shape and found["ns_per_io"] > 0:
                return {name: found[name] for name in ("shape", "ns_per_io", "operations", "measured_at")}
        return None


def _file(key: str, prefix: str = "") -> Path:
    """The file in the cache with what was measured for a key."""
    return cache_directory() / "harness" / f"{prefix}{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def shape_of(stream: Json) -> str:
    """The shape of a stream, as text."""
    access = stream["access"]
    chosen = [access["kind"]]
    if access["kind"] == "random":
        chosen += [access["distribution"]["kind"], access["coverage"]]
    depth = max(each for each in DEPTHS if each <= stream["queue_depth"])
    is_mixed = any(0 < stream["mix"][name] < 1 for name in ("read_fraction", "trim_fraction"))
    flush = stream["durability"]["kind"] == "flush"
    return ", ".join(
        [
            " ".join(chosen),
            f"queue depth {depth}",
            "mixed operations" if is_mixed else "one operation",
            "mixed sizes" if len(stream["block_sizes"]) > 1 else "one size",
            *(["flushes"] if flush else []),
        ]
    )


def null_spec(spec: Json, stream: Json) -> dict[str, Any]:
    """The spec that measures a stream's shape: one closed-loop job of it on nothing."""
    depth = max(each for each in DEPTHS if each <= stream["queue_depth"])
    job = copy.deepcopy(dict(stream)) | {
        "jobs": 1,
        "queue_depth": depth,
        "arrival": {"kind": "closed"},
        "limit_bytes": None,
        "limit_operations": None,
        "cpus": [],
    }
    if "active" in job:
        job["active"] = None
    workload = copy.deepcopy(dict(spec["workload"])) | {
        "target": {"kind": "virtual", "size_bytes": stream["span"]["offset_bytes"] + stream["span"]["bytes"]},
        "backend": {"kind": "null"},
        "layout": "never",
        "page_cache": "keep",
        "verify": None,
        "streams": [job],
        "ramp": {"duration_ns": 0, "bytes": None},
        "duration_ns": DURATION_NS,
        "interval_ns": INTERVAL_NS,
    }
    return {**spec, "run_id": "harness", "workload": workload, "observe": {"block_devices": []}}


def memory_copy_bytes_per_second(spec: Mapping[str, Any], cpu_model: str) -> float | None:
    """Return it for a spec of block I/O that goes through the page cache of a real target; None for others.

    Bytes copied, not bytes moved: a copy reads and writes each.
    """
    workload = spec["workload"]
    if described(workload).io != "blocks" or workload["target"]["kind"] == "virtual":
        return None
    buffered = [stream["jobs"] for stream in workload["streams"] if stream.get("io_mode") == "buffered"]
    if not buffered:
        return None
    threads = min(sum(buffered), len(os.sched_getaffinity(0)))
    path = _file(f"{cpu_model}/{threads}", "memory-copy-")
    with suppress(OSError, ValueError, KeyError):
        return float(json.loads(path.read_bytes())["bytes_per_second"])
    found = memory_copy_speed(threads)
    remember(path, json.dumps({"cpu": cpu_model, "threads": threads, "bytes_per_second": found}).encode())
    return found


def memory_copy_speed(threads: int, *, block_bytes: int = BLOCK_BYTES) -> float:
    """Bytes copied per second by this many threads together, in blocks that are larger than any cache.

    The best of three passes counts, because other work only makes it slower.
    """
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
