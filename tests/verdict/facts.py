"""The facts of a sound run: device-limited. Tests change one fact and check verdict and warnings."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from plans import null_spec

from iosonde.metrics.verdict.evidence import Total, VerdictFacts

SECOND = 10**9
GIB = 1 << 30
IOPS = 40_000
COUNT = 10 * IOPS
BLOCK = 4096
READ = COUNT * BLOCK

Change = Callable[[VerdictFacts], VerdictFacts]


def sound(**changes: Any) -> VerdictFacts:
    """Ten seconds of 4 KiB random reads at queue depth 4, direct, on an NVMe drive: 40,000 IOPS at 100 µs."""
    spec = null_spec("run")
    spec["workload"]["backend"] = {"kind": "uring"}
    spec["workload"]["streams"][0]["span"]["bytes"] = 64 * GIB
    usage = {"wall_ns": 10 * SECOND, "user_ns": SECOND, "system_ns": 2 * SECOND, "involuntary_switches": 30}
    usage |= {"voluntary_switches": COUNT, "fs_inputs": READ // 512, "fs_outputs": 0}
    pacing = {"first_start_ns": 5_000, "exhausted_ns": None, "turnaround_ns": SECOND // 10, "cpu_wait_ns": SECOND // 20}
    whole = {"extents": 4, "missing_bytes": 0, "shared_bytes": 0, "encoded_bytes": 0, "addressed_bytes": 64 * GIB}
    result = {
        "outcome": "complete",
        "begin_ns": 0,
        "end_ns": 10 * SECOND,
        "jobs": [{"stream": "main", "job": 0, "operations": COUNT, "bytes": READ, "usage": usage | {"fs_inputs": 0},
                  "pacing": pacing, "schedule": None}],
        "process": dict(usage),
        "devices": [{"device": "259:0", "read_bytes": READ, "write_bytes": 0}],
        "backend": {"kind": "uring", "features": ["single_issuer"], "fallbacks": []},
        "evidence": {
            "machine": {"cpus": 8, "user_ns": SECOND, "system_ns": 2 * SECOND, "idle_ns": 77 * SECOND, "io_wait_ns": 0, "steal_ns": 0},
            "pinned": [],
            "page_cache": {"addressed_bytes": 64 * GIB, "before_bytes": 0, "after_bytes": 0},
            "extents_before": whole,
            "extents_after": dict(whole),
        },
    }  # fmt: skip
    device = {"device": "259:0", "name": "nvme0n1", "kind": "disk", "under": [], "nr_requests": 1023,
              "hardware_queues": 8, "scheduler": "none", "rotational": False, "temperature_celsius": 41.0,
              "temperature_max_celsius": 80.0}  # fmt: skip
    facts = VerdictFacts(
        spec=spec,
        result=result,
        engine={"clock": "tsc", "clock_read_ns": 20.0},
        totals=[Total(stream="main", operation="read", count=COUNT, bytes=READ,
                      completion_latency_ns_sum=39 * SECOND)],
        target={"file_system": {"kind": "ext4", "options": ["rw"]}, "devices": [device]},
        environment={"memory": {"total_bytes": 16 * GIB}, "cpu": {"governor": "performance"}},
        harness={"streams": {"main": {"ns_per_io": 60.0}}},
        tail="p99_9",
    )  # fmt: skip
    return replace(copy.deepcopy(facts), **changes)


def stream(facts: VerdictFacts) -> dict[str, Any]:
    """Its only stream, to be changed."""
    found: dict[str, Any] = facts.spec["workload"]["streams"][0]
    return found


def job(facts: VerdictFacts) -> dict[str, Any]:
    """Its only job, to be changed."""
    found: dict[str, Any] = facts.result["jobs"][0]
    return found


def device(facts: VerdictFacts) -> dict[str, Any]:
    """Its only device, to be changed."""
    found: dict[str, Any] = facts.target["devices"][0]
    return found


PLACES: dict[str, Callable[[VerdictFacts], dict[str, Any]]] = {
    "stream": stream,
    "workload": lambda facts: facts.spec["workload"],
    "job": job,
    "usage": lambda facts: job(facts)["usage"],
    "pacing": lambda facts: job(facts)["pacing"],
    "process": lambda facts: facts.result["process"],
    "backend": lambda facts: facts.result["backend"],
    "moved": lambda facts: facts.result["devices"][0],
    "evidence": lambda facts: facts.result["evidence"],
    "machine": lambda facts: facts.result["evidence"]["machine"],
    "page_cache": lambda facts: facts.result["evidence"]["page_cache"],
    "extents": lambda facts: facts.result["evidence"]["extents_before"],
    "device": device,
    "file_system": lambda facts: facts.target["file_system"],
}
"""Parts of the facts in which a change replaces values, by name."""


def having(total: dict[str, Any] | None = None, **changed: Any) -> Change:
    """Values replaced in some places, in the total of operations and among the facts themselves."""

    def change(facts: VerdictFacts) -> VerdictFacts:
        own = copy.deepcopy(changed)
        for name in PLACES.keys() & own:
            PLACES[name](facts).update(own.pop(name))
        return replace(facts, totals=[replace(each, **total or {}) for each in facts.totals], **own)

    return change


def latency(seconds: float) -> dict[str, Any]:
    """The total of operations that were in flight for so long in all, each of them in turn."""
    return {"completion_latency_ns_sum": round(seconds * SECOND)}


def as_writes(facts: VerdictFacts) -> VerdictFacts:
    """The same as writes, all of which reach the device."""
    facts.result["devices"][0].update(read_bytes=0, write_bytes=READ)
    facts.result["process"]["fs_inputs"] = 0
    stream(facts)["mix"]["read_fraction"] = 0.0
    return replace(facts, totals=[replace(total, operation="write") for total in facts.totals])
