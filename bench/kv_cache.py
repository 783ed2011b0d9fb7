#!/usr/bin/env python3
"""Compare the engine's KV cache with published counts of LRU caches on the traces of Mooncake (FAST '25).

usage: bench/kv_cache.py --traces DIRECTORY
The directory has `conversation_trace.jsonl` and `synthetic_trace.jsonl`, from `FAST25-release/traces` of
https://github.com/kvcache-ai/Mooncake. Blocks have 4 KiB on a simulated device, so that only counts matter.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shared import options, run_engine

from iosonde.features.ai import kv_trace
from iosonde.study.workload.workload import engine_spec

UNBOUNDED = 1_000_000
PUBLISHED = {
    ("conversation", 1000): (0.044, 21.5),
    ("conversation", 3000): (0.065, 14.4),
    ("conversation", 10_000): (0.211, 3.74),
    ("conversation", 30_000): (0.326, 2.07),
    ("conversation", UNBOUNDED): (0.366, None),
    ("synthetic", 10_000): (0.423, 1.36),
    ("synthetic", 30_000): (0.624, 0.60),
    ("synthetic", UNBOUNDED): (0.640, None),
}
"""Trace and blocks of the cache -> hit ratio, and blocks written per block read."""
COMMON = 0.042
"""Look-ups of the block that all requests of the conversation trace have first, over all look-ups."""


def main() -> None:
    """Print both counts of each cache, and fail if one differs in the digits that are published."""
    directory = options(__doc__, traces=Path).traces
    is_alike = True
    for (name, blocks), (hits, writes) in PUBLISHED.items():
        trace = kv_trace.converted(str(directory / f"{name}_trace.jsonl"), 512)
        found = run_engine(spec(trace, blocks))[-1]["ai"]["kv_cache"]
        ratio, written = found["storage_hits"] / found["lookups"], found["stores"] / found["storage_hits"]
        same = abs(ratio - hits) < 0.0006 and (writes is None or abs(written - writes) < max(0.005, 0.003 * writes))
        is_alike &= same
        common = found["common_hits"] / found["lookups"]
        print(
            f"{name:12} {blocks:9,} blocks: hits {ratio:.4f} (published {hits}), common {common:.4f}; written per read "
            f"{written:.3f} (published {writes}), late {found['late_hits']} {'' if same else 'DIFFERS'}"
        )
    sys.exit(not is_alike)


def spec(trace: kv_trace.Trace, blocks: int) -> dict[str, object]:
    """A replay on a device that serves any number of I/Os in a microsecond."""
    device = {"kind": "simulated", "servers": 1000, "read_service_ns": 1000, "write_service_ns": 1000}
    load = {
        "kind": "ai_kv_cache",
        "target": {"kind": "virtual", "size_bytes": UNBOUNDED << 12},
        "backend": {**device, "service": "constant"},
        "trace": {"path": trace.path, "rows": trace.rows, "digest": trace.digest},
        "block_bytes": 4096,
        "capacity_blocks": blocks,
        "layout": "slots",
        "sync": False,
        "is_direct": True,
        "threads": 4,
        "writers": 4,
        "is_parallel": False,
        "warm_requests": 0,
        "speed": 1.0,
        "duration_ns": None,
        "interval_ns": 10**11,
    }
    return engine_spec(load, seed=1, run_id="kv-cache", devices=[])


if __name__ == "__main__":
    main()
