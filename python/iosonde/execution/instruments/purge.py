"""Purge of the target before a run that requires it."""

from __future__ import annotations

from typing import Any

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.results.schema import RecordWarning
from iosonde.storage.setups.purge import purge


class Purge(Instrument):
    """Discards the contents of the target."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._not_discarded = ""

    def start(self) -> None:
        """Purge now; an I/O error prevents the run."""
        run = self.context.run
        if not run.purges:
            return
        means, target = run.parameters["purge"], run.spec["workload"]["target"]
        if target["kind"] == "virtual":
            self.context.session.state.purge()
            return
        try:
            self._not_discarded = purge(
                {**target, "size_bytes": self._written_bytes(target)},
                means,
                identities=self.context.identities,
                report=self.context.session.note,
            )
        except OSError as problem:
            what = f"the purge by `{means}` failed: {problem.strerror or problem}"
            raise NotStartedError("purge", TargetError(what)) from problem

    def stop(self, done: EngineRun) -> Reading:
        """Warn where the device still stores what was purged."""
        if not self._not_discarded:
            return Reading()
        warning = RecordWarning(
            code="not_discarded",
            message="the purge freed the files' blocks but did not discard them on the device: "
            f"FITRIM failed ({self._not_discarded})",
            hint="run as root, on a file system mounted with `discard` or on a device that supports it; or measure the "
            "device itself",
        )
        return Reading(warnings=[warning])

    def _written_bytes(self, target: dict[str, Any]) -> int:
        """End of the range that any case of the plan writes: a lower fill level also discards that of a higher one."""
        others = (spec["workload"].get("target", {}) for spec in self.context.session.plan.specs())
        sizes: list[int] = [each["size_bytes"] for each in others if each.get("path") == target.get("path")]
        return max(int(target["size_bytes"]), *sizes, 0)
