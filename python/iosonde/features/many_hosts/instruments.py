"""CPU time that a host spends on the carrier while its engine measures."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.many_hosts.record import CarrierCost
from iosonde.protocol.event import Event
from iosonde.results.schema import RecordWarning

MOST_SHARE = 0.005
"""Of a core, above which the cost is a warning."""
SHORTEST_NS = 10**9
"""Measurement for which there is one: single messages are a large share of shorter ones."""


class CarrierCostOfHost(Instrument):
    """Reads the CPU time of agent and worker after the first interval and at the end; nothing on one machine."""

    _begin: CarrierCost | None = None
    _cost: CarrierCost | None = None

    def event(self, event: Event) -> None:
        """Read it twice: reading takes CPU time too."""
        if not self.context.plan.hosts:
            return
        if event["event"] == "interval" and event["phase"] == "measure" and self._begin is None:
            self._begin = _so_far()
        elif event["event"] == "result" and self._begin:
            end, begin = _so_far(), self._begin
            self._cost = CarrierCost(
                agent_ns=end.agent_ns - begin.agent_ns,
                worker_ns=end.worker_ns - begin.worker_ns,
                wall_ns=end.wall_ns - begin.wall_ns,
            )

    def stop(self, done: EngineRun) -> Reading:
        """Return the cost, with a warning if it may disturb the measurement."""
        cost = self._cost
        if cost is None:
            return Reading()
        is_high = cost.share > MOST_SHARE and cost.wall_ns >= SHORTEST_NS
        return Reading(parts=[cost], warnings=[_warning(cost)] if is_high else [])


def _warning(cost: CarrierCost) -> RecordWarning:
    agent, worker = (100 * each / cost.wall_ns for each in (cost.agent_ns, cost.worker_ns))
    return RecordWarning(
        code="carrier_cost",
        message=f"the carrier used {100 * cost.share:.2f} % of a core while the engine measured (agent {agent:.2f} %, "
        f"Dask worker {worker:.2f} %)",
        hint="use a longer `interval`: the agent reads an event for each",
    )


def _so_far() -> CarrierCost:
    worker = os.getppid()
    return CarrierCost(agent_ns=time.process_time_ns(), worker_ns=_cpu_ns(worker), wall_ns=time.monotonic_ns())


def _cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process; utime of `/proc/PID/stat` counts whole ticks of 10 ms."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            total += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    return total


INSTRUMENTS = (CarrierCostOfHost,)
