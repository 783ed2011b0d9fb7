"""Result sets of every kind of study, each as small as it can be, for tests that change their files or read all of them.

Those on stores, commands and simulated devices are carried out by the real engine; the one on a server is made by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engines import real_engine
from made_sets import measured, unfinished
from plans import a_record, hand_plan, tables

from iosonde import protocol
from iosonde.execution import execute
from iosonde.plan import Plan, commands
from iosonde.planning import Against, expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.consent import NO_CONSENT, Consent

STORE = """
name = "stores"
title = "Stores"
question = "Which store reads fastest?"
workload = "kv"
repeats = 1
[measurement]
store = "lmdb"
records = 500
ramp = 0
duration = "200ms"
interval = "100ms"
[[parts]]
factors.operations = ["read", "update"]
[[views]]
kind = "bars"
title = "Operations"
x = "operations"
y = "ops_per_sec"
[profiles.standard]
"""

COMMAND = """
name = "echo"
title = "Echo"
question = "Which number is larger?"
workload = "command"
repeats = 1
[measurement]
command = ["sh", "-c", "echo point 3; echo value {number}"]
version = ["-c", "echo shell 1"]
duration = "100ms"
space = "1MiB"
interval = "100ms"
number = 1
[measurement.metrics.echoed]
title = "Number"
pattern = 'value (\\d+)'
unit = "1/s"
better = "higher"
[measurement.metrics.points]
lines = 'point (\\d+)'
unit = "ns"
better = "lower"
aggregate = "maximum"
[[parts]]
factors.number = [1, 2]
[[views]]
kind = "lines"
title = "Number"
x = "number"
y = "echoed"
[profiles.standard]
"""

ADAPTIVE = """
name = "capacity"
title = "Capacity"
question = "How many reads a second within a millisecond?"
repeats = 1
[measurement]
queue_depth = 64
arrival = "poisson"
ramp = 0
duration = "500ms"
interval = "250ms"
[[parts]]
name = "capacity"
[parts.search]
over = "rate"
between = [1000, "40k"]
holds = "response_latency_ns_p99 <= 1ms"
agree = "all"
precision = 0.5
[[parts]]
name = "curve"
factors.load = [0.5, 1.0]
derived.rate = { part = "capacity" }
[[views]]
part = "curve"
kind = "lines"
title = "Latency over load"
x = "load"
y = "response_latency_ns_p99"
[profiles.standard]
"""

ROUNDS = """
name = "rounds"
title = "Rounds"
question = "When is it steady?"
repeats = 1
[measurement]
access = "random"
read_fraction = 0.0
queue_depth = 4
span = "16MiB"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
name = "main"
[parts.rounds]
max_rounds = 3
[profiles.standard]
"""

ARMS = """
name = "arms"
title = "Reads and writes"
question = "Which of two systems is faster?"
repeats = 2
[measurement]
access = "random"
span = "16MiB"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
factors.read_fraction = [0.0, 1.0]
[profiles.standard]
"""


def of_store(directory: Path, target: Path) -> Path:
    """Write a result set of a key-value store in a directory."""
    return _carried_out(STORE, directory, str(target))


def of_command(directory: Path, target: Path) -> Path:
    """Write a result set of an external command."""
    return _carried_out(COMMAND, directory, str(target))


def adaptive(directory: Path, target: Path) -> Path:
    """Write a result set of a search, and of cases derived from what it found."""
    return _carried_out(ADAPTIVE, directory, "simulated:servers=1,read=100us,size=1TiB")


def of_rounds(directory: Path, target: Path) -> Path:
    """Write a result set of rounds on a simulated drive."""
    return _carried_out(ROUNDS, directory, "sim:p900")


def of_arms(directory: Path, target: Path) -> Path:
    """Write a result set of two simulated devices that were measured alternately."""
    return _carried_out(ARMS, directory, "sim:p900", against="sim:p900*2,raid=0")


def _carried_out(study: str, directory: Path, target: str, *, against: str = "") -> Path:
    with patch.dict(os.environ, IOSONDE_ENGINE=str(real_engine())):
        second = Against(target=open_target(against)) if against else None
        plan = expand(parse(study), open_target(target), against=second)
        consent = Consent(commands=commands.commands_hash(plan)) if commands.has_commands(plan) else NO_CONSENT
        done = execute(plan, directory, consent=consent)
    assert {record.outcome for record in done.records()} == {"complete"}, [each.failure for each in done.records()]
    return directory


COMMIT: dict[str, Any] = {
    "kind": "commit",
    "measurement": {
        "acknowledged": None,
        "arrival": {"kind": "closed"},
        "clients": 2,
        "cpus": [],
        "duration_ns": 100_000_000,
        "interval_ns": 100_000_000,
        "ramp_ns": 0,
        "server_loss": "fail",
    },
    "operation": "insert",
    "payload_bytes": 100,
    "server": {
        "address": {"kind": "unix", "path": "/srv/iosonde-00000001/postgresql-01234567/socket/.s.PGSQL.5432"},
        "connect_timeout_ns": 10**9,
        "database": "iosonde",
        "kind": "postgresql",
        "missing_database": "create",
        "user": "iosonde",
        "version_min": None,
    },
    "verify_acknowledged": None,
}
SERVER = {
    "kind": "postgresql",
    "title": "PostgreSQL",
    "version": "PostgreSQL 15.1",
    "statistics_at_start": {"wal_bytes": 10, "server_cpu_ns": 5},
    "statistics_at_end": {"wal_bytes": 1000, "server_cpu_ns": 50},
    "statistics_mean": {"sessions_active": 1.5},
    "restored": {"files": 60, "seconds": 0.5},
    "template": {"result": {"load": {"duration_ns": 10**9}}},
    "durability": {"acknowledged": 10, "lost": 0, "recovery_seconds": 0.5},
}
OLTP = {
    "pipelining": False,
    "server": dict.fromkeys(("collation", "encoding", "isolation", "product", "version"), "C"),
    "counters": dict.fromkeys(
        ("aborted_attempts", "failed_transactions", "received_bytes", "round_trips", "sent_bytes", "statements"), 3
    ),
}


def of_server(directory: Path, target: Path) -> Path:
    """Write a result set of commits on a database server."""
    result_set = ResultSet.create(directory, _on_server(hand_plan(factor="clients", name=str(target))))
    plan = result_set.plan
    with result_set.lock():
        for run in plan.runs:
            made = a_record(
                plan, run, server=SERVER, verdict={"kind": "undetermined", "because": ["?"], "evidence": {}}
            )
            assert made.result is not None
            jobs = [{**job, "stream": "clients"} for job in made.result["jobs"]]
            record = made.model_copy(update={"result": {**made.result, "jobs": jobs, "oltp": OLTP}})
            intervals, histograms, usage = tables(run.run_id)
            renamed = {"stream": "clients", "operation": "commit"}
            result_set.write(record, _with(intervals, **renamed), _with(histograms, **renamed), usage)
    return directory


def _with(table: Any, **values: str) -> Any:
    import polars as pl

    return table.with_columns(**{name: pl.lit(value) for name, value in values.items()})


def _on_server(plan: Plan) -> Plan:
    document = json.loads(plan.model_dump_json())
    document["study"]["workload"] = "commit"
    for each in document["cases"]:
        each["parameters"] = {"clients": each["levels"]["clients"], "server": "postgresql"}
    for run in document["runs"]:
        run["spec"] |= {"workload": COMMIT, "protocol": protocol.VERSION}
    return Plan.model_validate(document)


VARIED: dict[str, Callable[[Path, Path], Path]] = {
    "measured": lambda directory, target: measured(directory),
    "unfinished": unfinished,
    "server": of_server,
    "store": of_store,
    "command": of_command,
    "adaptive": adaptive,
    "rounds": of_rounds,
    "arms": of_arms,
}
"""Every kind by name: writes a result set into a new directory; files go into a target directory."""
