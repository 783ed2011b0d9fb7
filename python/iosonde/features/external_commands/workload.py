"""External commands as a workload: parameters, templates, named metrics, the spec, and what a run needs and takes."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from iosonde.base import tools
from iosonde.engine.supervisor.parse import steps
from iosonde.engine.supervisor.processes import identify
from iosonde.errors import StudyError, TargetError, did_you_mean
from iosonde.plan import Cost, Frozen, JsonObject, commands
from iosonde.study.workload.reading import Duration, Interval, Size, SizeOrNone, WithRules, none_as_empty
from iosonde.study.workload.servers import EMPTY_BYTES, engine_server, identity
from iosonde.study.workload.workload import Hints, Spec, Workload, taken, whole_of
from iosonde.units import parse_duration, parse_size

if TYPE_CHECKING:
    from iosonde.storage import Target


PARSERS = ("json", "pattern", "lines")


class NamedMetric(Frozen):
    """One metric of a command."""

    title: str = ""
    """For axes and table heads, without the unit; the name if empty."""
    unit: Literal["1/s", "B/s", "B", "ns", "s", ""]
    better: Literal["higher", "lower", "neither"]
    json_path: str = Field("", alias="json")
    """Place of the value in JSON output, such as `jobs[0].read.iops`."""
    pattern: str = ""
    """Regular expression that matches once; its group `value`, else its first group, is the value."""
    lines: str = ""
    """Regular expression that matches lines over time; the group `seconds` is their time, else their arrival."""
    aggregate: Literal["mean", "median", "minimum", "maximum", "last", "sum"] = "mean"
    """Value of a run, of lines over time."""
    scale: float = Field(1.0, gt=0, lt=1e15)
    """Factor from the unit of the output."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name, text in zip(PARSERS, (self.json_path, self.pattern, self.lines), strict=True) if text]
        if len(given) != 1:
            raise ValueError("it has one of `json`, `pattern` and `lines`")
        if self.json_path:
            steps(self.json_path)
            return self
        try:
            compiled = re.compile(self.pattern or self.lines)
        except re.error as error:
            raise ValueError(f"`{self.pattern or self.lines}` is not a regular expression: {error}") from None
        if compiled.groups > 1 and "value" not in compiled.groupindex:
            raise ValueError("of several groups, the one with the value is called `value`: `(?P<value>...)`")
        return self


def parse_metrics(value: Any) -> dict[str, dict[str, Any]]:
    """A table of metrics by name, each with every default written out."""
    if not isinstance(value, Mapping):
        raise ValueError("metrics are a table: `[measurement.metrics.NAME]`")
    found = {}
    for name, definition in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"a metric cannot be called `{name}`; use lower-case letters, digits and `_`")
        try:
            metric = NamedMetric.model_validate(definition)
        except ValidationError as error:
            first = error.errors()[0]
            message = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
            at = f" `{first['loc'][0]}`" if first["loc"] else ""
            raise ValueError(f"the metric `{name}` is wrong:{at} {message}") from None
        named = metric if metric.title else metric.model_copy(update={"title": name.replace("_", " ").capitalize()})
        found[name] = named.model_dump(by_alias=True)
    return found


AT_START = {
    "directory": "the working directory of the run",
    "seed": "the seed of the run, a number below 2^31",
    "port": "a TCP port of the loopback interface that nothing else uses",
    "server_directory": "the directory of the server's Unix socket",
    "server_socket": "the server's Unix socket",
    "server_user": "the user to connect as",
    "server_database": "the name of the database",
}
"""Placeholders that the start of a run fills in."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SIZES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}


def names_in(texts: Iterable[str]) -> Iterator[str]:
    """The names of all placeholders."""
    for text in texts:
        for match in _PLACEHOLDER.finditer(text):
            if match[1] is not None:
                yield match[1].partition(":")[0]
            elif match[0] in "{}":
                raise StudyError(f"`{text}` has a single brace", hint="write `{{` and `}}` for braces")


def fill(text: str, variables: Mapping[str, Any]) -> str:
    """The text with every variable that is known now."""
    return _PLACEHOLDER.sub(lambda match: match[0] if match[1] is None else _value(match[1], text, variables), text)


def _value(placeholder: str, text: str, variables: Mapping[str, Any]) -> str:
    name, _, unit = placeholder.partition(":")
    if name in AT_START and not unit:
        return f"{{{name}}}"
    if name not in variables:
        names = [*variables, *AT_START]
        known = ", ".join(f"`{each}`" for each in names)
        raise StudyError(
            f"there is no parameter or variable `{name}`",
            where=f"in the argument `{text}`",
            hint=did_you_mean(name, names, cutoff=0.5) or f"placeholders are {known}; `{{{{` is a brace",
        )
    value = variables[name]
    unit = unit or ("s" if name == "duration" else "")
    written = converted(value, unit, text) if unit else plain(value)
    return written.replace("{", "{{").replace("}", "}}")


def converted(value: Any, unit: str, text: str) -> str:
    """A size or a time as a number of that unit."""
    try:
        if unit in _SIZES:
            return _number(parse_size(value) / _SIZES[unit])
        if unit in _TIMES:
            return _number(parse_duration(value) / _TIMES[unit])
    except (ValueError, TypeError) as error:
        raise StudyError(f"`{value}` cannot be converted: {error}", where=f"in the argument `{text}`") from None
    raise StudyError(
        f"there is no unit `{unit}`",
        where=f"in the argument `{text}`",
        hint=f"units are {', '.join(f'`{each}`' for each in (*_SIZES, *_TIMES))}",
    )


def plain(value: Any) -> str:
    """A value as an argument."""
    if isinstance(value, bool):
        return str(value).lower()
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return str(round(value)) if float(value).is_integer() else f"{value:g}"


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


class CommandParameters(WithRules):
    """A command, and variables that its arguments use."""

    model_config = ConfigDict(extra="allow", frozen=True)

    command: Annotated[list[str], BeforeValidator(parse_command)] = Field(default_factory=list)
    """Program and arguments as a list; `{NAME}` is replaced by a variable."""
    prepare: Annotated[list[list[str]], BeforeValidator(parse_commands)] = Field(default_factory=list)
    """Commands that run before each measurement, in this order."""
    background: Annotated[list[dict[str, Any]], BeforeValidator(parse_background)] = Field(default_factory=list)
    """Commands that run alongside the measured one, such as a server."""
    version: Annotated[list[str], BeforeValidator(parse_command)] = Field(default_factory=lambda: ["--version"])
    """Arguments with which the program prints its version; `[]` if it has none."""
    environment: Annotated[dict[str, str], BeforeValidator(parse_environment)] = Field(default_factory=dict)
    """Environment variables, besides a minimal environment."""
    metrics: Annotated[dict[str, dict[str, Any]], BeforeValidator(parse_metrics)] = Field(default_factory=dict)
    """Metrics by name: place in the output, unit, direction."""
    output: Annotated[str, BeforeValidator(parse_output)] = "stdout"
    """Where the values are: `stdout`, `stderr`, or a file in the working directory."""
    exit_codes: list[Annotated[int, Field(ge=0, le=255)]] = Field(default_factory=lambda: [0])
    """Exit statuses of success."""
    duration: Duration = 10 * 10**9
    """Expected time of a run, for the plan; `{duration}` is this in seconds."""
    timeout: Duration = 600 * 10**9
    """After this time the command and all its processes are killed."""
    interval: Interval = 10**9
    """Interval of the readings of CPU time and devices."""
    output_limit: Size = 16 << 20
    """Maximum output; a command that prints more is killed."""
    space: Size = 1 << 30
    """Room that a run needs in its working directory."""
    memory_limit: SizeOrNone = None
    """Memory of all its processes with the page cache (a control group; needs root)."""
    server: Annotated[Literal["postgresql", "mariadb"] | None, BeforeValidator(none_as_empty)] = None
    """Database server that iosonde starts for each run, with an empty database."""
    postgresql: dict[str, Scalar] = Field(default_factory=dict)
    """Settings of PostgreSQL by its own names."""
    mariadb: dict[str, Scalar] = Field(default_factory=dict)
    """Settings of MariaDB by its own names."""

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

    def filled(self, command: list[str]) -> list[str]:
        """A command with every variable that is known now in its arguments."""
        return [command[0], *(fill(each, self.variables) for each in command[1:])]

    def _rules(self) -> list[tuple[bool, str]]:
        ready = [each["ready"] for each in self.background]
        arguments = (text for command in self.commands for text in command[1:])
        used = set(names_in([*arguments, *self.environment.values(), *ready]))
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


PLACES = tuple(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True))
"""Directories that are searched before PATH: on PATH Debian has scripts in the place of PostgreSQL's programs."""

NAME = f"command-{hashlib.sha256(b'iosonde command').hexdigest()[:8]}"
"""The working directory in the study's own directory on the target; each run finds it empty."""


def working_directory(target: Target) -> JsonObject:
    """The target of a spec."""
    return {"kind": "directory", "path": str(_own(target) / NAME), "log_path": None}


def program(name: str) -> Mapping[str, str]:
    """Path and checksum of a program by its name or path; `StudyError` if there is none."""
    return _program(name, os.pathsep.join([*PLACES, tools.path_with_system_directories()]))


@functools.cache  # Each case has the same programs, whose checksums take time.
def _program(name: str, searched: str) -> Mapping[str, str]:
    found = shutil.which(name, path=searched) if name else None
    if found is None or ("/" in name and not name.startswith("/")):
        packages = tools.TOOLS[name].packages if name in tools.TOOLS else ()
        raise StudyError(
            f"the program `{name}` was not found",
            where="named by the parameter `command`, `prepare` or `background`",
            hint=f"install the package `{packages[0]}`" if packages else "install it, or write its absolute path",
        )
    try:
        return identify(found)
    except OSError as error:
        raise StudyError(f"the program `{found}` cannot be read: {error.strerror}") from error


def _own(target: Target) -> Path:
    if target.kind != "directory":
        raise TargetError(
            f"a command needs a directory, and `{target.name}` is none",
            hint="name a directory as the target; a file system on a device is created with "
            "`--set file_system=ext4` or as the study's `file_system`",
        )
    return Path(target.spec_target("per_job", 0)["directory"])


START_SECONDS = 0.3
"""Start of the supervisor and of the program, as assumed by a plan."""

SERVER_SECONDS = 6.0
"""Restoring, start and shutdown of an empty server, as assumed by a plan."""


class CommandWorkload(Workload[CommandParameters]):
    """External commands, which `iosonde.engine.supervisor` starts and not the engine."""

    name = "command"
    title = commands.TITLE
    parameters = CommandParameters
    shown = ("memory_limit", "timeout")
    io = "command"
    hints = Hints(smaller="need less room with `--set space=...`", sized_by="by the parameter `space`")
    operations = ("command",)
    subject = "command"
    worded = ("command",)
    judge = "processes"
    simulated = (
        "a command needs a directory, and a simulated or null device has none",
        "name a directory as the target",
    )
    several = (
        "a command has no streams",
        "let one command start what runs together, or use `background`",
    )

    def read_value(self, name: str, value: Any) -> Any:
        """One parameter or variable as written -> checked; `StudyError` where it is invalid."""
        if name in CommandParameters.model_fields:
            return super().read_value(name, value)
        try:
            return check_variable(name, value)
        except ValueError as error:
            what, _, hint = str(error).partition("; ")
            raise StudyError(what, hint=hint) from None

    def build(self, parameters: Mapping[str, Any]) -> CommandParameters:
        """A command's parameters and variables as written, with defaults, checked each by itself and together."""
        try:
            return CommandParameters.model_validate(dict(parameters))
        except ValidationError as error:
            for name, given in parameters.items():
                self.read_value(name, given)
            what, _, hint = error.errors()[0]["msg"].removeprefix("Value error, ").partition("; ")
            raise StudyError(what, hint=hint) from None

    def load(self, streams: Mapping[str, CommandParameters], target: Target, *, seed: int) -> JsonObject:
        """The commands, with the programs behind their names on this machine; `AT_START` are still in them."""
        whole = whole_of(streams)
        version = [whole.command[0], *whole.version]
        programs = [command[0] for command in [*whole.commands, *([version] if whole.version else [])]]
        return {
            "target": working_directory(target),
            "programs": {name: dict(program(name)) for name in dict.fromkeys(programs)},
            "versions": {version[0]: version} if whole.version else {},
            "prepare": [whole.filled(command) for command in whole.prepare],
            "background": [
                {"command": whole.filled(each["command"]), "ready": fill(each["ready"], whole.variables)}
                for each in whole.background
            ],
            "command": whole.filled(whole.command),
            "environment": {name: fill(value, whole.variables) for name, value in whole.environment.items()},
            "timeout_ns": whole.timeout,
            "interval_ns": whole.interval,
            **taken(whole, "exit_codes", "output"),
            "output_limit_bytes": whole.output_limit,
            "metrics": whole.metrics,
            **({"server": engine_server(whole, target)} if whole.server else {}),
        }

    def cost(self, streams: Mapping[str, CommandParameters]) -> Cost:
        """Expected time; what a command writes is not known."""
        whole = whole_of(streams)
        server = SERVER_SECONDS if whole.server else 0.0
        return Cost(seconds=whole.duration / 10**9 + START_SECONDS + server, write_bytes=None)

    def files(self, streams: Mapping[str, CommandParameters]) -> dict[str, int]:
        """The working directory, and the directory of a server."""
        whole = whole_of(streams)
        if whole.server is None:
            return {NAME: whole.space}
        return {NAME: whole.space, f"{whole.server}-{identity(whole)}": 2 * EMPTY_BYTES + whole.space}

    def notes(self, streams: Mapping[str, CommandParameters]) -> list[str]:
        """That time and bytes written depend on the command."""
        return ["runs external commands: their time is the study's estimate, and what they write is not known"]

    def expected_target(self, workload: Spec, case: Mapping[str, Any], place: Target) -> JsonObject:
        """The working directory."""
        return working_directory(place)

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """The name of the program; the parameter is a list, or that list as JSON."""
        command = case["command"]
        first = (json.loads(command) if isinstance(command, str) else command)[0]
        return {"command": str(first).rpartition("/")[2]}


WORKLOADS = (CommandWorkload(),)
