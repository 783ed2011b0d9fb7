"""The load of a stream in fio's options: the `job options` of an export.

Not a job file: what fio cannot express (a span split among jobs, an open-loop schedule as ours) becomes its nearest
option, so that users of fio recognise the load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ENGINES = {"uring": "io_uring", "sync": "psync", "preadv2": "pvsync2"}


def job_options(stream: Mapping[str, Any], workload: Mapping[str, Any], *, backend: str) -> dict[str, str]:
    """fio's options, as text, of one stream of a spec."""
    options = {
        "ioengine": _ENGINES.get(backend, backend),
        **_direction(stream),
        **_block_sizes(stream["block_sizes"]),
        "iodepth": stream["queue_depth"],
        "numjobs": stream["jobs"],
        "direct": int(stream["io_mode"] == "direct"),
        **_place(stream["span"], stream["jobs"]),
        **_durability(stream["durability"]),
        **_rate(stream["arrival"], stream["jobs"]),
        "io_size": _of_each(stream.get("limit_bytes"), stream["jobs"]),
        "number_ios": _of_each(stream.get("limit_operations"), stream["jobs"]),
        "runtime": _milliseconds(workload["duration_ns"]),
        "ramp_time": _milliseconds(workload["ramp"]["duration_ns"]),
    }
    return {name: str(value) for name, value in options.items() if value is not None and value != ""}


def _direction(stream: Mapping[str, Any]) -> dict[str, Any]:
    read, trim = stream["mix"]["read_fraction"], stream["mix"]["trim_fraction"]
    operation = "read" if read == 1 else "trim" if trim == 1 else "write" if read == trim == 0 else "rw"
    access = stream["access"]
    mixed = {"rwmixread": round(100 * read)} if operation == "rw" else {}
    match access["kind"]:
        case "random":
            once = access.get("coverage") == "each_once"
            return {"rw": f"rand{operation}", **mixed, **({} if once else {"norandommap": 1}), **_distribution(access)}
        case "aging":
            return {"rw": f"rand{operation}", **mixed}
        case "strided":
            hop = access["stride_bytes"] - max(size["bytes"] for size in stream["block_sizes"])
            return {"rw": f"{operation}:{hop}", **mixed}
        case _:
            return {"rw": operation, **mixed}


def _distribution(access: Mapping[str, Any]) -> dict[str, str]:
    distribution = access["distribution"]
    match distribution["kind"]:
        case "zipfian":
            return {"random_distribution": f"zipf:{distribution['theta']:g}"}
        case "hot_cold":
            access_percent, span_percent = 100 * distribution["hot_access"], 100 * distribution["hot_span"]
            rest = f"{100 - access_percent:g}/{100 - span_percent:g}"
            return {"random_distribution": f"zoned:{access_percent:g}/{span_percent:g}:{rest}"}
        case _:
            return {}


def _block_sizes(sizes: list[Mapping[str, Any]]) -> dict[str, Any]:
    if len(sizes) == 1:
        return {"bs": sizes[0]["bytes"]}
    total = sum(size["weight"] for size in sizes)
    return {"bssplit": ":".join(f"{size['bytes']}/{100 * size['weight'] / total:.0f}" for size in sizes)}


def _place(span: Mapping[str, Any], jobs: int) -> dict[str, Any]:
    if span["sharing"] == "shared":
        return {"size": span["bytes"], "offset": span["offset_bytes"]}
    part = span["bytes"] // jobs
    return {"size": part, "offset": span["offset_bytes"], "offset_increment": part}


def _of_each(limit: int | None, jobs: int) -> int | None:
    """fio limits each job, the engine the stream."""
    return None if limit is None else limit // jobs


def _durability(durability: Mapping[str, Any]) -> dict[str, Any]:
    match durability["kind"]:
        case "dsync":
            return {"sync": "dsync"}
        case "flush":
            return {"fdatasync": durability["every"]}
        case _:
            return {}


def _rate(arrival: Mapping[str, Any], jobs: int) -> dict[str, Any]:
    if "rate" not in arrival:
        return {}
    process = {"rate_process": "poisson"} if arrival["kind"] == "poisson" else {}
    return {"rate_iops": round(arrival["rate"] / jobs), **process}


def _milliseconds(duration_ns: int | None) -> str | None:
    return f"{duration_ns // 10**6}ms" if duration_ns else None
