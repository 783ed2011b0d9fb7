"""What other packages ask about a kind of load: they decide by what it declares here, never by its name.

Each workload has one, `DESCRIPTION`. Arguments called `workload` are that part of an engine's spec, and `case` are the
parameters of a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from iosonde.plan import JsonObject

CLOSED: Mapping[str, Any] = {"kind": "closed"}
"""The arrival of a closed loop."""

Spec = Mapping[str, Any]

Rules = Literal["evidence", "server", "faults", "iterations", "processes"]
"""How the verdict on a run is found: from evidence of the engine about its I/O, or by shares of resources."""


class Description:
    """The defaults are those of a load whose operations are I/Os of the engine, though not block I/O."""

    moves_blocks = False
    """Block I/O: its rate is IOPS, its backend is chosen, and the cost of the harness for each I/O is known."""

    is_external = False
    """Another program does the work: only the values that it prints are known, and not its operations."""

    reads_own_cache = False
    """A store or server between the operations and the device: bytes of operations are not bytes of the device."""

    counts_until_durable = False
    """Writes count until they are durable, which may be after the measurement: the account is that of the run."""

    adds_streams = True
    """Rates of streams that run together can be added."""

    is_transactional = False
    """Its operations are transactions on a database server."""

    counts_operations = False
    """Its rate is the metric `ops_per_sec`."""

    has_no_target = False
    """Its specs name a server instead of a target."""

    is_on_osds = False
    """Object daemons of Ceph do the I/O: they alone can use BlueStore."""

    wipes_devices = False
    """It refuses a raw device with anything but its own data, so the device is wiped before the first run."""

    has_statistics = False
    """What it measures reports statistics about itself, which reports show over time."""

    rate_unit = "IOPS"
    """What progress counts per second."""

    shows_bandwidth = True
    """Progress shows bandwidth, too."""

    counted = "I/Os"
    """What latencies are measured of."""

    accesses_memory = False
    """Its operations are accesses to memory, of which the kernel does I/O for some."""

    operations: Sequence[str] = ()
    """Operations that make up `all`, by the names that the engine reports."""

    subject = ""
    """The parameter that only cases of this workload have."""

    worded: Sequence[str] = ()
    """Parameters whose levels `words` distinguishes."""

    ignored_when_simulated: Sequence[str] = ()
    """Parameters of the host's path to a device, which a simulated target does not have: they change nothing there."""

    printed_apart: Sequence[str] = ()
    """Parameters that a plan prints at another place."""

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """The streams of a load, each with name, jobs and arrival at least."""
        streams: Sequence[Mapping[str, Any]] = workload.get("streams", [])
        return streams

    def server(self, workload: Spec) -> str | None:
        """The kind of server that the engine applies the load to, started by iosonde or by the user; None without one.

        External commands connect by themselves: theirs is only in their spec.
        """
        return None

    def rules(self, workload: Spec) -> Rules:
        """The rules of the verdict."""
        return "evidence"

    def load_spec(self, spec: JsonObject, case: Mapping[str, Any]) -> JsonObject | None:
        """The spec that loads the database of a measurement, where the engine does so; it is kept as a template."""
        return None

    def problem(self, workload: Spec, case: Mapping[str, Any]) -> str:
        """Why a received spec must not be carried out: it names other files than its case, besides its target."""
        return ""

    def file_name(self, workload: Spec) -> str | None:
        """Name of the run's file in the target's own directory; None for the usual name, empty if it is refused."""
        return None

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `4 KiB random reads`, by parameter and in that order."""
        return {}
