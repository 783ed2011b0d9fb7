"""The other side: counters of a server that is a host of the study (`--hosts`, role `server`).

Its part of the latency is divided further for loads of reads with at most one I/O of its drives per call: then the time
of these I/Os is part of the time of the calls. Writes may reach the drives after their calls have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from iosonde.results.column import NUMBER, TEXT, U64, Column, DType
from iosonde.results.schema import Record
from iosonde.results.server_reading import ServerCounters, ServerReading

if TYPE_CHECKING:
    from iosonde.results.run_facts.run import RunFacts

MOST_PER_CALL = 1.05
"""I/Os of the drives for each call above which their times may overlap."""
MOST_OTHER = 0.1
"""Writes of the drives over their reads above which other processes may have used them."""


class ServerFacts:
    """Increases over the measurement of the one server of a run; empty without one."""

    def __init__(self, record: Record) -> None:
        reading = record.of(ServerReading)
        servers = [each for each in reading.servers if each.at_end] if reading else []
        self.server: ServerCounters | None = servers[0] if len(servers) == 1 else None
        self.count = len(servers)

    def grown(self, name: str) -> int | None:
        """Increase of a counter; None if it is not known."""
        return self.server.grown(name) if self.server else None

    @property
    def cpu_share(self) -> float | None:
        """CPU time over that of all CPUs."""
        used, time = self.grown("cpu_ns"), self.grown("time_ns")
        return used / (time * self.server.cpus) if self.server and used is not None and time else None

    @property
    def busy_share(self) -> float | None:
        """Utilization of the busiest drive."""
        time = self.grown("time_ns")
        names = [name for name in self.server.at_end if name.startswith("busy_ms.")] if self.server else []
        busy = [found for name in names if (found := self.grown(name)) is not None]
        return min(1.0, 1e6 * max(busy) / time) if busy and time else None

    @property
    def device_ns(self) -> float | None:
        """Time of the reads of the drives for each operation; None if the server's part is not divided."""
        operations, milliseconds = self.grown("load_operations"), self.grown("disk_read_ms")
        return None if self.unseparated or not operations or milliseconds is None else 1e6 * milliseconds / operations

    @property
    def thread_wait_share(self) -> float | None:
        """Calls for which no thread of the NFS server was idle, over all."""
        arrived, waited = self.grown("nfsd_arrived"), self.grown("nfsd_without_thread")
        return min(1.0, waited / arrived) if arrived and waited is not None else None

    @property
    def unseparated(self) -> str:
        """Reason why the server's part is not divided; empty if it can be."""
        if self.server is None:
            return "the server is not a host of the study" if not self.count else f"{self.count} servers"
        operations, reads, writes = (self.grown(name) for name in ("load_operations", "disk_reads", "disk_writes"))
        if not operations or reads is None or writes is None:
            return "the server has no counters of drives"
        if self.grown("load_write_bytes"):
            return "writes may reach the drives after their calls"
        if reads > MOST_PER_CALL * operations:
            return f"{reads / operations:.2f} reads of the drives for each operation"
        if writes > MOST_OTHER * operations:
            return "the drives were written to during a load of reads"
        return ""


def _row(name: str, dtype: DType, text: str, value: Callable[[ServerFacts], Any]) -> Column:
    def of_run(run: RunFacts) -> Any:
        facts = run.of(ServerFacts)
        return value(facts) if facts.server else None

    return Column(f"server_{name}", dtype, f"Server among the hosts: {text}", of_run)


COLUMNS = (
    _row("host", TEXT, "its name", lambda facts: facts.server.host if facts.server else None),
    _row("calls", U64, "calls that its NFS server counted", lambda facts: facts.grown("nfsd_calls")),
    _row(
        "thread_wait_share",
        NUMBER,
        "calls that found no idle thread of its NFS server, over all",
        lambda facts: facts.thread_wait_share,
    ),
    _row("nfs_read_bytes", U64, "bytes that its NFS server read", lambda facts: facts.grown("nfsd_read_bytes")),
    _row("nfs_write_bytes", U64, "bytes that its NFS server wrote", lambda facts: facts.grown("nfsd_write_bytes")),
    _row("host_cpu_share", NUMBER, "CPU time over that of all CPUs", lambda facts: facts.cpu_share),
    _row("disk_busy_share", NUMBER, "utilization of its busiest drive", lambda facts: facts.busy_share),
    _row("disk_read_bytes", U64, "bytes read from its drives", lambda facts: facts.grown("disk_read_bytes")),
    _row("disk_write_bytes", U64, "bytes written to its drives", lambda facts: facts.grown("disk_write_bytes")),
    _row("disk_read_ms", U64, "time of the reads of its drives, ms", lambda facts: facts.grown("disk_read_ms")),
    _row("load_operations", U64, "operations of the load in that time", lambda facts: facts.grown("load_operations")),
    _row("load_read_bytes", U64, "bytes that the load read in it", lambda facts: facts.grown("load_read_bytes")),
    _row("load_write_bytes", U64, "bytes that the load wrote in it", lambda facts: facts.grown("load_write_bytes")),
    _row("unseparated", TEXT, "why its part of the latency is not divided", lambda facts: facts.unseparated or None),
    _row("is_divided", U64, "1 if it can be divided, else null", lambda facts: None if facts.unseparated else 1),
)
"""Columns of `runs` about the server."""
