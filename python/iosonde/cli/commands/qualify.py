"""`iosonde qualify`: whether storage is good enough for an application."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import typer

import iosonde
from iosonde.cli import reference, session
from iosonde.cli.options import (
    RunOptions,
    argument,
    completing,
    option,
    read_settings,
    read_time,
    switch,
    takes,
    targets_of,
)
from iosonde.cli.terminal import messages, print_json, print_table, stdout, text_width, write_file
from iosonde.data import applications
from iosonde.errors import IosondeError
from iosonde.units import format_duration

if TYPE_CHECKING:
    from iosonde.collections.qualify import Qualification
    from iosonde.execution.run_loop import Observer
    from iosonde.plan import Plan
    from iosonde.planning.procedure import Remaining
    from iosonde.results import ResultSet
    from iosonde.study.model import Study

Shown = Literal["line", "table", "report"]
"""Extent of the output; with `report` the page is written as well."""


@takes("name target several time_limit duration every settings output keep destroy confirm junit as_json")
def qualify_command(
    given: RunOptions,
    name: str | None = argument(
        "APPLICATION",
        "Application, or a TOML file with requirements; none to list the applications. Without `--target` "
        "also a result set, to print its decision again.",
        default=None,
        autocompletion=completing("applications"),
    ),
    target: str | None = option("TARGET", "What to measure: a directory, or as with `iosonde run`."),
    several: bool = switch("--all", "Qualify for all applications with limits."),
    time_limit: str | None = option(
        "TIME", "Measure each load for this time, such as `10m`, to find rarer slow phases."
    ),
    duration: str | None = option("TIME", "Watch for this time, such as `24h`, and report the worst windows."),
    every: str | None = option("TIME", "Length of a window of `--duration`, such as `1m`."),
    junit: Path | None = option("FILE", "Also write JUnit XML."),
) -> None:
    """Decide whether storage is good enough for an application.

    Exit codes: 0 pass, 1 fail, 2 error, 3 undecided, 4 wrong data.

    Applies each load of the application for the time after which it can pass, usually 60 s. With `--duration` the load
    is applied all the time, and each window must meet the requirements. With `--quiet` prints one line.
    """
    from iosonde.collections.qualify import plan_of, watch_plan

    if name is None and not several:
        if target or time_limit or duration or every or junit:  # Not 0: an empty variable in a script is no pass.
            raise typer.BadParameter("an application is required, or `--all`; `iosonde qualify` lists the applications")
        _list(as_json=given.as_json)
        return
    if target is None and name and (directories := _result_sets(name)):
        _end(_decided(directories), as_json=given.as_json, junit=junit, shown="table")
    if target and name and "/" in name and Path(name).is_dir():
        raise typer.BadParameter(f"`{name}` is a directory: omit `--target` to print the decision of a result set")
    if target is None:
        raise typer.BadParameter("`--target` is required to qualify storage, such as `--target /var/lib/etcd`")
    if name is not None and several:
        raise typer.BadParameter("`--all` qualifies for every application; omit the name")
    if every is not None and duration is None:
        raise typer.BadParameter("`--every` is the length of a window of `--duration`: give both")
    if duration is not None and "duration" in read_settings(given.settings):
        raise typer.BadParameter("`--every` is the length of a window; omit `--set duration`")
    if duration is not None and (several or time_limit is not None):
        other = "--all" if several else "--time-limit"
        raise typer.BadParameter(f"`--duration` watches one application for a fixed time; omit `{other}`")
    given = replace(given, target=target)
    limit_ns = _nanoseconds("--time-limit", time_limit) if time_limit else None
    planned: Callable[..., Plan] = partial(plan_of, time_limit_ns=limit_ns)
    if duration:
        every_ns = _nanoseconds("--every", every or "1min")
        planned = partial(watch_plan, duration_ns=_nanoseconds("--duration", duration), every_ns=every_ns)
    output = Path(given.output) if given.output else None
    found = [_qualify(name, output, given, planned)] if name else _qualify_all(output, given, planned, limit_ns)
    _end(found, as_json=given.as_json, junit=junit)


def carry_out(
    plan: Plan, ahead: Remaining, directory: Path, work: Callable[[Observer], ResultSet], given: RunOptions
) -> NoReturn:
    """Do the remaining work of a qualification, and exit with the decision."""
    found = [_measured(plan, ahead, directory, work, given)]
    _end(found, as_json=given.as_json, shown="report" if given.report else "line")


def _measured(
    plan: Plan, ahead: Remaining, directory: Path, work: Callable[[Observer], ResultSet], given: RunOptions
) -> Qualification:
    """Do the work with a progress display; runs that failed leave the decision open."""
    from iosonde.collections.qualify import qualification_of

    try:
        session.carry_out(plan, ahead, directory, work, replace(given, report=False, as_json=False))
    except typer.Exit as ended:
        if ended.exit_code not in (reference.EXIT_RUNS_FAILED, reference.EXIT_WRONG_DATA):
            raise
    return qualification_of(iosonde.load(directory))


def _result_sets(name: str) -> list[Path]:
    """Return the result set in a directory, or those of `--all`; nothing if the name is not that of a directory."""
    place = Path(name)
    if name in applications() or not place.is_dir():
        return []
    return sorted(each.parent for each in place.glob("*/plan.json")) or [place]


def _decided(directories: Sequence[Path]) -> list[Qualification]:
    from iosonde.collections.qualify import qualification_of
    from iosonde.results.shapes import interpreting

    with interpreting(directories):
        return [qualification_of(iosonde.load(each)) for each in directories]


def _end(
    found: Sequence[Qualification],
    *,
    as_json: bool,
    junit: Path | None = None,
    shown: Shown = "report",
) -> NoReturn:
    """Print the decision, and exit with it."""
    from iosonde.collections.qualify import exit_code
    from iosonde.collections.qualify import junit as junit_xml

    if junit:
        write_file(junit, junit_xml(found))
    _print(found, as_json=as_json, shown="line" if messages.quiet else shown)
    raise typer.Exit(exit_code(found))


def _nanoseconds(option: str, text: str) -> int:
    return round(1e9 * read_time(text, option=option))


def _qualify(name: str, output: Path | None, given: RunOptions, planned: Callable[..., Plan]) -> Qualification:
    """Run the load of an application, with a progress display; `planned` makes the plan of a study and a target."""
    from iosonde.cli.commands.plan import summary
    from iosonde.collections.qualify import load_application
    from iosonde.execution.session import default_directory, execute
    from iosonde.planning.procedure import Remaining
    from iosonde.storage import open_target

    study = load_application(name)
    plan = planned(study, open_target(given.target), settings=read_settings(given.settings), keep=given.keep)
    consent = given.consent(targets_of(plan))
    messages.info("\n".join([f"{study.title} on {plan.target}", *summary(plan)]))
    directory = output or default_directory(plan.study_name)
    return _measured(
        plan,
        Remaining.from_plan(plan),
        directory,
        lambda observer: execute(plan, directory, observer=observer, consent=consent),
        given,
    )


def _qualify_all(
    output: Path | None, given: RunOptions, planned: Callable[..., Plan], limit_ns: int | None
) -> list[Qualification]:
    """Run the loads of all applications with limits; one that cannot be measured is undecided."""
    from iosonde.collections.qualify import Qualification, loads_of
    from iosonde.metrics.wording import counted
    from iosonde.storage import open_target

    open_target(given.target)  # Refuses what no application can use.
    parent = output or Path("iosonde-results") / f"qualify-{datetime.now():%Y%m%d-%H%M%S}"
    found = []
    studies = _applications()
    measured = {name: study for name, study in studies.items() if study.requirement and not study.asks}
    omitted = [name for name in studies if name not in measured]
    loads = counted(sum(map(loads_of, measured.values())), "load")
    total_ns = sum(loads_of(study) * (limit_ns or study.pass_after) for study in measured.values())
    messages.info(
        f"{counted(len(measured), 'application')} with {loads}, measured for {format_duration(total_ns)} in total. "
        f"No limits of their own, not measured: {', '.join(omitted)}"
    )
    for name, study in measured.items():
        try:
            found.append(_qualify(name, parent / name, given, planned))
        except IosondeError as error:
            messages.warning(f"warning: {name}: {error}")
            found.append(Qualification(application=name, title=study.title, target=given.target, reason=error.what))
    return found


def _applications() -> dict[str, Study]:
    from iosonde.collections.qualify import load_application

    return {name: load_application(name) for name in applications()}


def _list(*, as_json: bool) -> None:
    from iosonde.collections.qualify import describe

    studies = _applications()
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "title": study.title,
                    "description": study.description,
                    "requirements": [each.model_dump() for each in study.requirement],
                }
                for name, study in studies.items()
            ]
        )
        return
    print_table(
        [[name, describe(study), study.title] for name, study in studies.items()],
        heads=["Application", "Limits", "Load"],
    )


def _print(found: Sequence[Qualification], *, as_json: bool, shown: Shown) -> None:
    from iosonde.collections.qualify import to_json

    if as_json:
        print(to_json(found))
    elif shown == "line":
        print("\n".join(each.line for each in found))
    elif len(found) > 1:
        rows = [[each.application, each.outcome, each.margin, each.decided_by] for each in found]
        print_table(rows, heads=["Application", "Result", "Margin", "Decided by"], right=[2])
        for reason, names in _reasons(found).items():
            print(textwrap.fill(f"{', '.join(names)}: {reason}", text_width(), subsequent_indent="  "))
    else:
        _print_report(found[0], write=shown == "report")


def _reasons(found: Sequence[Qualification]) -> dict[str, list[str]]:
    """Return why applications are undecided; of a verdict its meaning, and the reports have the numbers."""
    from iosonde.metrics.verdict.verdict import MEANING

    meanings: dict[str, str] = {kind: f"{kind}: {meaning}" for kind, meaning in MEANING.items()}
    reasons: dict[str, list[str]] = {}
    for each in found:
        if each.worst and each.outcome == "undecided":
            reason = each.worst.reason
            reasons.setdefault(meanings.get(reason.partition(":")[0], reason), []).append(each.application)
    return reasons


def _print_report(qualification: Qualification, *, write: bool) -> None:
    from iosonde import report

    assert qualification.directory, "a single application is measured, or there is an error"
    results = iosonde.load(qualification.directory)
    brief = bool(qualification.results)
    if write:
        report.terminal(results, stdout(), page=qualification.directory / "report.html", brief=brief)
    else:
        report.terminal(results, stdout(), brief=brief)
    print(f"\n{qualification.line}")
