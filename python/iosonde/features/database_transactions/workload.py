"""Workloads on a database server: what a run needs and takes, the same for all of them.

They differ only in what their parameters report as `population` and `loaded_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from iosonde.errors import StudyError, TargetError
from iosonde.features.database_transactions import spec
from iosonde.features.database_transactions.parameters import CommitParameters, OltpFields, TpccParameters
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.units import format_bytes, format_duration
from iosonde.workload import store_name
from iosonde.workload.servers import EMPTY_BYTES, identity
from iosonde.workload.workload import Hints, Layout, Product, Rate, Room, Spec, Workload, engine_spec

if TYPE_CHECKING:
    from iosonde.storage import Target

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
            self.workload(whole, target), seed=seed, run_id=run_id, devices=spec.watched_devices(whole, target)
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
    workload = staticmethod(spec.tpcc)

    def room_by(self, files: int) -> str:
        """A clause that names the parameters which decide how much room this many databases need."""
        return f"for {files} databases, by the parameter `warehouses`" if files > 1 else "by the parameter `warehouses`"

    def load_spec(self, measured: JsonObject, case: Mapping[str, Any]) -> JsonObject:
        """The warehouses are loaded once."""
        return spec.load_spec(measured, jobs=int(case["load_jobs"]))


class CommitWorkload(OltpWorkload[CommitParameters]):
    """Single-row durable commits: the group-commit curve of a log device."""

    name = "commit"
    title = "durable commits"
    parameters = CommitParameters
    shown = ("server", "clients", "operation", "payload", "memory_limit", "duration")
    hints = Hints(smaller="commit for a shorter time with `--set duration=...`")
    connections = "clients"
    operations = ("commit",)
    workload = staticmethod(spec.commit)

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
