"""A record of four jobs that measured for ten seconds, with shares of resources as a test states them."""

from __future__ import annotations

from typing import Any

from iosonde.results.schema import Record

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
