"""Workloads on a database server: parameters, the spec for the engine, and what a run needs and takes.

The kinds differ only in what their parameters report as `population` and `loaded_bytes`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field

from iosonde.engine.protocol import HIGHEST_RATE
from iosonde.errors import TargetError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.study.servers import NAMES
from iosonde.study.servers.foreign import parse
from iosonde.study.workload import store_name
from iosonde.study.workload.reading import (
    Cpus,
    Duration,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    SizeOrNone,
    WithRules,
    parse_path,
    parse_positive_rate,
)
from iosonde.study.workload.servers import (
    EMPTY_BYTES,
    Settings,
    SettingValue,
    engine_server,
    identity,
    open_directory,
    url_of,
)
from iosonde.study.workload.workload import Hints, Layout, Product, Rate, Spec, Workload, arrival_of, taken, whole_of
from iosonde.units import format_bytes, format_estimate

if TYPE_CHECKING:
    from iosonde.storage import Target


WAREHOUSE_BYTES = 130 << 20
"""Room for a warehouse: rows, indexes, and half-full pages."""


class OltpFields(WithRules):
    """A server and the way in which a load is applied to it."""

    server: Literal["postgresql", "mariadb"] = "postgresql"
    """Which server iosonde starts: PostgreSQL, or MariaDB (InnoDB; MySQL if installed)."""
    server_url: Annotated[str | None, url_of(*NAMES, what="a database server with SQL")] = None
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

    def population(self) -> dict[str, Any]:
        """Parameters that decide the loaded data."""
        raise NotImplementedError

    def loaded_bytes(self) -> int:
        """Size that the loaded rows and indexes are assumed to have."""
        return 0

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
    several = (
        "a workload on a server has one stream, not {}",
        "leave out `streams`: terminals and transaction mix are parameters",
    )

    def fit(self, streams: Mapping[str, P], target: Target, *, room_bytes: int) -> Mapping[str, P]:
        """The parameters with what they decide of each other: the kind of a running server is in its URL."""
        super().fit(streams, target, room_bytes=room_bytes)
        changes: JsonObject = {}
        if url := whole_of(streams).server_url:
            changes["server"] = parse(url).kind
        elif target.backend() is not None:
            raise TargetError(
                "a database server needs a file system, and a simulated or null device has none",
                hint="name a directory as the target",
            )
        return {name: stream.model_copy(update=changes) for name, stream in streams.items()}

    def devices(self, streams: Mapping[str, P], target: Target) -> list[str]:
        """Those under the target, and those under the log."""
        whole = whole_of(streams)
        if target.backend() is not None:
            return []
        log = open_directory(whole.log_target).block_devices() if whole.log == "apart" and whole.log_target else []
        return list(dict.fromkeys([*target.block_devices(), *log]))

    def measurement(self, whole: P, target: Target) -> JsonObject:
        """The parts of a measurement in the engine's spec that both kinds have, on a database that is loaded already.

        A file of acknowledged commits is next to the data, which a killed server cannot change.
        """
        acknowledged = None
        if whole.kill_server_after is not None:
            own = target.spec_target("per_job", 0)["directory"]
            acknowledged = {"directory": str(Path(own, f"acknowledged-{Path(own).name[-8:]}"))}
        return {
            **taken(whole, self.connections, "cpus"),
            "arrival": arrival_of(whole.arrival, whole.rate),
            "ramp_ns": whole.ramp,
            "duration_ns": whole.duration,
            "interval_ns": whole.interval,
            "acknowledged": acknowledged,
            "server_loss": "end" if acknowledged else "fail",
        }

    def addressed_bytes(self, streams: Mapping[str, P]) -> int:
        """The template, its copy for a run, and the log."""
        whole = whole_of(streams)
        return 0 if whole.server_url else 2 * _data_bytes(whole) + LOG_BYTES

    def files(self, streams: Mapping[str, P]) -> dict[str, int]:
        """The database that a run uses, with its template."""
        whole = whole_of(streams)
        return {} if whole.server_url else {f"{whole.server}-{identity(whole)}": self.addressed_bytes(streams)}

    def layout(self, streams: Mapping[str, P]) -> Layout:
        """A database is loaded once, as a template."""
        whole = whole_of(streams)
        return "missing" if whole.loaded_bytes() and not whole.server_url else "never"

    def cost(self, streams: Mapping[str, P]) -> Cost:
        """Time of a run with restoring; streams must be fitted to the target. Written bytes depend on the server."""
        whole = whole_of(streams)
        measured_ns = whole.duration if whole.kill_server_after is None else whole.kill_server_after
        seconds = (whole.ramp + measured_ns) / 10**9 + (RECOVERY_SECONDS if whole.kill_server_after else 0)
        if whole.server_url:
            return Cost(seconds=seconds, write_bytes=None)
        return Cost(seconds=seconds + START_SECONDS + _restore_seconds(_data_bytes(whole)), write_bytes=None)

    def notes(self, streams: Mapping[str, P]) -> list[str]:
        """Note of the bytes and time to restore the database before each run; none on a server of the user."""
        whole = whole_of(streams)
        if whole.server_url:
            return []
        data_bytes = _data_bytes(whole)
        loaded = f" after {format_bytes(data_bytes)} are loaded once" if whole.loaded_bytes() else ""
        return [
            f"each run on {whole.server} starts from a copy of a template{loaded}: about {format_bytes(data_bytes)} "
            f"and {format_estimate(_restore_seconds(data_bytes))} to copy and compare"
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
    hints = Hints(
        smaller="make the database smaller with `--set warehouses=...`",
        sized_by="by the parameter `warehouses`",
        sized_by_several="for {} databases, by the parameter `warehouses`",
    )
    connections = "terminals"
    operations = ("new_order", "payment", "order_status", "delivery", "stock_level")

    def load(self, streams: Mapping[str, TpccParameters], target: Target, *, seed: int) -> JsonObject:
        """The database is restored from a template, or on a running server loaded unless an unused one is there."""
        whole = whole_of(streams)
        server = engine_server(whole, target)
        is_foreign = whole.server_url is not None
        parameters = ("home", "think", "mix", "isolation", "retries", "pipelining")
        return {
            "server": server,
            "warehouses": whole.warehouses,
            "seed": whole.population_seed,
            "database": _loaded(whole.load_jobs) if is_foreign else {"kind": "existing"},
            "check": {"before": is_foreign, "after": True},
            "measurement": {**self.measurement(whole, target), **taken(whole, *parameters)},
        }

    def load_spec(self, measured: JsonObject, case: Mapping[str, Any]) -> JsonObject:
        """The spec that loads the database of a measurement and checks it, and measures nothing."""
        made = copy.deepcopy(measured)
        made["run_id"] = "load"
        made["workload"] |= {
            "database": _loaded(int(case["load_jobs"])),
            "check": {"before": True, "after": False},
            "measurement": None,
        }
        return made


def _loaded(jobs: int) -> JsonObject:
    return {"kind": "loaded", "reload": False, "jobs": jobs}


class CommitWorkload(OltpWorkload[CommitParameters]):
    """Single-row durable commits: the group-commit curve of a log device."""

    name = "commit"
    title = "durable commits"
    parameters = CommitParameters
    shown = ("server", "clients", "operation", "payload", "memory_limit", "duration")
    hints = Hints(
        smaller="commit for a shorter time with `--set duration=...`",
        sized_by="for the log of a server",
        sized_by_several="for the logs of {} servers",
    )
    connections = "clients"
    operations = ("commit",)

    def load(self, streams: Mapping[str, CommitParameters], target: Target, *, seed: int) -> JsonObject:
        """No rows are loaded."""
        whole = whole_of(streams)
        return {
            "server": engine_server(whole, target),
            "operation": whole.operation,
            "payload_bytes": whole.payload,
            "measurement": self.measurement(whole, target),
        }


WORKLOADS = (TpccWorkload(), CommitWorkload())


def _data_bytes(whole: OltpFields) -> int:
    """Size that the loaded database is assumed to have."""
    return whole.loaded_bytes() + EMPTY_BYTES


def _restore_seconds(data_bytes: int) -> float:
    """Time to copy the template and to read the copy for comparison."""
    return 2 * data_bytes / ASSUMED_BYTES_PER_SECOND
