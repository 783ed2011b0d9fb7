"""Whether what was prepared is still there.

The engine would make a file that has become smaller larger again, and reads of what nobody has written would pass for
reads of the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Run
from iosonde.units import format_bytes


def check(run: Run, parameters: Mapping[str, Any]) -> None:
    """Raise `TargetError` if a file that was filled or preconditioned for this run is smaller than it was left."""
    if run.part or not (parameters.get("fill") or parameters.get("precondition")):
        return
    target = run.spec["workload"]["target"]
    for path in _files(run.spec):
        found = path.stat().st_size if path.exists() else 0
        if found < target["size_bytes"]:
            raise TargetError(
                f"`{path}` has shrunk: {format_bytes(target['size_bytes'])} were prepared, and {format_bytes(found)} "
                "are left",
                where=f"before run `{run.run_id}`",
                hint="keep others from changing it, and measure again with `iosonde resume DIR --retry-failed`",
            )


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
