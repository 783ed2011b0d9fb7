"""Target of a spec, whatever its workload: a workload on a database server has none in its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def target_of(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target that the engine opens; of a workload on a server only its kind, `server`."""
    found: Mapping[str, Any] = workload.get("target") or {"kind": "server"}
    return found
