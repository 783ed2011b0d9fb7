"""External commands of a plan, and the hash by which a user allows them.

The hash covers the study with profile and settings, and what each run starts: programs with their checksums, arguments,
environment and time limits. It does not cover the target. So it is the same for `plan` and `run`, and another one as
soon as anything is started that the user has not seen.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.plan import JsonObject, Plan

TITLE = "an external command"
"""Name of the workload in errors."""

PRINTED = ("command", "prepare", "background", "version", "environment", "metrics")
"""Parameters that `lines` and `shared_lines` print."""

LEAST_DIGITS = 16
"""Digits of the hash that a user has to repeat."""


def _is_command(workload: Mapping[str, Any]) -> bool:
    """Return True if the load is an external command, which the supervisor starts and not the engine."""
    return bool(workload["kind"] == "command")


def has_commands(plan: Plan) -> bool:
    """Return True if any run starts an external command."""
    return any(_is_command(spec["workload"]) for spec in plan.specs())


def commands_hash(plan: Plan) -> str:
    """The hash of the study and its commands, in 64 hexadecimal digits."""
    blocks = {_canonical(started(spec["workload"])) for spec in plan.specs() if _is_command(spec["workload"])}
    whole = _canonical({"study": plan.study, "commands": sorted(blocks)})
    return hashlib.sha256(whole.encode()).hexdigest()


def started(workload: JsonObject) -> JsonObject:
    """Return the command of a run: its workload without places in the target."""
    return {name: value for name, value in workload.items() if name not in ("target", "server")}


def is_allowed(plan: Plan, given: str) -> bool:
    """Return True if a text of the user names the plan's commands."""
    return len(given) >= LEAST_DIGITS and commands_hash(plan).startswith(given.lower())


def lines(plan: Plan) -> Iterator[str]:
    """Every command by case, as a shell would take it; `{directory}` is the working directory of the run."""
    seen: set[str] = set()
    for case in plan.cases:
        specs = [run.spec for run in plan.runs if run.case_id == case.case_id]
        if not specs and case.procedure:
            specs = [case.procedure.spec]
        if not specs or not _is_command(specs[0]["workload"]) or case.case_id in seen:
            continue
        seen.add(case.case_id)
        workload = specs[0]["workload"]
        yield case.case_id
        yield from (f"  prepare     {text(each)}" for each in workload["prepare"])
        yield from (f"  background  {text(each['command'])}" for each in workload["background"])
        yield f"  command     {text(workload['command'])}"


def shared_lines(plan: Plan) -> Iterator[str]:
    """Programs with their checksums, what prints their versions, and the environment."""
    workloads = [spec["workload"] for spec in plan.specs() if _is_command(spec["workload"])]
    programs = {name: each for workload in workloads for name, each in workload["programs"].items()}
    versions = {text(each): None for workload in workloads for each in workload["versions"].values()}
    environment = {f"{name}={value}": None for workload in workloads for name, value in workload["environment"].items()}
    yield from (f"program   {name}: {each['path']} (SHA-256 {each['sha256'][:16]})" for name, each in programs.items())
    yield from (f"version   {each}" for each in versions)
    yield from (f"environ   {each}" for each in environment)


def text(command: list[str]) -> str:
    """A command as a shell would take it."""
    return shlex.join(each.replace("{{", "{").replace("}}", "}") for each in command)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
