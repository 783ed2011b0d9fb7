"""`iosonde resume`: continue a study that was stopped."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosonde.cli import options, reference, session
from iosonde.cli.messages import errors_exit, messages
from iosonde.cli.tables import AsJson

if TYPE_CHECKING:
    from iosonde.procedure import Remaining
    from iosonde.results import ResultSet


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Result set, suite or fleet to continue.")],
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also repeat failed runs, but not unsupported combinations.")
    ] = False,
    hosts: options.Hosts = None,
    continue_without_lost_hosts: options.ContinueWithoutLostHosts = False,
    time_limit: options.TimeLimit = None,
    destroy: options.Destroy = None,
    confirm: options.Confirm = None,
    allow_commands: options.AllowCommands = "",
    allow_library: options.AllowLibrary = None,
    server: options.ServerAgain = None,
    live: options.Live = False,
    live_port: options.LivePort = 0,
    report: session.Report = True,
    as_json: AsJson = False,
) -> None:
    """Continue a study: carry out its missing runs.

    Recorded runs are not repeated. The target must be the same as before. Block devices need `--destroy` again, because
    they may contain other data by now. Databases on your own server need `--server` and `--confirm` again. A fleet on
    other machines needs its list of targets or hosts again: `--hosts ssh:FILE`. Of a qualification, output and exit
    code are those of `iosonde qualify`.
    """
    from iosonde.cli.commands import fleet, qualify, suite
    from iosonde.execution import resume
    from iosonde.library.directory import kind_of
    from iosonde.procedure import Schedule
    from iosonde.results import ResultSet
    from iosonde.results.shapes import interpreting
    from iosonde.suite.directory import open_directory

    time_limit_s = options.read_time_limit(time_limit)
    kind = kind_of(directory)
    if hosts and kind == "suite":
        raise typer.BadParameter("`--hosts` is not supported for a suite: resume it without")
    if kind == "fleet":
        fleet.resume(
            directory, destroy, confirm, hosts, retry_failed=retry_failed, time_limit_s=time_limit_s, as_json=as_json
        )
        return
    if kind == "suite":
        opened = open_directory(directory)
        consent = options.consent(destroy, confirm, "", allow_library or (), server, targets=opened.targets)
        suite.carry_out(opened, consent=consent, retry_failed=retry_failed, time_limit_s=time_limit_s, as_json=as_json)
        return
    result_set = ResultSet.open(directory)
    is_qualification = bool(result_set.plan.application)
    with errors_exit(reference.EXIT_USAGE) if is_qualification else nullcontext():  # 1 would be read as a decision
        session.warn_of_problems(result_set)
        targets = options.targets_of(result_set.plan)
        consent = options.consent(destroy, confirm, allow_commands, allow_library or (), server, targets=targets)
        with interpreting([directory]):
            ahead = Schedule(result_set, retry_failed=retry_failed).ahead()
        _announce(result_set, ahead, retry_failed=retry_failed)
        with session.live(result_set.plan, wanted=live, port=live_port) as page:
            carry_out = qualify.carry_out if is_qualification else session.carry_out
            carry_out(
                ahead,
                directory,
                lambda observer: resume(
                    directory,
                    observer=observer,
                    retry_failed=retry_failed,
                    time_limit_s=time_limit_s,
                    consent=consent,
                    hosts=options.host_options(hosts, continues=continue_without_lost_hosts),
                ),
                report=report,
                as_json=as_json,
                page=page,
            )


def _announce(result_set: ResultSet, ahead: Remaining, *, retry_failed: bool) -> None:
    more = f", plus at most {ahead.at_most} depending on results" if ahead.at_most else ""
    messages.info(f"{ahead.runs} of {len(result_set.plan.runs)} runs remaining{more}")
    if retry_failed:
        session.name_unsupported(result_set)
