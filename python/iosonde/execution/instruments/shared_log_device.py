"""Warning about a log on the same disk as the data, although `log = "apart"` is to measure it on another."""

from __future__ import annotations

from pathlib import Path

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.results.schema import SHARED_LOG_DEVICE, RecordWarning
from iosonde.storage.block_layer import block_stack
from iosonde.storage.targets.describe import stack_of


class SharedLogDevice(Instrument):
    """Compares the devices under the database with those under its log, in this process or of a server."""

    def stop(self, done: EngineRun) -> Reading:
        """Compose the warning."""
        data, log = self._places()
        shared = shared_devices(data, log) if data and log else []
        if not shared:
            return Reading()
        warning = RecordWarning(
            code=SHARED_LOG_DEVICE,
            message=f"the log is on the same device as the data: {', '.join(shared)}",
            hint="name a directory on another disk with `--set log_target=DIRECTORY`",
        )
        return Reading(warnings=[warning])

    def _places(self) -> tuple[Path | None, Path | None]:
        """Directories of the data and of the log, as far as they are apart."""
        if self.context.server and self.context.server.instance:
            directories = self.context.server.instance.directories
            return directories.run, directories.log
        target = self.context.workload.get("target", {})
        path, log_path = target.get("path"), target.get("log_path")
        return Path(path) if path else None, Path(log_path) if log_path else None


def shared_devices(first: Path, second: Path) -> list[str]:
    """The block devices (`major:minor`) under both directories; the file system itself where it has no device."""
    if first.stat().st_dev == second.stat().st_dev:
        return block_stack.watched(stack_of(first))[:1] or ["one file system"]
    others = set(stack_of(second))
    return [device for device in stack_of(first) if device in others]
