"""What a run on a server takes: the copy of its template, the start of the server, and the load."""

from __future__ import annotations

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.workload.oltp.fields import OltpFields

START_SECONDS = 3.0
"""Start, consistency checks of a small database, and shutdown, as assumed by a plan."""

EMPTY_BYTES = 160 << 20
"""A data directory without tables, its first log files included."""


def run_cost(whole: OltpFields, data_bytes: int) -> Cost:
    """Time of one run; the bytes that it writes depend on the speed of the server."""
    seconds = (whole.ramp + whole.duration) / 10**9
    if whole.server_url:
        return Cost(seconds=seconds, write_bytes=None)
    return Cost(seconds=seconds + START_SECONDS + restore_seconds(data_bytes), write_bytes=None)


def restore_seconds(data_bytes: int) -> float:
    """Copying the template, and reading the copy to compare it."""
    return 2 * data_bytes / ASSUMED_BYTES_PER_SECOND
