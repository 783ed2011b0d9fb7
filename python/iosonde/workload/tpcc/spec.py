"""The engine's specs of a TPC-C run: loading, and measuring."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from iosonde.plan import JsonObject
from iosonde.workload.oltp import place
from iosonde.workload.tpcc.parameters import TpccParameters

if TYPE_CHECKING:
    from iosonde.protocol import spec
    from iosonde.storage import Target


def workload(whole: TpccParameters, target: Target) -> spec.TpccWorkload:
    """The workload of the engine's spec of a measurement."""
    return {
        "kind": "tpcc",
        "server": place.engine_server(whole, target),
        "warehouses": whole.warehouses,
        "seed": whole.population_seed,
        "database": _database(whole),
        "check": {"before": whole.server_url is not None, "after": True},
        "measurement": _measurement(whole, target),
    }


def _database(whole: TpccParameters) -> spec.TpccDatabase:
    """Restored from a template; on a server that the user runs, loaded unless an unused database is there."""
    if whole.server_url is None:
        return {"kind": "existing"}
    return {"kind": "loaded", "reload": False, "jobs": whole.load_jobs}


def _measurement(whole: TpccParameters, target: Target) -> spec.TpccMeasurement:
    return {
        "terminals": whole.terminals,
        "home": whole.home,
        "think": whole.think,
        "arrival": place.arrival(whole),
        "mix": whole.mix,
        "isolation": whole.isolation,
        "retries": whole.retries,
        "pipelining": whole.pipelining,
        "ramp_ns": whole.ramp,
        "duration_ns": whole.duration,
        "interval_ns": whole.interval,
        "acknowledged": place.acknowledged(whole, target),
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
