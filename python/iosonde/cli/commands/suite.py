"""`iosonde suite`: several studies on one or two targets, ending in one report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosonde.cli import options, reference, session
from iosonde.cli.messages import console, messages
from iosonde.cli.tables import AsJson, print_json, print_table

if TYPE_CHECKING:
    from iosonde.storage.safety.consent import Consent
    from iosonde.suite.directory import SuiteDirectory
    from iosonde.suite.planning import Planned, Suite
    from iosonde.suite.summary import Summary


def _suites(incomplete: str) -> list[str]:
    """Names for shell completion."""
    from iosonde.data import shipped_suites

    return [name for name in shipped_suites() if name.startswith(incomplete)]


def command(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE", help="Name of a suite (`iosonde list --suites`) or a TOML file.", autocompletion=_suites
        ),
    ],
    target: options.TargetName,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="TARGET", help="Second target: every study compares it with the first."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="New directory (default `iosonde-results/suite-SUITE-TIME`)."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Profile of every study (default: the suite's).")
    ] = None,
    repeats: options.Repeats = None,
    settings: options.Settings = None,
    seed: options.Seed = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Print the plan and stop.")] = False,
    time_limit: options.TimeLimit = None,
    destroy: options.Destroy = None,
    confirm: options.Confirm = None,
    mix_simulated: options.MixSimulated = False,
    as_json: AsJson = False,
) -> None:
    """Run a suite of studies and write one report.

    With `--against`, both targets alternate within each study. Consent is checked for every study before the first
    starts. `iosonde resume DIR` continues a suite that was stopped, `iosonde report DIR` writes its report again.
    """
    from iosonde.suite import directory as suites
    from iosonde.suite import planning

    chosen = planning.load(suite)
    repeated = options.read_repeats(repeats)
    if repeated == "until":
        raise typer.BadParameter("suites do not support `--repeats until`; use a number")
    given = options.read_settings(settings)
    planned = planning.plan_suite(
        chosen,
        target,
        against,
        profile=profile,
        settings=given,
        repeats=repeated,
        seed=seed,
        mix_simulated=mix_simulated,
    )
    shared = planning.shared_by_targets(chosen, target, against, mix_simulated=mix_simulated)
    if plan_only:
        _print_plan(chosen, planned, shared, as_json=as_json)
        return
    messages.info("\n".join(plan_lines(chosen, planned, shared)))
    directory = Path(output or Path("iosonde-results") / f"suite-{chosen.name}-{datetime.now():%Y%m%d-%H%M%S}")
    libraries = [given["library"]] if "library" in given else []
    targets = [each for each in (target, against) if each]
    consent = options.consent(destroy, confirm, libraries=libraries, server=given.get("server_url"), targets=targets)
    created = suites.create(
        directory, chosen, planned, target, against, consent, mix_simulated=mix_simulated, note=messages.info
    )
    carry_out(
        created, consent=consent, retry_failed=False, time_limit_s=options.read_time_limit(time_limit), as_json=as_json
    )


def plan_lines(suite: Suite, planned: Sequence[Planned], shared: str = "") -> list[str]:
    """The plan of a suite, a line for each study, and what both targets share."""
    from iosonde.procedure import Remaining
    from iosonde.suite.planning import total_seconds, written_bytes
    from iosonde.units import format_bytes, format_duration

    lines = [suite.title]
    for each in planned:
        name = f"  {each.entry.name:24}"
        if each.skipped:
            lines.append(f"{name} skipped: {each.skipped}")
            continue
        runs = sum(len(plan.runs) for plan in each.plans.values())
        adaptive = sum(Remaining.from_plan(plan).at_most for plan in each.plans.values())
        more = f", plus at most {adaptive} depending on results" if adaptive else ""
        known, unbounded = written_bytes([each])
        writes = "limited only by time" if unbounded else format_bytes(known)
        lines.append(f"{name} {runs} runs{more}, about {format_duration(each.seconds * 1e9)}, writes {writes}")
    lines.append(f"time      about {format_duration(total_seconds(planned) * 1e9)}")
    known, unbounded = written_bytes(planned)
    lines.append(f"writes    {format_bytes(known)}{' and more, limited only by time' if unbounded else ''}")
    required = {option for each in planned for plan in each.plans.values() for option in plan.required_options}
    if required:
        lines.append(f"requires  {' '.join(sorted(required))}")
    if shared:
        lines.append(f"note      {shared}")
    hints = dict.fromkeys(each.hint for each in planned if each.hint)
    lines += [
        f"hint      {', '.join(each.entry.name for each in planned if each.hint == hint)}: {hint}" for hint in hints
    ]
    return lines


def _print_plan(suite: Suite, planned: Sequence[Planned], shared: str, *, as_json: bool) -> None:
    if not as_json:
        print("\n".join(plan_lines(suite, planned, shared)))
        return
    entries = [
        {
            "name": each.entry.name,
            "skipped": each.skipped,
            "hint": each.hint,
            "seconds": each.seconds,
            "plans": {role: plan.model_dump(mode="json") for role, plan in each.plans.items()},
        }
        for each in planned
    ]
    print_json({"suite": suite.name, "shared": shared, "entries": entries})


def carry_out(
    suite: SuiteDirectory, *, consent: Consent, retry_failed: bool, time_limit_s: float | None, as_json: bool
) -> None:
    """Run what remains of a suite and write its report. A study that fails does not stop the others."""
    import time

    from iosonde.errors import IosondeError
    from iosonde.execution import Interrupted
    from iosonde.results import ResultSet
    from iosonde.suite import directory as suites

    end = None if time_limit_s is None else time.monotonic() + time_limit_s
    failed = False
    for path in suites.remaining(suite, retry_failed=retry_failed):
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            messages.warning(f"The time limit is reached. Continue with: iosonde resume {suite.path}")
            break
        try:
            failed |= _mostly_failed(path, consent=consent, retry_failed=retry_failed, time_limit_s=left)
        except (Interrupted, KeyboardInterrupt):
            messages.warning("Stopped. Completed runs are kept.")
            messages.warning(f"Continue with: iosonde resume {suite.path}")
            raise typer.Exit(reference.EXIT_INTERRUPTED) from None
        except IosondeError as error:
            failed = True
            messages.warning(f"error: {error}")
            messages.warning(f"`{path.name}` is not complete; the suite continues")
    write_report(suite, as_json=as_json)
    written = [each for each in suite.all_result_sets() if (each / "plan.json").exists()]
    session.exit_for_wrong_data(map(ResultSet.open, written))
    if failed:
        raise typer.Exit(reference.EXIT_RUNS_FAILED)


def _mostly_failed(path: Path, *, consent: Consent, retry_failed: bool, time_limit_s: float | None) -> bool:
    """Run what remains of one study, and return whether most of its runs failed."""
    from iosonde.execution import resume
    from iosonde.execution.progress import watch
    from iosonde.procedure import Schedule
    from iosonde.results import ResultSet
    from iosonde.results.shapes import interpreting

    messages.info(f"{path.name}")
    result_set = ResultSet.open(path)
    with interpreting([path]):
        ahead = Schedule(result_set, retry_failed=retry_failed).ahead()
    if retry_failed:
        session.name_unsupported(result_set)
    with watch(ahead, console(), info=messages.info, warning=messages.warning) as observer:
        done = resume(path, observer=observer, consent=consent, retry_failed=retry_failed, time_limit_s=time_limit_s)
    if not session.outcome(done).mostly_failed:
        return False
    messages.warning(f"error: most runs of `{path.name}` failed; the suite continues")
    return True


def write_report(suite: SuiteDirectory, *, as_json: bool, output: Path | None = None) -> None:
    """Write the report of every study and of the suite, and print a summary."""
    from iosonde.errors import ResultsError
    from iosonde.report import write
    from iosonde.results import ResultSet
    from iosonde.results.shapes import interpreting
    from iosonde.suite import page
    from iosonde.suite.summary import summarize

    for path in suite.all_result_sets():
        try:
            result_set = ResultSet.open(path)
            session.warn_of_problems(result_set)
            if result_set.records():
                write([result_set], path / "report.html", format="html")
        except ResultsError as error:
            messages.warning(f"warning: no report of `{path.name}`: {error}")
    with interpreting(suite.all_result_sets()):
        summary = summarize(suite)
    path = output or suite.path / "report.html"
    page.write(summary, path)
    if as_json:
        print_json(_document(summary, path))
        return
    _print(summary)
    messages.info(str(path))


def _print(summary: Summary) -> None:
    from iosonde.suite.page import WORDS, label, ratio_text

    for sentence in summary.recommendation():
        print(f"{sentence}.")
    if shared := summary.directory.description.shared:
        print(f"Note: {shared}.")
    if summary.compares:
        print()
        print_table(
            [[ratio_text(line) or "-", WORDS[line.outcome], line.value.published or "-", label(line)]
             for line in summary.lines],
            heads=["Improvement", "Decision", "Published", "Application"],
        )  # fmt: skip
    else:
        lines = [line for study in summary.studies for line in study.lines]
        print_table([[line.first or "not measured", label(line)] for line in lines], heads=["Value", "Application"])
    for study in summary.studies:
        if study.skipped:
            print(f"{study.entry.title}: not measured: {study.skipped}")


def _document(summary: Summary, path: Path) -> dict[str, Any]:
    description = summary.directory.description
    return {
        "suite": description.suite.name,
        "target": description.target,
        "against": description.against,
        "shared": description.shared,
        "report": str(path),
        "recommendation": summary.recommendation(),
        "lines": [
            {
                "study": line.entry.study,
                "application": line.entry.title,
                "value": line.value.title,
                "metric": line.value.metric,
                "case": line.case,
                "outcome": line.outcome,
                "first": line.first,
                "second": line.second,
                "notes": list(line.notes),
                "improvement": line.improvement,
                "low": line.low,
                "high": line.high,
                "published": line.value.published,
                "reason": line.reason,
                "limited_by": dict(line.limits),
                "gain_limit": line.gain_limit,
                "time_use": {where: use.to_json() for where, use in line.uses.items()},
            }
            for line in summary.lines
        ],
        "skipped": dict(description.skipped),
    }
