"""Parameters that every workload on a database server has."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from iosonde.protocol import HIGHEST_RATE
from iosonde.workload.kv.notation import parse_path, parse_positive_rate
from iosonde.workload.reading import (
    Cpus,
    Duration,
    DurationOrZero,
    Interval,
    parse_duration_or_none,
    parse_size_or_none,
)

SettingValue = bool | int | float | str
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def parse_settings(value: Any) -> dict[str, SettingValue]:
    """A table of settings by the server's own names and units, or text as `shared_buffers=1GB;fsync=on`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(";") if part.strip()]
        if not all(sign for _, sign, _ in pairs):
            raise ValueError(f"`{value}` are not settings; write them like `shared_buffers=1GB;fsync=on`")
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError('settings are a table of the server\'s own names, such as `{ shared_buffers = "1GB" }`')
    for name, given in value.items():
        if not _NAME.fullmatch(str(name)) or not isinstance(given, (bool, int, float, str)):
            raise ValueError(f"the setting `{name}` cannot be `{given}`; it is true, false, a number or a text")
    return dict(value)


def parse_url(value: Any) -> str | None:
    """The address of a running server, without a password."""
    if value in (None, "", "none"):
        return None
    from iosonde.servers import NAMES
    from iosonde.servers.url import parse

    found = parse(str(value))
    if found.kind not in NAMES:
        raise ValueError(f"`{found.text}` is not an address of a database server with SQL")
    return found.text


Settings = Annotated[dict[str, SettingValue], BeforeValidator(parse_settings)]


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
    memory_limit: Annotated[int | None, BeforeValidator(parse_size_or_none)] = Field(
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
    kill_server_after: Annotated[int | None, BeforeValidator(parse_duration_or_none)] = Field(
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


SIZES: Sequence[str] = ("memory_limit",)

DURATIONS: Sequence[str] = ("ramp", "duration", "interval", "kill_server_after")
