"""The parameters of loads on database servers: TPC-C (5.11), and single-row commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from iosonde.protocol import HIGHEST_RATE
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
from iosonde.workload.servers import Settings, SettingValue

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

    server: Literal["postgresql", "mariadb"] = Field(
        "postgresql", description="Which server iosonde starts: PostgreSQL, or MariaDB (InnoDB; MySQL if installed)."
    )
    server_url: Annotated[str | None, BeforeValidator(parse_url)] = Field(
        None,
        description="Instead of starting a server, use a running one: `postgresql://USER@HOST:PORT` or "
        "`mariadb://USER@HOST:PORT` (command line: `--server URL`); passwords come from the environment.",
    )
    postgresql: Settings = Field(
        default_factory=dict, description="Settings of PostgreSQL by its own names, such as `shared_buffers`."
    )
    mariadb: Settings = Field(
        default_factory=dict, description="Settings of MariaDB by its own names, such as `innodb_buffer_pool_size`."
    )
    memory_limit: SizeOrNone = Field(
        None,
        description="Memory of the server: its own cache and the page cache together (a control group; needs root); "
        "empty: the machine's.",
    )
    log: Literal["with_data", "apart"] = Field(
        "with_data", description="Where the write-ahead log is; `apart` is in `log_target`."
    )
    log_target: Annotated[str | None, BeforeValidator(parse_path)] = Field(
        None, description="Directory on a second target for the log, named with `--set log_target=DIRECTORY`."
    )
    arrival: Literal["closed", "constant", "poisson"] = Field(
        "closed", description="Closed loop (the next transaction when one completes), or open loop."
    )
    rate: Annotated[float | None, BeforeValidator(parse_positive_rate)] = Field(
        None, description="Open loop: transactions per second of all connections together."
    )
    ramp: DurationOrZero = Field(5 * 10**9, description="Load before the measurement.")
    duration: Duration = Field(10 * 10**9, description="Length of the measurement.")
    interval: Interval = Field(10**9, description="Length of an interval of the time series, at least 100 ms.")
    kill_server_after: DurationOrNone = Field(
        None,
        description="Kill the server (SIGKILL) this long after the start of the measurement, restart it, and look up "
        "every acknowledged commit; empty: never.",
    )
    cpus: Cpus = Field(default_factory=list, description="CPUs of the client, as a list or `0-3`; empty: any.")

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

    warehouses: int = Field(10, ge=1, le=100_000, description="Scale of the database: about 100 MB each.")
    terminals: int = Field(10, ge=1, le=10_000, description="Connections, each with a transaction in flight.")
    think: Literal["none", "standard"] = Field(
        "none", description="Keying and think times: none (the result is TPC-C-like), or those of clause 5.2.5."
    )
    home: Literal["fixed", "uniform"] = Field(
        "fixed", description="A terminal's warehouse: its own (clause 2.4.1), or any, chosen for each transaction."
    )
    mix: Literal["deck", "weighted"] = Field(
        "deck", description="Transaction types: a shuffled deck (clause 5.2.4.2), or each by its weight."
    )
    isolation: Literal["read_committed", "repeatable_read", "serializable"] = Field(
        "repeatable_read", description="Isolation level of all transactions."
    )
    retries: int = Field(
        10, ge=0, le=1000, description="Repeats after a serialization failure, deadlock or lock timeout."
    )
    pipelining: bool = Field(False, description="Send independent statements of a transaction together.")
    population_seed: int = Field(1, ge=0, description="Seed of the initial population.")
    load_jobs: int = Field(4, ge=1, le=64, description="Connections that load the database in parallel.")

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

    clients: int = Field(1, ge=1, le=10_000, description="Connections, each with a commit in flight.")
    operation: Literal["insert", "update"] = Field(
        "insert", description="Each transaction inserts a row, or updates the client's own row."
    )
    payload: Size = Field(100, description="Bytes of a row's payload, 1 B to 8000 B.")

    def population(self) -> dict[str, Any]:
        """No rows are loaded."""
        return {"workload": "commit"}

    def _rules(self) -> list[tuple[bool, str]]:
        return [*super()._rules(), (self.payload > 8000, "`payload` is at most 8000 B")]
