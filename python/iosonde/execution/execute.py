"""Carry out a plan: every run in its order, every run a record, whatever happens.

A failed run is a result and the study goes on. Ctrl-C, SIGTERM and an error of ours leave what is done, remove what was
made on the target, and forget the run in flight; `resume` goes on from there, also after a kill or a power cut.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from iosonde.errors import TargetError
from iosonde.execution import array_health, compatibility, environment, shrunk
from iosonde.execution.device_totals import DeviceTotals
from iosonde.execution.drives import Drives
from iosonde.execution.engine import EngineRun, drive, find_engine, without_engine
from iosonde.execution.harness import Harness
from iosonde.execution.judgement import judged, temperatures
from iosonde.execution.stage import Stage, Standing, clear
from iosonde.execution.stop import Stop, after, stop_on_signals
from iosonde.plan import Case, Plan, Run
from iosonde.procedure.agenda import Agenda
from iosonde.procedure.watch import Watch
from iosonde.results.result_set import ResultSet
from iosonde.results.schema import Failure, Record, RecordWarning
from iosonde.storage import Target, drive_state, open_target, prepare, put_back
from iosonde.storage.consent import NO_CONSENT, Consent
from iosonde.storage.control_group import MemoryGroup
from iosonde.storage.device_target import DeviceTarget
from iosonde.storage.purge import purge

ALIKE_FAILURES = 3
"""After so many failures for the same reason, one after the other, the observer is told."""


class Observer(Protocol):
    """Who watches a study: the progress display is one."""

    def run_started(self, run: Run, case: Case) -> None:
        """A run begins."""

    def event(self, run: Run, event: dict[str, Any]) -> None:
        """The engine said something."""

    def run_ended(self, run: Run, record: Record) -> None:
        """A run has its record."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


class Interrupted(KeyboardInterrupt):  # It is what it inherits from: not an error.
    """The study was stopped before its end; what is done is kept."""

    def __init__(self, result_set: ResultSet) -> None:
        super().__init__()
        self.result_set = result_set


def execute(
    plan: Plan,
    directory: Path | str,
    *,
    observer: Observer | None = None,
    time_limit_s: float | None = None,
    consent: Consent = NO_CONSENT,
) -> ResultSet:
    """Carry out a plan and keep its records in a new directory.

    When `time_limit_s` is over it ends with what it has: a long run that is judged by its own rounds is ended there and
    kept, any other is forgotten, and `resume` goes on. `consent` says which block devices may be overwritten;
    `TargetError` where more has to be said.
    """
    # An engine that is missing, or too old, is told before a directory is made.
    compatibility.check(find_engine(), plan.specs())
    with open_target(plan.target).claimed(consent):
        pass  # And so is a device that may not be written.
    result_set = ResultSet.create(directory, plan)
    return _carry_out(
        result_set, retry_failed=False, observer=observer or _Nobody(), time_limit_s=time_limit_s, consent=consent
    )


def resume(
    directory: Path | str,
    *,
    observer: Observer | None = None,
    retry_failed: bool = False,
    time_limit_s: float | None = None,
    consent: Consent = NO_CONSENT,
) -> ResultSet:
    """Carry out what is missing in a result set, on the target that it was begun on.

    What `consent` allowed to be overwritten must be allowed again: meanwhile a device may hold something else.
    """
    return _carry_out(
        ResultSet.open(directory),
        retry_failed=retry_failed,
        observer=observer or _Nobody(),
        time_limit_s=time_limit_s,
        consent=consent,
    )


def _carry_out(
    result_set: ResultSet, *, retry_failed: bool, observer: Observer, time_limit_s: float | None, consent: Consent
) -> ResultSet:
    with result_set.lock(), stop_on_signals() as stop, after(time_limit_s, stop):
        session_id = secrets.token_hex(4)
        agenda = Agenda(result_set, retry_failed=retry_failed, session=session_id)
        if not agenda.next_run():
            put_back(result_set.plan)  # A kill after the last record leaves only this to do.
            drive_state.put_back(result_set.plan, result_set.directory)
            clear(result_set.plan)
            return result_set
        compatibility.check(find_engine(), result_set.plan.specs())
        clear(result_set.plan)  # What a killed session has left on a device would have it refused.
        with _session(result_set, observer, stop, session_id, consent) as session:
            _carry_out_runs(session, agenda)
        if stop.is_set() and agenda.next_run():
            if not stop.is_time_over:
                raise Interrupted(result_set)
            observer.note(
                "the time given is over, so the study ends with what it has; steady state that was not reached until "
                f"now is not achieved. Go on with: iosonde resume {result_set.directory}"
            )
    return result_set


def _carry_out_runs(session: _Session, agenda: Agenda) -> None:
    while not session.stop.is_set() and (run := agenda.next_run()):
        if not session.carry_out(run):
            return


@contextmanager
def _session(
    result_set: ResultSet, observer: Observer, stop: Stop, session_id: str, consent: Consent
) -> Iterator[_Session]:
    """The target is made ready, and whatever comes then, put back."""
    target = open_target(result_set.plan.target)
    _check_same_target(result_set, _describe(target))
    with target.claimed(consent, keep=result_set.plan.keep), _prepared(result_set, target, stop, session_id) as ready:
        yield _Session(result_set, observer, stop, *ready)


@contextmanager
def _prepared(
    result_set: ResultSet, target: Target, stop: Stop, session_id: str
) -> Iterator[tuple[Path, Stage, _Machine]]:
    plan = result_set.plan
    stage = Stage(plan, target, result_set.directory)
    engine = find_engine()
    facts = environment.capture(engine)
    found = result_set.write_environment(facts)
    harness = Harness(engine=engine, environment=facts, stop=stop)
    try:
        prepare(plan)
        _make_way_for_stores(plan, target)
        drive_state.prepare(plan, result_set.directory)
        harness.learn(run.spec for run in plan.runs)
        yield engine, stage, _Machine(found, facts, harness, session_id)
    finally:
        try:
            stage.take_apart()
        finally:
            put_back(plan)
        if not Agenda(result_set, retry_failed=False).next_run():
            drive_state.put_back(plan, result_set.directory)


def _make_way_for_stores(plan: Plan, target: Target) -> None:
    """Wipe what the user gave up on a device: a store refuses a raw device that holds anything but its own database."""
    if isinstance(target, DeviceTarget) and any(spec["workload"]["kind"] == "kv" for spec in plan.specs()):
        for number in target.numbers:
            target.wipe(number)


@dataclass(frozen=True)
class _Machine:
    """Where the runs of a session take place."""

    name: str
    """Hash of its description."""
    facts: dict[str, Any]
    harness: Harness
    session: str
    """The session's own name."""


class _Session:
    """What all runs of one `run` or `resume` share."""

    def __init__(
        self, result_set: ResultSet, observer: Observer, stop: Stop, engine: Path, stage: Stage, machine: _Machine
    ) -> None:
        self.stop = stop
        self._result_set = result_set
        self._observer = observer
        self._engine = engine
        self._stage = stage
        self._machine = machine
        self._restart = 0
        self._alike: tuple[str, int] = ("", 0)

    def carry_out(self, run: Run) -> bool:
        """Carry out one run; False if it was stopped, and is as if it had never been."""
        case = self._result_set.plan.case_of(run.run_id)
        assert case, f"`{run.run_id}` is of no case of the plan"
        self._observer.run_started(run, case)
        self._watch_restarts(run)
        try:
            standing = self._stage.ready(run, case)
            run = run.model_copy(update={"spec": standing.spec(run)})
            shrunk.check(run, case.parameters | run.parameters)
        except TargetError as error:
            return self._not_begun(run, case, error, code="setup" if case.setup else "target")
        target = _describe(standing.target) | _describe_log(run)
        try:
            self._purge(run)
        except OSError as problem:
            failed = TargetError(f"the purge by `{run.parameters['purge']}` failed: {problem.strerror or problem}")
            return self._not_begun(run, case, failed, code="purge")
        totals = DeviceTotals(run.spec) if run.spec["workload"]["kind"] == "kv" else None
        watch = Watch(run.until, note=self._observer.note) if run.until else None
        drives = Drives(run.spec)
        with _memory_group(case.parameters | run.parameters) as group:
            done = drive(
                standing.with_claims(drive_state.with_state(run.spec, self._result_set.directory)),
                on_event=lambda event: self._heard(run, event),
                stop=self.stop,
                engine=self._engine,
                group=group,
                is_enough=watch.is_enough if watch else None,
                inherited=standing.claims,
            )
            device_totals = totals.end() if totals else []
        told = drives.end()
        ended = _ended(run, case, done, self.stop)
        self._stage.ended(run, complete=_is_complete(done) or bool(ended))
        if self.stop.is_set() and not (_is_complete(done) or ended):
            return False
        record = self._record(run, case, done, target, standing)
        record = record.model_copy(update={"device_totals": device_totals, "drives": told, **ended})
        record = self._with_array(self._judged(record, done))
        self._result_set.write(record, done.intervals, done.histograms, done.usage, done.store_statistics)
        self._observer.run_ended(run, record)
        self._watch_failures(record)
        self._watch_members(record)
        return True

    def _heard(self, run: Run, event: dict[str, Any]) -> None:
        self._stage.watch(event)
        self._observer.event(run, event)

    def _with_array(self, record: Record) -> Record:
        """The record with what the run did to the array under it."""
        setup = {**record.setup, **self._stage.after()}
        told = [*record.warnings, *array_health.warnings(setup)]
        return record.model_copy(update={"setup": setup, "warnings": told})

    def _watch_members(self, record: Record) -> None:
        """Stop where the study says that it stops at a member that fails."""
        if any(each.code == array_health.MEMBER_FAILED for each in record.warnings):
            if self._result_set.plan.study.get("on_member_failure") == "stop":
                raise TargetError(
                    f"a member of the array failed during `{record.run_id}`, and the study stops at that",
                    where=f"in case `{record.case_id}`",
                    hint="what is done is kept; `iosonde resume DIR` goes on with an array that is built anew",
                )
            self._observer.note("a member of the array failed; the study goes on with it degraded")

    def _not_begun(self, run: Run, case: Case, error: TargetError, *, code: str) -> bool:
        """A target that is not as the run needs it is a failure like any other, and the study goes on."""
        if self.stop.is_set():
            return False
        done = without_engine(Failure(code=code, message=error.what, context=error.where, hint=error.hint))
        asked = {"asked": case.setup.model_dump()} if case.setup else {}
        facts = {"on": _describe(self._stage.base), **asked}
        record = self._record(run, case, done, facts["on"], Standing(target=self._stage.base, facts=facts))
        self._result_set.write(record, done.intervals, done.histograms, done.usage)
        self._observer.run_ended(run, record)
        self._watch_failures(record)
        return True

    def _record(self, run: Run, case: Case, done: EngineRun, target: dict[str, Any], standing: Standing) -> Record:
        return Record(
            run_id=run.run_id,
            attempt=self._result_set.next_attempt(run.run_id),
            case_id=run.case_id,
            part=run.part or case.part,
            control=case.control,
            repeat=run.repeat,
            order=run.order,
            levels={**case.levels, **run.levels},
            parameters={**case.parameters, **run.parameters},
            spec=run.spec,
            started_at=done.started_at,
            ended_at=done.ended_at,
            outcome="failed" if done.failure else (done.result or {})["outcome"],
            failure=done.failure,
            engine=done.hello,
            phases=done.phases,
            result=done.result,
            child=done.child,
            target=target,
            setup=standing.facts,
            target_after=temperatures(target),
            environment=self._machine.name,
            session=self._machine.session,
            harness=self._machine.harness.of(run.spec),
            memory=done.memory,
            warnings=[RecordWarning(**warning) for warning in done.warnings],
        )

    def _judged(self, record: Record, done: EngineRun) -> Record:
        """The record with what its facts say of its figures."""
        return judged(record, done.intervals, environment=self._machine.facts, study=self._result_set.plan.study)

    def _purge(self, run: Run) -> None:
        if not run.purges:
            return
        means, target = run.parameters["purge"], run.spec["workload"]["target"]
        if target["kind"] == "virtual":
            drive_state.forget(self._result_set.directory)
        else:
            whole = {**target, "size_bytes": _most_addressed(self._result_set.plan, target)}
            purge(whole, means, tell=self._observer.note)

    def _watch_restarts(self, run: Run) -> None:
        if run.restart > self._restart:
            self._observer.note(
                f"the pause has destroyed the state that `{run.case_id}` builds on, so the target is prepared anew; "
                "rounds already measured count"
            )
        self._restart = run.restart

    def _watch_failures(self, record: Record) -> None:
        code = record.failure.code if record.failure else ""
        self._alike = (code, self._alike[1] + 1 if code == self._alike[0] else 1)
        if code and self._alike[1] == ALIKE_FAILURES:
            repeated = (
                "those that are refused for the same reason will fail too: stop, correct the study, and run it anew"
                if record.refused
                else "failed runs can be repeated with `iosonde resume DIR --retry-failed`"
            )
            self._observer.note(
                f"{ALIKE_FAILURES} runs one after the other failed with `{code}`; the study goes on, and {repeated}"
            )


@contextmanager
def _memory_group(parameters: Mapping[str, Any]) -> Iterator[MemoryGroup | None]:
    """The control group of a run with a memory limit, gone afterwards whatever happens."""
    limit_bytes = parameters.get("memory_limit")
    group = MemoryGroup.make(limit_bytes) if limit_bytes else None
    try:
        yield group
    finally:
        if group:
            group.remove()


def _ended(run: Run, case: Case, done: EngineRun, stop: Stop) -> dict[str, str]:
    """What the record says of a measurement that iosonde ended, where it stands for itself all the same."""
    if done.failure or not done.result or done.result["outcome"] != "stopped":
        return {}
    if done.was_enough:
        return {"outcome": "complete", "ended": "it was steady"}
    rounds = {**case.parameters, **run.parameters}.get("round_length")
    if stop.is_time_over and rounds and done.intervals.filter(done.intervals["phase"] == "measure").height:
        return {"outcome": "complete", "ended": "the time given was over"}
    return {}


def _most_addressed(plan: Plan, target: dict[str, Any]) -> int:
    """Up to where any case of the plan writes to a target: a lower fill level gives up what a higher one wrote."""
    others = (spec["workload"].get("target", {}) for spec in plan.specs())
    sizes: list[int] = [each["size_bytes"] for each in others if each.get("path") == target.get("path")]
    return max(int(target["size_bytes"]), *sizes, 0)


def _is_complete(done: EngineRun) -> bool:
    return done.result is not None and done.result["outcome"] == "complete"


def _describe(target: Target) -> dict[str, Any]:
    """What the target is now; a target that has vanished is a fact too."""
    try:
        return target.describe()
    except (OSError, TargetError) as error:
        return {"name": target.name, "kind": target.kind, "problem": str(error)}


def _describe_log(run: Run) -> dict[str, Any]:
    """What a store's log lies on, if that is a second target."""
    path = run.spec["workload"].get("target", {}).get("log_path")
    return {"log": _describe(open_target(str(Path(path).parents[1])))} if path else {}


def _check_same_target(result_set: ResultSet, now: dict[str, Any]) -> None:
    """Figures of two devices in one result set would be worse than none."""
    for record in result_set.records():
        before = _identity(record.setup.get("on", record.target))
        changed = [name for name, value in _identity(now).items() if name in before and before[name] != value]
        if changed:
            name = changed[0]
            raise TargetError(
                f"`{result_set.plan.target}` is not what it was: its {name} is {_identity(now)[name]}, and was "
                f"{before[name]} in run `{record.run_id}`",
                where=f"in the result set `{result_set.directory}`",
                hint="bring the former target back, or begin a new study with `iosonde run`",
            )


def _identity(target: dict[str, Any]) -> dict[str, str]:
    """What stays the same as long as a target is the same, in words for a reader."""
    system, devices = target.get("file_system", {}), target.get("devices", [])
    facts = {
        "file system": system.get("kind"),
        # Names of devices change from boot to boot; the source tells only where there is no device, as with NFS.
        "source": None if devices else system.get("source"),
        "device": _listed(devices, "model", "name"),
        "device's serial number (hashed)": _listed(devices, "serial_hash"),
        "device's size in bytes": _listed(devices, "size_bytes"),
    }
    return {name: f"`{value}`" for name, value in facts.items() if value}


def _listed(devices: list[dict[str, Any]], *names: str) -> str:
    """The first of these facts that each device has."""
    found = (next((str(device[name]) for name in names if device.get(name)), "") for device in devices)
    return ", ".join(filter(None, found))


class _Nobody:
    def run_started(self, run: Run, case: Case) -> None:
        """Nobody looks."""

    def event(self, run: Run, event: dict[str, Any]) -> None:
        """Nobody looks."""

    def run_ended(self, run: Run, record: Record) -> None:
        """Nobody looks."""

    def note(self, text: str) -> None:
        """Nobody looks."""
