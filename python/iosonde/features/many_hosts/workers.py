"""Workers on the hosts that `--hosts` names, and a scheduler in this process to which they connect.

`local:N` starts N worker processes on this machine; `ssh:FILE` a worker on each host of the file; `slurm:N` on each
node of a job; `tls://HOST:PORT` uses the workers of a running scheduler. All are used in the same way afterwards.

Dask runs any program for anyone who may connect. So each scheduler and worker listens only on addresses that its peers
use, and answers only holders of a certificate of one authority: that of the session, or of the user's scheduler.

A process of the OpenSSH client starts each worker on a host, not Dask's `SSHCluster`: that requires asyncssh, another
implementation of SSH than the one that the user has configured, and its workers outlive a coordinator that is killed.

dask-jobqueue writes and submits the job of Slurm. It is one job of all nodes, not one for each worker: so the workers
start together and each is alone on its node. The workers are those of the other carriers, with their settings, not
`dask worker` with its defaults. The script has the session's key, which each worker reads from its standard input.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import math
import os
import select
import selectors
import shlex
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from iosonde.base import ssh_hosts, text_files
from iosonde.base.ssh_hosts import END_S, SshHost, WorkerProcess, close_all
from iosonde.base.text_files import expanded
from iosonde.base.tools import ask
from iosonde.errors import EngineError, TargetError
from iosonde.features.many_hosts import tls, worker
from iosonde.storage.targets import temporary_files

if TYPE_CHECKING:
    from distributed import Security

MOST_LOCAL_HOSTS = 64
LOOPBACK = "127.0.0.1"
START_S = 120.0
"""For workers to connect, and before that for ssh to connect and Python to start."""
WORKER = "iosonde.features.many_hosts.worker"

Order = dict[str, Any]
"""The first request to a worker (`worker.py`)."""


@dataclass(frozen=True, kw_only=True)
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
    processes: Mapping[str, WorkerProcess] = field(default_factory=dict)
    """Those that were started over ssh, by the names of hosts in their order."""
    agents: list[int] | None = None
    """Where the descriptors of agents on this machine are collected; their end is awaited."""


@dataclass(frozen=True, kw_only=True)
class NamedHosts:
    """The hosts of a specification, known before any of them is started or asked."""

    start: Callable[[], AbstractContextManager[Started]]
    """Starts their workers, which end with the context."""
    clients: Sequence[str] | None = None
    """Hosts that run the load, in order; None for those of a scheduler, which are known once it is asked."""
    servers: Sequence[str] = ()
    """Hosts of which only the counters are read."""
    note: str = ""
    """Facts about them that are not known yet."""


def named(spec: str) -> NamedHosts:
    """Return the hosts of the text of `--hosts`; `TargetError` if it is wrong."""
    kind, _, rest = spec.partition(":")
    if kind == "local":
        names = _local_names(spec, rest)
        return NamedHosts(clients=names, start=lambda: _on_this_machine(names))
    if kind == "ssh":
        listed = ssh_hosts.read(expanded(rest))
        by_role = {role: [each.called for each in listed.hosts if each.role == role] for role in ("client", "server")}
        return NamedHosts(clients=by_role["client"], servers=by_role["server"], start=lambda: _over_ssh(listed))
    if kind == "slurm":
        wanted = read_job(rest)
        return NamedHosts(
            clients=[f"node{number}" for number in range(1, wanted.nodes + 1)],
            note="Slurm chooses the nodes when the job starts; these names are placeholders",
            start=lambda: _over_slurm(wanted),
        )
    tls.check_scheduler(spec)
    return NamedHosts(
        note="a scheduler is not asked which hosts it has: time and bytes are those of one host",
        start=lambda: nullcontext(Started(address=spec, security=tls.configured("client"))),
    )


def missing(error: ModuleNotFoundError) -> TargetError:
    """The error for a package that is not installed."""
    name = str(error.name).partition(".")[0].replace("_", "-")
    extras = "hosts,slurm" if name == "dask-jobqueue" else "hosts"
    return TargetError(
        f"`--hosts` requires the package `{name}`",
        hint=f"install all that it requires: `{sys.executable} -m pip install 'iosonde[{extras}]'`",
    )


def _local_names(spec: str, text: str) -> list[str]:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_LOCAL_HOSTS:
        raise TargetError(
            f"`--hosts local:N` requires a number from 1 to {MOST_LOCAL_HOSTS}; got `{spec}`",
            hint="for four processes on this machine: `--hosts local:4`",
        )
    return [f"host{number}" for number in range(int(text))]


@contextmanager
def _on_this_machine(names: Sequence[str]) -> Iterator[Started]:
    """A scheduler in this process and worker processes, both on loopback."""
    with _scheduler(LOOPBACK) as orders, ExitStack() as stack:
        agents: list[int] = []
        stack.callback(lambda: _await_agents(agents))
        scratch = stack.enter_context(temporary_files.scratch())
        workers = stack.enter_context(_processes([None] * len(names), "local", end_s=0))
        for name, process in zip(names, workers, strict=True):
            process.send(orders[LOOPBACK] | {"name": name, "scratch": str(scratch)})
        yield _started(orders[LOOPBACK], len(names), check=lambda: _check(workers), agents=agents)


@contextmanager
def _over_ssh(listed: ssh_hosts.SshHosts) -> Iterator[Started]:
    """A worker on each host, and a scheduler in this process on the addresses from which ssh has connected."""
    with _processes(listed.hosts, "ssh") as workers:
        named = _resolved(listed.coordinator) if listed.coordinator else ""
        seen = zip(_addresses_seen(workers), listed.hosts, strict=True)
        reached_at = [named or _checked(*each) for each in seen]
        with _scheduler(*dict.fromkeys(reached_at)) as orders:
            for process, host, address in zip(workers, listed.hosts, reached_at, strict=True):
                process.send(orders[address] | {"name": host.called, "role": host.role})
            by_name = {host.called: process for host, process in zip(listed.hosts, workers, strict=True)}
            try:
                yield _started(
                    next(iter(orders.values())), len(workers), check=lambda: _check(workers), processes=by_name
                )
            finally:
                close_all(workers)  # Before the scheduler.


@contextmanager
def _over_slurm(wanted: SlurmJob) -> Iterator[Started]:
    """A scheduler in this process, and a worker on each node of a job."""
    try:
        slurm_job()  # Before anything is started.
    except ModuleNotFoundError as error:
        raise missing(error) from error
    host = _resolved(wanted.coordinator) if wanted.coordinator else _routed()
    with _scheduler(host) as orders, submitted_job(wanted, orders[host]) as check:
        yield _started(orders[host], wanted.nodes, check=check, wait_s=wanted.wait_s)


def _started(order: Order, count: int, **options: Any) -> Started:
    security = tls.of_session(order["certificate"], order["key"])
    return Started(address=order["scheduler"], security=security, count=count, **options)


@contextmanager
def _processes(
    hosts: Sequence[SshHost | None], carrier: str, *, end_s: float = END_S
) -> Iterator[Sequence[WorkerProcess]]:
    """Workers that wait for their order; they end with their input, at the latest when this process dies."""
    processes: list[WorkerProcess] = []
    try:
        for host in hosts:
            processes.append(WorkerProcess.start(WORKER, "--carrier", carrier, host=host))
        yield processes
    finally:
        close_all(processes, end_s)


def _check(processes: Sequence[WorkerProcess]) -> None:
    """Raise if a worker has ended."""
    for each in processes:
        if (status := each.process.poll()) is not None:
            raise _ended(each, status)


def _ended(process: WorkerProcess, status: int) -> TargetError | EngineError:
    if process.host:
        return process.host.error(status, process.errors())
    last = process.errors().decode(errors="replace").strip().splitlines()[-1:]
    return EngineError(f"a worker on this machine ended with status {status}", where="".join(last))


def _addresses_seen(workers: Sequence[WorkerProcess]) -> list[str]:
    """Wait for the address of this machine as each host sees it; `TargetError` for a host that reports none in time."""
    found: dict[WorkerProcess, str] = {}
    deadline = time.monotonic() + START_S
    with selectors.DefaultSelector() as selector:
        for each in workers:
            selector.register(each.output, selectors.EVENT_READ, each)
        while waiting := [key.data for key in selector.get_map().values()]:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                host = waiting[0].host
                raise TargetError(
                    f"the worker on host `{host.called}` (`{host.address}`) did not start within {START_S:.0f} s",
                    hint=f"try `{host.by_hand()}`",
                )
            for key, _ in ready:
                lines = key.data.read()
                if lines is None:
                    raise _ended(key.data, key.data.end())
                for line in lines:  # Among what the host prints at each login.
                    if line.startswith(worker.CONNECTED_FROM) and key.data not in found:
                        found[key.data] = line.removeprefix(worker.CONNECTED_FROM).decode("ascii", errors="replace")
                        selector.unregister(key.fileobj)
    return [found[each] for each in workers]


def _checked(address: str, host: SshHost) -> str:
    """An address that a host reports, on which the scheduler is to listen; `TargetError` if it is none, or all."""
    with suppress(ValueError):
        if not ipaddress.ip_address(address).is_unspecified:
            return address
    raise TargetError(
        f"host `{host.called}` reports `{address[:60]}` as the address from which ssh connected",
        hint='name an address of this machine that the hosts reach in the file: `coordinator = "10.0.0.1"`',
    )


def _await_agents(agents: Sequence[int]) -> None:
    """Wait for agents to restore this machine, whose workers have ended."""
    deadline = time.monotonic() + worker.END_S
    for agent in agents:
        is_over, _, _ = select.select([agent], [], [], max(0.0, deadline - time.monotonic()))
        if not is_over:
            signal.pidfd_send_signal(agent, signal.SIGKILL)
        os.close(agent)


_COORDINATOR = 'name an IP address of this machine that the hosts reach: `coordinator = "10.0.0.1"`'


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


@contextmanager
def _scheduler(*hosts: str) -> Iterator[Mapping[str, Order]]:
    """A scheduler that listens on these IP addresses, with a certificate of its own, and ends with this process.

    Yields the order of a worker that reaches this machine at each of them.
    """
    import dask
    from distributed import Scheduler, SpecCluster
    from distributed.comm.addressing import unparse_host_port

    class QuietScheduler(Scheduler):
        def start_http_server(self, *arguments: Any, **settings: Any) -> None:
            """Start none: Dask's has no authentication."""

    try:
        certificate, key = tls.create()
    except ModuleNotFoundError as error:
        raise missing(error) from error
    for host in hosts:
        _check_own(host)
    security = tls.of_session(certificate, key)
    options = {
        "host": [unparse_host_port(host) for host in hosts],
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
        secret = {"certificate": certificate, "key": key}
        yield {host: {"scheduler": address, **secret} for host, address in zip(hosts, found, strict=True)}


@contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    """Dask and dask-jobqueue write the key to a file for a moment: `cleanup` finds that of a killed process."""
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


_JOB_KEYS = (
    "`nodes`, and optionally `partition`, `account`, `walltime`, `directives`, `prologue`, `python`, `coordinator`, "
    "`log_directory`, `wait_s`"
)
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=4096)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:,@/+-]+$", max_length=255)]
_ENDED = (
    *("", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
ASKED_EVERY_S = 10.0
"""Between questions to the controller, which all users share."""


class SlurmJob(BaseModel):
    """The file of `slurm:FILE`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: Annotated[int, Field(ge=1, le=10_000)]
    partition: Word | None = None
    account: Word | None = None
    walltime: Word | None = None
    directives: list[Line] = []
    """Further options of sbatch, such as `--constraint=nvme`."""
    prologue: list[Line] = []
    """Lines of the job's script before the workers start, such as `module load python`."""
    python: str = sys.executable
    """The Python with iosonde on the nodes."""
    coordinator: Word | None = None
    """Address of this machine for the nodes; without it the one that Dask finds."""
    log_directory: str | None = None
    """Where Slurm writes the output of the workers; without it nowhere."""
    wait_s: Annotated[float, Field(gt=0)] = 3600
    """For the job to start."""


def read_job(text: str) -> SlurmJob:
    """The job that `slurm:TEXT` names: a number of nodes, or a file."""
    hint = f"its keys are {_JOB_KEYS}"
    if text.isdecimal():
        found = {"nodes": int(text)}
        return text_files.validated(SlurmJob, found, f"slurm:{text}", "Slurm job", TargetError, hint=hint)
    return text_files.read_toml(SlurmJob, expanded(text), "Slurm job", TargetError, hint=hint)


def slurm_job() -> Any:
    """The class of a job of dask-jobqueue, which exits with 0 at Ctrl-C from its import on: that is undone.

    Raises `ModuleNotFoundError` without the package.
    """
    at_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue.slurm import SLURMJob
    finally:
        signal.signal(signal.SIGINT, at_ctrl_c)
    return SLURMJob


def job(wanted: SlurmJob, order: Mapping[str, Any]) -> Any:
    """The job of dask-jobqueue, which is not submitted yet; `order` is the first line that each worker reads."""
    import dask

    # Skipped: one task for one worker, its CPUs and memory, and a time limit of half an hour.
    skipped = ["-n 1", "--cpus-per-task=", "--mem=", *([] if wanted.walltime else ["-t "])]
    own = [f"--nodes={wanted.nodes}", "--ntasks-per-node=1", "--exclusive", "--mem=0", "--no-requeue", "--no-kill"]
    logs = [] if wanted.log_directory else ["-o /dev/null"]
    with dask.config.set({"jobqueue.slurm": _NO_CONFIGURATION}):
        made = slurm_job()(
            scheduler=order["scheduler"],
            name="iosonde",
            job_name="iosonde",
            cores=1,
            memory="1MB",
            processes=1,
            queue=wanted.partition,
            account=wanted.account,
            walltime=wanted.walltime,
            log_directory=wanted.log_directory,
            job_directives_skip=skipped,
            job_extra_directives=[*own, *logs, *wanted.directives],
            job_script_prologue=wanted.prologue,
        )
    worker = shlex.join([wanted.python, "-P", "-m", "iosonde.features.many_hosts.worker", "--carrier", "slurm"])
    run = "srun --ntasks-per-node=1 --cpu-bind=none --no-kill --kill-on-bad-exit=0 --wait=0"
    made._command_template = f"exec {run} {worker} <<'ORDER'\n{json.dumps(order)}\nORDER"
    return made


_NO_CONFIGURATION: Mapping[str, Any] = {
    **dict.fromkeys(("cores", "memory", "python", "queue", "account", "walltime", "interface", "local-directory")),
    **dict.fromkeys(("extra", "env-extra", "log-directory", "job-cpu", "job-mem", "death-timeout")),
    **{"name": "iosonde", "processes": 1, "worker-command": "none", "shebang": "#!/usr/bin/env bash"},
    **{"worker-extra-args": [], "job-extra-directives": [], "job-script-prologue": [], "job-directives-skip": []},
    **dict.fromkeys(("job-extra", "header-skip")),
}
"""Instead of defaults and the user's configuration of dask-jobqueue, which is for computations."""


@contextmanager
def submitted_job(wanted: SlurmJob, order: Mapping[str, Any]) -> Iterator[Callable[[], None]]:
    """Submit the job and cancel it at exit; yields a check that raises if it has ended.

    dask-jobqueue writes the script, which has the key, for a moment to a temporary file: these must be in a directory
    that only this user can enter.
    """
    started = job(wanted, order)
    try:
        asyncio.run(started.start())
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(
            f"`sbatch` did not accept the job: {_reason(error)}",
            hint="check partition, account and directives, and that this machine may submit jobs",
        ) from error
    try:
        yield _job_check(started.job_id, wanted)
    finally:
        asyncio.run(started.close())


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if "error" in line.lower()]
    return (lines or [str(error)])[-1].removeprefix("sbatch: ").strip()


def _job_check(job_id: str, wanted: SlurmJob) -> Callable[[], None]:
    """Return a function that raises if the job has ended."""
    asked_at_s = -math.inf

    def check() -> None:
        nonlocal asked_at_s
        if time.monotonic() < asked_at_s + ASKED_EVERY_S:
            return
        asked_at_s = time.monotonic()
        asked = ask("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T %r")
        if asked is None or (asked.returncode and "Invalid job id" not in asked.stderr):
            return  # The controller did not answer in time.
        found = asked.stdout.split()
        if (found[0] if found else "") in _ENDED:
            state = " ".join(found) or "it is not known any more"
            logs = wanted.log_directory
            place = f"see `{logs}`" if logs else "set `log_directory` to see its output"
            raise TargetError(
                f"the Slurm job {job_id} ended before its workers connected: {state}",
                hint=f"iosonde of the same version must be installed on the nodes as `{wanted.python}`; {place}",
            )

    return check
