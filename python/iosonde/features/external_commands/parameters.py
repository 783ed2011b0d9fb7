"""The parameters of a command: what is started, with what around it, and where its values are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from iosonde.features.external_commands.named import parse_metrics
from iosonde.features.external_commands.template import AT_START, names_in
from iosonde.workload.reading import Duration, Interval, Size, SizeOrNone, none_as_empty

_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
Scalar = str | int | float | bool


def parse_command(value: Any) -> list[str]:
    """A program and its arguments, as a list."""
    if isinstance(value, str):
        raise ValueError('no shell splits a command; write it as a list, such as `["fio", "--name=test"]`')
    if not isinstance(value, list) or not all(isinstance(each, str) and "\0" not in each for each in value):
        raise ValueError('a command is a list of texts, such as `["fio", "--name=test"]`')
    return value


def parse_commands(value: Any) -> list[list[str]]:
    """A list of commands."""
    if not isinstance(value, list) or not all(isinstance(each, list) and each for each in value):
        raise ValueError('this is a list of commands, each a list such as `["mkdir", "data"]`')
    return [parse_command(each) for each in value]


def parse_background(value: Any) -> list[dict[str, Any]]:
    """Commands that run alongside the measured one, each with the file or socket that shows that it is ready."""
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise ValueError('this is a list of tables such as `{ command = ["memcached"], ready = "{directory}/socket" }`')
    for each in value:
        if not set(each) <= {"command", "ready"} or not each.get("command"):
            raise ValueError("a background command has `command`, and `ready` if something shows that it is ready")
    return [{"command": parse_command(each["command"]), "ready": str(each.get("ready", ""))} for each in value]


def parse_environment(value: Any) -> dict[str, str]:
    """Environment variables."""
    if not isinstance(value, Mapping):
        raise ValueError('this is a table such as `{ LD_LIBRARY_PATH = "/opt/lib" }`')
    for name, text in value.items():
        if not _ENVIRONMENT.fullmatch(str(name)) or not isinstance(text, str) or "\0" in text:
            raise ValueError(f"`{name}` cannot be set to `{text}`; names have letters, digits and `_`, values are text")
    return dict(value)


def parse_output(value: Any) -> str:
    """`stdout`, `stderr`, or the name of a file."""
    if not isinstance(value, str) or not _FILE.fullmatch(value):
        raise ValueError("it is `stdout`, `stderr` or the name of a file in the working directory")
    return value


class CommandParameters(BaseModel):
    """A command, and variables that its arguments use."""

    model_config = ConfigDict(extra="allow", frozen=True)

    command: Annotated[list[str], BeforeValidator(parse_command)] = Field(
        default_factory=list, description="Program and arguments as a list; `{NAME}` is replaced by a variable."
    )
    prepare: Annotated[list[list[str]], BeforeValidator(parse_commands)] = Field(
        default_factory=list, description="Commands that run before each measurement, in this order."
    )
    background: Annotated[list[dict[str, Any]], BeforeValidator(parse_background)] = Field(
        default_factory=list, description="Commands that run alongside the measured one, such as a server."
    )
    version: Annotated[list[str], BeforeValidator(parse_command)] = Field(
        default_factory=lambda: ["--version"],
        description="Arguments with which the program prints its version; `[]` if it has none.",
    )
    environment: Annotated[dict[str, str], BeforeValidator(parse_environment)] = Field(
        default_factory=dict, description="Environment variables, besides a minimal environment."
    )
    metrics: Annotated[dict[str, dict[str, Any]], BeforeValidator(parse_metrics)] = Field(
        default_factory=dict, description="Metrics by name: place in the output, unit, direction."
    )
    output: Annotated[str, BeforeValidator(parse_output)] = Field(
        "stdout", description="Where the values are: `stdout`, `stderr`, or a file in the working directory."
    )
    exit_codes: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        default_factory=lambda: [0], description="Exit statuses of success."
    )
    duration: Duration = Field(
        10 * 10**9, description="Expected time of a run, for the plan; `{duration}` is this in seconds."
    )
    timeout: Duration = Field(600 * 10**9, description="After this time the command and all its processes are killed.")
    interval: Interval = Field(10**9, description="Interval of the readings of CPU time and devices.")
    output_limit: Size = Field(16 << 20, description="Maximum output; a command that prints more is killed.")
    space: Size = Field(1 << 30, description="Room that a run needs in its working directory.")
    memory_limit: SizeOrNone = Field(
        None, description="Memory of all its processes with the page cache (a control group; needs root)."
    )
    server: Annotated[Literal["postgresql", "mariadb"] | None, BeforeValidator(none_as_empty)] = Field(
        None, description="Database server that iosonde starts for each run, with an empty database."
    )
    postgresql: dict[str, Scalar] = Field(default_factory=dict, description="Settings of PostgreSQL by its own names.")
    mariadb: dict[str, Scalar] = Field(default_factory=dict, description="Settings of MariaDB by its own names.")

    server_url: ClassVar[None] = None
    log: ClassVar[str] = "with_data"
    log_target: ClassVar[None] = None
    """A server for a command has its log next to its data (`workload.servers`)."""

    def population(self) -> dict[str, Any]:
        """Return the contents of a server's database: none."""
        return {"workload": "command"}

    @property
    def settings(self) -> dict[str, Scalar]:
        """Settings of the server."""
        return {"postgresql": self.postgresql, "mariadb": self.mariadb}.get(self.server or "", {})

    @property
    def own_variables(self) -> dict[str, Scalar]:
        """Variables that the study sets."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def variables(self) -> dict[str, Scalar]:
        """Everything that a placeholder can name before a run starts."""
        sizes = {"space": self.space, **({"memory_limit": self.memory_limit} if self.memory_limit else {})}
        return {"duration": f"{self.duration}ns", **sizes, **self.own_variables}

    @property
    def commands(self) -> list[list[str]]:
        """Every command, in the order in which they are started."""
        return [*self.prepare, *(each["command"] for each in self.background), self.command]

    @property
    def _texts(self) -> list[str]:
        ready = [each["ready"] for each in self.background]
        return [*(text for command in self.commands for text in command[1:]), *self.environment.values(), *ready]

    @model_validator(mode="after")
    def _check(self) -> Self:
        used = set(names_in(self._texts))
        for wrong, message in self._rules(used):
            if wrong:
                raise ValueError(message)
        return self

    def _rules(self, used: set[str]) -> list[tuple[bool, str]]:
        unused = next((name for name in self.own_variables if name not in used), "")
        of_server = next((name for name in used if name.startswith("server_")), "")
        return [
            (not self.command, 'there is no `command`; write one such as `command = ["fio", "--name=test"]`'),
            (not self.metrics, "there are no `metrics`; name at least one value of the output"),
            (
                bool(unused),
                f"`{unused}` is not a parameter, and no argument uses it; write `{{{unused}}}` where it belongs",
            ),
            (
                bool(of_server) and self.server is None,
                f'`{{{of_server}}}` needs a server; set `server = "postgresql"` or `"mariadb"`',
            ),
        ]


def check_variable(name: str, value: Any) -> Scalar:
    """A variable that a study may set."""
    if not _VARIABLE.fullmatch(name) or name in AT_START:
        raise ValueError(f"a variable cannot be called `{name}`; use lower-case letters, digits and `_`")
    if not isinstance(value, str | int | float | bool):
        raise ValueError(f"the variable `{name}` is a text or a number")
    if isinstance(value, str) and ("\0" in value or len(value) > 4096):
        raise ValueError(f"the variable `{name}` is too long or has a null byte")
    return value
