"""Facts about the physical drives of a run: bytes sent to them, and bytes that they wrote to their media."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.results.schema import Record

Json = Mapping[str, Any]

COLUMNS = (
    "run_drive_write_bytes",
    "run_drive_units_written",
    "run_media_write_bytes",
    "run_media_step_bytes",
)

_BACKWARDS = "a counter of `{name}` went backwards during the run"


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about drives: sums over all of them, or why one does not report it."""
    reason = next(filter(None, map(_reason, record.drives)), None)
    if reason or not record.drives:
        return {**dict.fromkeys(COLUMNS), "run_media_not_reported": reason}
    return {
        "run_drive_write_bytes": sum(drive["write_bytes"] for drive in record.drives),
        "run_drive_units_written": _sum(record.drives, "data_units_written"),
        "run_media_write_bytes": _sum([_media(drive) for drive in record.drives], "written_bytes"),
        "run_media_step_bytes": max(drive["end"]["media"]["step_bytes"] for drive in record.drives),
        "run_media_not_reported": None,
    }


def _reason(drive: Json) -> str | None:
    """Return why a drive's media writes are unknown; None where they are known."""
    for moment in ("start", "end"):
        if "media" not in drive[moment]:
            return str(drive[moment]["not_reported"])
    if "write_bytes" not in drive:
        return f"the kernel does not count the bytes sent to `{drive['name']}`"
    if _grown(drive, "data_units_written") < 0 or _grown(_media(drive), "written_bytes") < 0:
        return _BACKWARDS.format(name=drive["name"])
    return None


def _media(drive: Json) -> Json:
    return {moment: drive[moment]["media"] for moment in ("start", "end")}


def _sum(drives: Sequence[Json], counter: str) -> int:
    return sum(_grown(drive, counter) for drive in drives)


def _grown(drive: Json, counter: str) -> int:
    return int(drive["end"][counter]) - int(drive["start"][counter])
