"""Base class of a kind of load: its parameters, the engine spec they become, its cost, and how others treat its runs.

A workload is one object, found by its name (`iosonde.study.workload.named`). Packages decide by the properties that it
declares, never by its name. A *stream* is a frozen model of its parameters; `streams` maps names to them. Arguments
called `workload` are that part of an engine's spec, and `case` are the parameters of a case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from pydantic import BaseModel
from typing_extensions import TypeVar

from iosonde.engine import protocol
from iosonde.errors import StudyError, TargetError
from iosonde.plan import Cost, JsonObject
from iosonde.study.workload import reading
from iosonde.units import format_bytes

if TYPE_CHECKING:
    from iosonde.storage import Target


CLOSED: Mapping[str, Any] = {"kind": "closed"}
"""The arrival of a closed loop."""

Spec = Mapping[str, Any]
Layout = Literal["missing", "always", "never"]
Engine = Literal["iosonde-engine", "iosonde-engine-clients"]
"""The programs of the engine: the second one has clients of servers that take long to compile."""
P = TypeVar("P", bound=BaseModel, default=Any)
"""Parameters of a stream."""


Io = Literal["blocks", "engine", "store", "page faults", "server", "command"]
"""The part of a run that does the I/O of an operation.

`blocks`: the engine, as block I/O: the rate is IOPS, the backend is chosen, and the harness cost of an I/O is known.
`engine`: the engine, otherwise.
`store`: a store in the engine or in a server. Bytes of operations are not bytes of the device, writes count until they
are durable, which may be after the measurement, rates of streams that run together cannot be added, and a raw device
with anything but the store's own data is refused.
`page faults`: the kernel, for some of the accesses to memory.
`server`: a server, which specs name instead of a target.
`command`: another program, of which only the values that it prints are known.
"""


@dataclass(frozen=True)
class Rate:
    """Operations per second of a workload."""

    unit: str
    """In progress messages."""
    counted: str = "I/Os"
    """Operations whose latency is measured, in the plural."""
    shows_bandwidth: bool = True
    """Progress shows bandwidth, too."""
    is_ops_per_sec: bool = False
    """It is the metric `ops_per_sec`."""


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Advice in errors about the room and the memory that a run needs."""

    smaller: str = ""
    """To need less room."""
    sized_by: str = ""
    """A clause that names the parameters which decide how much room is needed: `by the parameter `size``."""
    sized_by_several: str = ""
    """The same for several files, whose number is at `{}`; empty where it is no other."""
    less_memory: str = ""
    """To need less memory; empty where `buffer_bytes` is 0."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A store or server that a workload can use."""

    title: str
    """Its name in sentences."""
    is_installed: bool = False
    """True of libraries and servers to be installed."""
    engine: Engine = "iosonde-engine"
    """The program with its client."""


class Workload(Generic[P]):
    """The defaults are those of a load whose operations are I/Os of the engine, though not block I/O.

    Its streams are fitted to the target (`fit`) wherever they are passed in, except to `fit` and `resolve`.
    """

    name = ""
    """Name in studies and specs."""

    title = ""
    """Name in error messages: `block I/O`."""

    parameters: type[P]
    """Every parameter of a stream with default and description."""

    shown: Sequence[str] = ()
    """Parameters that a plan shows even where they are the default."""

    places: Sequence[str] = ()
    """Parameters that name files, directories, servers or code: only who runs a study decides about them."""

    io: Io = "engine"
    """The part of a run that does the I/O of its operations."""

    rate = Rate("IOPS")

    hints = Hints()

    judge = ""
    """The rules of its feature for the verdict (`JUDGES` of its `verdict.py`); empty where the core's apply."""

    simulated: tuple[str, str] | None = None
    """The error on a simulated or null target, and its hint; None if it can run on one."""

    several: tuple[str, str] | None = None
    """The error for several streams, whose number is at `{}`, and its hint; None if streams can run together."""

    scalable: Sequence[str] = ()
    """Parameters that determine the amount of load: what a search may look for."""

    whole_numbers: Sequence[str] = ()
    """Those of them that are counted."""

    of_run: Sequence[str] = ()
    """Parameters of the run: streams that run together must agree on them."""

    is_paced = False
    """True if its threads also wait by design, so that free queue slots need no explanation."""

    is_on_osds = False
    """Object daemons of Ceph do the I/O: they alone can use BlueStore."""

    has_statistics = False
    """True if the measured program reports statistics about itself, which reports show over time."""

    is_one_pass = False
    """A run accesses each byte of its files once."""

    ends_by_itself = False
    """A run ends when its work is done: hosts that work together end at different times."""

    operations: Sequence[str] = ()
    """Operations that make up `all`, by the names that the engine reports."""

    subject = ""
    """The parameter that only cases of this workload have."""

    products: Mapping[str, Product] = {}
    """Its stores or servers, by the levels of `subject`."""

    worded: Sequence[str] = ()
    """Parameters whose levels `words` distinguishes."""

    stated: Sequence[str] = ()
    """Parameters whose levels `words` states completely, so that the name of a case does not repeat them."""

    @property
    def sizes(self) -> frozenset[str]:
        """Parameters in bytes."""
        return reading.parameters_in(self.parameters, reading.BYTES)

    @property
    def durations(self) -> frozenset[str]:
        """Parameters in nanoseconds."""
        return reading.parameters_in(self.parameters, reading.NANOSECONDS)

    def read_value(self, name: str, value: Any) -> Any:
        """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` where it is invalid."""
        return reading.value(self.parameters, self.title, name, value)

    def build(self, parameters: Mapping[str, Any]) -> P:
        """A stream's parameters as written, with defaults, checked each by itself and together."""
        return reading.build(self.parameters, self.title, parameters)

    def fit(self, streams: Mapping[str, P], target: Target, *, room_bytes: int) -> Mapping[str, P]:
        """The parameters with what the target decides; an error where they cannot be measured on it."""
        if self.simulated and target.backend() is not None:
            raise TargetError(self.simulated[0], hint=self.simulated[1])
        if self.several and len(streams) > 1:
            raise StudyError(self.several[0].format(len(streams)), hint=self.several[1])
        reading.check_agreement(streams, self.of_run)
        return streams

    def resolve(self, streams: Mapping[str, P], target: Target, *, seed: int, run_id: str) -> JsonObject:
        """The engine's spec; an error where something that the run needs is missing on this machine."""
        fitted = self.fit(streams, target, room_bytes=target.free_bytes())
        load = {"kind": self.name, **self.load(fitted, target, seed=seed)}
        return engine_spec(load, seed=seed, run_id=run_id, devices=self.devices(fitted, target))

    def vary(
        self, spec: JsonObject, parameters: Mapping[str, Any], *, seed: int, run_id: str, streams: Sequence[str] = ()
    ) -> JsonObject:
        """A spec like another, with the `scalable` parameters of a case, which have the same name in it."""
        varied = {name: parameters[name] for name in self.scalable}
        return {**spec, "seed": seed, "run_id": run_id, "workload": {**spec["workload"], **varied}}

    def load(self, streams: Mapping[str, P], target: Target, *, seed: int) -> Mapping[str, Any]:
        """The workload of the engine's spec, without its kind."""
        raise NotImplementedError

    def devices(self, streams: Mapping[str, P], target: Target) -> list[str]:
        """Block devices whose counters are recorded."""
        return target.block_devices()

    def cost(self, streams: Mapping[str, P]) -> Cost:
        """Time and bytes written at most, without layout."""
        raise NotImplementedError

    def files(self, streams: Mapping[str, P]) -> dict[str, int]:
        """Names and sizes, in bytes, of the files that a run keeps on disk."""
        return {}

    def journals(self, streams: Mapping[str, P]) -> dict[str, int]:
        """The same of journals of verification: beside the files, but not on a device."""
        return {}

    def addressed_bytes(self, streams: Mapping[str, P]) -> int:
        """Bytes of the target that the run needs."""
        return sum(self.files(streams).values())

    def buffer_bytes(self, streams: Mapping[str, P]) -> int:
        """Memory that the run takes at once for its I/O."""
        return 0

    def must_align(self, stream: P) -> dict[str, list[int]]:
        """Sizes that must be multiples of the unit of direct I/O, by parameter; empty where I/O is not direct."""
        return {}

    def layout(self, streams: Mapping[str, P]) -> Layout:
        """Part of its files that a run writes before it measures."""
        return "never"

    def notes(self, streams: Mapping[str, P]) -> list[str]:
        """Costs of a run that are not in its own time and bytes, as sentences for the plan."""
        return []

    def prepares(self, stream: P) -> bool:
        """Return True if the target must be prepared before the first run."""
        return False

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """The streams of a load, each with name, jobs and arrival at least."""
        streams: Sequence[Mapping[str, Any]] = workload.get("streams", [])
        return streams

    def server(self, workload: Spec) -> str | None:
        """The kind of server that the engine applies the load to, started by iosonde or by the user; None without one.

        External commands connect by themselves: theirs is only in their spec.
        """
        return None

    def engine(self, workload: Spec) -> Engine:
        """The program of the engine that carries it out."""
        return "iosonde-engine"

    def rules(self, workload: Spec) -> str:
        """Basis of the verdict on a run: `evidence` of the engine about its I/O, shares of a `server`, or `judge`."""
        return self.judge or ("server" if self.server(workload) else "evidence")

    def load_spec(self, measured: JsonObject, case: Mapping[str, Any]) -> JsonObject | None:
        """The spec that loads the database of a measurement, where the engine does so; it is kept as a template."""
        return None

    def expected_target(self, workload: Spec, case: Mapping[str, Any], place: Target) -> JsonObject | None:
        """The target that a received spec must have; None for the file, files or device of `place`."""
        return None

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """Reason to refuse a received spec: files outside its case, besides its target; empty if there is none."""
        return ""

    def refusal_on_hosts(self, workload: Spec, *, shares_files: bool) -> str:
        """Part of a load that hosts (`--hosts`) cannot do, as an object of a sentence; empty if they can do all."""
        return self.title

    def of_host(self, workload: Spec, case: Mapping[str, Any], number: int) -> Spec:
        """The load of the host after `number` others, from that of the first."""
        return workload

    def of_hosts(self, workloads: Sequence[Spec]) -> JsonObject:
        """The load of hosts together, from that of each."""
        raise NotImplementedError

    def result_of_hosts(self, added: JsonObject, results: Sequence[tuple[Mapping[str, Any], int]]) -> JsonObject:
        """The result of hosts together, from their sums.

        With the result of each host is the time to add to its instants, which makes them those of one clock.
        """
        return added

    def file_name(self, workload: Spec) -> str | None:
        """Name of the run's file in the target's own directory; None for the usual name, empty if it is refused."""
        return None

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `4 KiB random reads`, by parameter and in that order."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An interface through which block I/O is done, what it can carry out, and its parameters.

    Those of features are listed in `BACKENDS` of their `backends.py`.
    """

    name: str
    title: str = ""
    """Noun for the description of the parameter `backend`; empty if another row's title covers it."""
    target: str = ""
    """A target that sets it, such as `null:1GiB`; empty if a study may set it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Its parameters, with their names in the engine's spec."""
    parameters: type[BaseModel] | None = None
    """Model of parameters of its own."""
    one_at_a_time: bool = False
    """True if a job has one I/O in flight."""
    direct_only: bool = False
    """True if it needs `io_mode = "direct"`."""
    trims: bool = True
    always_runs: bool = False
    """True if its runs are never unsupported: it is available everywhere, or falls back to another."""
    is_counted: bool = True
    """False if the kernel counts its I/O neither for the process nor for the block device."""
    is_virtual: bool = False
    """True if it reaches no file and no device of the kernel."""
    has_virtual_time: bool = False
    """True if its I/Os take the time of a model."""
    stores_data: bool = True
    """False if it keeps nothing of what is written."""


def whole_of(streams: Mapping[str, P]) -> P:
    """The parameters of the run, on which all its streams agree."""
    return next(iter(streams.values()))


def taken(stream: BaseModel, *names: str) -> JsonObject:
    """Parameters that have the same name in the engine's spec."""
    return {name: getattr(stream, name) for name in names}


def engine_spec(workload: Mapping[str, Any], *, seed: int, run_id: str, devices: Sequence[str]) -> JsonObject:
    """The spec of a run; the counters of `devices` are recorded."""
    return {
        "protocol": protocol.VERSION,
        "run_id": run_id,
        "seed": seed,
        "workload": workload,
        "observe": {"block_devices": list(devices)},
    }


INTERVALS = 5
"""Intervals whose means are compared with those of as many before."""
TOLERANCE = 0.05
"""Largest difference of the means."""


def steady_ramp(duration_ns: int, bytes: int | None, *, until: Literal["time", "steady"]) -> JsonObject:
    """A ramp that lasts `duration_ns` at most."""
    ramp: JsonObject = {"duration_ns": duration_ns, "bytes": bytes}
    if until == "steady":
        ramp["until_steady"] = {"intervals": INTERVALS, "tolerance": TOLERANCE}
    return ramp


def arrival_of(kind: str, rate: float | None) -> JsonObject:
    """The arrival of a closed loop, or of an open loop at a rate."""
    return {"kind": kind} if kind == "closed" else {"kind": kind, "rate": rate or 0.0}


def size_words(level: Any) -> str:
    """Write a size: `4 KiB`; the label of a compound level as it is."""
    is_number = isinstance(level, (int, float)) and not isinstance(level, bool)
    return format_bytes(level) if is_number else str(level)


def operation_words(read_fraction: float | str, trim_fraction: float | str = 0.0) -> str:
    """Name a mix: `reads`, `writes`, `70/30 reads and writes`; the label of a compound level as it is."""
    share = number_of(read_fraction)
    if share is None:
        return str(read_fraction)
    if number_of(trim_fraction) == 1:
        return "trims"
    if share in (0, 1):
        return "reads" if share else "writes"
    return f"{100 * share:.0f}/{100 * (1 - share):.0f} reads and writes"


def number_of(level: Any) -> float | None:
    """Return a level as a number; None for the label of a compound level, whose factor may have a parameter's name.

    A column with such labels has numbers as text.
    """
    try:
        number = float(level)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
