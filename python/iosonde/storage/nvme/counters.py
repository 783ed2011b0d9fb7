"""Wear and media counters of an NVMe drive at this moment, or why they are not available.

Of the logs that count what reaches the media a drive has one or none. Which one is found out once for each drive,
because a request for an unsupported log adds an entry to the drive's error log.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from iosonde.storage.nvme import admin, logs

_HEALTH = 0x02


@dataclass(frozen=True, kw_only=True)
class _Log:
    """A log page that counts what reaches the media."""

    name: str
    identifier: int
    size_bytes: int
    read: Callable[[bytes], logs.Media]
    of_group: bool = False
    """True if it is kept for each endurance group."""


_LOGS = (
    _Log(name="ocp", identifier=0xC0, size_bytes=logs.PAGE_BYTES, read=logs.extended),
    _Log(name="fdp", identifier=0x22, size_bytes=logs.FDP_STATISTICS_BYTES, read=logs.data_placement, of_group=True),
    _Log(name="endurance_group", identifier=0x09, size_bytes=logs.PAGE_BYTES, read=logs.endurance_group, of_group=True),
)
"""From the finest to the coarsest."""


def now(name: str) -> dict[str, Any]:
    """Counters of the drive of that name, such as `nvme0n1`: `Health`, and `media` with the name of its log.

    What it does not report is missing, and `not_reported` has the reason if there is no `media`.
    """
    try:
        with admin.opened(name) as drive:
            health = asdict(logs.health(drive.log_page(_HEALTH, logs.PAGE_BYTES)))
            log = _log_of(name, drive)
            if isinstance(log, str):
                return {**health, "not_reported": log}
            return {**health, "media": {"log": log.name, **asdict(_media(drive, log))}}
    except (OSError, logs.LogError) as error:
        return {"not_reported": _reason(name, error)}


_found: dict[str, _Log | str] = {}
"""By the name of a drive: the log that it has, or why there is none."""


def _log_of(name: str, drive: admin.Drive) -> _Log | str:
    if name not in _found:
        _found[name] = _search(name, drive)
    return _found[name]


def _search(name: str, drive: admin.Drive) -> _Log | str:
    """The first log that the drive has, or why it has none."""
    group = _group(drive)
    reason = f"`{name}` has no log page with media writes (OCP's C0h, 22h, 09h)"
    for log in _LOGS:
        if log.of_group and not group:
            continue
        try:
            _media(drive, log)
        except logs.LogError as error:
            reason = _reason(name, error)
        except admin.StatusError as error:
            if error.status not in admin.NOT_THERE:
                raise
        else:
            return log
    return reason


def _media(drive: admin.Drive, log: _Log) -> logs.Media:
    group = _group(drive) if log.of_group else 0
    return log.read(drive.log_page(log.identifier, log.size_bytes, specific=group))


def _group(drive: admin.Drive) -> int:
    """The endurance group of the namespace (ENDGID), 0 without one."""
    (group,) = struct.unpack_from("<H", drive.identify_namespace(), 102)
    return int(group)


def _reason(name: str, error: OSError | logs.LogError) -> str:
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return f"`{name}` does not allow this user to read its log pages"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text if f"`{name}`" in text else f"`{name}`: {text}"
