"""Runs of the stages of a procedure, and series of rates from their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any, TypeVar, cast

import polars as pl
from pydantic import BaseModel

from iosonde.errors import StudyError
from iosonde.features.rate_limits.series import Distribution, Series, Stage
from iosonde.features.rate_limits.walk import FailedError, StoppedError
from iosonde.plan import Case, JsonObject, Run
from iosonde.planning.procedure.observations import Observation, UnfinishedError, probe
from iosonde.results.schema import Record
from iosonde.study.model import STAGE
from iosonde.units import parse_duration

S = TypeVar("S")
T = TypeVar("T")
CONTINUE = "continue with `iosonde resume DIR`"
INTERVAL_MS = 100
"""Shortest interval of the time series."""
_PAGE = 4096
_MOST_INTERVALS = 3000
_SECOND = 1_000_000_000
_DISTURBANCES = ("cpu_contention", "cpus_shared", "engine_stalled", "late_counters", "steal_time")
"""Codes of warnings about other load on the CPUs."""
_IDLE = 0.1
"""Share of all CPU time; a machine with less has no time to spare."""


def run_of(case: Case, stage: Stage, number: int, *, volume_bytes: int = 0) -> Run:
    """Return the run of a stage. `volume_bytes` is the distance of volumes in the target."""
    interval_ms = max(1, math.ceil(stage.seconds * 1000 / _MOST_INTERVALS / INTERVAL_MS)) * INTERVAL_MS
    rest_ms = math.ceil(stage.rest_s * 1000 / interval_ms) * interval_ms
    load_ms = max(3, round(stage.seconds * 1000 / interval_ms)) * interval_ms
    parameters: JsonObject = {
        "block_size": stage.load.block_size,
        "read_fraction": stage.load.read_fraction,
        "queue_depth": stage.load.queue_depth,
        "access": "sequential" if stage.load.is_sequential else "random",
        "active": f"{rest_ms}ms-" if rest_ms else None,
        "duration": (rest_ms + load_ms) * 1_000_000,
        "interval": interval_ms * 1_000_000,
        "ramp": 0,
    }
    if stage.region is not None:
        region = stage.region
        parameters |= {"access": "strided", "stride": region.stride, "offset": region.offset, "span": region.bytes}
        parameters |= {"layout": "never"}  # It writes, and so accesses, every block of a device.
    if stage.rate is not None:
        parameters |= {"arrival": "poisson" if stage.is_random else "constant", "rate": stage.rate}
    streams = [stream_of(volume) for volume in stage.volumes]
    parameters |= {f"{stream_of(volume)}.offset": volume * volume_bytes for volume in stage.volumes}
    name, levels = f"s{number:03}", {STAGE: f"{number:03} {stage.name}"}
    return probe(case, name, 1, levels=cast("Any", levels), parameters=parameters, streams=streams)


def carried_out(
    case: Case,
    stages: Generator[Stage, S, T],
    answer: Callable[[Run, Observation, Stage], S],
    *,
    volume_bytes: int = 0,
) -> Generator[Run, Observation, tuple[T, bool]]:
    """Carry out each stage that a procedure requests by a run, of which `answer` makes what the procedure receives.

    Returns its conclusion, and True if the study was stopped. `FailedError` of `answer` is passed on.
    """
    number = 0
    try:
        stage = next(stages)
        while True:
            number += 1
            run = run_of(case, stage, number, volume_bytes=volume_bytes)
            observation = yield run
            stage = stages.send(answer(run, observation, stage))
    except StopIteration as end:
        return end.value, False
    except UnfinishedError:
        return stopped_in(stages, stage), True


def stream_of(volume: int) -> str:
    """Name of the stream that loads a volume."""
    return f"volume{volume + 1}"


def series_of(
    observation: Observation,
    stage: Stage,
    before: Observation | None,
    *,
    is_virtual: bool,
    stream: str = "",
) -> Series:
    """Operations of a stage over time, of one stream if it is named; `FailedError` if none completed."""
    if observation.failure:
        raise FailedError(observation.failure)
    bins = _bins(observation, stream)
    start_ns = int(bins["begin_ns"].min() or 0)  # type: ignore[arg-type]
    rest_ns = _rest_ns(observation)
    loaded = bins.filter(pl.col("begin_ns") >= start_ns + rest_ns)
    if not (loaded["read"] + loaded["write"]).sum():
        raise FailedError(f"no I/O{' of a volume' if stream else ''} completed in the stage {stage.name}")
    verdict = observation.record.verdict
    # Between runs of a simulated drive no time passes.
    gap_s = 0.0 if is_virtual or before is None else max(0.0, _started(observation, start_ns) - _ended(before))
    return Series(
        load=stage.load,
        idle_s=gap_s + rest_ns / _SECOND,
        seconds=tuple(((loaded["end_ns"] - loaded["begin_ns"]) / _SECOND).to_list()),
        reads=tuple(map(float, loaded["read"].to_list())),
        writes=tuple(map(float, loaded["write"].to_list())),
        name=stage.name,
        latencies_s=tuple((loaded["latency_ns"] / (loaded["read"] + loaded["write"]) / _SECOND).drop_nans().to_list()),
        request_bytes=_request_bytes(observation),
        distribution=_distribution(observation) if stage.has_distribution else (),
        is_harness_limited=verdict is not None and verdict.kind == "harness-limited",
        is_disturbed=_is_disturbed(observation.record),
        in_flight_before=0.0 if is_virtual or before is None else _in_flight(before),
    )


def stopped_in(stages: Generator[Stage, Any, T], stage: Stage) -> T:
    """Return the conclusion of a procedure whose study was stopped in a stage."""
    try:
        stages.throw(StoppedError(stage.name))
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("a stopped procedure requests no stage")


def times_of(written: BaseModel, *names: str) -> dict[str, Any]:
    """Times of a procedure's settings, in seconds by `NAME_s`; `StudyError` unless one includes the other."""
    seconds = {f"{name}_s": parse_duration(getattr(written, name)) / _SECOND for name in names}
    if not 1 <= seconds["probe_s"] <= seconds["drain_s"] <= seconds["total_s"]:
        given = [getattr(written, name) for name in ("probe", "drain", "total")]
        raise StudyError(
            "`probe` must be at least 1 s, at most `drain`, and `drain` at most `total`",
            hint=f"got {given[0]}, {given[1]} and {given[2]}",
        )
    return seconds


def invalid(name: str, written: type[BaseModel], what: str) -> StudyError:
    """Error about a setting of a procedure."""
    known = ", ".join(f"`{each}`" for each in written.model_fields)
    return StudyError(f"invalid settings of `{name}`: {what}", hint=f"its settings are {known}")


def _is_disturbed(record: Record) -> bool:
    """True if other load took CPU time from the engine, or left none for what serves the I/O."""
    shares = record.verdict.evidence if record.verdict else {}
    idle, other = shares.get("idle_cpu_share"), shares.get("other_cpu_share")
    is_busy = idle is not None and other is not None and idle < _IDLE and other > 0.5
    return is_busy or any(warning.code in _DISTURBANCES for warning in record.warnings)


def _in_flight(observation: Observation) -> float:
    """Operations in flight at the end of a measurement: the queue depth of a closed loop."""
    parameters = observation.record.parameters
    return 0.0 if parameters.get("rate") else float(parameters["queue_depth"])


def _request_bytes(observation: Observation) -> int:
    """Largest operation that no device of the target splits, whatever memory it is in; 0 if not known."""
    devices = observation.record.target.get("devices", ())
    limits = [int(device["max_request_kib"]) * 1024 for device in devices if device.get("max_request_kib")]
    limits += [int(device["max_segments"]) * _PAGE for device in devices if device.get("max_segments")]
    return min(limits, default=0)


def _bins(observation: Observation, stream: str = "") -> pl.DataFrame:
    """One row for each interval of the measurement, with completed reads and writes."""

    def computed() -> pl.DataFrame:
        measured = observation.results.intervals.filter(pl.col("phase") == "measure")
        is_of_stream = pl.col("stream").is_in([stream]) | pl.lit(not stream)
        latency = pl.col("completion_latency_ns_sum").filter(is_of_stream).sum().alias("latency_ns")
        counts = [
            pl.col("count").filter((pl.col("operation") == name) & is_of_stream).sum().alias(name)
            for name in ("read", "write")
        ]
        return measured.group_by("begin_ns", "end_ns").agg(*counts, latency).sort("begin_ns")

    return observation.results.derived(f"rate_limit_bins {stream}", computed)


def _distribution(observation: Observation) -> Distribution:
    rows = observation.results.histograms.filter(pl.col("phase") == "measure", pl.col("latency") == "completion")
    counts = rows.group_by("midpoint_ns").agg(pl.col("count").sum()).sort("midpoint_ns")
    return tuple((latency_ns / _SECOND, float(count)) for latency_ns, count in counts.iter_rows())


def _rest_ns(observation: Observation) -> int:
    active = observation.record.parameters.get("active")
    return parse_duration(str(active).removesuffix("-")) if active else 0


def _started(observation: Observation, start_ns: int) -> float:
    """Time of the first interval's start."""
    return datetime.fromisoformat(observation.record.started_at).timestamp() + start_ns / _SECOND


def _ended(observation: Observation) -> float:
    return _started(observation, int(_bins(observation)["end_ns"].max()))  # type: ignore[arg-type]
