"""The hosts of a study, as the coordinator sees them: Dask workers (`workers.py`) that relay messages to agents."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from iosonde.base.ssh_hosts import WorkerProcess, described_exit
from iosonde.errors import IosondeError, TargetError
from iosonde.execution import environment
from iosonde.features.many_hosts import clock, worker, workers
from iosonde.features.many_hosts.clock import Clock, Exchange
from iosonde.features.many_hosts.workers import START_S, Started
from iosonde.storage.safety.journal import boot_id

if TYPE_CHECKING:
    from distributed import Client

POLL_S = 2.0
"""Longest wait of a worker for a message of its agent before it answers that there is none."""
ANSWER_S = 20.0
"""For an answer of a worker after that; a host without one is lost."""
LEASE_S = 30.0
"""An agent whose coordinator has not asked for so long is ended."""
MEANWHILE_S = 1.0
"""Between two updates of the progress display."""
EXCHANGES, EXCHANGES_KEPT = 8, 64
"""Readings of the clock of another machine before each run, and those of earlier runs included."""

T = TypeVar("T")
Message = dict[str, Any]


class HostLostError(Exception):
    """A host died, hangs or cannot be reached."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"host `{host}` was lost: {reason}")


@dataclass(eq=False)
class Host:
    """A worker and its agent."""

    name: str
    address: str
    client: Client
    machine: str = ""
    directory: str = ""
    """Of its result set."""
    role: str = "client"
    """`server` for a host without load, whose counters are read."""
    facts: Message = field(default_factory=dict)
    """Those of `worker.describe`."""
    devices: Mapping[str, Message] = field(default_factory=dict)
    """Names of each target on it that is a block device (`same_device.seen`), by the name that the user gave."""
    clock: Clock = field(default_factory=Clock)
    process: WorkerProcess | None = None
    """The connection of its worker, if it was started over ssh."""
    agents: list[int] | None = None
    """Collects the descriptors of agents, if they are on this machine."""
    notes: list[str] = field(default_factory=list)
    """Messages for the user that were not shown yet."""
    progress: Message | None = None
    """Its latest sums of the run in progress."""
    lost: str = ""
    """Reason for which it cannot be used any more; empty while it can."""
    _is_reached: bool = True
    _exchanges: list[Exchange] = field(default_factory=list)
    _messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    _listening: asyncio.Task[None] | None = None

    async def call(self, function: Any, *arguments: Any, wait_s: float = ANSWER_S) -> Any:
        """Call a function of `worker` on the host."""
        if self.lost:
            raise HostLostError(self.name, self.lost)
        try:
            answers = await asyncio.wait_for(
                self.client.run(function, *arguments, workers=[self.address]), timeout=wait_s
            )
            return answers[self.address]
        except TimeoutError:
            problem = f"no answer for {wait_s:.0f} s"
        except (OSError, RuntimeError, ValueError, KeyError, ModuleNotFoundError) as error:
            problem = f"{error}" or type(error).__name__
        if self.process and (status := self.process.process.poll()) is not None:
            problem = described_exit("ssh", status, self.process.errors())
        self.lost = problem
        self._is_reached = False
        raise HostLostError(self.name, self.lost)

    async def send(self, do: str, **facts: Any) -> None:
        """Send a request to the agent."""
        await self.call(worker.agent, "send", {"do": do, **facts})

    async def receive(self, *names: str) -> Message:
        """Return the next message with one of these names; `HostLostError` if there will be none."""
        while True:
            message = await self._messages.get()
            if message["is"] == "lost":
                self._messages.put_nowait(message)  # For the next call.
                raise HostLostError(self.name, self.lost)
            if message["is"] in names:
                return message

    async def compare_clocks(self, at_ns: int) -> None:
        """Find the offset of its clock at an instant that is near."""
        if self.machine == boot_id():
            return
        for _ in range(EXCHANGES):
            sent_ns, read_ns = time.time_ns(), await self.call(worker.unix_ns)
            self._exchanges.append(Exchange(sent_ns=sent_ns, read_ns=read_ns, returned_ns=time.time_ns()))
        # The first ones show its drift over the session.
        del self._exchanges[EXCHANGES:-EXCHANGES_KEPT]
        self.clock = clock.compared(self._exchanges, at_ns, recent=EXCHANGES_KEPT)

    async def start(self) -> None:
        """Start the agent, if it has not been started, and listen to it."""
        if self._listening:
            return
        agent = await self.call(worker.start, LEASE_S)
        if self.agents is not None:
            self.agents.append(os.pidfd_open(agent))
        self._listening = asyncio.create_task(self._listen())

    async def end(self) -> None:
        """End the agent; kill it if it hangs. Without its worker it ends by itself."""
        if self._listening:
            self._listening.cancel()
        if self._listening and self._is_reached:
            is_hanging, self.lost = self.lost.startswith("its agent"), ""
            with suppress(HostLostError):
                if is_hanging:
                    await self.call(worker.agent, "kill")
                await self.call(worker.agent, "end", wait_s=worker.END_S + ANSWER_S)

    async def _listen(self) -> None:
        """Ask for messages until the host is lost, which shows that it is not."""
        try:
            while True:
                for message in await self.call(worker.agent, "receive", POLL_S, wait_s=POLL_S + ANSWER_S):
                    self._take(message)
        except HostLostError:
            pass
        except (KeyError, TypeError) as error:
            # It is alive, and restores the host at the end.
            self.lost = f"a message of its agent is malformed: {error!r}"
        self._messages.put_nowait({"is": "lost"})

    def _take(self, message: Message) -> None:
        if message["is"] == "silent":
            self.lost = "its agent does not report any more"
            raise HostLostError(self.name, self.lost)
        if message["is"] == "exited":
            ended = f"its agent ended with status {message['status']}"
            self.lost = f"{ended}: {message['because']}" if message["because"] else ended
            raise HostLostError(self.name, self.lost)
        if message["is"] == "note":
            self.notes.append(message["text"])
        elif message["is"] == "progress":
            self.progress = message
        else:
            self._messages.put_nowait(message)


@dataclass(frozen=True)
class Carrier:
    """All hosts, in the order of their names."""

    hosts: Sequence[Host]
    client: Client

    @property
    def clients(self) -> Sequence[Host]:
        """Hosts that run the load."""
        return [host for host in self.hosts if host.role == "client"]

    @property
    def names(self) -> list[str]:
        """Names of the hosts that run the load."""
        return [host.name for host in self.clients]

    @property
    def servers(self) -> Sequence[Host]:
        """Hosts of which only the counters are read."""
        return [host for host in self.hosts if host.role == "server"]

    def do(self, work: Coroutine[Any, Any, T], *, meanwhile: Callable[[], None] | None = None) -> T:
        """Carry out something in the loop of Dask's client, and wait for it; signals are handled meanwhile.

        `meanwhile` is called here every `MEANWHILE_S`: a terminal may block it, and must not block that loop.
        """
        loop = self.client.loop.asyncio_loop  # type: ignore[union-attr]
        future = asyncio.run_coroutine_threadsafe(work, loop)
        while meanwhile and wait([future], timeout=MEANWHILE_S).not_done:
            meanwhile()
        return future.result()


@contextmanager
def connected(spec: str) -> Iterator[Carrier]:
    """The hosts of a specification, until the end; agents are ended before the workers."""
    try:
        import dask
        from distributed import Client
    except ModuleNotFoundError as error:
        raise workers.missing(error) from error
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(worker.SETTINGS))
        started = stack.enter_context(workers.named(spec).start())
        client = stack.enter_context(_client(Client, started))
        carrier = Carrier(_await_hosts(client, started), client)
        stack.callback(lambda: carrier.do(_end_all(carrier.hosts)))
        carrier.do(_meet(carrier.hosts))
        yield carrier


@contextmanager
def _client(kind: type[Client], started: Started) -> Iterator[Client]:
    try:
        client = kind(started.address, timeout=ANSWER_S, set_as_default=False, security=started.security)
    except (OSError, TimeoutError) as error:
        cause = error.__cause__ or error
        raise TargetError(
            f"cannot connect to the Dask scheduler at `{started.address}`: {cause}",
            hint="check that it runs, that its version of `distributed` is that of this machine, and that its "
            "certificate and yours are of the same authority",
        ) from error
    with client:
        yield client


def _await_hosts(client: Client, started: Started) -> list[Host]:
    deadline = time.monotonic() + started.wait_s
    while len(known := client.scheduler_info(n_workers=-1)["workers"]) < started.count:
        started.check()
        if time.monotonic() > deadline:
            raise TargetError(
                f"{len(known)} of {started.count} workers connected within {started.wait_s:.0f} s",
                hint="start workers: `python -m iosonde.features.many_hosts.worker ADDRESS NAME`",
            )
        time.sleep(0.05)
    found = [
        Host(
            name=str(each["name"]),
            address=address,
            client=client,
            process=started.processes.get(str(each["name"])),
            agents=started.agents,
        )
        for address, each in known.items()
    ]
    listed = list(started.processes)
    return sorted(found, key=lambda host: (listed.index(host.name) if listed else len(host.name), host.name))


async def _meet(hosts: Sequence[Host]) -> None:
    """Ask each host what it is, and compare with this machine."""
    own = worker.software()
    answers = await gather(_described(host) for host in hosts)
    for host, answer in zip(hosts, answers, strict=True):
        host.facts, host.machine, host.role = answer, answer["machine"], answer["role"]
        environment.require_same_software(host.name, answer["software"], own, "dask", "distributed")


async def _described(host: Host) -> Message:
    try:
        found: Message = await host.call(worker.describe, wait_s=START_S)
        return found
    except HostLostError as error:
        raise TargetError(str(error), hint="check the host, and that iosonde is installed there") from error
    except IosondeError as error:
        raise TargetError(f"on host `{host.name}`: {error.what}", where=error.where, hint=error.hint) from error


async def gather(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results of all; the first error cancels the others."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _end_all(hosts: Sequence[Host]) -> None:
    await asyncio.gather(*(host.end() for host in hosts))
