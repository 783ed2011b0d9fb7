"""Consent to hosts, their carrier, its CPU time while their engines measure, and counters of their network."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from iosonde.engine.protocol import Event
from iosonde.errors import TargetError
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.many_hosts.host_plan import most_hosts
from iosonde.features.many_hosts.record import CarrierCost, TcpSegments
from iosonde.features.many_hosts.together import Together
from iosonde.plan import Plan
from iosonde.results.schema import RecordWarning
from iosonde.storage import Target
from iosonde.storage.safety.guard import Consent


def _require_hosts(plan: Plan, target: Target, consent: Consent) -> None:
    """`TargetError` if cases require hosts, and the plan has none."""
    count = most_hosts(plan)
    if count and not plan.hosts:
        raise TargetError(
            f"the parameter `hosts` requires `--hosts`; the study `{plan.study_name}` uses up to {count}",
            hint=f"add `--hosts local:{count}` for processes on this machine, or the address of a Dask scheduler",
        )


CONSENT = (_require_hosts,)


T = TypeVar("T", CarrierCost, TcpSegments)

MOST_SHARE = 0.005
"""Of a core, above which the cost is a warning."""
SHORTEST_NS = 10**9
"""Measurement for which there is one: single messages are a large share of shorter ones."""


class HostCounters(Instrument):
    """Reads CPU time of agent and worker, and TCP, after the first interval and at the end; nothing on one machine."""

    _begin: tuple[CarrierCost, TcpSegments] | None = None
    _used: tuple[CarrierCost, TcpSegments] | None = None

    def event(self, event: Event) -> None:
        """Read it twice: reading takes CPU time too."""
        if not self.context.session.plan.hosts:
            return
        if event["event"] == "interval" and event["phase"] == "measure" and self._begin is None:
            self._begin = _so_far()
        elif event["event"] == "result" and self._begin:
            (cost, tcp), (cost_before, tcp_before) = _so_far(), self._begin
            self._used = _grown(cost, cost_before), _grown(tcp, tcp_before)

    def stop(self, done: EngineRun) -> Reading:
        """Return the cost, with a warning if it may disturb the measurement."""
        if self._used is None:
            return Reading()
        cost = self._used[0]
        is_high = cost.share > MOST_SHARE and cost.wall_ns >= SHORTEST_NS
        return Reading(parts=self._used, warnings=[_warning(cost)] if is_high else [])


def _warning(cost: CarrierCost) -> RecordWarning:
    agent, worker = (100 * each / cost.wall_ns for each in (cost.agent_ns, cost.worker_ns))
    return RecordWarning(
        code="carrier_cost",
        message=f"the carrier used {100 * cost.share:.2f} % of a core while the engine measured (agent {agent:.2f} %, "
        f"Dask worker {worker:.2f} %)",
        hint="use a longer `interval`: the agent reads an event for each",
    )


def _grown(now: T, before: T) -> T:
    return type(now)(**{name: value - getattr(before, name) for name, value in now.model_dump().items()})


def _so_far() -> tuple[CarrierCost, TcpSegments]:
    worker = os.getppid()
    cost = CarrierCost(agent_ns=time.process_time_ns(), worker_ns=_cpu_ns(worker), wall_ns=time.monotonic_ns())
    return cost, _segments(Path("/proc/net/snmp").read_text(encoding="ascii"))


def _segments(snmp: str) -> TcpSegments:
    """Read from `/proc/net/snmp`, where a line of names is followed by a line of numbers."""
    names, numbers = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
    counters = dict(zip(names[1:], numbers[1:], strict=True))
    return TcpSegments(sent=int(counters["OutSegs"]), sent_again=int(counters["RetransSegs"]))


def _cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process; utime of `/proc/PID/stat` counts whole ticks of 10 ms."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            total += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    return total


INSTRUMENTS = (HostCounters,)


CARRIERS = (Together(),)
