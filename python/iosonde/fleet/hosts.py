"""The hosts of a fleet: other machines, on which OpenSSH starts the process that plans and measures their targets.

A host keeps the result sets of its targets at the path that the fleet has here, and sends records as they are complete.
What a host recorded while nobody listened is sent when the fleet is resumed.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.errors import IosondeError, ResultsError, TargetError
from iosonde.execution import environment
from iosonde.execution.engine import find_engine
from iosonde.fleet.model import FleetTarget
from iosonde.fleet.sharing import UNKNOWN
from iosonde.plan import Plan
from iosonde.results.files import Directory
from iosonde.results.reading import manifest
from iosonde.results.schema import MANIFEST
from iosonde.ssh_hosts import SshHost
from iosonde.storage.safety.consent import Consent, ConsentError
from iosonde.storage.safety.journal_entry import boot_id
from iosonde.study.model import Study
from iosonde.units import format_duration

LEASE_S = 60.0
"""A host that hears nothing for so long stops: the connection is lost, or this machine."""
ASKED_AT_ONCE = 16
ANSWER_S = 900.0
"""An answer takes seconds, and minutes on a host that builds its engine first or has no CPU to spare."""
RECORDS, ENVIRONMENTS = "records", "environments"

Message = dict[str, Any]


def command(host: SshHost) -> list[str]:
    """The command that starts a worker on a host."""
    return host.command(host.python, "-P", "-m", "iosonde.fleet.worker")


def ask(
    hosts: Sequence[SshHost], requests: Mapping[str, Message], *, answer_s: float = ANSWER_S
) -> dict[str, Message | IosondeError]:
    """Send each host its request, and return the answers, or why there is none, by the names of hosts."""
    asked = [host for host in hosts if host.called in requests]
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = pool.map(lambda host: _asked(host, requests[host.called], answer_s), asked)
        return {host.called: answer for host, answer in zip(asked, answers, strict=True)}


def _asked(host: SshHost, request: Message, answer_s: float) -> Message | IosondeError:
    sent = json.dumps(request).encode()
    try:
        done = subprocess.run(command(host), input=sent, capture_output=True, check=False, timeout=answer_s)
    except OSError as error:
        return TargetError(f"cannot start `ssh`: {error.strerror}", hint="install OpenSSH's client")
    except subprocess.TimeoutExpired:
        return TargetError(
            f"host `{host.called}` (`{host.address}`) gave no answer within {format_duration(1e9 * answer_s)}",
            where=f"in the request `{request['do']}` of the fleet",
            hint="a device or mount there probably does not respond: look for processes in state D "
            f"(`ps -eo pid,stat,wchan,args`), and try `{host.by_hand()}`",
        )
    if done.returncode:
        return host.error(done.returncode, done.stderr)
    try:
        answer: Message = json.loads(done.stdout)
    except ValueError:
        text = done.stdout.decode(errors="replace").strip().partition("\n")[0]
        return TargetError(
            f"host `{host.called}` answered with text of another program: `{text[:200]}`",
            hint="let the startup files of its shell print nothing in sessions without a terminal",
        )
    return answer


@dataclass(kw_only=True)
class Described:
    """Targets of all hosts, by name, and hosts."""

    plans: dict[str, Plan] = field(default_factory=dict)
    hardware: dict[str, frozenset[str]] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    """As with `--destroy`."""
    errors: dict[str, IosondeError] = field(default_factory=dict)
    cpus: dict[str, int] = field(default_factory=dict)


def describe(
    hosts: Sequence[SshHost], targets: Sequence[FleetTarget], study: Study | None, options: Mapping[str, Any]
) -> Described:
    """Ask all hosts about their targets: hardware, and plans if there is a study."""
    found = Described()
    if not any(each.host for each in targets):
        return found
    requests: dict[str, Message] = {}
    for each in targets:
        if each.host:
            empty = {
                "do": "describe",
                "study": study and study.model_dump(mode="json"),
                "options": options,
                "targets": {},
            }
            requests.setdefault(each.host, empty)["targets"][each.name] = each.target
    own = environment.capture(find_engine())["software"]
    machines = {boot_id(): ""}
    for host, answer in ask(hosts, requests).items():
        names = list(requests[host]["targets"])
        try:
            if isinstance(answer, IosondeError):
                raise answer
            require_same_software(host, answer["software"], own)
        except IosondeError as error:
            found.errors |= dict.fromkeys(names, error)
            continue
        found.cpus[host] = answer["cpus"]
        machine = machines.setdefault(answer["machine"], host)
        for name, target in answer["targets"].items():
            if error_here := error_of(target, host):
                found.errors[name] = error_here
                continue
            found.hardware[name] = hardware(target["hardware"], machine)
            found.devices += [f"{host}:{device}" for device in target["devices"]]
            if study:
                required = [_of_host(option, host) for option in target["required"]]
                plan = Plan.model_validate(target["plan"])
                found.plans[name] = plan.model_copy(update={"required_options": required})
    return found


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
    for host, answer in ask(hosts, requests).items():
        if isinstance(answer, IosondeError):
            refused |= dict.fromkeys(plans[host], TargetError(answer.what, where=answer.where, hint=answer.hint))
            continue
        for text in answer["notes"]:
            note(f"{host}: {text}")
        refused |= {name: error for name, each in answer["targets"].items() if (error := error_of(each, host))}
    return refused


def error_of(answer: Message, host: str) -> TargetError | None:
    """The error in the answer for a target, if there is one; its hint has the options as they are written here."""
    if not (error := answer.get("error")):
        return None
    what, where = f"on host `{host}`: {error['what']}", error["where"]
    if error["options"]:
        return ConsentError(what, where=where, options=[_of_host(option, host) for option in error["options"]])
    return TargetError(what, where=where, hint=error["hint"])


def _of_host(option: str, host: str) -> str:
    """Write an option of a host as it is given here: `--destroy HOST:DEVICE`."""
    return option.replace("--destroy ", f"--destroy {host}:")


def require_same_software(host: str, found: Mapping[str, str], own: Mapping[str, str]) -> None:
    """`TargetError` if measurements of the host are those of another iosonde."""
    for name in ("iosonde", "engine", "engine_sha256"):
        if found[name] != own[name]:
            raise TargetError(
                f"host `{host}` must have the same `{name}` as this machine; got `{found[name]}` instead of "
                f"`{own[name]}`",
                hint="install the same version of iosonde on all hosts",
            )


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
        for kind in (RECORDS, ENVIRONMENTS):
            with opened.subdirectory(kind, create=True) as each:
                found[kind] = each.names()
    return found


def keep(directory: Path, message: Mapping[str, Any]) -> None:
    """Write what a host has sent; a file system that both share has it already."""
    name, kind = message["name"], message["kind"]
    files = {file: base64.b64decode(text) for file, text in message["files"].items()}
    with Directory.open(directory) as opened, opened.subdirectory(kind, create=True) as written:
        if name in written.names():
            return
        if kind == ENVIRONMENTS:
            written.write(name, files[name])
        elif files.get(MANIFEST) == manifest({file: content for file, content in files.items() if file != MANIFEST}):
            written.write_directory(name, files)
        else:
            raise ResultsError(
                f"the record `{name}` was damaged on its way", hint="resume the fleet to collect it again"
            )
