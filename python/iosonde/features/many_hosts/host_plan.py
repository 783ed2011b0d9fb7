"""The plan of a host: that of the study, with files and random numbers of its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from iosonde.errors import TargetError
from iosonde.plan import Case, JsonObject, Plan, Procedure, Run, target_of
from iosonde.planning.procedure import preparation
from iosonde.storage import open_target
from iosonde.storage.safety.journal import MOUNTS
from iosonde.study.workload import described
from iosonde.study.workload.block.backends import VIRTUAL
from iosonde.units import format_bytes

T = TypeVar("T")
MIB = 1 << 20


def most_hosts(plan: Plan) -> int:
    """Return the largest number of hosts that a case requires; 0 if none has the parameter `hosts`."""
    return max((case.parameters.get("hosts") or 0 for case in plan.cases), default=0)


def taking_part(plan: Plan, hosts: Sequence[T]) -> Sequence[T]:
    """Return those of the hosts that the study uses; `TargetError` if it requires more."""
    most = most_hosts(plan)
    if most > len(hosts):
        raise TargetError(
            f"the study requires {most} hosts; got {len(hosts)}",
            where="by the parameter `hosts`",
            hint=f"name more hosts, such as `--hosts local:{most}`, or reduce the parameter with `--set hosts=...`",
        )
    is_limited = all(case.parameters.get("hosts") for case in plan.cases)
    return hosts[:most] if is_limited else hosts


def of_case(case: Case, hosts: Sequence[T]) -> Sequence[T]:
    """Return the hosts that take part in the runs of a case."""
    return hosts[: case.parameters.get("hosts") or len(hosts)]


def shares_files(plan: Plan) -> bool:
    """Return True if all hosts use the same files, which the first one creates and removes."""
    return any(case.parameters.get("host_files") == "shared" for case in plan.cases)


def target_named(plan: Plan, case: Case) -> str:
    """Return the target of a case, as the user named it."""
    return next((arm.target for arm in plan.arms if arm.name == case.arm), plan.target)


def is_device(plan: Plan) -> bool:
    """Return True if the hosts share a block device, or two that are compared."""
    targets = [target_of(spec["workload"]) for spec in plan.specs()]
    # One below `MOUNTS` is that of a host's own setup.
    return any(each["kind"] == "device" and not Path(each["path"]).is_relative_to(MOUNTS) for each in targets)


def is_prepared_once(plan: Plan) -> bool:
    """Return True if the first host prepares what all hosts measure, and removes or wipes it at the end."""
    return shares_files(plan) or is_device(plan)


def region_bytes(plan: Plan) -> int:
    """Size of the part of a shared device that each host measures: the largest of all runs, in whole MiB."""
    most = max(int(target_of(spec["workload"])["size_bytes"]) for spec in plan.specs())
    return -(-most // MIB) * MIB


def check(plan: Plan) -> None:
    """`TargetError` for a plan that several hosts cannot carry out together."""
    parts = plan.by_target()
    for part in parts:
        target = open_target(part.target)
        for setup in dict.fromkeys(case.setup for case in part.cases):
            target.check_on_hosts(setup)
    if len({is_device(part) for part in parts}) > 1:
        raise TargetError(
            "`--hosts` can compare two directories or two block devices; got one of each",
            where=f"`{parts[0].target}` and `{parts[1].target}`",
            hint="measure each by itself, and compare the result sets with `iosonde compare`",
        )
    if len({case.parameters.get("host_files") or "per_host" for case in plan.cases}) > 1:
        raise TargetError(
            "all cases of a study must have the same `host_files`",
            hint="run it once with `--set host_files=shared` and once with `--set host_files=per_host`",
        )
    for case in plan.cases:
        if what := _problem_of_case(case):
            raise _unsupported(what, f"in case `{case.case_id}`")
    for spec in plan.specs():
        if what := _problem_of_load(plan, spec["workload"]):
            raise _unsupported(what, f"in run `{spec['run_id']}`")
    for run in plan.runs:
        if run.purges or run.until:
            raise _unsupported("a run that purges the target or ends early", f"in run `{run.run_id}`")


def on_hosts(plan: Plan, hosts: Sequence[str]) -> Plan:
    """The plan with its hosts, and what it overwrites on a device that they share."""
    plan = plan.model_copy(update={"hosts": list(hosts)})
    if not is_device(plan):
        return plan
    size = region_bytes(plan) * (1 if shares_files(plan) else len(hosts))
    targets = [open_target(part.target) for part in plan.by_target()]
    destroys = [each for target in targets for each in target.destroys(size, keep=plan.keep)]
    return plan.model_copy(update={"destroys": destroys})


def of_all(plan: Plan, hosts: Sequence[str]) -> Plan:
    """The plan with what all hosts write and create together, to be shown and not carried out."""
    plan = on_hosts(plan, hosts)
    copies = 1 if shares_files(plan) else len(hosts)
    layout = plan.layout_bytes * copies
    taking_part = {case.case_id: len(of_case(case, hosts)) for case in plan.cases}
    written = {case.case_id: case.cost.write_bytes for case in plan.cases}
    counts = [run.case_id for run in plan.runs]
    counts += [case.case_id for case in plan.adaptive for _ in range(case.procedure.max_runs if case.procedure else 0)]
    is_bounded = plan.cost.write_bytes is not None
    total = layout + sum((written[name] or 0) * taking_part[name] for name in counts) if is_bounded else None
    destroys = plan.destroys
    if not is_prepared_once(plan):
        each_host = [(host, each) for host in hosts for each in of_host(plan, host).destroys]
        destroys = [each.model_copy(update={"what": f"host {host}: {each.what}"}) for host, each in each_host]
    cost = plan.cost.model_copy(update={"write_bytes": total})
    return plan.model_copy(update={"layout_bytes": layout, "cost": cost, "destroys": destroys})


def check_names(hosts: Sequence[str]) -> None:
    """`TargetError` for names that cannot be those of directories."""
    wrong = [name for name in hosts if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name)]
    if wrong or len(set(hosts)) < len(hosts):
        raise TargetError(
            f"hosts must have different names of letters, digits, `-`, `_` and `.`; got {', '.join(wrong or hosts)}",
            hint="give each Dask worker a name",
        )


def check_space(plan: Plan, hosts: int) -> None:
    """`TargetError` if a target has no room for the data of all hosts."""
    targets = [open_target(part.target) for part in plan.by_target()]
    places = len({target.file_system() for target in targets})
    images = max((case.setup.devices * (case.setup.setup_size or 0) for case in plan.cases if case.setup), default=0)
    of_one = region_bytes(plan) if is_device(plan) else max(plan.layout_bytes // places, images)
    needed = of_one * (1 if shares_files(plan) else hosts)
    for target in targets:
        if needed > (free := target.free_bytes()):
            raise TargetError(
                f"{hosts} hosts require {format_bytes(needed)}; `{target.name}` has {format_bytes(free)}",
                hint="reduce `span` or `setup_size`, or use fewer hosts",
            )


def of_host(plan: Plan, host: str) -> Plan:
    """The plan of one host, with the cases in which it takes part; the same for every session."""
    cases = [case for case in plan.cases if host in of_case(case, plan.hosts)]
    known = {case.case_id for case in cases}
    runs = [run for run in plan.runs if run.case_id in known]
    joins = is_prepared_once(plan) and host != plan.hosts[0]
    content = plan.model_copy(update={"hosts": [host], "joins": joins, "cases": cases, "runs": runs}).model_dump_json()
    own = Plan.model_validate_json(_with_own_names(content, plan, host))
    return own.model_copy(update={"runs": [_of_host(plan, run, host) for run in own.runs]})


def run_of_host(plan: Plan, run: Run, host: str) -> Run:
    """A run as the plan of a host has it."""
    content = _with_own_names(run.model_dump_json(), plan, host)
    return _of_host(plan, Run.model_validate_json(content), host)


def _with_own_names(content: str, plan: Plan, host: str) -> str:
    """A part of the plan as JSON, with what a host creates under names of its own."""
    if is_prepared_once(plan):
        return content
    for name in {plan.created_name, *(arm.created_name for arm in plan.arms)}:
        digest = hashlib.sha256(f"{name}/{host}".encode()).hexdigest()
        content = content.replace(name, f"iosonde-{digest[:8]}")
    return content


def _of_host(plan: Plan, run: Run, host: str) -> Run:
    """The run with random numbers of its own, on files that another host may have laid out."""
    workload, number = run.spec["workload"], plan.hosts.index(host)
    if is_device(plan) and not shares_files(plan):
        workload = _in_region(workload, region_bytes(plan), number, len(plan.hosts))
    if is_prepared_once(plan) and number > 0 and "layout" in workload:
        workload = workload | {"layout": "never"}
    case = plan.case_of(run.run_id)
    workload = described(workload).of_host(workload, case.parameters if case else {}, number)
    digest = hashlib.sha256(f"{run.spec['seed']}/{host}".encode()).digest()
    seed = int.from_bytes(digest[:6], "big")
    return run.model_copy(update={"spec": {**run.spec, "seed": seed, "workload": workload}})


def _in_region(workload: JsonObject, region: int, number: int, hosts: int) -> JsonObject:
    """The workload in the part of a device that belongs to a host; the device is as large as the parts of all."""
    streams = [
        stream | {"span": stream["span"] | {"offset_bytes": stream["span"]["offset_bytes"] + number * region}}
        for stream in workload["streams"]
    ]
    return workload | {"target": workload["target"] | {"size_bytes": hosts * region}, "streams": streams}


def _problem_of_case(case: Case) -> str:
    if case.procedure and (problem := _problem_of_procedure(case, case.procedure)):
        return problem
    if case.setup and case.parameters.get("host_files") == "shared":
        return f"files that hosts share on {case.setup.text}, which each of them creates for itself"
    return ""


def _problem_of_procedure(case: Case, procedure: Procedure) -> str:
    """Name what hosts cannot do of a procedure; others decide from the totals alone, like any reader of the records."""
    if procedure.kind not in ("search", "until", "derived", "rounds"):
        return f"the procedure `{procedure.kind}`"
    for name, source in procedure.settings.get("derived", {}).items():
        if source["metric"]:
            return f"`{name}` derived from `{source['metric']}`, which is that of all hosts, while `{name}` is of each"
    if procedure.kind != "rounds":
        return ""
    if steps := preparation.steps(case.parameters):
        return f"preparation of the target by `{steps[0]}`, whose steps end at different times on each host"
    return "runs that end once they are steady" if procedure.settings["until_steady"] else ""


def _problem_of_load(plan: Plan, workload: JsonObject) -> str:
    if refusal := described(workload).refusal_on_hosts(workload, shares_files=shares_files(plan)):
        return refusal
    backend = (workload.get("backend") or {}).get("kind")
    if backend in VIRTUAL:
        return f"the backend `{backend}`"
    if is_prepared_once(plan) and workload.get("verify"):
        return "verification of what hosts share, since one would find the blocks of another"
    return ""


def _unsupported(what: str, where: str = "") -> TargetError:
    return TargetError(
        f"`--hosts` does not support {what}", where=where, hint="run it without `--hosts`, or leave that part out"
    )
