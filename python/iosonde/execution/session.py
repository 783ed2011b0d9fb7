"""One `run` or `resume`: every run of a plan in its order, each leaving a record.

A failed run is a result, and the study continues. Ctrl-C, SIGTERM and errors keep the completed runs, remove what was
created on the target, and discard the run in progress; `resume` continues, also after a kill or a power failure.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from iosonde.base.features import contributed
from iosonde.errors import ResultsError
from iosonde.execution import engine_programs, environment
from iosonde.execution.admission import (
    Admission,
    check_libraries,
    check_same_target,
    describe,
    require_commands_allowed,
    require_consent,
)
from iosonde.execution.attempt import carry_out
from iosonde.execution.context import TargetSession
from iosonde.execution.engine import find_engine
from iosonde.execution.harness import Harness
from iosonde.execution.run_loop import Observer, RunLoop
from iosonde.execution.stop import Start, Stop, after, stop_on_signals
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.planning.procedure import Schedule
from iosonde.results.result_set import ResultSet
from iosonde.results.shapes import interpreting
from iosonde.storage import has_leftovers, open_target, prepare, restore
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import NO_CONSENT, Consent, ConsentError, together
from iosonde.storage.targets.device_target import DeviceTarget
from iosonde.storage.targets.target import state_of
from iosonde.storage.targets.workspace import reused
from iosonde.study.model import Study
from iosonde.study.servers import foreign
from iosonde.study.workload import described


class Interrupted(KeyboardInterrupt):  # Not an error: it is what it inherits from.
    """The study was stopped before its end; completed runs are kept."""

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
    hosts: HostOptions | None = None,
) -> ResultSet:
    """Carry out a plan and keep its records in a new directory.

    After `time_limit_s` the study stops: a long run that is judged by its own rounds is ended and kept, any other is
    discarded, and `resume` continues. `consent` lists the block devices that may be overwritten; `TargetError` where
    it is not sufficient. With `hosts` each run is carried out on all of them at the same time.
    """
    observer = observer or Observer()
    if hosts:
        done: ResultSet = carrier().execute(
            plan, Path(directory), hosts, observer=observer, time_limit_s=time_limit_s, consent=consent
        )
        return done
    require_startable(plan, consent, observer.note)
    result_set = ResultSet.create(directory, plan)
    return _carry_out(result_set, observer=observer, time_limit_s=time_limit_s, retry_failed=False, consent=consent)


def require_startable(plan: Plan, consent: Consent, note: Callable[[str], None]) -> None:
    """Check engine, consent and guard of a plan before a directory is created.

    `EngineError` for a missing or older engine, `TargetError` for a device that may not be written.
    """
    engine_programs.require(plan.specs(), note)
    foreign.require_consent(plan, consent.confirm)
    require_commands_allowed(plan, consent.commands)
    refused: list[ConsentError] = []
    with ExitStack() as claims:
        for part in plan.by_target():
            target = open_target(part.target)
            require_consent(part, target, consent)
            try:
                claims.enter_context(target.claimed(consent))
            except ConsentError as error:
                refused.append(error)
    if refused:
        raise together(refused)


def resume(
    directory: Path | str,
    *,
    observer: Observer | None = None,
    retry_failed: bool = False,
    time_limit_s: float | None = None,
    consent: Consent = NO_CONSENT,
    hosts: HostOptions | None = None,
) -> ResultSet:
    """Carry out the missing runs of a result set, on the target that it was started on.

    Overwriting block devices, and creating databases on servers of the user, has to be allowed again with `consent`:
    the devices may contain other data by now, and the result set may come from another person.
    """
    result_set = ResultSet.open(directory)
    _ = result_set.study  # A damaged one is reported before anything starts.
    if result_set.plan.hosts and not hosts:
        raise ResultsError(
            f"the study runs on several hosts: {', '.join(result_set.plan.hosts)}",
            hint="name them with `--hosts`, as when it was started",
        )
    if hosts and not result_set.plan.hosts:
        raise ResultsError("the study runs on one machine; got `--hosts`", hint="resume it without `--hosts`")
    with interpreting([result_set.directory]):
        check_libraries(result_set.plan, consent.libraries)
        foreign.require_servers(result_set.plan, consent.servers)
        carry_out_on = partial(carrier().resume, options=hosts) if hosts else _carry_out
        return carry_out_on(
            result_set,
            observer=observer or Observer(),
            time_limit_s=time_limit_s,
            retry_failed=retry_failed,
            consent=consent,
        )


def planned(plan: Plan, hosts: HostOptions | None) -> Plan:
    """Return a plan as it is to be shown: with what all hosts would do, where it has hosts."""
    return carrier().planned(plan, hosts) if hosts else plan


def carrier() -> Any:
    """The carrier of a feature, which carries out runs on several hosts with the functions of this module."""
    return contributed("run", "CARRIERS")[0]


def _carry_out(
    result_set: ResultSet, *, observer: Observer, time_limit_s: float | None, retry_failed: bool, consent: Consent
) -> ResultSet:
    with result_set.lock(), stop_on_signals() as stop, after(time_limit_s, stop):
        name = secrets.token_hex(4)
        schedule = Schedule(result_set, retry_failed=retry_failed, session=name)
        require_commands_allowed(result_set.plan, consent.commands)
        for part in result_set.plan.by_target():
            # First, since a device that a killed session has left in use would be refused. What another one uses stays.
            remove_leftovers(part)
        if not schedule.next_run():
            _put_back(result_set)
            return result_set
        engine_programs.require(result_set.plan.specs(), observer.note)
        with opened(result_set, observer, stop, name, consent) as sessions:
            RunLoop(result_set, observer, stop, partial(carry_out, sessions)).carry_out_all(schedule)
        if stop.is_set() and schedule.next_run():
            if not stop.is_time_over:
                raise Interrupted(result_set)
            observer.note(
                "the time limit is reached, and the study stops with the completed runs; steady state that was not "
                f"reached so far counts as not achieved. Continue with: iosonde resume {result_set.directory}"
            )
    return result_set


def _put_back(result_set: ResultSet) -> None:
    """Remove what a session created that was killed after its last record."""
    for plan in result_set.plan.by_target():
        if has_leftovers(plan):
            Admission.for_plan(plan, result_set.directory).check_plan()
            restore(plan)
        state_of(plan, result_set.directory).remove()


@contextmanager
def opened(
    result_set: ResultSet,
    observer: Observer,
    stop: Stop,
    name: str,
    consent: Consent,
    start: Callable[[], Start] | None = None,
) -> Iterator[Sequence[TargetSession]]:
    """A session on targets that are claimed and prepared, and restored at the end in any case."""
    plans = result_set.plan.by_target()
    admissions = [Admission.for_plan(plan, result_set.directory) for plan in plans]
    for admission in admissions:
        admission.check_plan()
    foreign.require_consent(result_set.plan, consent.confirm)
    with ExitStack() as closing:
        sessions = []
        for plan, admission in zip(plans, admissions, strict=True):
            target = admission.base
            check_same_target(plan, result_set, describe(target))
            require_consent(plan, target, consent)
            closing.enter_context(target.claimed(consent, keep=plan.keep or plan.joins))
            state = state_of(plan, result_set.directory)
            engine = find_engine()
            facts = environment.capture(engine, engine_programs.clients_of(plan.specs()))
            session = TargetSession(
                name=name,
                plan=plan,
                admission=admission,
                state=state,
                base=target,
                harness=Harness(engine=engine, environment=facts, stop=stop),
                data=[kind() for kind in contributed("run", "STATES", type)],
                environment=result_set.write_environment(facts),
                environment_facts=facts,
                consent=consent,
                stop=stop,
                note=observer.note,
                start=start,
            )
            closing.enter_context(_prepared(session, result_set))
            sessions.append(session)
        yield sessions


@contextmanager
def _prepared(session: TargetSession, result_set: ResultSet) -> Iterator[None]:
    plan, state = session.plan, session.state
    try:
        prepare(plan)
        target = session.base
        # A store refuses a raw device with anything but its own database.
        if isinstance(target, DeviceTarget) and any(described(spec["workload"]).io == "store" for spec in plan.specs()):
            for number in target.numbers:
                target.wipe(number, measured=False)
        state.create()
        session.harness.learn(run.spec for run in plan.runs)
        yield
    finally:
        try:
            foreign.drop_all(plan.created_name)
            session.remove_setup()
        finally:
            restore(plan)
        if not Schedule(result_set, retry_failed=False).next_run():
            state.remove()


def remove_leftovers(plan: Plan) -> None:
    """Remove what `cleanup` would remove of a killed session of this plan, except the files and databases it reuses."""
    if plan.created_name and not plan.joins:
        with journal.undoing(f"remove what was created on `{plan.target}`"):
            journal.clear(plan.created_name, reused=reused(plan))


def run(
    study: Study | Path | str,
    *,
    target: Path | str,
    output: Path | str | None = None,
    profile: str = "standard",
    repeats: int | None = None,
    settings: Mapping[str, str] | None = None,
    destroy: Sequence[str] = (),
    confirm: Sequence[str] = (),
    allow_commands: str = "",
    observer: Observer | None = None,
    time_limit_s: float | None = None,
    progress: bool = True,
    hosts: HostOptions | str | None = None,
) -> ResultSet:
    """Run a study on a target and return its result set.

    `study` is a name, a path or a `Study`. `settings` are those of `--set`: a factor or parameter and its values as
    text. `destroy` names the block devices of the target that may be overwritten; `confirm` repeats the serial numbers
    of those that are not empty. `allow_commands` is the hash of a study with external commands
    (`iosonde.plan.commands.commands_hash`). `output` is a new directory, by default one under `iosonde-results`. After
    `time_limit_s` seconds the study stops and keeps completed runs.

    `hosts` are those of `--hosts`, such as `local:4`: each run is carried out on all of them at the same time.

    Progress is shown in a notebook and on a terminal, unless `progress` is false or an `observer` is given.
    """
    chosen = study if isinstance(study, Study) else load(study)
    plan = expand(chosen, open_target(str(target)), profile=profile, repeats=repeats, settings=settings)
    directory = output or default_directory(plan.study_name)
    consent = Consent(destroy=tuple(destroy), confirm=tuple(confirm), commands=allow_commands)
    chosen_hosts = HostOptions(hosts=hosts) if isinstance(hosts, str) else hosts
    with _observed(plan, observer, progress=progress) as watching:
        return execute(
            plan, directory, observer=watching, time_limit_s=time_limit_s, consent=consent, hosts=chosen_hosts
        )


@contextmanager
def _observed(plan: Plan, observer: Observer | None, *, progress: bool) -> Iterator[Observer | None]:
    """The observer that was given, or a progress display on a terminal or in a notebook."""
    from rich.console import Console

    from iosonde.execution.progress import watch
    from iosonde.planning.procedure import Remaining

    console = Console(stderr=True, highlight=False)
    if observer or not progress or not (console.is_terminal or console.is_jupyter):
        yield observer
        return
    with watch(Remaining.from_plan(plan), console, info=console.print, warning=console.print) as display:
        yield display


def default_directory(study_name: str) -> Path:
    """The default directory of a result set, named after study and time."""
    return Path("iosonde-results") / f"{study_name}-{datetime.now():%Y%m%d-%H%M%S}"


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The hosts, as the user names them."""

    hosts: str
    """`local:N`, `ssh:FILE`, or the address of a scheduler."""
    continue_without_lost: bool = False
    """True if the study continues with the remaining hosts when one is lost."""
