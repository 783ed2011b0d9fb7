"""Verdicts on runs on a database server: each limit alone, and none."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.results.schema import Record
from iosonde.verdict.server import evidence_of, judge_server

SECOND = 10**9
IDLE = {"sessions_active": 8.0, "sessions_waiting_for_lock": 0.0, "sessions_waiting_for_log": 0.0, "sessions_waiting_for_io": 0.0}  # fmt: skip


def record(
    *, server_s: float = 1.0, client_s: float = 0.4, means: dict[str, float] | None = None,
    statistics: dict[str, int] | None = None, busy_s: float = 1.0, waited_s: float | None = 0.4,
) -> Record:  # fmt: skip
    pacing = {"cpu_wait_ns": None if waited_s is None else int(waited_s / 4 * SECOND)}
    usage = {"user_ns": int(client_s / 4 * SECOND), "system_ns": 0, "wall_ns": 10 * SECOND}
    jobs = [{"usage": usage, "pacing": pacing} for _ in range(4)]
    arrival = {"kind": "closed"}
    facts: dict[str, Any] = {
        "run_id": "c0001-r1", "attempt": 1, "case_id": "main", "part": "main", "control": False, "repeat": 1, "order": 0,
        "levels": {}, "parameters": {}, "started_at": "2026-01-02T03:04:05+00:00", "ended_at": "2026-01-02T03:05:05+00:00", "outcome": "complete", "failure": None,
        "engine": {}, "phases": [], "child": {}, "target": {}, "environment": "", "warnings": [],
        "spec": {"workload": {"kind": "tpcc", "measurement": {"terminals": 4, "arrival": arrival}}},
        "result": {"begin_ns": 0, "end_ns": 10 * SECOND, "jobs": jobs, "process": usage, "devices": [{"busy_ns": int(busy_s * SECOND)}]},
        "server": {
            "statistics_at_start": {"server_cpu_ns": 5 * SECOND, **{name: 0 for name in statistics or {}}},
            "statistics_at_end": {"server_cpu_ns": int((5 + server_s) * SECOND), **(statistics or {})},
            "statistics_mean": means or IDLE,
        },
    }  # fmt: skip
    return Record(**facts)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"server_s": 18.0, "client_s": 1.0}, "server-CPU-limited"),
        ({"server_s": 6.0, "client_s": 13.0}, "harness-limited"),
        ({"client_s": 38.0, "server_s": 1.0}, "harness-limited"),
        ({"client_s": 2.0, "waited_s": 33.0}, "harness-limited"),
        ({"client_s": 2.0, "waited_s": 30.0}, "undetermined"),
        ({"means": {**IDLE, "sessions_waiting_for_lock": 5.0}}, "lock-limited"),
        ({"means": {"sessions_active": 4.0}, "statistics": {"lock_wait_ms": 20_000}}, "lock-limited"),
        ({"means": {**IDLE, "sessions_waiting_for_log": 4.0}}, "device-limited"),
        ({"means": {**IDLE, "sessions_waiting_for_io": 6.0, "sessions_waiting_for_lock": 3.0}}, "device-limited"),
        ({"busy_s": 9.5}, "device-limited"),
        ({}, "undetermined"),
    ],
)
def test_the_limit_that_is_exceeded_most_decides(facts: dict[str, Any], kind: str) -> None:
    assert judge_server(record(**facts), cpus=2).kind == kind


def test_shares_are_computed_from_increases_over_the_measurement() -> None:
    found = evidence_of(record(server_s=10.0, client_s=4.0, busy_s=2.5), cpus=2)
    assert (found.server_cpu_share, found.client_cpu_share) == (0.5, 0.2)
    assert (found.busiest_client_share, found.device_busy_share) == (0.1, 0.25)
    assert found.client_ready_share == pytest.approx(0.11)


def test_a_wait_for_cpus_that_the_kernel_does_not_count_is_unknown() -> None:
    assert evidence_of(record(waited_s=None), cpus=2).client_ready_share is None


def test_without_accounts_nothing_is_claimed() -> None:
    bare = record().model_copy(update={"server": {}})
    assert evidence_of(bare, cpus=2).server_cpu_share is None
    assert judge_server(bare, cpus=2).kind == "undetermined"
