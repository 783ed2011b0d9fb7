"""State of simulated drives between the runs of a study.

What one run wrote, the next one reads. Each run is a process of its own, so the engine saves the drive's state to a
file and loads it again. The file is in a directory of the result set that is recorded in the journal, and is removed
after the last run; a study that was stopped continues with it. In plans and records the spec names no such file: by
itself a run starts with a new drive.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Plan
from iosonde.storage.safety import journal, own_directory

DIRECTORY = "temporary-drive-state"
"""Its name in a result set."""

FILES = ("state", "state.writing", "setup")
"""Names of the files in it, which the engine replaces."""


def prepare(plan: Plan, directory: Path) -> None:
    """Create the directory, unless it remains from before an interruption."""
    path = directory / DIRECTORY
    if not _is_needed(plan) or (os.path.lexists(path) and journal.take_over(path, keep=False)):
        return
    journal.created(path, "directory")
    try:
        own_directory.create(path)
    except OSError as error:
        journal.removed(path)
        raise TargetError(
            f"cannot create `{path}` for the state of the simulated drive: {error.strerror}",
            hint="move away what is there, or choose another output directory",
        ) from error
    journal.identify(path)
    journal.add_files(path, dict.fromkeys(FILES, 0))


def restore(plan: Plan, directory: Path) -> None:
    """Remove it after the last run."""
    path = directory / DIRECTORY
    if not _is_needed(plan) or not journal.is_ours(path):
        return
    with journal.undoing(f"remove `{path}`"):
        journal.remove(path)


def forget(directory: Path) -> None:
    """Purge the drive: the next run starts with a new one."""
    (directory / DIRECTORY / "state").unlink(missing_ok=True)


def setup_of(directory: Path) -> str | None:
    """The setup that the state belongs to (`begin`); None if there is none."""
    try:
        return (directory / DIRECTORY / "setup").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def begin(directory: Path, setup: str) -> None:
    """Start with new drives of this setup. A kill in between leaves new drives without a setup."""
    (directory / DIRECTORY / "setup").unlink(missing_ok=True)
    forget(directory)
    (directory / DIRECTORY / "setup").write_text(setup, encoding="utf-8")


def with_state(spec: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The spec with the path of the drive's state, for a simulated drive."""
    workload = spec["workload"]
    backend = workload.get("backend", {})
    if backend.get("kind") != "ssd":
        return spec
    state = {"state_path": str(directory / DIRECTORY / "state")}
    return {**spec, "workload": {**workload, "backend": {**backend, **state}}}


def _is_needed(plan: Plan) -> bool:
    return any(spec["workload"].get("backend", {}).get("kind") == "ssd" for spec in plan.specs())
