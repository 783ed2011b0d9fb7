"""What a run on a server takes: the copy of its template, the start of the server, and the load."""

from __future__ import annotations

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.units import format_bytes, format_duration
from iosonde.workload.oltp.fields import OltpFields

START_SECONDS = 3.0
"""Start, consistency checks of a small database, and shutdown, as assumed by a plan."""

RECOVERY_SECONDS = 3.0
"""Restart of a killed server, as assumed by a plan."""

EMPTY_BYTES = 160 << 20
"""A data directory without tables, its first log files included."""


def run_cost(whole: OltpFields, data_bytes: int) -> Cost:
    """Time of one run; the bytes that it writes depend on the speed of the server."""
    measured_ns = whole.duration if whole.kill_server_after is None else whole.kill_server_after
    seconds = (whole.ramp + measured_ns) / 10**9 + (RECOVERY_SECONDS if whole.kill_server_after else 0)
    if whole.server_url:
        return Cost(seconds=seconds, write_bytes=None)
    return Cost(seconds=seconds + START_SECONDS + restore_seconds(data_bytes), write_bytes=None)


def restore_note(whole: OltpFields, data_bytes: int, load_bytes: int) -> str:
    """What restoring costs, for the plan; empty for a server that the user runs."""
    if whole.server_url:
        return ""
    loaded = f" after {format_bytes(load_bytes)} are loaded once" if load_bytes else ""
    return (
        f"each run on {whole.server} starts from a copy of a template{loaded}: about {format_bytes(data_bytes)} and "
        f"{format_duration(restore_seconds(data_bytes) * 1e9)} to copy and compare"
    )


def restore_seconds(data_bytes: int) -> float:
    """Copying the template, and reading the copy to compare it."""
    return 2 * data_bytes / ASSUMED_BYTES_PER_SECOND
