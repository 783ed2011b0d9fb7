"""The engine's spec of a run of commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from iosonde import protocol
from iosonde.plan import JsonObject
from iosonde.workload.commit.footprint import fit, identity
from iosonde.workload.commit.parameters import CommitParameters
from iosonde.workload.oltp import place

if TYPE_CHECKING:
    from iosonde.protocol import spec
    from iosonde.storage import Target


def resolve(streams: Mapping[str, CommitParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec."""
    streams = fit(streams, target, room_bytes=0)
    whole = place.only(streams)
    workload: spec.CommitWorkload = {
        "kind": "commit",
        "server": place.engine_server(whole, target, identity(whole)),
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
    made: spec.Spec = {
        "protocol": protocol.VERSION,
        "run_id": run_id,
        "seed": seed,
        "workload": workload,
        "observe": {"block_devices": place.watched_devices(whole, target)},
    }
    return cast("JsonObject", made)
