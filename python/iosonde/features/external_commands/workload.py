"""External commands as a workload: what a run needs, what it takes, and how its spec is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from iosonde.errors import StudyError, TargetError
from iosonde.features.external_commands import spec
from iosonde.features.external_commands.parameters import CommandParameters, check_variable
from iosonde.features.external_commands.spec import NAME, only
from iosonde.plan import Cost, JsonObject, commands
from iosonde.workload.servers import EMPTY_BYTES, identity
from iosonde.workload.workload import Hints, Room, Spec, Workload

if TYPE_CHECKING:
    from iosonde.storage import Target

START_SECONDS = 0.3
"""Start of the supervisor and of the program, as assumed by a plan."""

SERVER_SECONDS = 6.0
"""Restoring, start and shutdown of an empty server, as assumed by a plan."""


class CommandWorkload(Workload[CommandParameters]):
    """External commands, which `iosonde.supervisor` starts and not the engine."""

    name = "command"
    title = commands.TITLE
    parameters = CommandParameters
    shown = ("memory_limit", "timeout")
    io = "command"
    hints = Hints(smaller="need less room with `--set space=...`", sized_by="by the parameter `space`")
    operations = ("command",)
    subject = "command"
    worded = ("command",)
    resolve = staticmethod(spec.resolve)

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

    def fit(
        self, streams: Mapping[str, CommandParameters], target: Room, *, room_bytes: int
    ) -> Mapping[str, CommandParameters]:
        """The parameters as they are; a simulated target has no working directory."""
        only(streams)
        if target.backend() is not None:
            raise TargetError(
                "a command needs a directory, and a simulated or null device has none",
                hint="name a directory as the target",
            )
        return streams

    def cost(self, streams: Mapping[str, CommandParameters]) -> Cost:
        """Expected time; what a command writes is not known."""
        whole = only(streams)
        server = SERVER_SECONDS if whole.server else 0.0
        return Cost(seconds=whole.duration / 10**9 + START_SECONDS + server, write_bytes=None)

    def files(self, streams: Mapping[str, CommandParameters]) -> dict[str, int]:
        """The working directory, and the directory of a server."""
        whole = only(streams)
        if whole.server is None:
            return {NAME: whole.space}
        return {NAME: whole.space, f"{whole.server}-{identity(whole)}": 2 * EMPTY_BYTES + whole.space}

    def notes(self, streams: Mapping[str, CommandParameters]) -> list[str]:
        """That time and bytes written depend on the command."""
        return ["runs external commands: their time is the study's estimate, and what they write is not known"]

    def expected_target(self, workload: Spec, case: Mapping[str, Any], place: Target) -> JsonObject:
        """The working directory."""
        return spec.working_directory(place)

    def rules(self, workload: Spec) -> str:
        """By the resources that the processes used."""
        return "processes"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """The name of the program; the parameter is a list, or that list as JSON."""
        command = case["command"]
        first = (json.loads(command) if isinstance(command, str) else command)[0]
        return {"command": str(first).rpartition("/")[2]}


WORKLOADS = (CommandWorkload(),)
