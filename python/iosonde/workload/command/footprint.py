"""What the run of a command needs of its target, and what it takes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from iosonde.errors import StudyError, TargetError
from iosonde.plan import Cost
from iosonde.workload.command.parameters import CommandParameters
from iosonde.workload.interface import Layout, Room
from iosonde.workload.oltp.footprint import EMPTY_BYTES, identity

START_SECONDS = 0.3
"""Start of the supervisor and of the program, as assumed by a plan."""

SERVER_SECONDS = 6.0
"""Restoring, start and shutdown of an empty server, as assumed by a plan."""

NAME = f"command-{hashlib.sha256(b'iosonde command').hexdigest()[:8]}"
"""The working directory in the study's own directory on the target; each run finds it empty."""


def only(streams: Mapping[str, CommandParameters]) -> CommandParameters:
    """The parameters of a load, which has one stream."""
    if len(streams) > 1:
        raise StudyError(
            "a command has no streams", hint="let one command start what runs together, or use `background`"
        )
    return next(iter(streams.values()))


def fit(streams: Mapping[str, CommandParameters], target: Room, *, room_bytes: int) -> Mapping[str, CommandParameters]:
    """The parameters as they are; a simulated target has no working directory."""
    only(streams)
    if target.backend() is not None:
        raise TargetError(
            "a command needs a directory, and a simulated or null device has none",
            hint="name a directory as the target",
        )
    return streams


def cost(streams: Mapping[str, CommandParameters]) -> Cost:
    """Expected time; what a command writes is not known."""
    whole = only(streams)
    server = SERVER_SECONDS if whole.server else 0.0
    return Cost(seconds=whole.duration / 10**9 + START_SECONDS + server, write_bytes=None)


def files(streams: Mapping[str, CommandParameters]) -> dict[str, int]:
    """The working directory, and the directory of a server."""
    whole = only(streams)
    if whole.server is None:
        return {NAME: whole.space}
    return {NAME: whole.space, f"{whole.server}-{identity(whole)}": 2 * EMPTY_BYTES + whole.space}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room this many files need."""
    return "by the parameter `space`"


def addressed_bytes(streams: Mapping[str, CommandParameters]) -> int:
    """Room in the working directory."""
    return sum(files(streams).values())


def buffer_bytes(streams: Mapping[str, CommandParameters]) -> int:
    """Nothing known to iosonde."""
    return 0


def must_align(stream: CommandParameters) -> dict[str, list[int]]:
    """Nothing: alignment is up to the program."""
    return {}


def layout(streams: Mapping[str, CommandParameters]) -> Layout:
    """The commands of `prepare` write what a run needs."""
    return "never"


def prepares(stream: CommandParameters) -> bool:
    """Never: every run starts with an empty working directory."""
    return False


def notes(streams: Mapping[str, CommandParameters]) -> list[str]:
    """That time and bytes written depend on the command."""
    return ["runs external commands: their time is the study's estimate, and what they write is not known"]
