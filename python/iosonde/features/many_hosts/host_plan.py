"""The plan of a host: that of the study, with files and random numbers of its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TypeVar

from iosonde.errors import TargetError
from iosonde.plan import Case, Plan, Run
from iosonde.storage import open_target
from iosonde.storage.setups import queue_settings
from iosonde.storage.targets.file_target import DirectoryTarget
from iosonde.units import format_bytes
from iosonde.workload import described
from iosonde.workload.block.backends import VIRTUAL

T = TypeVar("T")


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


def check(plan: Plan) -> None:
    """`TargetError` for a plan that several hosts cannot carry out together."""
    if plan.arms:
        raise _unsupported("a comparison of two arms")
    if not isinstance(open_target(plan.target), DirectoryTarget):
        raise TargetError(
            f"`--hosts` requires a directory as the target; got `{plan.target}`",
            hint="name a directory on the storage that the hosts share",
        )
    if len({case.parameters.get("host_files") or "per_host" for case in plan.cases}) > 1:
        raise TargetError(
            "all cases of a study must have the same `host_files`",
            hint="run it once with `--set host_files=shared` and once with `--set host_files=per_host`",
        )
    for case in plan.cases:
        if what := _problem_of_case(case):
            raise _unsupported(what, f"in case `{case.case_id}`")
    for run in plan.runs:
        if what := _problem_of_run(run, shares_files(plan)):
            raise _unsupported(what, f"in run `{run.run_id}`")


def check_names(hosts: Sequence[str]) -> None:
    """`TargetError` for names that cannot be those of directories."""
    wrong = [name for name in hosts if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name)]
    if wrong or len(set(hosts)) < len(hosts):
        raise TargetError(
            f"hosts must have different names of letters, digits, `-`, `_` and `.`; got {', '.join(wrong or hosts)}",
            hint="give each Dask worker a name",
        )


def check_space(plan: Plan, hosts: int) -> None:
    """`TargetError` if the file system has no room for the files of all hosts."""
    needed = plan.layout_bytes * (1 if shares_files(plan) else hosts)
    free = open_target(plan.target).free_bytes()
    if needed > free:
        raise TargetError(
            f"the files of {hosts} hosts require {format_bytes(needed)}; `{plan.target}` has {format_bytes(free)}",
            hint="reduce `span`, or use fewer hosts",
        )


def of_host(plan: Plan, host: str) -> Plan:
    """The plan of one host, with the cases in which it takes part; the same for every session."""
    cases = [case for case in plan.cases if host in of_case(case, plan.hosts)]
    known = {case.case_id for case in cases}
    runs = [run for run in plan.runs if run.case_id in known]
    joins = shares_files(plan) and host != plan.hosts[0]
    content = plan.model_copy(update={"hosts": [host], "joins": joins, "cases": cases, "runs": runs}).model_dump_json()
    own = Plan.model_validate_json(content.replace(plan.created_name, _own_name(plan, host)))
    return own.model_copy(update={"runs": [_of_host(plan, run, host) for run in own.runs]})


def run_of_host(plan: Plan, run: Run, host: str) -> Run:
    """A run as the plan of a host has it."""
    content = run.model_dump_json().replace(plan.created_name, _own_name(plan, host))
    return _of_host(plan, Run.model_validate_json(content), host)


def _own_name(plan: Plan, host: str) -> str:
    """The name of the host's directory in that of the target."""
    if shares_files(plan):
        return plan.created_name
    digest = hashlib.sha256(f"{plan.created_name}/{host}".encode()).hexdigest()
    return f"iosonde-{digest[:8]}"


def _of_host(plan: Plan, run: Run, host: str) -> Run:
    """The run with random numbers of its own, on files that another host may have laid out."""
    workload = run.spec["workload"]
    if shares_files(plan) and host != plan.hosts[0]:
        workload = workload | {"layout": "never"}
    digest = hashlib.sha256(f"{run.spec['seed']}/{host}".encode()).digest()
    seed = int.from_bytes(digest[:6], "big")
    return run.model_copy(update={"spec": {**run.spec, "seed": seed, "workload": workload}})


def _problem_of_case(case: Case) -> str:
    if case.procedure:
        return f"the procedure `{case.procedure.kind}`"
    if case.setup:
        return "a setup between target and load"
    changed = next((name for name in queue_settings.FILES if name in case.parameters), None)
    return f"the block queue setting `{changed}`" if changed else ""


def _problem_of_run(run: Run, shares: bool) -> str:
    workload = run.spec["workload"]
    if not described(workload).moves_blocks:
        return "a workload other than block I/O"
    if workload["backend"]["kind"] in VIRTUAL:
        return f"the backend `{workload['backend']['kind']}`"
    if shares and workload.get("verify"):
        return "verification of files that hosts share, since one would find the blocks of another"
    return "a run that purges the target or ends early" if run.purges or run.until else ""


def _unsupported(what: str, where: str = "") -> TargetError:
    return TargetError(
        f"`--hosts` does not support {what}", where=where, hint="run it without `--hosts`, or leave that part out"
    )
