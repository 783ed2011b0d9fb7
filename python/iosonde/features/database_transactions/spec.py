"""The engine's specs of loads on database servers: loading, and measuring."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.features.database_transactions.parameters import CommitParameters, OltpFields, TpccParameters
from iosonde.plan import JsonObject
from iosonde.workload.servers import engine_server, open_directory
from iosonde.workload.workload import arrival_of

if TYPE_CHECKING:
    from iosonde.storage import Target


def tpcc(whole: TpccParameters, target: Target) -> JsonObject:
    """The workload of the engine's spec of a measurement."""
    return {
        "kind": "tpcc",
        "server": engine_server(whole, target),
        "warehouses": whole.warehouses,
        "seed": whole.population_seed,
        "database": _database(whole),
        "check": {"before": whole.server_url is not None, "after": True},
        "measurement": _measurement(whole, target),
    }


def _database(whole: TpccParameters) -> JsonObject:
    """Restored from a template; on a server that the user runs, loaded unless an unused database is there."""
    if whole.server_url is None:
        return {"kind": "existing"}
    return {"kind": "loaded", "reload": False, "jobs": whole.load_jobs}


def _measurement(whole: TpccParameters, target: Target) -> JsonObject:
    return {
        "terminals": whole.terminals,
        "home": whole.home,
        "think": whole.think,
        "arrival": arrival_of(whole.arrival, whole.rate),
        "mix": whole.mix,
        "isolation": whole.isolation,
        "retries": whole.retries,
        "pipelining": whole.pipelining,
        "ramp_ns": whole.ramp,
        "duration_ns": whole.duration,
        "interval_ns": whole.interval,
        "acknowledged": _acknowledged(whole, target),
        "server_loss": "fail" if whole.kill_server_after is None else "end",
        "cpus": whole.cpus,
    }


def load_spec(measured: JsonObject, *, jobs: int) -> JsonObject:
    """The spec that loads the database of a measurement and checks it, and measures nothing."""
    made = copy.deepcopy(measured)
    made["run_id"] = "load"
    made["workload"] |= {
        "database": {"kind": "loaded", "reload": False, "jobs": jobs},
        "check": {"before": True, "after": False},
        "measurement": None,
    }
    return made


def commit(whole: CommitParameters, target: Target) -> JsonObject:
    """The workload of the engine's spec of a measurement."""
    return {
        "kind": "commit",
        "server": engine_server(whole, target),
        "operation": whole.operation,
        "payload_bytes": whole.payload,
        "measurement": {
            "clients": whole.clients,
            "arrival": arrival_of(whole.arrival, whole.rate),
            "ramp_ns": whole.ramp,
            "duration_ns": whole.duration,
            "interval_ns": whole.interval,
            "acknowledged": _acknowledged(whole, target),
            "server_loss": "fail" if whole.kill_server_after is None else "end",
            "cpus": whole.cpus,
        },
    }


def watched_devices(whole: OltpFields, target: Target) -> list[str]:
    """Block devices whose counters are recorded: those under the target, and those under the log."""
    if target.backend() is not None:
        return []
    devices = target.block_devices()
    if whole.log == "apart" and whole.log_target:
        devices = list(dict.fromkeys([*devices, *open_directory(whole.log_target).block_devices()]))
    return devices


def _acknowledged(whole: OltpFields, target: Target) -> JsonObject | None:
    """Return the file of acknowledged commits: next to the data, which a killed server cannot change."""
    if whole.kill_server_after is None:
        return None
    own = target.spec_target("per_job", 0)["directory"]
    return {"directory": str(Path(own, f"acknowledged-{Path(own).name[-8:]}"))}
