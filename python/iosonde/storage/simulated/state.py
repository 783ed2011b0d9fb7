"""Where a simulated drive's state lies between the runs of a study.

A drive remembers: what one run wrote, the next one finds. Each run is a process of its own, so the engine leaves the
drive's state in a file and reads it again. It lies in the result set, in a directory of its own that is noted in the
journal like everything that iosonde makes, and is removed when no run is left to be made; a study that was stopped
finds it again. In plans and records the spec names no such file: by itself a run begins with a new drive.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Plan
from iosonde.storage import journal, own_directory

DIRECTORY = "temporary-drive-state"
"""Its name in a result set."""

FILES = ("state", "state.writing", "stands-on")
"""Names of the files in it, which the engine replaces."""


def prepare(plan: Plan, directory: Path) -> None:
    """Make the directory, unless it is there from before an interruption."""
    path = directory / DIRECTORY
    if not _is_needed(plan) or (os.path.lexists(path) and journal.take_over(path, keep=False)):
        return
    journal.created(path, "directory")
    try:
        own_directory.create(path)
    except OSError as error:
        journal.removed(path)
        raise TargetError(
            f"cannot make `{path}`, where the simulated drive's state is kept: {error.strerror}",
            hint="move away what lies there, or choose another output directory",
        ) from error
    journal.identify(path)
    journal.add_files(path, dict.fromkeys(FILES, 0))


def put_back(plan: Plan, directory: Path) -> None:
    """Remove it; nobody measures on this drive again."""
    path = directory / DIRECTORY
    if not _is_needed(plan) or not journal.is_ours(path):
        return
    with journal.undoing(f"remove `{path}`"):
        journal.remove(path)


def forget(directory: Path) -> None:
    """Make the drive a new one, as a purge does: the next run begins with nothing written."""
    (directory / DIRECTORY / "state").unlink(missing_ok=True)


def stands_on(directory: Path) -> str | None:
    """What was said of the drive that the state is of (`begin`); None where nothing was."""
    try:
        return (directory / DIRECTORY / "stands-on").read_text()
    except FileNotFoundError:
        return None


def begin(directory: Path, stands_on: str) -> None:
    """Make new drives, and note what they are. A kill in between leaves new drives that are nobody's."""
    (directory / DIRECTORY / "stands-on").unlink(missing_ok=True)
    forget(directory)
    (directory / DIRECTORY / "stands-on").write_text(stands_on)


def with_state(spec: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The spec, with the file that holds the drive's state if it is of a simulated drive."""
    workload = spec["workload"]
    backend = workload.get("backend", {})
    if backend.get("kind") != "ssd":
        return spec
    state = {"state_path": str(directory / DIRECTORY / "state")}
    return {**spec, "workload": {**workload, "backend": {**backend, **state}}}


def _is_needed(plan: Plan) -> bool:
    return any(spec["workload"].get("backend", {}).get("kind") == "ssd" for spec in plan.specs())
