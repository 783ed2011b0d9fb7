"""The hosts of a study, as the coordinator sees them: Dask workers that relay messages to agents.

`local:N` starts a scheduler in this process and N worker processes on this machine; `ssh:FILE` starts a worker on each
host of the file, and a scheduler here; `slurm:N` on each node of a job; `tls://HOST:PORT` uses the workers of a running
scheduler. All are used in the same way afterwards.

Dask runs any program for anyone who may connect. So each scheduler and worker listens only on addresses that its peers
use, and answers only holders of a certificate of one authority: that of the session, or of the user's scheduler.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from iosonde import ssh_hosts
from iosonde.errors import EngineError, IosondeError, TargetError
from iosonde.execution import environment
from iosonde.features.many_hosts import clock, relay, slurm, ssh_workers, tls, worker
from iosonde.features.many_hosts.named_hosts import check_scheduler, local_count, local_name
from iosonde.python_process import module_command
from iosonde.storage.targets import temporary_files
from iosonde.text_files import expanded
from iosonde.tools import Process

if TYPE_CHECKING:
    from distributed import Client, Security

LOOPBACK = "127.0.0.1"
START_S = 120.0
"""For workers to connect."""
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
    software: Message = field(default_factory=dict)
    directory: str = ""
    """Of its result set."""
    role: str = "client"
    """`server` for a host without load, whose counters are read."""
    facts: Message = field(default_factory=dict)
    """Of a server (`server_host.describe`)."""
    devices: Mapping[str, Message] = field(default_factory=dict)
    """Names of each target on it that is a block device (`same_device.seen`), by the name that the user gave."""
    clock_offset_ns: int = 0
    """Its clock minus that of this machine; 0 on this machine."""
    clock_bound_ns: int = 0
    """Largest error of that."""
    clock_drift: clock.Drift | None = None
    """Of its clock over the session; None on this machine."""
    is_local: bool = False
    """True if its worker was started here, and dies with this process."""
    agent: int | None = None
    """Descriptor of the agent's process, of a local host."""
    reason: Callable[[], str] = str
    """Returns why its worker ended, as far as this machine knows."""
    progress: Message | None = None
    """Its latest sums of the run in progress."""
    lost: str = ""
    """Reason for which it cannot be used any more; empty while it can."""
    _is_reached: bool = True
    _exchanges: list[clock.Exchange] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    _listening: asyncio.Task[None] | None = None

    async def call(self, function: Any, *arguments: Any, wait_s: float = ANSWER_S) -> Any:
        """Call a function of `relay` on the host."""
        if self.lost:
            raise HostLostError(self.name, self.lost)
        try:
            answers = await asyncio.wait_for(
                self.client.run(function, *arguments, workers=[self.address]), timeout=wait_s
            )
            return answers[self.address]
        except TimeoutError:
            self.lost = self.reason() or f"no answer for {wait_s:.0f} s"
        except (OSError, RuntimeError, ValueError, KeyError, ModuleNotFoundError) as error:
            self.lost = self.reason() or f"{error}" or type(error).__name__
        self._is_reached = False
        raise HostLostError(self.name, self.lost)

    async def send(self, do: str, **facts: Any) -> None:
        """Send a request to the agent."""
        await self.call(relay.send, {"do": do, **facts})

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
        if self.machine == relay.machine():
            return
        self._exchanges += [await self._exchange() for _ in range(EXCHANGES)]
        # The first ones show its drift over the session.
        del self._exchanges[EXCHANGES:-EXCHANGES_KEPT]
        found = clock.offset(self._exchanges[-EXCHANGES_KEPT:], at_ns)
        self.clock_offset_ns, self.clock_bound_ns = found.value_ns, found.uncertainty_ns
        self.clock_drift = clock.drift(self._exchanges)

    async def _exchange(self) -> clock.Exchange:
        sent_ns = time.time_ns()
        read_ns = await self.call(relay.unix_ns)
        return clock.Exchange(sent_ns=sent_ns, received_ns=read_ns, replied_ns=read_ns, returned_ns=time.time_ns())

    async def start(self) -> None:
        """Start the agent, if it has not been started, and listen to it."""
        if self._listening:
            return
        agent = await self.call(relay.start, LEASE_S)
        if self.is_local:
            self.agent = os.pidfd_open(agent)
        self._listening = asyncio.create_task(self._listen())

    async def end(self) -> None:
        """End the agent; kill it if it hangs. Without its worker it ends by itself."""
        if self._listening:
            self._listening.cancel()
        if self._listening and self._is_reached:
            is_hanging, self.lost = self.lost.startswith("its agent"), ""
            with suppress(HostLostError):
                if is_hanging:
                    await self.call(relay.kill)
                await self.call(relay.end, wait_s=relay.END_S + ANSWER_S)

    async def _listen(self) -> None:
        """Ask for messages until the host is lost, which shows that it is not."""
        try:
            while True:
                for message in await self.call(relay.receive, POLL_S, wait_s=POLL_S + ANSWER_S):
                    self._take(message)
        except HostLostError:
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
            self._notes.append(message["text"])
        elif message["is"] == "progress":
            self.progress = message
        else:
            self._messages.put_nowait(message)

    def take_notes(self) -> list[str]:
        """Return messages for the user since they were last taken."""
        notes, self._notes = self._notes, []
        return notes


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
        raise _missing(error) from error
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(worker.SETTINGS))
        local: list[Host] = []
        kind, _, rest = spec.partition(":")
        if kind == "local":
            started = stack.enter_context(_on_this_machine(local_count(spec, rest), local))
        elif kind == "ssh":
            started = stack.enter_context(_over_ssh(ssh_hosts.read(expanded(rest))))
        elif kind == "slurm":
            started = stack.enter_context(_over_slurm(slurm.read(rest)))
        else:
            check_scheduler(spec)
            started = Started(spec, security=tls.configured("client"))
        client = stack.enter_context(_client(Client, started))
        hosts = _await_hosts(client, started)
        if kind == "local":
            local += [replace(host, is_local=True) for host in hosts]
            hosts = local
        carrier = Carrier(hosts, client)
        stack.callback(lambda: carrier.do(_end_all(hosts)))
        carrier.do(_meet(hosts))
        yield carrier


def _missing(error: ModuleNotFoundError) -> TargetError:
    name = str(error.name).partition(".")[0].replace("_", "-")
    extras = "hosts,slurm" if name == "dask-jobqueue" else "hosts"
    return TargetError(
        f"`--hosts` requires the package `{name}`",
        hint=f"install all that it requires: `{sys.executable} -m pip install 'iosonde[{extras}]'`",
    )


@dataclass(frozen=True)
class Started:
    """A scheduler, and the workers that it has or is going to have."""

    address: str
    security: Security
    count: int = 1
    """Workers to wait for."""
    check: Callable[[], None] = lambda: None
    """Raises if one of them will not connect."""
    wait_s: float = START_S
    """For all of them to connect."""
    reasons: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """By the names of hosts in their order, if it is known: why a worker ended, as far as this machine knows."""


@contextmanager
def _on_this_machine(count: int, hosts: list[Host]) -> Iterator[Started]:
    """A scheduler in this process and worker processes, both on loopback; `hosts` are those of the workers."""
    with _scheduler(LOOPBACK) as own, ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        stack.callback(lambda: _await_agents(hosts))
        processes = stack.enter_context(_workers(own, count, errors))
        yield Started(own.address, own.security, count, lambda: _check_local(processes, errors))


@contextmanager
def _over_ssh(listed: ssh_hosts.SshHosts) -> Iterator[Started]:
    """A worker on each host, and a scheduler in this process on the addresses from which ssh has connected."""
    with ssh_workers.started(listed) as workers:
        named = _resolved(listed.coordinator) if listed.coordinator else ""
        seen = zip(ssh_workers.addresses_seen(workers), listed.hosts, strict=True)
        reached_at = [named or ssh_workers.checked(*each) for each in seen]
        with _scheduler(*dict.fromkeys(reached_at)) as own:
            for each, host in zip(workers, reached_at, strict=True):
                order = {**own.order(host), "name": each.host.called, "role": each.host.role}
                ssh_workers.give(each.process, order)

            def check() -> None:
                for each in workers:
                    each.check()

            reasons = {each.host.called: each.problem for each in workers}
            try:
                yield Started(own.address, own.security, len(workers), check, reasons=reasons)
            finally:
                ssh_workers.end(workers)


@contextmanager
def _over_slurm(wanted: slurm.SlurmJob) -> Iterator[Started]:
    """A scheduler in this process, and a worker on each node of a job."""
    try:
        slurm.slurm_job()  # Before anything is started.
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    host = _resolved(wanted.coordinator) if wanted.coordinator else _routed()
    with _scheduler(host) as own, slurm.submitted(wanted, own.order(host)) as check:
        yield Started(own.address, own.security, wanted.nodes, check, wait_s=wanted.wait_s)


def _routed() -> str:
    """The address of this machine on its default route, as Dask finds it; without one that of its host name."""
    from distributed.utils import get_ip

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Couldn't detect a suitable IP")
        return str(get_ip())  # type: ignore[no-untyped-call]


def _resolved(name: str) -> str:
    """The IP address of a coordinator that the user names."""
    try:
        found = str(socket.getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise TargetError(f"cannot resolve the coordinator `{name}`: {error}", hint=_COORDINATOR) from None
    address = ipaddress.ip_address(found)
    if address.is_unspecified or (address.is_loopback and name not in (found, f"[{found}]", "localhost")):
        raise TargetError(f"the coordinator cannot be `{name}`, which is `{found}` on this machine", hint=_COORDINATOR)
    return found


_COORDINATOR = 'name an IP address of this machine that the hosts reach: `coordinator = "10.0.0.1"`'


@dataclass(frozen=True)
class _Scheduler:
    """A scheduler in this process."""

    addresses: Mapping[str, str]
    """By the IP address on which it listens."""
    certificate: str
    key: str

    @property
    def address(self) -> str:
        return next(iter(self.addresses.values()))

    @property
    def security(self) -> Security:
        return tls.of_session(self.certificate, self.key)

    def order(self, host: str) -> dict[str, Any]:
        """The order of a worker that reaches this machine at one of the IP addresses."""
        return {"scheduler": self.addresses[host], "certificate": self.certificate, "key": self.key}


@contextmanager
def _scheduler(*hosts: str) -> Iterator[_Scheduler]:
    """A scheduler that listens on these IP addresses, with a certificate of its own, and ends with this process."""
    import dask
    from distributed import Scheduler, SpecCluster

    class QuietScheduler(Scheduler):
        def start_http_server(self, *arguments: Any, **settings: Any) -> None:
            """Start none: Dask's has no authentication."""

    try:
        certificate, key = tls.create()
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    for host in hosts:
        _check_own(host)
    security = tls.of_session(certificate, key)
    options = {
        "host": [worker.bracketed(host) for host in hosts],
        "port": 0,
        "protocol": "tls://",
        "security": security,
        "dashboard": False,
    }
    scheduler = {"cls": QuietScheduler, "options": options}
    with (
        temporary_files.scratch() as scratch,
        _temporary_files_in(scratch),
        dask.config.set({"temporary-directory": str(scratch)}),
        # Silent: a lost host is reported once.
        SpecCluster({}, scheduler, security=security, silence_logs=logging.CRITICAL) as cluster,  # type: ignore[no-untyped-call]
    ):
        found = [str(each.contact_address) for each in cluster.scheduler.listeners]
        yield _Scheduler(dict(zip(hosts, found, strict=True)), certificate, key)


@contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    """Dask writes the key to a file for a moment: `cleanup` finds that of a killed process."""
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _check_own(host: str) -> None:
    """`TargetError` unless this machine has the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise TargetError(
            f"hosts reach this machine at `{host}`, but it cannot listen there: {error.strerror}", hint=_COORDINATOR
        ) from None


@contextmanager
def _workers(own: _Scheduler, count: int, errors: IO[bytes]) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Worker processes on this machine, killed at the end; if this process dies, they end with their input."""
    processes: list[Process] = []
    command = module_command("iosonde.features.many_hosts.worker", "--carrier", "local")
    with temporary_files.scratch() as scratch:
        try:
            for number in range(count):
                # In a group of its own: Ctrl-C is for the coordinator, which stops the agents.
                process = Process(command, stdin=subprocess.PIPE, stdout=errors, stderr=errors, process_group=0)
                processes.append(process)
                name = {"name": local_name(number), "scratch": str(scratch)}
                ssh_workers.give(process, own.order(LOOPBACK) | name)
            yield processes
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()
                with suppress(BrokenPipeError):
                    assert process.stdin
                    process.stdin.close()


def _await_agents(hosts: Sequence[Host]) -> None:
    """Wait for agents to restore this machine, whose workers have ended."""
    deadline = time.monotonic() + relay.END_S
    for host in hosts:
        if host.agent is not None:
            is_over, _, _ = select.select([host.agent], [], [], max(0.0, deadline - time.monotonic()))
            if not is_over:
                signal.pidfd_send_signal(host.agent, signal.SIGKILL)
            os.close(host.agent)


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


def _check_local(processes: Sequence[subprocess.Popen[bytes]], errors: IO[bytes]) -> None:
    if dead := next((each for each in processes if each.poll() is not None), None):
        errors.seek(0)
        last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
        raise EngineError(f"a worker on this machine ended with status {dead.returncode}", where="".join(last))


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
        Host(name=str(each["name"]), address=address, client=client, reason=started.reasons.get(str(each["name"]), str))
        for address, each in known.items()
    ]
    listed = list(started.reasons)
    return sorted(found, key=lambda host: (listed.index(host.name) if listed else len(host.name), host.name))


async def _meet(hosts: Sequence[Host]) -> None:
    """Ask each host what it is, and compare with this machine."""
    own = relay.software()
    answers = await gather(_described(host) for host in hosts)
    for host, answer in zip(hosts, answers, strict=True):
        host.machine, host.software, host.role = answer["machine"], answer["software"], answer["role"]
        environment.require_same_software(host.name, host.software, own, "dask", "distributed")


async def _described(host: Host) -> Message:
    try:
        found: Message = await host.call(relay.describe, wait_s=START_S)
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
