#!/usr/bin/env python3
"""Compare the system calls of the layout `renamed` of a KV cache with those of vLLM's own code.

usage: bench/kv_layouts.py --vllm DIRECTORY
The directory is the source of vLLM, or the one that it is installed in. Its `vllm/v1/kv_offload/tiering/fs/io.py` is
loaded alone, so that neither PyTorch nor an accelerator is needed. Both store three blocks and load one under strace.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from shared import BenchError, options

from iosonde.execution.engine import find_engine
from iosonde.features.ai import kv_trace
from iosonde.study.workload.workload import engine_spec

BLOCK = 1 << 20
TRACED = "openat,access,faccessat,faccessat2,statx,newfstatat,write,pwrite64,read,readv,pread64,close,rename,renameat2"
THEIRS = """
import importlib.util, mmap, os, sys
spec = importlib.util.spec_from_file_location("io_of_vllm", sys.argv[1])
io = importlib.util.module_from_spec(spec)
spec.loader.exec_module(io)
blocks, place = memoryview(mmap.mmap(-1, 3 << 20)), sys.argv[2]
paths = [f"{place}/abc/{n:02}/{n:016x}.bin" for n in range(3)]
io.batch_store_block(paths, blocks, [0, 1 << 20, 2 << 20], 1 << 20)
os.path.exists(paths[0])
io.batch_load_block(paths[:1], blocks, [0], 1 << 20)
"""


def main() -> None:
    """Print both sequences of a store and of a load, and fail if they differ."""
    module = options(__doc__, vllm=Path).vllm / "vllm/v1/kv_offload/tiering/fs/io.py"
    with tempfile.TemporaryDirectory() as place:
        theirs = traced([sys.executable, "-c", THEIRS, str(module), f"{place}/theirs"], Path(place, "theirs"))
        ours = traced([str(find_engine())], Path(place, "ours"), text=json.dumps(spec(Path(place))))
    found = {name: sequences(lines) for name, lines in (("vLLM", theirs), ("iosonde", ours))}
    for name, calls in found.items():
        print(f"{name:8} {calls}")
    sys.exit(found["vLLM"] != found["iosonde"])


def spec(place: Path) -> dict[str, object]:
    """Requests for blocks 0 and 1, and then 0 and 2, in one thread each."""
    requests = ({"timestamp": at, "input_length": 1024, "hash_ids": ids} for at, ids in ((0, [0, 1]), (500, [0, 2])))
    named = place / "trace.jsonl"
    named.write_text("".join(f"{json.dumps(each)}\n" for each in requests))
    trace = kv_trace.converted(str(named), 512)
    target = place / "ours"
    target.mkdir()
    load = {
        "kind": "ai_kv_cache",
        "target": {"kind": "directory", "path": str(target)},
        "trace": {"path": trace.path, "rows": trace.rows, "digest": trace.digest},
        **{"block_bytes": BLOCK, "capacity_blocks": 3, "layout": "renamed", "sync": False, "is_direct": True},
        **{"threads": 1, "writers": 1, "is_parallel": False, "warm_requests": 0, "speed": 1.0},
        **{"duration_ns": None, "interval_ns": 10**8},
    }
    return engine_spec(load, seed=1, run_id="kv-layouts", devices=[])


def traced(command: list[str], target: Path, text: str = "") -> list[str]:
    """The system calls of a program on files of blocks, but those that query an open file."""
    log = target.with_suffix(".strace")
    strace = ["strace", "-f", "-y", "-s", "300", "-e", f"trace={TRACED}", "-o", str(log)]
    done = subprocess.run([*strace, *command], input=text, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{command[0]} failed: {done.stderr or done.stdout}")
    lines = log.read_text().splitlines()
    return [
        line for line in lines if re.search(r"[0-9a-f]{16}\.", line) and not re.search("resumed|AT_EMPTY_PATH", line)
    ]


def sequences(lines: list[str]) -> dict[str, list[str]]:
    """Calls for the last block that a thread stored, and for the first that one loaded."""
    threads: dict[str, list[str]] = {}
    for line in lines:
        if "openat" not in line or "ENOENT" not in line:  # A directory that is missing is created at the second open.
            threads.setdefault(line.split()[0], []).append(name_of(line))
    stores = next(calls for calls in threads.values() if "write" in calls)
    loads = next(calls for calls in threads.values() if "read" in calls)
    end, read = _last(stores, "rename") + 1, loads.index("read")
    return {"store": stores[_last(stores[:end], "look up") : end], "load": loads[read - 1 : read + 2]}


def _last(calls: list[str], name: str) -> int:
    return max(place for place, call in enumerate(calls) if call == name)


def name_of(line: str) -> str:
    """One name for calls that do the same, with the flags that matter."""
    call = line.split("(")[0].split()[-1]
    if call == "openat":
        return " ".join(["open", *re.findall("O_CREAT|O_EXCL|O_DIRECT", line)])
    same = {"write": "write", "pwrite64": "write", "read": "read", "readv": "read", "pread64": "read", "close": "close"}
    return same.get(call) or ("rename" if call.startswith("rename") else "look up")


if __name__ == "__main__":
    main()
