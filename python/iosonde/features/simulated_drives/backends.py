"""The backend of simulated drives."""

from __future__ import annotations

from iosonde.study.workload.workload import Backend

NAME = "ssd"

BACKENDS = (
    Backend(
        name=NAME,
        title="a simulated drive",
        target="sim:pm963",
        always_runs=True,
        is_virtual=True,
        has_virtual_time=True,
    ),
)
