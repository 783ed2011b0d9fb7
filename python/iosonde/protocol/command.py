"""Types of specs and values of external commands, which the supervisor runs, not the engine (docs/commands.md)."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from iosonde.protocol import event as of_engine
from iosonde.protocol.event import Double, Uint32, Uint64
from iosonde.protocol.spec import Observe


class Target(TypedDict):
    """The working directory, new for each run."""

    kind: str
    path: str
    log_path: str | None


class Program(TypedDict):
    """A program as it was when the study was planned."""

    path: str
    sha256: str


class Background(TypedDict):
    """A command that runs alongside the measured one, and the line of its output that reports it ready."""

    command: list[str]
    ready: str


class Metric(TypedDict):
    """Place and meaning of a value in the output; of `json`, `pattern` and `lines` one is not empty."""

    title: str
    unit: str
    better: str
    json: str
    pattern: str
    lines: str
    aggregate: str
    scale: float


class Workload(TypedDict):
    """Commands of a run, and the places of its values."""

    kind: str
    target: Target
    programs: dict[str, Program]
    versions: dict[str, list[str]]
    prepare: list[list[str]]
    background: list[Background]
    command: list[str]
    environment: dict[str, str]
    timeout_ns: int
    interval_ns: int
    exit_codes: list[int]
    output: str
    output_limit_bytes: int
    metrics: dict[str, Metric]
    server: NotRequired[dict[str, Any]]


class Spec(TypedDict):
    """One run of an external command."""

    protocol: int
    run_id: str
    seed: int
    workload: Workload
    observe: Observe


class Value(TypedDict):
    """A value that the command printed."""

    metric: str
    point: Uint32
    begin_ns: Uint64
    end_ns: Uint64
    value: Double


class ValuesEvent(TypedDict):
    """Event of the supervisor: all values, before the result."""

    event: Literal["values"]
    values: list[Value]


class OperationInterval(TypedDict):
    """Operations of the command in an interval, which are not known: all numbers are 0."""

    operation: Literal["command"]
    count: Uint64
    bytes: Uint64
    errors: Uint64
    completion_latency: of_engine.Histogram
    response_latency: NotRequired[of_engine.Histogram | None]


class StreamInterval(TypedDict):
    """The one stream of a command in an interval."""

    stream: str
    backlog_max: Uint64
    operations: list[OperationInterval]


class IntervalEvent(TypedDict):
    """Event of the supervisor: an interval, as that of the engine with `OperationInterval`s of its own."""

    event: Literal["interval"]
    phase: of_engine.Phase
    index: Uint64
    begin_ns: Uint64
    end_ns: Uint64
    streams: list[StreamInterval]
    process: of_engine.Usage
    devices: list[of_engine.DeviceUsage]
    stall_max_ns: NotRequired[Uint64]
    stalled_ns: NotRequired[Uint64]


Event: TypeAlias = (
    of_engine.HelloEvent
    | of_engine.PhaseEvent
    | IntervalEvent
    | of_engine.WarningEvent
    | ValuesEvent
    | of_engine.ResultEvent
    | of_engine.ErrorEvent
)
"""Events of the supervisor."""
