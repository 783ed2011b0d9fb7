"""What a plan's runs need on disk before an engine starts, made and removed again.

A directory target gets a fresh subdirectory `iosonde-XXXXXXXX` in it, a file target an empty file. The engine fills
them, and keeps its journal of a verified file beside it (`FILE.verify`). Databases of key-value stores each have a
directory in that subdirectory, and a log that lies apart has one on its own target. Everything is noted in the journal
of what was made before it is made (`journal.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.errors import TargetError
from iosonde.storage import journal

if TYPE_CHECKING:
    from iosonde.plan import JsonObject, Plan

MADE = Path("/run/iosonde")
"""Where file systems that iosonde makes are mounted, and links to devices lie, each study's in its own directory."""

OWN_DIRECTORY = re.compile(r"iosonde-[0-9a-f]{8}")
"""Name of a directory that iosonde makes inside the one that the user names."""


def journal_directory(device: str) -> Path:
    """Where verification keeps its journal of a block device, beside which there is no room for one."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return state / "iosonde" / "verification" / "-".join(Path(device).parent.parts[1:])


def prepare(plan: Plan) -> None:
    """Make what the plan's specs name, unless it is there and ours; the runs of a resumed plan find their files."""
    for path in _things(plan):
        if os.path.lexists(path):
            if not journal.take_over(path, keep=plan.keep):
                raise TargetError(
                    f"`{path}` exists, and iosonde did not make it",
                    hint="it is left alone; name another target, or move it away",
                )
        else:
            _make(path, keep=plan.keep)
    for path in _databases(_workloads(plan)):
        if not path.is_relative_to(MADE):
            path.mkdir(exist_ok=True)


def furnish(spec: JsonObject) -> None:
    """Make what a run needs on a file system that was made for it; it goes with the file system."""
    workload = spec["workload"]
    for path in (*_thing(workload), *_databases([workload])):
        if path.is_relative_to(MADE):
            path.mkdir(exist_ok=True)


def has_leftovers(plan: Plan) -> bool:
    """Return whether the journal lists anything that `prepare` created for the plan."""
    return any(journal.find(path) is not None for path in _things(plan))


def put_back(plan: Plan) -> None:
    """Remove what `prepare` made, unless the plan keeps it; what is no longer ours is left alone."""
    for path in _things(plan):
        entry = journal.find(path)
        if entry is None:
            continue
        if not os.path.lexists(path):
            journal.removed(path)
        elif not plan.keep and journal.take_over(path, keep=False):
            with journal.undoing(f"remove `{path}`"):
                journal.remove(path)


def _things(plan: Plan) -> list[Path]:
    found = {thing for workload in _workloads(plan) for thing in _thing(workload)}
    return sorted(path for path in found if not path.is_relative_to(MADE))


def _databases(workloads: Iterable[JsonObject]) -> set[Path]:
    """Directories of databases and logs, each in one of ours."""
    places = (workload["target"] for workload in workloads if workload["target"]["kind"] == "directory")
    return {Path(path) for place in places for path in (place["path"], place["log_path"]) if path}


def _workloads(plan: Plan) -> Iterable[JsonObject]:
    return (spec["workload"] for spec in plan.specs())


def _thing(workload: JsonObject) -> list[Path]:
    target = workload["target"]
    match target["kind"]:
        case "file":
            path = Path(target["path"])
            if OWN_DIRECTORY.fullmatch(path.parent.name):
                return [path.parent]
            beside = path.with_name(f"{path.name}.verify")
            # One that an earlier study left with the file it kept goes with the file.
            return [path, beside] if workload.get("verify") or journal.find(beside) else [path]
        case "file_per_job":
            return [Path(target["directory"])]
        case "device" if workload.get("verify"):
            device = target["path"]
            return [journal_directory(device) / f"{Path(device).name}.verify"]
        case "directory":
            return [Path(path).parent for path in (target["path"], target["log_path"]) if path]
        case _:
            return []


def _make(path: Path, *, keep: bool) -> None:
    is_directory = OWN_DIRECTORY.fullmatch(path.name) is not None
    if path.suffix == ".verify":
        path.parent.mkdir(parents=True, exist_ok=True)
    journal.created(path, "directory" if is_directory else "file", keep=keep)
    try:
        if is_directory:
            path.mkdir()
        else:
            path.touch(exist_ok=False)
    except OSError as error:
        journal.removed(path)
        raise TargetError(
            f"cannot make `{path}`: {error.strerror}", hint="name a target that you may write to"
        ) from error
    journal.identify(path)
