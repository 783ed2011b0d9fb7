"""The part of a record about the machines that serve the target, where they are hosts of the study."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from iosonde.results.schema import RecordPart


class ServerCounters(BaseModel):
    """Counters of a server at two instants within the measurement; both are empty if there were none."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    host: str
    machine: str
    """Boot id of its kernel."""
    cpus: int
    cache_dropped: bool = False
    """True if its page cache was dropped before the load started."""
    at_start: dict[str, int] = Field(default_factory=dict)
    """By name, since the server was booted: `cpu_ns` of all CPUs, `disk_*` of all drives, `busy_ms.NAME` of each,
    `nic_*` of all interfaces, and `nfsd_*` where it serves NFS. With `time_ns` on its clock, and the counters `load_*`
    of the load of all hosts at that time."""
    at_end: dict[str, int] = Field(default_factory=dict)

    def grown(self, name: str) -> int | None:
        """Increase of a counter; None if it is missing or was reset."""
        if name not in self.at_start or self.at_end.get(name, -1) < self.at_start[name]:
            return None
        return self.at_end[name] - self.at_start[name]


class ServerReading(RecordPart):
    """All servers of a run."""

    name = "servers"

    servers: list[ServerCounters]

    def about_target(self) -> dict[str, dict[str, object]]:
        """Name the servers that were measured."""
        return {"Servers among the hosts": {each.host: f"{each.cpus} CPUs" for each in self.servers}}
