"""Verdicts on runs on a database server: each limit alone, and none."""

from __future__ import annotations

from typing import Any

import pytest
from measured import IDLE, record

from iosonde.verdict.server import evidence_of, judge_server


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
