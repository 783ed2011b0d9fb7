"""Verdicts on runs of external commands."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.features.external_commands.verdict import evidence_of, judge
from iosonde.results.schema import Record

pytestmark = pytest.mark.unit

SECOND = 10**9


def record(*, command_s: float, server_s: float | None = None, busy_s: float = 0.0) -> Record:
    """A run of 10 s."""
    statistics = {"server_cpu_ns": 5 * SECOND}
    return Record.model_construct(
        result={
            **{"begin_ns": 0, "end_ns": 10 * SECOND, "devices": [{"busy_ns": int(busy_s * SECOND)}]},
            "process": {"user_ns": int(command_s * SECOND), "system_ns": 0, "wall_ns": 10 * SECOND},
        },
        server=None
        if server_s is None
        else {
            "statistics_at_start": statistics,
            "statistics_at_end": {"server_cpu_ns": statistics["server_cpu_ns"] + int(server_s * SECOND)},
        },
    )


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"command_s": 19.0}, "harness-limited"),
        ({"command_s": 3.0, "server_s": 16.5}, "server-CPU-limited"),
        ({"command_s": 16.5, "server_s": 3.0}, "harness-limited"),
        ({"command_s": 1.0, "busy_s": 9.8}, "device-limited"),
        ({"command_s": 1.0, "server_s": 1.0, "busy_s": 2.0}, "undetermined"),
    ],
)
def test_the_limit_that_is_exceeded_most_decides(facts: dict[str, Any], kind: str) -> None:
    assert judge(record(**facts), [], 2).kind == kind


def test_the_server_counts_with_its_increase_over_the_measurement() -> None:
    found = evidence_of(record(command_s=4.0, server_s=10.0), cpus=2)
    assert (found.command_cpu_share, found.server_cpu_share) == (0.2, 0.5)
