"""`iosonde run`: run a study."""

from __future__ import annotations

from pathlib import Path

from iosonde.cli import options, session
from iosonde.cli.messages import messages
from iosonde.cli.tables import AsJson


def command(
    study: options.StudyName,
    target: options.TargetName,
    against: options.Against = None,
    against_settings: options.AgainstSettings = None,
    output: options.Output = None,
    profile: options.Profile = "standard",
    repeats: options.Repeats = None,
    precision: options.Precision = None,
    settings: options.Settings = None,
    server: options.Server = None,
    seed: options.Seed = None,
    keep: options.Keep = False,
    hosts: options.Hosts = None,
    continue_without_lost_hosts: options.ContinueWithoutLostHosts = False,
    time_limit: options.TimeLimit = None,
    destroy: options.Destroy = None,
    confirm: options.Confirm = None,
    allow_commands: options.AllowCommands = "",
    live: options.Live = False,
    live_port: options.LivePort = 0,
    report: session.Report = True,
    as_json: AsJson = False,
) -> None:
    """Run a study and report the results.

    Ctrl-C stops within a second and keeps completed runs; `iosonde resume` continues.
    """
    from iosonde.cli.commands.plan import arm_lines, summary
    from iosonde.cli.machine_checks import other_load
    from iosonde.execution import default_directory, execute
    from iosonde.execution.session import planned
    from iosonde.procedure import Remaining

    time_limit_s = options.read_time_limit(time_limit)
    plan = options.make_plan(
        study=study,
        target=target,
        profile=profile,
        repeats=repeats,
        precision=precision,
        settings=settings,
        server=server,
        seed=seed,
        keep=keep,
        against=against,
        against_settings=against_settings,
    )
    on_hosts = options.host_options(hosts, continues=continue_without_lost_hosts)
    shown = planned(plan, on_hosts)
    consent = options.consent(destroy, confirm, allow_commands, targets=options.targets_of(plan))
    messages.info("\n".join([f"{plan.study['title']} on {plan.target}", *arm_lines(shown), *summary(shown)]))
    if not plan.target.startswith(("null:", "sim:", "simulated:")) and (load := other_load()):
        messages.warning(f"warning: {load}: most runs will be disturbed, and the study will have no answer")
    directory = Path(output) if output else default_directory(plan.study_name)
    with session.live(plan, wanted=live, port=live_port) as page:
        session.carry_out(
            Remaining.from_plan(plan),
            directory,
            lambda observer: execute(
                plan,
                directory,
                observer=observer,
                time_limit_s=time_limit_s,
                consent=consent,
                hosts=on_hosts,
            ),
            report=report,
            as_json=as_json,
            page=page,
        )
