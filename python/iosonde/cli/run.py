"""`iosonde run`: carry out a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iosonde.cli import options, session


def command(
    study: options.StudyName,
    target: options.TargetName,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="New directory for the results; `iosonde-results/STUDY-TIME` if not given.",
        ),
    ] = None,
    profile: options.Profile = "standard",
    repeats: options.Repeats = None,
    settings: options.Settings = None,
    seed: options.Seed = None,
    keep: options.Keep = False,
    time_limit: options.TimeLimit = None,
    destroy: options.Destroy = None,
    confirm: options.Confirm = None,
    report: session.Report = True,
) -> None:
    """Carry out a study and show what it found.

    Ctrl-C stops it within a second and keeps what is done; `iosonde resume` goes on.
    """
    from iosonde.cli.plan import summary
    from iosonde.execution import default_directory, execute
    from iosonde.procedure.schedule import Remaining

    time_limit_s = options.read_time_limit(time_limit)
    plan = options.make_plan(
        study=study, target=target, profile=profile, repeats=repeats, settings=settings, seed=seed, keep=keep
    )
    typer.echo("\n".join([f"{plan.study['title']} on {plan.target}", *summary(plan)]), err=True)
    directory = output or default_directory(plan.study_name)
    session.carry_out(
        Remaining.of(plan),
        directory,
        lambda observer: execute(
            plan,
            directory,
            observer=observer,
            time_limit_s=time_limit_s,
            consent=options.consent(destroy, confirm),
        ),
        report=report,
    )
