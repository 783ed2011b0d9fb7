"""The supervisor's spec of a run (docs/commands.md)."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde import protocol, tools
from iosonde.errors import StudyError, TargetError
from iosonde.features.external_commands.parameters import CommandParameters
from iosonde.features.external_commands.template import fill
from iosonde.plan import JsonObject
from iosonde.supervisor.processes import identify
from iosonde.workload.servers import engine_server

if TYPE_CHECKING:
    from iosonde.storage import Target

PLACES = tuple(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True))
"""Directories that are searched before PATH: on PATH Debian has scripts in the place of PostgreSQL's programs."""

NAME = f"command-{hashlib.sha256(b'iosonde command').hexdigest()[:8]}"
"""The working directory in the study's own directory on the target; each run finds it empty."""


def resolve(streams: Mapping[str, CommandParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The spec of a run; the placeholders of `template.AT_START` are still in it."""
    whole = only(streams)
    workload: JsonObject = {
        "kind": "command",
        "target": working_directory(target),
        **commands(whole),
        "timeout_ns": whole.timeout,
        "interval_ns": whole.interval,
        "exit_codes": whole.exit_codes,
        "output": whole.output,
        "output_limit_bytes": whole.output_limit,
        "metrics": whole.metrics,
        **_server(whole, target),
    }
    return {
        "protocol": protocol.VERSION,
        "run_id": run_id,
        "seed": seed,
        "workload": workload,
        "observe": {"block_devices": target.block_devices()},
    }


def working_directory(target: Target) -> JsonObject:
    """The target of a spec."""
    return {"kind": "directory", "path": str(_own(target) / NAME), "log_path": None}


def commands(whole: CommandParameters) -> JsonObject:
    """Return the command, with the programs behind the names on this machine."""
    version = [[whole.command[0], *whole.version]] if whole.version else []
    names = [command[0] for command in [*whole.commands, *version]]
    return {
        "programs": {name: dict(program(name)) for name in dict.fromkeys(names)},
        "versions": {command[0]: command for command in version},
        "prepare": [_filled(command, whole) for command in whole.prepare],
        "background": [
            {"command": _filled(each["command"], whole), "ready": fill(each["ready"], whole.variables)}
            for each in whole.background
        ],
        "command": _filled(whole.command, whole),
        "environment": {name: fill(value, whole.variables) for name, value in whole.environment.items()},
    }


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


def _filled(command: list[str], whole: CommandParameters) -> list[str]:
    return [command[0], *(fill(each, whole.variables) for each in command[1:])]


def _own(target: Target) -> Path:
    if target.kind != "directory":
        raise TargetError(
            f"a command needs a directory, and `{target.name}` is none",
            hint="name a directory as the target; a file system on a device is created with "
            "`--set file_system=ext4` or as the study's `file_system`",
        )
    return Path(target.spec_target("per_job", 0)["directory"])


def _server(whole: CommandParameters, target: Target) -> dict[str, Any]:
    """The server as a spec has it; empty without one."""
    if whole.server is None:
        return {}
    return {"server": engine_server(whole, target)}


def only(streams: Mapping[str, CommandParameters]) -> CommandParameters:
    """The parameters of a load, which has one stream."""
    if len(streams) > 1:
        raise StudyError(
            "a command has no streams", hint="let one command start what runs together, or use `background`"
        )
    return next(iter(streams.values()))
