"""Result sets of known content: a device with a closed form, written through the real writer.

`k` servers and a link: throughput is the smaller of concurrency over service time and link speed, latency follows from
Little's law, and the tail is log-normal. What comes out looks like a drive, and every figure can be checked by hand.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from buckets import bucket_of
from plans import a_failure, a_record, null_spec

from iosonde.plan import Case, Cost, Plan, Run
from iosonde.results import ResultSet
from iosonde.results.schema import HISTOGRAMS, INTERVALS, USAGE, RecordVerdict, RecordWarning
from iosonde.study.model import Study

KIB, MIB = 1 << 10, 1 << 20
SECOND = 10**9
FAILED = "surface/block_size=65536/jobs=32"
SKIPPED = "grid/direction=write/block_size=8192/queue_depth=16"
"""Cases without a result in the interrupted result set of the tests."""
QUANTILES = 1 - np.logspace(-0.05, -6, 160)


def device(parameters: dict[str, Any], *, speed: float = 1.0) -> tuple[float, float]:
    """Return I/Os per second and mean latency in ns."""
    write = parameters["read_fraction"] < 0.5
    service = (95e-6 if write else 70e-6) + parameters["block_size"] / (600e6 if write else 900e6)
    concurrency = parameters["jobs"] * parameters["queue_depth"]
    link = (2.1e9 if write else 3.3e9) / parameters["block_size"]
    iops = speed * min(concurrency / service, 24 / service, link, 400_000)
    return iops, concurrency / iops * SECOND


Performance = Callable[..., tuple[float, float]]
"""From the parameters of a case and a `speed` around 1: I/Os per second and mean latency in ns."""


@dataclass(frozen=True, kw_only=True)
class Array:
    """Setup of a case, and the I/Os and bytes of all its members for each I/O and byte of the host."""

    target: dict[str, Any]
    members: list[str]
    shares: list[float]
    """Of each member in all of it."""
    reads: float = 0.0
    writes: float = 0.0
    read_bytes: float = 0.0
    write_bytes: float = 0.0
    busy: float = 1.0


def study(**changes: Any) -> dict[str, Any]:
    """Return a study with every kind of view."""
    return tomllib.loads(Path(__file__).with_name("fabricated.toml").read_text()) | changes


def small_study(**changes: Any) -> dict[str, Any]:
    """Return the study's last part alone: four cases."""
    facts = study(analysis=[])
    facts["parts"] = facts["parts"][2:]
    facts["views"] = [view for view in facts["views"] if view["part"] == "mixed"]
    return facts | changes


def plan(facts: dict[str, Any], *, repeats: int = 3, target: str = "/srv/test/iosonde.dat") -> Plan:
    """Expand a study by hand: every combination of levels, repeats one after the other."""
    cases = [_case("control", "main", {}, control=True), *_cases(Study.model_validate(facts))]
    runs = [
        _run(number, case, repeat, 0) for number, case in enumerate(cases[1:], 1) for repeat in range(1, repeats + 1)
    ]
    controls = [_run(0, cases[0], repeat, 0) for repeat in range(1, len(runs) // 20 + 2)]
    places = [(run.repeat * len(runs) / repeats, run) for run in runs] + [(run.repeat * 20, run) for run in controls]
    order = [run for _, run in sorted(places, key=lambda each: each[0])]
    ordered = [run.model_copy(update={"order": position}) for position, run in enumerate(order)]
    cost = Cost(seconds=len(ordered) * 10, write_bytes=None)
    of_study = {"study": facts, "study_name": facts["name"], "profile": "quick", "settings": {}, "seed": 1}
    planned = {"cases": cases, "runs": ordered, "destroys": [], "layout_bytes": 1 << 30, "cost": cost}
    return Plan(target=target, repeats=repeats, **of_study, **planned)


def result_set(
    directory: Path,
    planned: Plan | dict[str, Any] | None = None,
    *,
    repeats: int = 3,
    seconds: int = 10,
    speed: float = 1.0,
    model: str = "EXAMPLE SSD 1TB",
    failed: Callable[[Run], bool] = lambda run: False,
    skipped: Callable[[Run], bool] = lambda run: False,
    warning: str = "the cores were busy all the time",
    verdict: Callable[[Run], RecordVerdict | None] = lambda run: None,
    disturbed: bool = False,
    performance: Performance | None = None,
    array: Callable[[dict[str, Any]], Array | None] = lambda parameters: None,
    seed: int = 1,
    calm: float = 1.0,
) -> ResultSet:
    """Write a result set of the device: of a plan, or of a study expanded by hand.

    `performance` takes the place of `device`; `array` describes the array under a case. Rates vary by 1.2 %
    from run to run and by 2 % from second to second, times `calm`.
    """
    random = np.random.default_rng(seed)
    expanded = planned if isinstance(planned, Plan) else plan(planned or study(), repeats=repeats)
    results = ResultSet.create(directory, expanded)
    case_of = {case.case_id: case for case in results.plan.cases}
    with results.lock():
        environment = results.write_environment(ENVIRONMENT)
        for run in results.plan.runs:
            if skipped(run):
                continue
            case = case_of[run.case_id]
            rate = performance or device
            tables = _tables(run, case, seconds, speed * random.normal(1, 0.012 * calm), random, rate, calm)
            under = array(case.parameters)
            tables = (*tables[:2], pl.concat([tables[2], _members(run, seconds, under, tables[0])]))
            common = {
                "environment": environment,
                "target": under.target if under else target(model),
                "started_at": _time(run.order * seconds),
                "ended_at": _time(run.order * seconds + seconds),
            }
            if failed(run):
                record = a_failure(results.plan, run).model_copy(update=common)
                tables = tuple(table.clear() for table in tables)  # type: ignore[assignment]
            else:
                warned = [*_warnings(case, warning), *[NO_CPU] * disturbed]
                record = a_record(results.plan, run, **common, warnings=warned, verdict=verdict(run))
                cpu = {"user_ns": SECOND // 10, "system_ns": SECOND // 5}
                used = record.result["process"] | {"wall_ns": seconds * SECOND, **cpu}  # type: ignore[index]
                record.result.update(begin_ns=0, end_ns=seconds * SECOND, process=used)  # type: ignore[union-attr]
                record.result["jobs"][0]["usage"] = used  # type: ignore[index]
            results.write(record, *tables)
    return ResultSet.open(directory)


ENVIRONMENT = {
    "iosonde": "0.1.0",
    "kernel": "6.1.0-25-amd64",
    "cpu": {"model": "Example CPU @ 2.40GHz", "cores": 16},
    "memory_bytes": 64 << 30,
}


def target(model: str) -> dict[str, Any]:
    drive = {"name": "nvme0n1", "model": model, "firmware": "1.2.3", "size_bytes": 10**12}
    return {
        "name": "/srv/test/iosonde.dat",
        "kind": "file",
        "file_system": {"type": "ext4", "mount_point": "/srv", "options": "rw,relatime"},
        "devices": [drive | {"logical_block_size": 512, "scheduler": "none"}],
    }


def _cases(model: Study) -> Iterator[Case]:
    for part in model.parts:
        combinations: list[dict[str, Any]] = [{}]
        for factor, levels in part.factors.items():
            combinations = [{**known, factor: level} for known in combinations for level in levels]
        for combination in combinations:
            shown = {name: getattr(level, "label", level) for name, level in combination.items()}
            values: dict[str, Any] = {}
            for name, level in combination.items():
                values.update(level.set if hasattr(level, "set") else {name: level})
            identity = "/".join([part.name, *(f"{name}={level}" for name, level in shown.items())])
            yield _case(identity, part.name, shown, values)


def _case(
    case_id: str, part: str, levels: dict[str, Any], values: dict[str, Any] | None = None, *, control: bool = False
) -> Case:
    read = 0.7 if part == "mixed" else 1.0
    parameters = {"block_size": 4 * KIB, "jobs": 1, "queue_depth": 8 if control else 1, "read_fraction": read}
    parameters |= values or {}
    state = "not_applicable" if parameters["read_fraction"] == 1 else "preconditioned"
    place = {"case_id": case_id, "part": part, "control": control, "levels": levels, "parameters": parameters}
    return Case(**place, cost=Cost(seconds=10, write_bytes=0), device_state=state)


def _run(number: int, case: Case, repeat: int, order: int) -> Run:
    run_id = f"c{number:04}-r{repeat}"
    spec = json.loads(json.dumps(null_spec(run_id)))
    stream = spec["workload"]["streams"][0]
    stream["jobs"], stream["queue_depth"] = case.parameters["jobs"], case.parameters["queue_depth"]
    stream["block_sizes"] = [{"bytes": case.parameters["block_size"], "weight": 1.0}]
    stream["mix"]["read_fraction"] = case.parameters["read_fraction"]
    spec["seed"] = number * 100 + repeat
    return Run(run_id=run_id, case_id=case.case_id, repeat=repeat, order=order, spec=spec)


NO_CPU = RecordWarning(code="cpu_contention", message="a job was ready to run and had no CPU", hint="stop other work")


def _warnings(case: Case, message: str) -> list[RecordWarning]:
    if case.parameters["jobs"] * case.parameters["queue_depth"] != 4:
        return []
    return [RecordWarning(code="cpu_saturated", message=message, hint="use fewer jobs")]


def _usage(run: Run, second: int, device: str) -> dict[str, Any]:
    place = {"run_id": run.run_id, "phase": "measure", "interval": second, "device": device}
    return place | {"begin_ns": second * SECOND, "end_ns": (second + 1) * SECOND}


def _members(run: Run, seconds: int, array: Array | None, intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the counters of an array's members, in step with what the host had done."""
    rows = []
    for second in range(seconds if array else 0):
        host = intervals.filter(pl.col("interval") == second)
        ios, moved = host["count"].sum(), host["bytes"].sum()
        assert array
        for member, share in zip(array.members, array.shares, strict=True):
            counted = {"reads": ios * array.reads * share, "writes": ios * array.writes * share}
            counted |= {
                "read_bytes": moved * array.read_bytes * share,
                "write_bytes": moved * array.write_bytes * share,
            }
            counted = {name: round(value) for name, value in counted.items()}
            rows.append(_usage(run, second, member) | counted | {"busy_ns": round(array.busy * SECOND)})
    return pl.DataFrame(rows, schema=USAGE)


def _tables(
    run: Run, case: Case, seconds: int, speed: float, random: np.random.Generator, performance: Performance, calm: float
) -> tuple[pl.DataFrame, ...]:
    iops, mean = performance(case.parameters, speed=speed)
    reads = case.parameters["read_fraction"]
    shares = {"read": reads, "write": 1 - reads}
    # Writes take longer, but together they keep to Little's law.
    slower = {operation: (1.0 if operation == "read" else 1.3) / (1.3 - 0.3 * reads) for operation in shares}
    rows, buckets = [], []
    for second in range(seconds):
        dip = 0.6 if seconds > 2 and second == seconds // 2 and run.repeat == 2 else 1.0
        wobble = float(random.normal(1, 0.02 * calm)) * dip
        place = {"run_id": run.run_id, "phase": "measure", "interval": second}
        for operation, share in shares.items():
            if share == 0:
                continue
            counts, values = _latencies(iops * share * wobble, mean / wobble * slower[operation])
            latency = {"sum": int((counts * values).sum()), "min": int(values.min()), "max": int(values.max())}
            count = int(counts.sum())
            row = place | {"begin_ns": second * SECOND, "end_ns": (second + 1) * SECOND, "stream": "main"}
            row |= {"operation": operation, "count": count, "bytes": count * case.parameters["block_size"]}
            row |= {f"completion_latency_ns_{name}": value for name, value in latency.items()}
            rows.append(row | {"errors": 0, "backlog_max": 0})
            numbers, place_of = np.unique(bucket_of(values), return_inverse=True)
            merged = np.zeros(len(numbers), np.uint64)
            np.add.at(merged, place_of, counts)
            buckets.append((second, operation, numbers, merged))
    usage = [_usage(run, second, "process") for second in range(seconds)]
    lengths = [len(numbers) for *_, numbers, _ in buckets]
    histograms = pl.DataFrame(
        {
            "run_id": [run.run_id] * sum(lengths),
            "phase": ["measure"] * sum(lengths),
            "interval": np.repeat([second for second, *_ in buckets], lengths),
            "stream": ["main"] * sum(lengths),
            "operation": np.repeat([operation for _, operation, *_ in buckets], lengths).tolist(),
            "latency": ["completion"] * sum(lengths),
            "bucket": np.concatenate([numbers for *_, numbers, _ in buckets]),
            "count": np.concatenate([merged for *_, merged in buckets]),
        },
        schema_overrides=HISTOGRAMS,
    ).select(HISTOGRAMS.names())
    return pl.DataFrame(rows, schema=INTERVALS), histograms, pl.DataFrame(usage, schema=USAGE)


def _latencies(operations: float, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and latencies of a log-normal distribution, cut where less than one operation is left."""
    from scipy.special import ndtri  # `norm.ppf` of `scipy.stats`, which takes longer to be imported

    edges = np.concatenate([[0], QUANTILES])
    counts = np.floor(np.diff(edges, append=1.0) * operations).astype(np.uint64)
    middle = np.clip(edges + np.diff(edges, append=1.0) / 2, 1e-9, 1 - 1e-9)
    values = mean * math.exp(-0.08) * np.exp(0.4 * ndtri(middle))
    kept = counts > 0
    return counts[kept], np.maximum(values[kept], 1).astype(np.uint64)


def _time(second: int) -> str:
    return f"2026-01-02T{3 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}+00:00"
