"""The engine's spec of a run of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosonde.workload.commit.parameters import CommitParameters
from iosonde.workload.oltp import place

if TYPE_CHECKING:
    from iosonde.protocol import spec
    from iosonde.storage import Target


def workload(whole: CommitParameters, target: Target) -> spec.CommitWorkload:
    """The workload of the engine's spec of a measurement."""
    return {
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
