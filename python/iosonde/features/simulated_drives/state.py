"""State of simulated drives between the runs of a study.

What one run wrote, the next one reads. Each run is a process of its own, so the engine saves the drive's state to a
file and loads it again. The file is in a directory of the result set that is recorded in the journal, and is removed
after the last run; a study that was stopped continues with it. In plans and records the spec names no such file: by
itself a run starts with a new drive.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import ResultsError, TargetError
from iosonde.features.simulated_drives.backends import NAME
from iosonde.plan import JsonObject
from iosonde.storage.safety import journal
from iosonde.storage.targets.target import TargetState

DIRECTORY = "temporary-drive-state"
"""Its name in a result set."""

FILES = ("state", "state.limits", "state.writing", "state.limits.writing", "setup")
"""Names of the files in it, which the engine replaces."""


@dataclass(frozen=True)
class DriveState(TargetState):
    """State of the drives of a plan's target."""

    @property
    def path(self) -> Path:
        """Directory of the state."""
        return self._parent / DIRECTORY

    def create(self) -> None:
        """Create the directory, unless it remains from before an interruption."""
        self._create_parent()
        if os.path.lexists(self.path) and journal.take_over(self.path, keep=False):
            return
        try:
            journal.create_directory(self.path)
        except OSError as error:
            raise TargetError(
                f"cannot create `{self.path}` for the state of the simulated drive: {error.strerror}",
                hint="move away what is there, or choose another output directory",
            ) from error
        journal.add_files(self.path, dict.fromkeys(FILES, 0))

    def remove(self) -> None:
        """Remove it after the last run."""
        if self._is_second_arm and (self._parent.is_symlink() or not self._parent.is_dir()):
            return
        if journal.is_ours(self.path):
            with journal.undoing(f"remove `{self.path}`"):
                journal.remove(self.path)
        if self._is_second_arm:
            with contextlib.suppress(OSError):  # Something else is in it.
                self._parent.rmdir()

    def begin(self, setup: str, *, is_fresh: bool) -> dict[str, Any]:
        """Start with new drives, unless those of an earlier session have the same setup."""
        if not is_fresh and self._setup() == setup:
            return {"simulated": True, "kept_from_before": True}
        # A kill in between leaves new drives without a setup.
        (self.path / "setup").unlink(missing_ok=True)
        (self.path / "state.limits").unlink(missing_ok=True)
        self.purge()
        (self.path / "setup").write_text(setup, encoding="utf-8")
        return {"simulated": True}

    def purge(self) -> None:
        """The next run starts with a new drive. Credits of its rate limits remain as they are."""
        (self.path / "state").unlink(missing_ok=True)

    def with_state(self, spec: JsonObject) -> JsonObject:
        """The spec with the path of the drive's state."""
        workload = spec["workload"]
        backend = workload.get("backend", {})
        if backend.get("kind") != NAME:
            return spec
        return {**spec, "workload": {**workload, "backend": {**backend, "state_path": str(self.path / "state")}}}

    @property
    def _is_second_arm(self) -> bool:
        arms = {case.arm for case in self.plan.cases}
        return "b" in arms and "a" not in arms

    @property
    def _parent(self) -> Path:
        """The drives of arm `b` have a directory of their own."""
        return self.directory / "against" if self._is_second_arm else self.directory

    def _create_parent(self) -> None:
        """Create that of arm `b`; `ResultsError` for anything else in its place, as in an edited result set."""
        if not self._is_second_arm:
            return
        with contextlib.suppress(FileExistsError):
            self._parent.mkdir()
        if not stat.S_ISDIR(self._parent.lstat().st_mode):
            raise ResultsError(
                f"`{self._parent}` is not a directory",
                where="it would contain the state of the simulated drive of arm `b`",
                hint="the result set was edited, perhaps with intent; to measure here, run the study again",
            )

    def _setup(self) -> str | None:
        """The setup that the state belongs to; None if there is none."""
        try:
            return (self.path / "setup").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
