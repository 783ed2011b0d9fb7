"""The engine's spec of a run of commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from iosonde.plan import JsonObject
from iosonde.workload.commit.parameters import CommitParameters
from iosonde.workload.engine_spec import engine_spec
from iosonde.workload.oltp import footprint, place

if TYPE_CHECKING:
    from iosonde.protocol import spec
    from iosonde.storage import Target


def resolve(streams: Mapping[str, CommitParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec."""
    whole = footprint.only(footprint.fit(streams, target, room_bytes=0))
    workload: spec.CommitWorkload = {
        "kind": "commit",
        "server": place.engine_server(whole, target),
        "operation": whole.operation,
        "payload_bytes": whole.payload,
        "measurement": {
            "clients": whole.clients,
            "arrival": place.arrival(whole),
            "ramp_ns": whole.ramp,
            "duration_ns": whole.duration,
            "interval_ns": whole.interval,
            "acknowledged": place.acknowledged(whole, target),
            "server_loss": "fail" if whole.kill_server_after is None else "end",
            "cpus": whole.cpus,
        },
    }
    return engine_spec(workload, seed=seed, run_id=run_id, devices=place.watched_devices(whole, target))
