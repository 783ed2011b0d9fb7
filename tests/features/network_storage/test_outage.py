"""The instrument that stops a server during a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iosonde.execution.instruments import INSTRUMENTS
from iosonde.features.network_storage.outage import Outage


class Server:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def stop_server(self) -> None:
        self.calls.append("stop")

    def start_server(self) -> None:
        self.calls.append("start")


def interval(phase: str) -> Any:
    done = {"operation": "write", "count": 4}
    return {"event": "interval", "phase": phase, "begin_ns": 0, "end_ns": 100_000_000,
            "streams": [{"backlog_max": 0, "operations": [done]}]}  # fmt: skip


def test_the_outage_begins_after_the_first_interval_of_the_measurement_and_ends() -> None:
    """The engine reports no start of the measurement, only its intervals."""
    assert Outage in INSTRUMENTS
    context: Any = SimpleNamespace(parameters={"outage": "watch", "outage_after": "100ms", "outage_length": "10ms"})
    outage, server = Outage(context), Server()
    outage._stoppable = server
    outage.event(interval("ramp"))
    assert outage._thread is None
    outage.event(interval("measure"))
    assert outage._thread
    outage._thread.join()
    assert server.calls == ["stop", "start"]
    assert outage._times[1] - outage._times[0] >= 10_000_000


def test_an_outage_that_was_not_reached_is_not_carried_out() -> None:
    context: Any = SimpleNamespace(parameters={"outage": "watch", "outage_after": "1h"})
    outage, server = Outage(context), Server()
    outage._stoppable = server
    outage.event(interval("measure"))
    outage.close()
    assert server.calls == []
    [warning] = outage._warnings()
    assert warning.code == "outage_failed"


def test_an_outage_that_the_server_refuses_has_no_length() -> None:
    class Refusing(Server):
        def stop_server(self) -> None:
            raise OSError(16, "Device or resource busy")

    context: Any = SimpleNamespace(parameters={"outage": "watch", "outage_after": "0", "outage_length": "10ms"})
    outage, server = Outage(context), Refusing()
    outage._stoppable = server
    outage.event(interval("measure"))
    assert outage._thread
    outage._thread.join()
    assert (outage._times, server.calls) == ([], []), "what another one has stopped stays as it is"
    [warning] = outage._warnings()
    assert "Device or resource busy" in warning.message
