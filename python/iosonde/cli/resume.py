"""`iosonde resume`: go on with a study that was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iosonde.cli import options, session


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The result set to go on with.")],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat failed runs as well.")] = False,
    time_limit: options.TimeLimit = None,
    destroy: options.Destroy = None,
    confirm: options.Confirm = None,
    report: session.Report = True,
) -> None:
    """Carry out the runs that are missing in a result set.

    Runs that have a record are not repeated. The target must be the one that the study was begun on; block devices need
    `--destroy` again, for meanwhile they may hold something else.
    """
    from rich.console import Console

    from iosonde.execution import resume
    from iosonde.procedure.schedule import Schedule
    from iosonde.results import ResultSet

    time_limit_s = options.read_time_limit(time_limit)
    result_set = ResultSet.open(directory)
    session.say_problems(result_set, Console(stderr=True, highlight=False))
    ahead = Schedule(result_set, retry_failed=retry_failed).ahead()
    decided = f", and at most {ahead.at_most} that procedures decide on" if ahead.at_most else ""
    typer.echo(f"{ahead.runs} of {len(result_set.plan.runs)} runs are to be carried out{decided}", err=True)
    session.carry_out(
        ahead,
        directory,
        lambda observer: resume(
            directory,
            observer=observer,
            retry_failed=retry_failed,
            time_limit_s=time_limit_s,
            consent=options.consent(destroy, confirm),
        ),
        report=report,
    )
