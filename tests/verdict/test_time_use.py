"""Breakdown of a run's time, the possible gain from a faster device, and the limits of database servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from measured import IDLE
from measured import record as server_record

from iosonde.collections.suite.summary import gain_limit
from iosonde.metrics.verdict.verdict import TimeUse, judge_server, mean_of, time_use

pytestmark = pytest.mark.unit


def device(busy_ns: int, wait_ns: int = 0) -> dict[str, int]:
    return {"busy_ns": busy_ns, "read_wait_ns": wait_ns // 2, "write_wait_ns": wait_ns - wait_ns // 2}


def record(
    *, busy_ns: int, background_ns: int = 0, server: dict[str, Any] | None = None, lock_wait_share: float | None = None
) -> Any:
    """A run of one second with two jobs, and threads in the background."""
    usage = {"user_ns": 200_000_000, "system_ns": 100_000_000}
    process = {"wall_ns": 1_000_000_000, "user_ns": 400_000_000 + background_ns, "system_ns": 200_000_000}
    return SimpleNamespace(
        result={
            "begin_ns": 0,
            "end_ns": 1_000_000_000,
            "jobs": [{"usage": usage}, {"usage": usage}],
            "process": process,
            "devices": [device(1000), device(busy_ns)],
        },
        server=server,
        target={},
        verdict=SimpleNamespace(evidence={"lock_wait_share": lock_wait_share}),
    )


def use(**given: float | None) -> TimeUse:
    numbers: dict[str, Any] = {"device_busy": 0.0, "application_cores": 0.0, "kernel_cores": 0.0, "lock_waits": None}
    return TimeUse(**{**numbers, **given})


def test_time_of_an_embedded_store_is_that_of_the_engine() -> None:
    found = time_use(record(busy_ns=250_000_000))
    assert found == use(device_busy=0.25, application_cores=0.4, kernel_cores=0.2)
    assert found.most_gain == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("background_ns", "changes", "cores"),
    [
        (1_500_000_000, {}, 1.9),
        # Counters that cover two seconds, and a command, whose time is that of its processes.
        (0, {"process": {"wall_ns": 2_000_000_000, "user_ns": 400_000_000, "system_ns": 200_000_000}}, 0.2),
        (100_000_000, {"jobs": []}, 0.5),
    ],
)
def test_cpu_time_of_all_threads_is_of_the_time_that_their_counters_cover(
    background_ns: int, changes: dict[str, Any], cores: float
) -> None:
    run = record(busy_ns=0, background_ns=background_ns)
    run.result.update(changes)
    found = time_use(run)
    assert found is not None and found.application_cores == pytest.approx(cores)


def test_time_of_a_server_is_added_to_that_of_its_client() -> None:
    counters = {
        "statistics_at_start": {"server_cpu_ns": 1_000, "server_system_cpu_ns": 500},
        "statistics_at_end": {"server_cpu_ns": 900_001_000, "server_system_cpu_ns": 300_000_500},
    }
    found = time_use(record(busy_ns=10**9, server=counters, lock_wait_share=0.5))
    assert found is not None
    assert found.application_cores == pytest.approx(0.4 + 0.6)
    assert found.kernel_cores == pytest.approx(0.2 + 0.3)
    assert (found.device_busy, found.lock_waits, found.most_gain) == (1.0, 0.5, None)


def test_short_operations_that_the_kernel_does_not_count_as_busy_time_are_counted_by_their_latencies() -> None:
    run = record(busy_ns=0)
    run.result["devices"] = [device(88_000_000, 746_000_000), device(124_000_000, 451_000_000)]
    found = time_use(run)
    assert found is not None and found.device_busy == pytest.approx(0.746)
    run.result["devices"] = [device(500_000_000, 9_000_000_000)]
    found = time_use(run)
    assert found is not None and found.device_busy == 1.0


def test_a_run_without_devices_or_on_a_simulated_one_has_no_time_use() -> None:
    run = record(busy_ns=0)
    run.target["simulated"] = True
    assert time_use(run) is None
    none = SimpleNamespace(result={"jobs": [{}], "devices": []}, server=None, verdict=None)
    assert time_use(none) is None  # type: ignore[arg-type]
    assert time_use(SimpleNamespace(result=None)) is None  # type: ignore[arg-type]


def test_the_mean_of_runs_leaves_out_what_was_not_reported() -> None:
    found = mean_of([use(device_busy=0.2, lock_waits=0.4), use(device_busy=0.4)])
    assert found == use(device_busy=pytest.approx(0.3), lock_waits=0.4)
    assert mean_of([]) is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (use(device_busy=0.95, application_cores=1.5), "95 % of the time, so a faster one gains at most 20.00×"),
        (use(device_busy=0.5, application_cores=0.2), "gains at most 2.00×; no other limit was found"),
        (use(device_busy=0.15, lock_waits=0.2), "gains at most 1.18×; no other limit was found"),
        (use(device_busy=0.2, application_cores=1.5), "gains at most 1.25×; the application used 1.5 cores"),
        (use(device_busy=0.2, kernel_cores=0.9), "gains at most 1.25×; the kernel used 0.9 cores"),
        (use(device_busy=0.1, lock_waits=0.8), "gains at most 1.11×; sessions waited for locks 80 % of the time"),
    ],
)
def test_the_reason_of_a_small_gain_is_what_took_the_time(given: TimeUse, sentence: str) -> None:
    assert gain_limit(given).endswith(sentence)


@pytest.mark.parametrize(
    ("given", "largest"),
    [
        (use(device_busy=0.95, application_cores=1.5), "device"),
        (use(device_busy=0.8, application_cores=1.5), "application"),
        (use(device_busy=0.8, kernel_cores=0.5), "device"),
        (use(device_busy=None, lock_waits=0.5), "locks"),
    ],
)
def test_a_device_that_was_busy_takes_precedence_over_cores(given: TimeUse, largest: str) -> None:
    assert given.largest == largest


def test_a_device_that_was_always_busy_bounds_no_gain() -> None:
    assert gain_limit(use(device_busy=1.0)) == ""
    assert gain_limit(use(device_busy=None)) == ""


# Verdicts on runs on a database server: each limit alone, and none


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"server_s": 18.0, "client_s": 1.0}, "server-CPU-limited"),
        ({"server_s": 6.0, "client_s": 13.0}, "harness-limited"),
        ({"client_s": 38.0, "server_s": 1.0}, "harness-limited"),
        ({"client_s": 2.0, "waited_s": 33.0}, "undetermined"),
        ({"means": {**IDLE, "sessions_waiting_for_lock": 5.0}}, "lock-limited"),
        ({"means": {"sessions_active": 4.0}, "statistics": {"lock_wait_ms": 20_000}}, "lock-limited"),
        ({"means": {**IDLE, "sessions_waiting_for_log": 4.0}}, "device-limited"),
        ({"means": {**IDLE, "sessions_waiting_for_io": 6.0, "sessions_waiting_for_lock": 3.0}}, "device-limited"),
        ({"busy_s": 9.5}, "device-limited"),
        ({}, "undetermined"),
    ],
)
def test_the_limit_that_is_exceeded_most_decides(facts: dict[str, Any], kind: str) -> None:
    assert judge_server(server_record(**facts), [], 2).kind == kind


def test_shares_are_computed_from_increases_over_the_measurement() -> None:
    found = judge_server(server_record(server_s=10.0, client_s=4.0, busy_s=2.5), [], 2).evidence
    assert (found["server_cpu_share"], found["client_cpu_share"]) == (0.5, 0.2)
    assert (found["busiest_client_share"], found["device_busy_share"]) == (0.1, 0.25)
    waiting = server_record(means={"sessions_active": 4.0}, statistics={"lock_wait_ms": 20_000})
    assert judge_server(waiting, [], 2).evidence["lock_wait_share"] == 0.5


def test_without_accounts_nothing_is_claimed() -> None:
    verdict = judge_server(server_record().model_copy(update={"server": {}}), [], 2)
    assert verdict.evidence["server_cpu_share"] is None
    assert verdict.kind == "undetermined"
