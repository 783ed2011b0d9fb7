"""Part of a record that is the total of several hosts: what each host did, and when it started."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from iosonde.metrics.verdict.verdict import Kind
from iosonde.results.schema import RecordPart, ServerReading


def jain_index(rates: Sequence[float]) -> float | None:
    """Return Jain's fairness index (Jain, Chiu, Hawe 1984): 1 for equal shares, 1/n if one host has all.

    None where nothing was done.
    """
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


class HostShare(BaseModel):
    """One host in a run; its values are those of the time in which all hosts measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    host: str
    machine: str
    """Boot id of its kernel: hosts with the same one share CPUs and devices."""
    run_id: str
    attempt: int
    manifest_sha256: str
    """Checksum of the `SHA256SUMS` of the host's own record."""
    verdict: Kind | None
    """None where the workload has none."""
    because: str
    """First reason of the verdict."""
    count: int
    bytes: int
    errors: int
    completion_latency_ns_p99: float | None
    """Null where the host completed too few I/Os."""
    cpu_ns: int
    late_ns: int
    """Start of its last job after the start of the first host."""
    clock_offset_ns: int
    """Its clock minus that of the coordinator."""
    clock_bound_ns: int
    """Largest error of that offset."""
    clock_drift_ppm: float | None = None
    """Mean drift of its clock since the start of the session; null if it has the clock of the coordinator."""
    clock_drift_bound_ppm: float | None = None
    """Largest error of that drift."""
    carrier_cpu_share: float | None = None
    """CPU time of agent and worker while the host measured, as a share of a core; null if it had one interval."""
    retransmitted_share: float | None = None
    """TCP segments that the host sent again, over those that it sent."""
    device_busy_share: float | None = None
    """Time with any I/O in flight of its busiest block device; null without a device, as on NFS."""
    warnings: list[str] = []
    """Codes of the warnings of its run, without notes."""


class CarrierCost(RecordPart):
    """CPU time of what carries out runs on a host, between the start and the end of its measurement."""

    name = "carrier_cost"

    agent_ns: int
    """The session on the host, which reads the events of the engine."""
    worker_ns: int
    """The Dask worker."""
    wall_ns: int

    @property
    def share(self) -> float:
        """Share of a core."""
        return (self.agent_ns + self.worker_ns) / max(1, self.wall_ns)


class TcpSegments(RecordPart):
    """TCP segments of a host's network namespace over the same time."""

    name = "tcp_segments"

    sent: int
    sent_again: int


class Hosts(RecordPart):
    """The hosts of a run."""

    name = "hosts"

    shares: list[HostShare]
    window_ns: int
    """Time in which all hosts measured; the total is based on it."""
    skew_ns: int
    """Start of the last job of any host after the start of the first host."""
    skew_bound_ns: int
    """Largest error of the skew."""
    coordinator_cpu_share: float | None = None
    """CPU time of the coordinator from the start to the end of the load, as a share of a core."""


PARTS = (Hosts, ServerReading, CarrierCost, TcpSegments)
