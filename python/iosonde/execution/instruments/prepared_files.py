"""Check that prepared files still have their size.

The engine extends a file that is too small, and reads of unwritten blocks are not served by the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.execution.instruments.instrument import Instrument, NotStartedError
from iosonde.units import format_bytes


class PreparedFiles(Instrument):
    """Prevents runs on files that were truncated after they had been filled or preconditioned."""

    def start(self) -> None:
        """Compare the size of each file with that of its preparation."""
        run, parameters = self.context.run, self.context.parameters
        if run.part or not (parameters.get("fill") or parameters.get("precondition")):
            return
        prepared_bytes = run.spec["workload"]["target"]["size_bytes"]
        for path in _files(run.spec):
            size_bytes = path.stat().st_size if path.exists() else 0
            if size_bytes < prepared_bytes:
                error = TargetError(
                    f"`{path}` has shrunk: {format_bytes(prepared_bytes)} were prepared, and "
                    f"{format_bytes(size_bytes)} are left",
                    where=f"before run `{run.run_id}`",
                    hint="stop other processes from changing it, and repeat the run with "
                    "`iosonde resume DIR --retry-failed`",
                )
                raise NotStartedError("setup" if self.context.case.setup else "target", error)


def _files(spec: Mapping[str, Any]) -> Iterator[Path]:
    workload = spec["workload"]
    match workload["target"]["kind"]:
        case "file":
            yield Path(workload["target"]["path"])
        case "file_per_job":
            directory = Path(workload["target"]["directory"])
            yield from (
                directory / f"{stream['name']}.{job}" for stream in workload["streams"] for job in range(stream["jobs"])
            )
