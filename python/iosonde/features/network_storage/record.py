"""The transport below a target and the readings of a run, as its record has them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from iosonde.results.schema import RecordPart


class NetworkReading(RecordPart):
    """Transport, counters at the start and the end of the measurement, and probes during it."""

    name = "network_storage"

    transport: dict[str, Any]
    """`transport`, `version`, `server`, `options`, `path` (route and interface) and others, as far as known."""
    at_start: dict[str, int] = Field(default_factory=dict)
    """Counters by name, with `clock_ns`; bytes and milliseconds since mount, connection or interface exist."""
    at_end: dict[str, int] = Field(default_factory=dict)
    connect_ns: list[int] = Field(default_factory=list)
    """Round trips of connections during the measurement: the network alone."""
    call_ns: list[int] = Field(default_factory=list)
    """Round trips of empty calls during the measurement: the network and a thread of the server."""
    payload_bytes: int = 0
    """Payload of padded calls and echoes; 0 if there were none."""
    padded_call_ns: list[int] = Field(default_factory=list)
    echo_ns: list[int] = Field(default_factory=list)
    padded_echo_ns: list[int] = Field(default_factory=list)
    lost_probes: int = 0
    """Echoes without reply, and connections whose first segment was sent again, before and during the measurement."""
    idle_connect_ns: list[int] = Field(default_factory=list)
    """Round trips of connections before the engine started."""

    def about_target(self) -> dict[str, dict[str, Any]]:
        """Groups of facts for the report, by title."""
        facts = {name: value for name, value in self.transport.items() if name != "daemon_pid"}
        return {"Network storage": facts} if facts else {}


PARTS = (NetworkReading,)

STATISTICS = "network."
"""Prefix of its readings in the table `store_statistics`."""
