"""Common parts of the engine specs of all workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from iosonde import protocol
from iosonde.plan import JsonObject


def engine_spec(workload: Mapping[str, Any], *, seed: int, run_id: str, devices: Sequence[str]) -> JsonObject:
    """The spec of a run; the counters of `devices` are recorded."""
    return {
        "protocol": protocol.VERSION,
        "run_id": run_id,
        "seed": seed,
        "workload": cast("JsonObject", workload),
        "observe": {"block_devices": list(devices)},
    }
