"""A study on many hosts (`--hosts`): each run starts on all of them at one instant, and its records become one."""

from __future__ import annotations

import asyncio
import hashlib
import io
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from iosonde.engine.protocol import Event
from iosonde.errors import EngineError, ResultsError, TargetError
from iosonde.execution import environment
from iosonde.execution.admission import describe
from iosonde.execution.attempt import Attempt, requested
from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import find_engine
from iosonde.execution.run_loop import Observer, RunLoop
from iosonde.execution.session import HostOptions, Interrupted, require_startable
from iosonde.execution.stop import Stop, after, stop_on_signals
from iosonde.features.many_hosts import host_plan, merge, progress, same_device, worker, workers
from iosonde.features.many_hosts.hosts import Carrier, Host, HostLostError, Message, connected, gather
from iosonde.features.many_hosts.workers import START_S
from iosonde.plan import Case, Plan, Run
from iosonde.planning.procedure import Schedule
from iosonde.results.reading import manifest
from iosonde.results.result_set import ResultSet
from iosonde.results.schema import (
    MANIFEST,
    RECORD_TABLES,
    Failure,
    Record,
    RecordWarning,
    ServerCounters,
    ServerReading,
)
from iosonde.storage import open_target
from iosonde.storage.safety import guard
from iosonde.storage.safety.guard import Consent

MARGIN_NS = 500_000_000
"""From the readiness of the last host to the start. An engine needs 100 ms of it, and messages a few."""
STOP_S = 15.0
"""For an agent to end a run that is stopped."""
CLEANUP_S = 600.0
"""For a host to remove leftovers."""
COLLECT_S = 60.0
"""For a host to send a record."""


class Together:
    """The carrier of `iosonde run --hosts`."""

    def planned(self, plan: Plan, options: HostOptions) -> Plan:
        """Check a plan for hosts as far as their specification names them, and return what all of them would do."""
        host_plan.check(plan)
        hosts = workers.named(options.hosts)
        read_on = f"counters are read on {', '.join(hosts.servers)}" if hosts.servers else ""
        plan = plan.model_copy(update={"notes": [*plan.notes, *filter(None, (read_on, hosts.note))]})
        if hosts.clients is None:
            return plan
        names = host_plan.taking_part(plan, hosts.clients)
        host_plan.check_names(names)
        host_plan.check_space(plan, len(names))
        return host_plan.of_all(plan, names)

    def execute(
        self, plan: Plan, directory: Path, options: HostOptions, *, observer: Observer, time_limit_s: float | None,
        consent: Consent,
    ) -> ResultSet:  # fmt: skip
        """Carry out a plan on hosts, and keep the totals in a new directory, with those of hosts below it."""
        self.planned(plan, options)  # Errors that need no host, before any worker starts.
        with _connected(options, plan) as carrier:
            host_plan.check_names(carrier.names)
            host_plan.check_space(plan, len(carrier.names))
            plan = host_plan.on_hosts(plan, carrier.names)
            _require_consent(plan, consent, observer.note)
            # Each host checks room, memory, devices and file systems as this machine has done.
            own = {host: host_plan.of_host(plan, host.name).model_dump(mode="json") for host in carrier.clients}
            carrier.do(gather(_asked(host, "checked", "check", plan=each) for host, each in own.items()))
            result_set = ResultSet.create(directory, plan)
            return _carry_out(result_set, carrier, options, observer, time_limit_s, consent, retry_failed=False)

    def resume(
        self, result_set: ResultSet, options: HostOptions, *, observer: Observer, time_limit_s: float | None,
        retry_failed: bool, consent: Consent,
    ) -> ResultSet:  # fmt: skip
        """Carry out the missing runs, on the same hosts."""
        host_plan.check(result_set.plan)
        if (clients := workers.named(options.hosts).clients) is not None:
            host_plan.taking_part(result_set.plan, clients)
        with _connected(options, result_set.plan) as carrier:
            if carrier.names != result_set.plan.hosts:
                raise ResultsError(
                    f"the study was started on {', '.join(result_set.plan.hosts)}; got {', '.join(carrier.names)}",
                    hint="resume with the same hosts",
                )
            _require_consent(result_set.plan, consent, observer.note)
            return _carry_out(result_set, carrier, options, observer, time_limit_s, consent, retry_failed=retry_failed)

    def cleanup(self, options: HostOptions) -> list[dict[str, Any]]:
        """Remove leftovers on all hosts; a host that cannot is reported like a leftover that remains."""
        with connected(options.hosts) as carrier:
            found = carrier.do(gather(_cleaned(hosts) for hosts in _by_machine(carrier.hosts)))
        return [entry for of_host in found for entry in of_host]


@contextmanager
def _connected(options: HostOptions, plan: Plan) -> Iterator[Carrier]:
    """Those of the hosts that the study uses, and all servers."""
    with connected(options.hosts) as carrier:
        yield replace(carrier, hosts=[*host_plan.taking_part(plan, carrier.clients), *carrier.servers])


def _require_consent(plan: Plan, consent: Consent, note: Callable[[str], None]) -> None:
    """Check the target here, and the consent to overwrite it on all hosts; each host checks its own later."""
    try:
        require_startable(plan, consent, note)
    except TargetError as error:
        place = ", ".join(plan.hosts)
        where = f"{error.where}; on the hosts {place}" if error.where else f"on the hosts {place}"
        raise TargetError(error.what, where=where, hint=error.hint) from None
    for each in plan.destroys if host_plan.is_device(plan) else ():
        note(f"`{each.path}` of {', '.join(plan.hosts)}: {each.what}")


async def _asked(host: Host, answered: str, do: str, **facts: Any) -> dict[str, Any]:
    """Send a request, and return the answer; `TargetError` if the host refuses."""
    try:
        await host.start()
        await host.send(do, **facts)
        answer = await host.receive(answered, "refused")
    except HostLostError as error:
        raise EngineError(str(error), hint="check the host, then resume") from error
    if answer["is"] == "refused":
        raise TargetError(f"on host `{host.name}`: {answer['what']}", where=answer["where"], hint=answer["hint"])
    return answer


def _by_machine(hosts: Iterable[Host]) -> list[list[Host]]:
    """The hosts of each machine, which use one journal and the same devices: one after another."""
    machines: dict[str, list[Host]] = {}
    for host in hosts:
        machines.setdefault(host.machine, []).append(host)
    return list(machines.values())


async def _cleaned(hosts: Sequence[Host]) -> list[dict[str, Any]]:
    cleaned: list[dict[str, Any]] = []
    for host in hosts:
        try:
            found = await host.call(worker.cleanup, wait_s=CLEANUP_S)
        except HostLostError as error:
            found = [{"path": "", "result": str(error), "failed": True}]
        cleaned += [{"host": host.name, **entry} for entry in found]
    return cleaned


def _carry_out(
    result_set: ResultSet, carrier: Carrier, options: HostOptions, observer: Observer, time_limit_s: float | None,
    consent: Consent, *, retry_failed: bool,
) -> ResultSet:  # fmt: skip
    with result_set.lock(), stop_on_signals() as stop, after(time_limit_s, stop):
        session = secrets.token_hex(4)
        schedule = Schedule(result_set, retry_failed=retry_failed, session=session)
        if not schedule.next_run():
            return result_set
        facts = environment.capture(find_engine())
        coordinator = _Coordinator(
            result_set=result_set,
            carrier=carrier,
            observer=observer,
            stop=stop,
            options=options,
            consent=consent,
            servers=Servers(carrier.servers),
            session=session,
            environment=result_set.write_environment(facts),
            facts=facts,
        )
        carrier.do(coordinator.open())
        with guard.shared_claims():
            RunLoop(result_set, observer, stop, coordinator.attempt).carry_out_all(schedule)
        if stop.is_set() and schedule.next_run():
            if not stop.is_time_over:
                raise Interrupted(result_set)
            again = f"iosonde resume {result_set.directory} --hosts ..."
            observer.note(f"the time limit is reached, and completed runs are kept. Continue with: {again}")
    return result_set


@dataclass(frozen=True, kw_only=True)
class _Coordinator:
    """Carries out runs on all hosts of a session."""

    result_set: ResultSet
    carrier: Carrier
    observer: Observer
    stop: Stop
    options: HostOptions
    consent: Consent
    servers: Servers
    session: str
    environment: str
    facts: dict[str, Any]
    """The environment of this machine, whose name in the result set is `environment`."""
    setups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Setup of the last run on each target (`Case.setup_key`)."""

    @property
    def hosts(self) -> Sequence[Host]:
        """Those that run the load."""
        return self.carrier.clients

    async def open(self) -> None:
        """Open a session on each host: target, guard and engine are checked there, before any run."""
        self.servers.check(self.result_set.plan)
        await gather(self._open(hosts) for hosts in _by_machine(self.hosts))
        names = {host.name: host.machine for host in self.hosts}
        for path in dict.fromkeys(path for host in self.hosts for path in host.devices):
            found = {host.name: host.devices[path] for host in self.hosts if path in host.devices}
            same_device.check(path, names, found, self.consent.confirm)

    async def _open(self, hosts: Sequence[Host]) -> None:
        # One after another: the cost of the harness is measured once per machine, and the first one claims a device.
        for number, host in enumerate(hosts):
            host.directory = str(self.result_set.directory / "hosts" / host.name)
            plan = host_plan.of_host(self.result_set.plan, host.name)
            answer = await _asked(
                host,
                "opened",
                "open",
                directory=host.directory,
                plan=plan.model_dump(mode="json"),
                session=self.session,
                destroy=self.consent.destroy,
                confirm=self.consent.confirm,
                shares_claims=number > 0,
            )
            host.devices = answer["devices"]

    def attempt(self, run: Run, case: Case, number: int, on_event: Callable[[Event], None]) -> Attempt | None:
        """Carry out one run on all hosts; None if it was stopped and leaves no record."""
        started_at = _now()
        plan = self.result_set.plan
        planned = host_plan.of_case(case, self.hosts)
        hosts = [host for host in planned if not host.lost]
        lost = [f"{HostLostError(host.name, host.lost)}" for host in planned if host.lost]
        if lost and (case.parameters.get("hosts") or (host_plan.is_prepared_once(plan) and planned[0].lost)):
            return self._lost(run, case, number, started_at, lost[0])
        for host in hosts:
            host.progress = None
        requests = {host: host_plan.run_of_host(plan, run, host.name).model_dump(mode="json") for host in hosts}
        try:
            self.carrier.do(self._remove_setup(case))
            run_together = RunTogether(requests, host_plan.is_prepared_once(plan), lambda: self.servers.start(case))
            try:
                carried_out = run_together.carry_out(self.stop)
                records = self.carrier.do(carried_out, meanwhile=lambda: _report_progress(hosts, on_event))
            finally:
                self.carrier.do(self.servers.stop(time.time_ns()))
            parts = self.carrier.do(gather(_collected(host, name) for host, name in records.items()))
        except HostLostError as error:
            return self._lost(run, case, number, started_at, str(error))
        finally:
            for host in self.hosts:
                notes, host.notes = host.notes, []
                for text in notes:
                    self.observer.note(f"{host.name}: {text}")
        if not parts:
            return None
        total = merge.total(
            parts,
            run,
            number,
            session=self.session,
            environment=self.facts,
            name=self.environment,
            study=plan.study,
            servers=self.servers.reading,
            coordinator_cpu_share=run_together.cpu_share,
        )
        if total.record.result:
            on_event(progress.summary(total.done))
        return replace(total, record=_with_lost(total.record, len(hosts), lost)) if lost else total

    async def _remove_setup(self, case: Case) -> None:
        """Remove the setup of the last run on all hosts, before one of them creates the next.

        Hosts of one machine share what the kernel has once, such as the connections to an NFS server.
        """
        target, is_fresh = host_plan.target_named(self.result_set.plan, case), case.setup and case.setup.fresh == "run"
        before, self.setups[target] = self.setups.get(target, ()), case.setup_key
        if before and (is_fresh or before != case.setup_key):
            hosts = [host for host in self.hosts if not host.lost]
            await gather(host.send("remove_setup", target=target) for host in hosts)
            await gather(host.receive("removed") for host in hosts)

    def _lost(self, run: Run, case: Case, number: int, started_at: str, reason: str) -> Attempt:
        """The failed record of a run that lost a host; the session ends unless it continues with the others."""
        failure = Failure(code="host_lost", message=reason, hint="check the host, then resume with `--retry-failed`")
        record = Record(
            **requested(run, case, number),
            started_at=started_at,
            ended_at=_now(),
            outcome="failed",
            failure=failure,
            engine={},
            phases=[],
            result=None,
            child={},
            target=describe(open_target(host_plan.target_named(self.result_set.plan, case))),
            environment=self.environment,
            session=self.session,
            warnings=[],
        )
        if self.options.continue_without_lost and (remaining := sum(not host.lost for host in self.hosts)):
            self.observer.note(f"{reason}; the study continues with {remaining} of {len(self.hosts)} hosts")
            return Attempt(record=record, done=EngineRun(failure=failure))
        hint = f"completed runs are kept; `iosonde resume {self.result_set.directory} --hosts ...` continues"
        ends = EngineError(reason, where=f"in run `{run.run_id}`", hint=hint)
        return Attempt(record=record, done=EngineRun(failure=failure), ends_session=ends)


def _with_lost(record: Record, count: int, lost: Sequence[str]) -> Record:
    """The record with a warning that it is of fewer hosts than planned."""
    warning = RecordWarning(
        code="lost_hosts",
        message=f"{count} of {count + len(lost)} hosts took part: {'; '.join(lost)}",
        hint="check the host, then run the study again: totals of different numbers of hosts are not comparable",
    )
    return record.model_copy(update={"warnings": [*record.warnings, warning]})


def _report_progress(hosts: Sequence[Host], on_event: Callable[[Event], None]) -> None:
    """Report the rate of all hosts, once each of them has reported its own."""
    reports = [host.progress for host in hosts if host.progress]
    if len(reports) == len(hosts) and (event := progress.total(reports)):
        on_event(event)


async def _collected(host: Host, name: str) -> merge.HostRun:
    """The record of a host, with its tables; `HostLostError` if its files are damaged."""
    files: dict[str, bytes] = await host.call(worker.read_record, host.directory, name, wait_s=COLLECT_S)
    sums = files.pop(MANIFEST)
    if manifest(files) != sums:
        raise HostLostError(host.name, f"its record `{name}` is damaged")
    tables = {name: pl.read_parquet(io.BytesIO(files[f"{name}.parquet"])) for name in RECORD_TABLES}
    return merge.HostRun(
        host=host.name,
        machine=host.machine,
        clock=host.clock,
        record=Record.model_validate_json(files["record.json"]),
        manifest_sha256=hashlib.sha256(sums).hexdigest(),
        **tables,
    )


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


@dataclass
class RunTogether:
    """The requests of one run, and which hosts carry it out at the moment."""

    _requests: Mapping[Host, Mapping[str, Any]]
    _first_alone: bool
    """True if the first host prepares before the others: they use its files."""
    _once_prepared: Callable[[], Coroutine[Any, Any, None]]
    """Carried out between the preparation of all hosts and the start."""
    _busy: set[Host] = field(default_factory=set)
    _records: dict[Host, str] = field(default_factory=dict)
    cpu_share: float | None = None
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
        all_hosts = list(self._requests)
        for hosts in [all_hosts[:1], all_hosts[1:]] if self._first_alone else [all_hosts]:
            await gather(self._request(host) for host in hosts)
            answers = await gather(self._answer(host, "ready", "ended") for host in hosts)
            if any(answer["is"] == "ended" for answer in answers):
                return
        await self._once_prepared()
        await gather(host.compare_clocks(time.time_ns() + MARGIN_NS) for host in self._requests)
        begin_ns = time.time_ns() + MARGIN_NS + max(host.clock.bound_ns for host in self._requests)
        await gather(host.send("start", unix_ns=begin_ns + host.clock.offset_ns) for host in self._requests)
        cpu_ns, wall_ns = time.process_time_ns(), time.monotonic_ns()
        with suppress(_FailedError):
            await gather(self._complete(host) for host in self._requests)
            self.cpu_share = (time.process_time_ns() - cpu_ns) / max(1, time.monotonic_ns() - wall_ns)

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


LOAD = ("load_operations", "load_read_bytes", "load_write_bytes")


@dataclass
class Servers:
    """Hosts with the role `server`."""

    hosts: Sequence[Host]
    _samples: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    _is_dropped: bool = False

    def check(self, plan: Plan) -> None:
        """`TargetError` if a page cache is to be dropped without a server, or without the right to do so."""
        case = next((case for case in plan.cases if _drops(case)), None)
        if case and not self.hosts:
            raise TargetError(
                '`server_page_cache = "drop"` requires a host with the role `server`; got none',
                where=f"in case `{case.case_id}`",
                hint='add the server to the file of `--hosts ssh:FILE` with `role = "server"`',
            )
        for host in self.hosts:
            if case and not host.facts["can_drop"]:
                raise TargetError(
                    f"dropping the page cache of the server `{host.name}` requires root there",
                    hint='start its worker as root, or set `server_page_cache = "keep"`',
                )

    async def start(self, case: Case) -> None:
        """Start to watch: after all hosts have prepared their files, and before the load."""
        self._samples, self._is_dropped = {}, _drops(case)
        # Writing all dirty pages of a busy server takes long.
        await gather(host.call(worker.watch, self._is_dropped, wait_s=START_S) for host in self.hosts)

    async def stop(self, at_ns: int) -> None:
        """Stop, and keep what was read; clocks are compared at an instant of the coordinator's clock."""
        await gather(host.compare_clocks(at_ns) for host in self.hosts)
        found = await gather(host.call(worker.watched) for host in self.hosts)
        self._samples = {host.name: samples for host, samples in zip(self.hosts, found, strict=True)}

    def reading(self, begin_ns: int, end_ns: int, intervals: pl.DataFrame) -> ServerReading | None:
        """The counters within a measurement between two instants of the coordinator's clock; None without servers."""
        if not self.hosts:
            return None
        return ServerReading(
            servers=[
                ServerCounters(
                    host=host.name,
                    machine=host.machine,
                    cpus=host.facts["cpus"],
                    cache_dropped=self._is_dropped,
                    **within(self._samples.get(host.name, []), host.clock.offset_ns, begin_ns, end_ns, intervals),
                )
                for host in self.hosts
            ]
        )


def within(
    samples: Sequence[dict[str, int]], offset_ns: int, begin_ns: int, end_ns: int, intervals: pl.DataFrame
) -> dict[str, dict[str, int]]:
    """The first and the last sample of a measurement, with what the load had completed at their times."""
    found = [each for each in samples if begin_ns <= each["time_ns"] - offset_ns <= end_ns]
    if len(found) < 2:
        return {}
    ends = {"at_start": found[0], "at_end": found[-1]}
    return {name: each | _load_at(each["time_ns"] - offset_ns - begin_ns, intervals) for name, each in ends.items()}


def _load_at(after_ns: int, intervals: pl.DataFrame) -> dict[str, int]:
    """Counters of the load at a time after its measurement started, interpolated within an interval."""
    is_read, is_write = pl.col("operation") == "read", pl.col("operation") == "write"
    sums = (
        intervals.group_by("begin_ns", "end_ns")
        .agg(
            pl.col("count").filter(is_read | is_write).sum().alias(LOAD[0]),
            pl.col("bytes").filter(is_read).sum().alias(LOAD[1]),
            pl.col("bytes").filter(is_write).sum().alias(LOAD[2]),
        )
        .sort("begin_ns")
    )
    first = int(sums["begin_ns"].item(0))
    times = [0, *(int(each) - first for each in sums["end_ns"])]
    return {name: round(float(np.interp(after_ns, times, [0, *sums[name].cum_sum().to_list()]))) for name in LOAD}


def _drops(case: Case) -> bool:
    parameters: dict[str, Any] = case.parameters
    return parameters.get("server_page_cache") == "drop"
