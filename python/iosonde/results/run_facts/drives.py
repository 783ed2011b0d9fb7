"""Facts about the physical drives of a run: bytes sent to them, and bytes that they wrote to their media."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iosonde.results.column import TEXT, U64, Column
from iosonde.results.schema import Record

Json = Mapping[str, Any]

_BACKWARDS = "a counter of `{name}` went backwards during the run"


class DriveFacts:
    """The drives of a record, and why one of them does not report its media writes."""

    def __init__(self, record: Record) -> None:
        self.drives = record.drives
        self.reason = next(filter(None, map(_reason, record.drives)), None)


def _row(name: str, text: str, value: Callable[[DriveFacts], int]) -> Column:
    """Return a sum over all drives; null unless each reports it."""
    return Column(
        name, U64, text, lambda run: value(run.drives) if run.drives.drives and not run.drives.reason else None
    )


COLUMNS = (
    _row(
        "run_drive_write_bytes",
        "Bytes that the kernel sent to the physical drives over the whole run",
        lambda drives: sum(drive["write_bytes"] for drive in drives.drives),
    ),
    _row(
        "run_drive_units_written",
        "The same as the drives count it, in data units of 512,000 bytes, rounded up",
        lambda drives: _sum(drives.drives, "data_units_written"),
    ),
    _row(
        "run_media_write_bytes",
        "Bytes that the drives wrote to their media in that time; null unless all report it",
        lambda drives: _sum([_media(drive) for drive in drives.drives], "written_bytes"),
    ),
    _row(
        "run_media_step_bytes",
        "Resolution of their media counters, bytes",
        lambda drives: max(drive["end"]["media"]["step_bytes"] for drive in drives.drives),
    ),
    Column(
        "run_media_not_reported",
        TEXT,
        "Why media writes are not reported; null where they are",
        lambda run: run.drives.reason,
    ),
)
"""Columns of `runs` about the physical drives."""


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
