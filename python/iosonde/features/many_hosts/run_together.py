"""One run on all hosts: it starts on all of them at one instant, or on none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from iosonde.execution.stop import Stop
from iosonde.features.many_hosts.carrier import Host, HostLostError, Message, gather

MARGIN_NS = 500_000_000
"""From the readiness of the last host to the start. An engine needs 100 ms of it, and messages a few."""
STOP_S = 15.0
"""For an agent to end a run that is stopped."""


class RunTogether:
    """The requests of one run, and which hosts carry it out at the moment."""

    def __init__(
        self,
        requests: Mapping[Host, Mapping[str, Any]],
        *,
        first_alone: bool = False,
        once_prepared: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """With `first_alone` the first host prepares before the others: they use its files.

        `once_prepared` is carried out between the preparation of all hosts and the start.
        """
        self._once_prepared = once_prepared
        self._requests = requests
        self._preparing = [[host] for host in requests][:1] if first_alone else []
        self._preparing.append([host for host in requests if [host] not in self._preparing])
        self._busy: set[Host] = set()
        self._records: dict[Host, str] = {}
        self.cpu_share: float | None = None
        """CPU time of this process from the start to the end of the load, as a share of a core."""

    async def carry_out(self, stop: Stop) -> dict[Host, str]:
        """Return the names of the hosts' records.

        Of all hosts if it is complete; of those that failed if one has failed, and the others were stopped; of none if
        the user stopped it. `HostLostError` if a host was lost.
        """
        run = asyncio.create_task(self._carry_out())
        stopped = asyncio.create_task(_is_set(stop))
        try:
            await asyncio.wait([run, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not run.done():
                return {}
            run.result()
            return {host: self._records[host] for host in self._requests if host in self._records}
        finally:
            run.cancel()
            stopped.cancel()
            await asyncio.gather(*map(self._stop, list(self._busy)))

    async def _carry_out(self) -> None:
        for hosts in self._preparing:
            await gather(self._request(host) for host in hosts)
            answers = await gather(self._answer(host, "ready", "ended") for host in hosts)
            if any(answer["is"] == "ended" for answer in answers):
                return
        if self._once_prepared:
            await self._once_prepared()
        await gather(host.compare_clocks(time.time_ns() + MARGIN_NS) for host in self._requests)
        begin_ns = time.time_ns() + MARGIN_NS + max(host.clock_bound_ns for host in self._requests)
        await gather(host.send("start", unix_ns=begin_ns + host.clock_offset_ns) for host in self._requests)
        before = _used()
        with suppress(_FailedError):
            await gather(self._complete(host) for host in self._requests)
            cpu_ns, wall_ns = (now - then for now, then in zip(_used(), before, strict=True))
            self.cpu_share = cpu_ns / max(1, wall_ns)

    async def _request(self, host: Host) -> None:
        self._busy.add(host)
        await host.send("run", run=self._requests[host])

    async def _answer(self, host: Host, *names: str) -> Message:
        answer = await host.receive(*names)
        if answer["is"] == "ended":
            self._busy.discard(host)
            if not answer["record"]:
                raise HostLostError(host.name, "its agent was stopped")
            self._records[host] = answer["record"]
        return answer

    async def _complete(self, host: Host) -> None:
        answer = await self._answer(host, "ended")
        if not answer["is_complete"]:
            raise _FailedError  # The others measure something else without it.

    async def _stop(self, host: Host) -> None:
        """Discard its part of the run."""
        with suppress(HostLostError, TimeoutError):
            await host.send("stop")
            await asyncio.wait_for(host.receive("ended"), STOP_S)


def _used() -> tuple[int, int]:
    """CPU time of this process, and the time."""
    return time.process_time_ns(), time.monotonic_ns()


class _FailedError(Exception):
    """The run has failed on a host."""


async def _is_set(stop: Stop) -> None:
    """Return once a stop is requested."""
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(stop.fileno(), is_readable.set)
    try:
        while not stop.woken():
            await is_readable.wait()
            is_readable.clear()
    finally:
        loop.remove_reader(stop.fileno())
