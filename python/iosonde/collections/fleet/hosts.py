"""The hosts of a fleet: other machines, on which OpenSSH starts the process that plans and measures their targets.

A host keeps the result sets of its targets at the path that the fleet has here, and sends records as they are complete.
What a host recorded while nobody listened is sent when the fleet is resumed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from iosonde.base import ssh_hosts
from iosonde.base.foreign_text import printable
from iosonde.base.ssh_hosts import END_S, SshHost, WorkerProcess
from iosonde.collections.fleet import messages
from iosonde.collections.fleet.messages import Problem
from iosonde.collections.fleet.model import UNKNOWN, FleetTarget, Measurable
from iosonde.collections.fleet.worker import measurable
from iosonde.errors import IosondeError, ResultsError, TargetError
from iosonde.execution import environment
from iosonde.execution.engine import find_engine
from iosonde.plan import Plan
from iosonde.results.files import Directory
from iosonde.results.reading import attempt_of, checked_plan, is_environment, manifest
from iosonde.results.schema import MANIFEST, RECORD_TABLES, WORKLOAD_TABLES
from iosonde.results.shapes import first_line
from iosonde.storage.safety.guard import Consent
from iosonde.storage.safety.journal import boot_id
from iosonde.study.model import Study
from iosonde.units import format_bytes, format_duration

LEASE_S = 60.0
"""A host that hears nothing for so long stops: the connection is lost, or this machine."""
ASKED_AT_ONCE = 16
SAME = "install the same version of iosonde on all hosts"
ANSWER_S = 900.0
"""An answer takes seconds, and minutes on a host that builds its engine first or has no CPU to spare."""
A = TypeVar("A", messages.Described, messages.Checked)


def ask(
    hosts: Sequence[SshHost], requests: Mapping[str, Mapping[str, Any]], *, answer_s: float = ANSWER_S
) -> dict[str, bytes | IosondeError]:
    """Send each host its request, and return the answers, or why there is none, by the names of hosts."""
    asked = [host for host in hosts if host.called in requests]
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = pool.map(lambda host: _asked(host, requests[host.called], answer_s), asked)
        return {host.called: answer for host, answer in zip(asked, answers, strict=True)}


def _asked(host: SshHost, request: Mapping[str, Any], answer_s: float) -> bytes | IosondeError:
    where = f"in the request `{request['do']}` of the fleet"
    try:
        process = WorkerProcess.start("iosonde.collections.fleet.worker", host=host)
    except TargetError as error:
        return error
    late_at = time.monotonic() + answer_s
    timer = threading.Timer(answer_s, process.process.kill)
    timer.start()
    try:
        process.send(request)
        process.request_stop()
        answer = process.output.read(ssh_hosts.MOST_BYTES + 1)
        is_long = len(answer) > ssh_hosts.MOST_BYTES
        is_late = time.monotonic() >= late_at
        status, errors = process.end(0 if is_long else END_S), process.errors()
    finally:
        timer.cancel()
        process.close()
    if is_late:
        return TargetError(
            f"host `{host.called}` (`{host.address}`) gave no answer within {format_duration(1e9 * answer_s)}",
            where=where,
            hint="a device or mount there probably does not respond: look for processes in state D "
            f"(`ps -eo pid,stat,wchan,args`), and try `{host.by_hand()}`",
        )
    if is_long:
        return TargetError(
            f"the answer of host `{host.called}` is larger than {format_bytes(ssh_hosts.MOST_BYTES)}",
            where=where,
            hint=f"another program wrote it: look at the output of `{host.by_hand()}`",
        )
    return host.error(status, errors) if status else answer


def describe(
    hosts: Sequence[SshHost], targets: Sequence[FleetTarget], study: Study | None, options: Mapping[str, Any]
) -> tuple[dict[str, Measurable | IosondeError], dict[str, int]]:
    """Ask all machines about their targets: hardware, and plans if there is a study.

    Returns the answer for each target in their order, or why it cannot be measured, and the number of CPUs of hosts.
    """
    found = {each.name: measurable(each.target, study, options) for each in targets if not each.host}
    cpus: dict[str, int] = {}
    if len(found) == len(targets):
        return found, cpus
    by_host: dict[str, dict[str, str]] = {}
    for each in targets:
        if each.host:
            by_host.setdefault(each.host, {})[each.name] = each.target
    request = {"do": "describe", "study": study and study.model_dump(mode="json"), "options": options}
    own = environment.capture(find_engine())["software"]
    machines = {boot_id(): ""}
    for host, output in ask(hosts, {host: {**request, "targets": asked} for host, asked in by_host.items()}).items():
        asked = by_host[host]
        try:
            answer = described_by(host, output, own, asked)
        except IosondeError as error:
            found |= dict.fromkeys(asked, error)
            continue
        cpus[host] = answer.cpus
        machine = machines.setdefault(answer.machine, host)
        found |= {name: _of_host(host, machine, study, asked[name], each) for name, each in answer.targets.items()}
    return {each.name: found[each.name] for each in targets}, cpus


def _of_host(
    host: str, machine: str, study: Study | None, name: str, target: messages.DescribedTarget | Problem
) -> Measurable | IosondeError:
    """A target of a host as one of this machine is described."""
    if isinstance(target, Problem):
        return target.error(host)
    try:
        return Measurable(
            hardware=hardware(target.hardware, machine),
            devices=[f"{host}:{device}" for device in target.devices],
            plan=plan_of_host(host, study, name, target) if study else None,
        )
    except TargetError as error:
        return error


def described_by(
    host: str, output: bytes | IosondeError, own: Mapping[str, Any], asked: Mapping[str, str]
) -> messages.Described:
    """The answer of a host about the targets that it was asked for; `TargetError` if it is none."""
    if not isinstance(output, IosondeError):
        machine = messages.read(TypeAdapter(messages.Machine), output, f"host `{host}`")
        environment.require_same_software(host, machine.software, own)
    return answered(messages.Described, host, output, asked)


def plan_of_host(host: str, study: Study, name: str, target: messages.DescribedTarget) -> Plan:
    """The plan of a study on a target of a host, checked like that of a result set from somebody else."""
    try:
        plan = checked_plan(target.plan)
        if (plan.study_name, plan.target) != (study.name, name):
            raise ValueError(f"it is of the study `{plan.study_name}` on `{plan.target}`")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TargetError(
            f"host `{host}` sent a wrong plan of `{study.name}` on `{name}`: {printable(first_line(error))}", hint=SAME
        ) from None
    return plan.model_copy(update={"required_options": [messages.of_host(each, host) for each in target.required]})


def check(
    hosts: Sequence[SshHost],
    plans: Mapping[str, Mapping[str, Plan]],
    directory: Path,
    consent: Consent,
    note: Callable[[str], None],
) -> dict[str, TargetError]:
    """Have each host check consent and guard of its targets, and return refusals by the names of targets.

    `plans` has those of each host.
    """
    requests = {}
    for host, own in plans.items():
        given = consent_on(host, consent)
        dumped = {name: plan.model_dump(mode="json") for name, plan in own.items()}
        asked = {"do": "check", "plans": dumped, "directory": str(directory)}
        requests[host] = asked | {"destroy": given.destroy, "confirm": given.confirm}
    refused: dict[str, TargetError] = {}
    for host, output in ask(hosts, requests).items():
        try:
            answer = answered(messages.Checked, host, output, plans[host])
        except IosondeError as error:
            refused |= dict.fromkeys(plans[host], TargetError(error.what, where=error.where, hint=error.hint))
            continue
        for text in answer.notes:
            note(f"{host}: {text}")
        refused |= {name: each.error(host) for name, each in answer.targets.items() if each}
    return refused


def answered(kind: type[A], host: str, output: bytes | IosondeError, asked: Mapping[str, object]) -> A:
    """The answer of a host about these targets and no others; `TargetError` if it is none."""
    if isinstance(output, IosondeError):
        raise output
    answer = messages.read(TypeAdapter(kind), output, f"host `{host}`")
    if wrong := sorted(answer.targets.keys() ^ asked.keys()):
        what = "sent no answer for" if wrong[0] in asked else "sent an answer for an unknown target,"
        raise TargetError(f"host `{host}` {what} `{printable(wrong[0])}`", hint=SAME)
    return answer


def hardware(parts: Sequence[str], machine: str) -> frozenset[str]:
    """Hardware of a target of a machine, without name for this one. A server that several use may be the same."""
    return frozenset(part if part == UNKNOWN or not machine else f"{part} of {machine}" for part in parts)


def consent_on(host: str, consent: Consent) -> Consent:
    """The part of a consent that is for a host: `--destroy HOST:DEVICE`."""
    prefix = f"{host}:"
    own = tuple(text.removeprefix(prefix) for text in consent.destroy if text.startswith(prefix))
    return Consent(destroy=own, confirm=consent.confirm)


def here(hosts: Sequence[SshHost], destroy: Sequence[str]) -> list[str]:
    """The devices that are named for this machine."""
    prefixes = tuple(f"{host.called}:" for host in hosts)
    return [text for text in destroy if not text.startswith(prefixes)]


def known(directory: Path) -> dict[str, list[str]]:
    """Records and environments of a result set that are here."""
    found = {}
    with Directory.open(directory) as opened:
        for kind in (messages.RECORDS, messages.ENVIRONMENTS):
            with opened.subdirectory(kind, create=True) as each:
                found[kind] = each.names()
    return found


def keep(directory: Path, plan: Plan, message: messages.Files) -> None:
    """Write what a host has sent; a file system that both share has it already.

    `ResultsError` for anything but an undamaged record of the plan, or an environment.
    """
    name, files = message.name, message.files
    is_sound = _is_environment(name, files) if message.kind == messages.ENVIRONMENTS else _is_record(name, files, plan)
    if not is_sound:
        raise ResultsError(
            f"it sent `{printable(name)}` as one of its {message.kind}, which is damaged or not part of the study",
            hint="resume the fleet to collect it again",
        )
    with Directory.open(directory) as opened, opened.subdirectory(message.kind, create=True) as written:
        if name in written.names():
            return
        if message.kind == messages.ENVIRONMENTS:
            written.write(name, files[name])
        else:
            written.write_directory(name, files)


def _is_environment(name: str, files: Mapping[str, bytes]) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{16}\.json", name)) and [*files] == [name] and is_environment(name, files[name])


def _is_record(name: str, files: Mapping[str, bytes], plan: Plan) -> bool:
    required = {"record.json", MANIFEST, *(f"{table}.parquet" for table in RECORD_TABLES)}
    allowed = required | {f"{table}.parquet" for table in WORKLOAD_TABLES}
    content = {file: each for file, each in files.items() if file != MANIFEST}
    is_complete = required <= files.keys() <= allowed and files[MANIFEST] == manifest(content)
    return is_complete and attempt_of(name, plan) is not None
