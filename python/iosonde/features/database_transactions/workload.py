"""Workloads on a database server: parameters, the spec for the engine, and what a run needs and takes.

The kinds differ only in what their parameters report as `population` and `loaded_bytes`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from iosonde.errors import StudyError, TargetError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.protocol import HIGHEST_RATE
from iosonde.units import format_bytes, format_duration
from iosonde.workload import store_name
from iosonde.workload.reading import (
    Cpus,
    Duration,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    SizeOrNone,
    parse_path,
    parse_positive_rate,
)
from iosonde.workload.servers import EMPTY_BYTES, Settings, SettingValue, engine_server, identity, open_directory
from iosonde.workload.workload import Hints, Layout, Product, Rate, Room, Spec, Workload, arrival_of, engine_spec

if TYPE_CHECKING:
    from iosonde.storage import Target


WAREHOUSE_BYTES = 130 << 20
"""Room for a warehouse: rows, indexes, and half-full pages."""


def parse_url(value: Any) -> str | None:
    """The address of a running server, without a password."""
    if value in (None, "", "none"):
        return None
    from iosonde.servers import NAMES
    from iosonde.servers.foreign import parse

    found = parse(str(value))
    if found.kind not in NAMES:
        raise ValueError(f"`{found.text}` is not an address of a database server with SQL")
    return found.text


class OltpFields(BaseModel, ABC):
    """A server and the way in which a load is applied to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: Literal["postgresql", "mariadb"] = "postgresql"
    """Which server iosonde starts: PostgreSQL, or MariaDB (InnoDB; MySQL if installed)."""
    server_url: Annotated[str | None, BeforeValidator(parse_url)] = None
    """Instead of starting a server, use a running one: `postgresql://USER@HOST:PORT` or `mariadb://USER@HOST:PORT`
    (command line: `--server URL`); passwords come from the environment."""
    postgresql: Settings = Field(default_factory=dict)
    """Settings of PostgreSQL by its own names, such as `shared_buffers`."""
    mariadb: Settings = Field(default_factory=dict)
    """Settings of MariaDB by its own names, such as `innodb_buffer_pool_size`."""
    memory_limit: SizeOrNone = None
    """Memory of the server: its own cache and the page cache together (a control group; needs root); empty: the
    machine's."""
    log: Literal["with_data", "apart"] = "with_data"
    """Where the write-ahead log is; `apart` is in `log_target`."""
    log_target: Annotated[str | None, BeforeValidator(parse_path)] = None
    """Directory on a second target for the log, named with `--set log_target=DIRECTORY`."""
    arrival: Literal["closed", "constant", "poisson"] = "closed"
    """Closed loop (the next transaction when one completes), or open loop."""
    rate: Annotated[float | None, BeforeValidator(parse_positive_rate)] = None
    """Open loop: transactions per second of all connections together."""
    ramp: DurationOrZero = 5 * 10**9
    """Load before the measurement."""
    duration: Duration = 10 * 10**9
    """Length of the measurement."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    kill_server_after: DurationOrNone = None
    """Kill the server (SIGKILL) this long after the start of the measurement, restart it, and look up every
    acknowledged commit; empty: never."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs of the client, as a list or `0-3`; empty: any."""

    @property
    def settings(self) -> dict[str, SettingValue]:
        """Settings of the server that is measured."""
        return dict(self.postgresql if self.server == "postgresql" else self.mariadb)

    @abstractmethod
    def population(self) -> dict[str, Any]:
        """Parameters that decide the loaded data."""

    def loaded_bytes(self) -> int:
        """Size that the loaded rows and indexes are assumed to have."""
        return 0

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for wrong, text in self._rules():
            if wrong:
                raise ValueError(text)
        return self

    def _rules(self) -> list[tuple[bool, str]]:
        """Conditions, and the error if one is true."""
        is_open = self.arrival != "closed"
        foreign = self.server_url is not None
        return [
            (is_open and self.rate is None, f'`arrival = "{self.arrival}"` needs a `rate`'),
            (not is_open and self.rate is not None, "`rate` is for an open loop; set `arrival`"),
            ((self.rate or 0) > HIGHEST_RATE, f"a rate of {self.rate} per second is beyond what can be timed"),
            (
                self.kill_server_after is not None and self.kill_server_after >= self.duration,
                "`kill_server_after` is beyond the end of the measurement; set a longer `duration`",
            ),
            (foreign and self.kill_server_after is not None, "iosonde kills no server that it did not start"),
            (foreign and self.memory_limit is not None, "the memory of a running server cannot be limited"),
            (foreign and self.log == "apart", "the log of a running server stays where it is"),
            (foreign and bool(self.settings), "the settings of a running server are not changed; leave them out"),
        ]


class TpccParameters(OltpFields):
    """Terminals, each with one connection and one transaction at a time."""

    warehouses: int = Field(10, ge=1, le=100_000)
    """Scale of the database: about 100 MB each."""
    terminals: int = Field(10, ge=1, le=10_000)
    """Connections, each with a transaction in flight."""
    think: Literal["none", "standard"] = "none"
    """Keying and think times: none (the result is TPC-C-like), or those of clause 5.2.5."""
    home: Literal["fixed", "uniform"] = "fixed"
    """A terminal's warehouse: its own (clause 2.4.1), or any, chosen for each transaction."""
    mix: Literal["deck", "weighted"] = "deck"
    """Transaction types: a shuffled deck (clause 5.2.4.2), or each by its weight."""
    isolation: Literal["read_committed", "repeatable_read", "serializable"] = "repeatable_read"
    """Isolation level of all transactions."""
    retries: int = Field(10, ge=0, le=1000)
    """Repeats after a serialization failure, deadlock or lock timeout."""
    pipelining: bool = False
    """Send independent statements of a transaction together."""
    population_seed: int = Field(1, ge=0)
    """Seed of the initial population."""
    load_jobs: int = Field(4, ge=1, le=64)
    """Connections that load the database in parallel."""

    def population(self) -> dict[str, Any]:
        """Parameters that decide the loaded data."""
        return {"workload": "tpcc", "warehouses": self.warehouses, "seed": self.population_seed}

    def loaded_bytes(self) -> int:
        """Size that the loaded rows and indexes are assumed to have."""
        return self.warehouses * WAREHOUSE_BYTES

    def _rules(self) -> list[tuple[bool, str]]:
        return [
            *super()._rules(),
            (self.arrival != "closed" and self.think != "none", 'an open loop has no think time: set `think = "none"`'),
        ]


class CommitParameters(OltpFields):
    """Clients, each with one connection and one transaction at a time."""

    clients: int = Field(1, ge=1, le=10_000)
    """Connections, each with a commit in flight."""
    operation: Literal["insert", "update"] = "insert"
    """Each transaction inserts a row, or updates the client's own row."""
    payload: Size = 100
    """Bytes of a row's payload, 1 B to 8000 B."""

    def population(self) -> dict[str, Any]:
        """No rows are loaded."""
        return {"workload": "commit"}

    def _rules(self) -> list[tuple[bool, str]]:
        return [*super()._rules(), (self.payload > 8000, "`payload` is at most 8000 B")]


def tpcc(whole: TpccParameters, target: Target) -> JsonObject:
    """The workload of the engine's spec of a measurement."""
    return {
        "kind": "tpcc",
        "server": engine_server(whole, target),
        "warehouses": whole.warehouses,
        "seed": whole.population_seed,
        "database": _database(whole),
        "check": {"before": whole.server_url is not None, "after": True},
        "measurement": _measurement(whole, target),
    }


def _database(whole: TpccParameters) -> JsonObject:
    """Restored from a template; on a server that the user runs, loaded unless an unused database is there."""
    if whole.server_url is None:
        return {"kind": "existing"}
    return {"kind": "loaded", "reload": False, "jobs": whole.load_jobs}


def _measurement(whole: TpccParameters, target: Target) -> JsonObject:
    return {
        "terminals": whole.terminals,
        "home": whole.home,
        "think": whole.think,
        "arrival": arrival_of(whole.arrival, whole.rate),
        "mix": whole.mix,
        "isolation": whole.isolation,
        "retries": whole.retries,
        "pipelining": whole.pipelining,
        "ramp_ns": whole.ramp,
        "duration_ns": whole.duration,
        "interval_ns": whole.interval,
        "acknowledged": _acknowledged(whole, target),
        "server_loss": "fail" if whole.kill_server_after is None else "end",
        "cpus": whole.cpus,
    }


def load_spec(measured: JsonObject, *, jobs: int) -> JsonObject:
    """The spec that loads the database of a measurement and checks it, and measures nothing."""
    made = copy.deepcopy(measured)
    made["run_id"] = "load"
    made["workload"] |= {
        "database": {"kind": "loaded", "reload": False, "jobs": jobs},
        "check": {"before": True, "after": False},
        "measurement": None,
    }
    return made


def commit(whole: CommitParameters, target: Target) -> JsonObject:
    """The workload of the engine's spec of a measurement."""
    return {
        "kind": "commit",
        "server": engine_server(whole, target),
        "operation": whole.operation,
        "payload_bytes": whole.payload,
        "measurement": {
            "clients": whole.clients,
            "arrival": arrival_of(whole.arrival, whole.rate),
            "ramp_ns": whole.ramp,
            "duration_ns": whole.duration,
            "interval_ns": whole.interval,
            "acknowledged": _acknowledged(whole, target),
            "server_loss": "fail" if whole.kill_server_after is None else "end",
            "cpus": whole.cpus,
        },
    }


def watched_devices(whole: OltpFields, target: Target) -> list[str]:
    """Block devices whose counters are recorded: those under the target, and those under the log."""
    if target.backend() is not None:
        return []
    devices = target.block_devices()
    if whole.log == "apart" and whole.log_target:
        devices = list(dict.fromkeys([*devices, *open_directory(whole.log_target).block_devices()]))
    return devices


def _acknowledged(whole: OltpFields, target: Target) -> JsonObject | None:
    """Return the file of acknowledged commits: next to the data, which a killed server cannot change."""
    if whole.kill_server_after is None:
        return None
    own = target.spec_target("per_job", 0)["directory"]
    return {"directory": str(Path(own, f"acknowledged-{Path(own).name[-8:]}"))}


P = TypeVar("P", bound=OltpFields)

START_SECONDS = 3.0
"""Start, consistency checks of a small database, and shutdown, as assumed by a plan."""

RECOVERY_SECONDS = 3.0
"""Restart of a killed server, as assumed by a plan."""

LOG_BYTES = 1 << 30
"""Room for the write-ahead log and for rows that runs add."""


class OltpWorkload(Workload[P]):
    """Transactions on a database server; `connections` is the parameter with their number."""

    connections = ""
    places = ("log_target", "server_url")
    io = "server"
    has_statistics = True
    rate = Rate("transactions/s", counted="transactions", shows_bandwidth=False)
    subject = "server"
    products: Mapping[str, Product] = {
        "mariadb": Product(title="MariaDB InnoDB", is_installed=True),
        "postgresql": Product(title="PostgreSQL", is_installed=True),
    }
    worded = ("server",)

    def fit(self, streams: Mapping[str, P], target: Room, *, room_bytes: int) -> dict[str, P]:
        """The parameters with what they decide of each other: the kind of a running server is in its URL."""
        whole = only(streams)
        changes: JsonObject = {}
        if whole.server_url:
            from iosonde.servers import foreign

            changes["server"] = foreign.parse(whole.server_url).kind
        elif target.backend() is not None:
            raise TargetError(
                "a database server needs a file system, and a simulated or null device has none",
                hint="name a directory as the target",
            )
        return {name: stream.model_copy(update=changes) for name, stream in streams.items()}

    def resolve(self, streams: Mapping[str, P], target: Target, *, seed: int, run_id: str) -> JsonObject:
        """The engine's spec of a measurement, on a database that is loaded already."""
        whole = only(self.fit(streams, target, room_bytes=0))
        return engine_spec(
            self.workload(whole, target), seed=seed, run_id=run_id, devices=watched_devices(whole, target)
        )

    def workload(self, whole: P, target: Target) -> Mapping[str, Any]:
        """The workload of the engine's spec."""
        raise NotImplementedError

    def addressed_bytes(self, streams: Mapping[str, P]) -> int:
        """The template, its copy for a run, and the log."""
        whole = only(streams)
        return 0 if whole.server_url else 2 * _data_bytes(whole) + LOG_BYTES

    def files(self, streams: Mapping[str, P]) -> dict[str, int]:
        """The database that a run uses, with its template."""
        whole = only(streams)
        return {} if whole.server_url else {f"{whole.server}-{identity(whole)}": self.addressed_bytes(streams)}

    def layout(self, streams: Mapping[str, P]) -> Layout:
        """A database is loaded once, as a template."""
        whole = only(streams)
        return "missing" if whole.loaded_bytes() and not whole.server_url else "never"

    def cost(self, streams: Mapping[str, P]) -> Cost:
        """Time of a run with restoring; streams must be fitted to the target. Written bytes depend on the server."""
        whole = only(streams)
        measured_ns = whole.duration if whole.kill_server_after is None else whole.kill_server_after
        seconds = (whole.ramp + measured_ns) / 10**9 + (RECOVERY_SECONDS if whole.kill_server_after else 0)
        if whole.server_url:
            return Cost(seconds=seconds, write_bytes=None)
        return Cost(seconds=seconds + START_SECONDS + _restore_seconds(_data_bytes(whole)), write_bytes=None)

    def notes(self, streams: Mapping[str, P]) -> list[str]:
        """Note of the bytes and time to restore the database before each run; none on a server of the user."""
        whole = only(streams)
        if whole.server_url:
            return []
        data_bytes = _data_bytes(whole)
        loaded = f" after {format_bytes(data_bytes)} are loaded once" if whole.loaded_bytes() else ""
        return [
            f"each run on {whole.server} starts from a copy of a template{loaded}: about {format_bytes(data_bytes)} "
            f"and {format_duration(_restore_seconds(data_bytes) * 1e9)} to copy and compare"
        ]

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """One stream, which has the name of the parameter with its size."""
        measurement, name = workload.get("measurement"), self.connections
        return [{"name": name, "jobs": measurement[name], "arrival": measurement["arrival"]}] if measurement else []

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """The server is checked wherever a spec has one."""
        return "" if "server" in workload else "the spec names no server"

    def server(self, workload: Spec) -> str:
        """Its name, such as `postgresql`."""
        return str(workload["server"]["kind"])

    def rules(self, workload: Spec) -> str:
        """The server does the I/O."""
        return "server"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `PostgreSQL TPC-C-like transactions`."""
        tpcc = "TPC-C transactions" if case.get("think") == "standard" else "TPC-C-like transactions (no think time)"
        phase = tpcc if case.get("warehouses") else "single-row commits"
        return {"server": store_name(case["server"]), "phase": phase}


class TpccWorkload(OltpWorkload[TpccParameters]):
    """TPC-C. Without keying and think times a result is not TPC-C: reports label it "TPC-C-like, no think time"."""

    name = "tpcc"
    title = "TPC-C"
    parameters = TpccParameters
    shown = ("server", "warehouses", "terminals", "think", "memory_limit", "duration")
    hints = Hints(smaller="make the database smaller with `--set warehouses=...`")
    connections = "terminals"
    operations = ("new_order", "payment", "order_status", "delivery", "stock_level")
    workload = staticmethod(tpcc)

    def room_by(self, files: int) -> str:
        """A clause that names the parameters which decide how much room this many databases need."""
        return f"for {files} databases, by the parameter `warehouses`" if files > 1 else "by the parameter `warehouses`"

    def load_spec(self, measured: JsonObject, case: Mapping[str, Any]) -> JsonObject:
        """The warehouses are loaded once."""
        return load_spec(measured, jobs=int(case["load_jobs"]))


class CommitWorkload(OltpWorkload[CommitParameters]):
    """Single-row durable commits: the group-commit curve of a log device."""

    name = "commit"
    title = "durable commits"
    parameters = CommitParameters
    shown = ("server", "clients", "operation", "payload", "memory_limit", "duration")
    hints = Hints(smaller="commit for a shorter time with `--set duration=...`")
    connections = "clients"
    operations = ("commit",)
    workload = staticmethod(commit)

    def room_by(self, files: int) -> str:
        """A clause that states what this many databases need room for."""
        return f"for the logs of {files} servers" if files > 1 else "for the log of a server"


WORKLOADS = (TpccWorkload(), CommitWorkload())


def only(streams: Mapping[str, Any]) -> Any:
    """The parameters of the only stream."""
    if len(streams) > 1:
        raise StudyError(
            f"a workload on a server has one stream, not {len(streams)}",
            hint="leave out `streams`: terminals and transaction mix are parameters",
        )
    return next(iter(streams.values()))


def _data_bytes(whole: OltpFields) -> int:
    """Size that the loaded database is assumed to have."""
    return whole.loaded_bytes() + EMPTY_BYTES


def _restore_seconds(data_bytes: int) -> float:
    """Time to copy the template and to read the copy for comparison."""
    return 2 * data_bytes / ASSUMED_BYTES_PER_SECOND
