"""`iosonde suite`: several studies on one or two targets, ending in one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import iosonde
from iosonde.cli import session
from iosonde.cli.options import RunOptions, argument, completing, option, output_option, read_settings, takes
from iosonde.cli.terminal import console, messages, print_json, print_table
from iosonde.errors import IosondeError, ResultsError
from iosonde.units import format_bytes, format_estimate

if TYPE_CHECKING:
    from iosonde.collections.suite.directory import SuiteDirectory
    from iosonde.collections.suite.planning import Planned, Suite
    from iosonde.collections.suite.summary import Summary
    from iosonde.storage.safety.guard import Consent


@takes(
    "suite target against output profile repeats settings seed plan_only time_limit destroy confirm mix_simulated "
    "as_json"
)
def suite_command(
    given: RunOptions,
    suite: str = argument(
        "SUITE",
        "Name of a suite (`iosonde list --suites`) or a TOML file.",
        autocompletion=completing("shipped_suites"),
    ),
    against: str | None = option("TARGET", "Second target: every study compares it with the first."),
    output: str | None = output_option("DIR", "New directory (default `iosonde-results/suite-SUITE-TIME`)."),
    profile: str | None = option("NAME", "Profile of every study (default: the suite's)."),
) -> None:
    """Run a suite of studies and write one report.

    With `--against`, both targets alternate within each study. Consent is checked for every study before the first
    starts. `iosonde resume DIR` continues a suite that was stopped, `iosonde report DIR` writes its report again.
    """
    from iosonde.collections.suite import directory as suites
    from iosonde.collections.suite import planning

    chosen = planning.load(suite)
    given.time_limit_s()  # Refused before anything is created.
    repeats = given.repeats_number()
    if repeats == "until":
        raise typer.BadParameter("suites do not support `--repeats until`; use a number")
    settings = read_settings(given.settings)
    target, mix_simulated = given.target, given.mix_simulated
    planned = planning.plan_suite(
        chosen,
        target,
        against,
        profile=profile,
        settings=settings,
        repeats=repeats,
        seed=given.seed,
        mix_simulated=mix_simulated,
    )
    shared = planning.shared_by_targets(chosen, target, against, mix_simulated=mix_simulated)
    if given.plan_only:
        _print_plan(chosen, planned, shared, as_json=given.as_json)
        return
    messages.info("\n".join(plan_lines(chosen, planned, shared)))
    directory = Path(output or Path("iosonde-results") / f"suite-{chosen.name}-{datetime.now():%Y%m%d-%H%M%S}")
    libraries = [settings["library"]] if "library" in settings else []
    allowed = replace(given, allow_library=libraries, server=settings.get("server_url"))
    consent = allowed.consent([each for each in (target, against) if each])
    created = suites.create(
        directory, chosen, planned, target, against, consent, mix_simulated=mix_simulated, note=messages.info
    )
    carry_out(created, consent, given)


def resume(directory: Path, given: RunOptions) -> None:
    """Continue a suite that was stopped."""
    from iosonde.collections.suite.directory import SuiteDirectory

    opened = SuiteDirectory.open(directory)
    carry_out(opened, given.consent(opened.targets), given)


def plan_lines(suite: Suite, planned: Sequence[Planned], shared: str = "") -> list[str]:
    """The plan of a suite, a line for each study, and what both targets share."""
    from iosonde.collections.suite.planning import total_seconds, written_bytes
    from iosonde.planning.procedure import Remaining

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
        lines.append(f"{name} {runs} runs{more}, about {format_estimate(each.seconds)}, writes {writes}")
    lines.append(f"time      about {format_estimate(total_seconds(planned))}")
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


def carry_out(suite: SuiteDirectory, consent: Consent, given: RunOptions) -> None:
    """Run what remains of a suite and write its report. A study that fails does not stop the others."""
    import time

    from iosonde.execution.session import Interrupted

    time_limit_s = given.time_limit_s()
    end = None if time_limit_s is None else time.monotonic() + time_limit_s
    failed = False
    for path in suite.remaining(retry_failed=given.retry_failed).values():
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            messages.warning(f"The time limit is reached. Continue with: iosonde resume {suite.path}")
            break
        try:
            failed |= _mostly_failed(path, consent=consent, retry_failed=given.retry_failed, time_limit_s=left)
        except (Interrupted, KeyboardInterrupt):
            session.stop_several(suite.path)
        except IosondeError as error:
            failed = True
            messages.warning(f"error: {error}")
            messages.warning(f"`{path.name}` is not complete; the suite continues")
    write_report(suite, as_json=given.as_json)
    session.exit_for_several(suite.result_sets.values(), failed=failed)


def _mostly_failed(path: Path, *, consent: Consent, retry_failed: bool, time_limit_s: float | None) -> bool:
    """Run what remains of one study, and return whether most of its runs failed."""
    from iosonde.execution.progress import watch
    from iosonde.execution.session import resume

    messages.info(f"{path.name}")
    result_set = iosonde.load(path)
    ahead = session.ahead(result_set, retry_failed=retry_failed)
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
    from iosonde.collections.suite import page
    from iosonde.collections.suite.summary import summarize
    from iosonde.report import write
    from iosonde.results.shapes import interpreting

    for path in suite.result_sets.values():
        try:
            result_set = iosonde.load(path)
            session.warn_of_problems(result_set)
            if result_set.records():
                write([result_set], path / "report.html", format="html")
        except ResultsError as error:
            messages.warning(f"warning: no report of `{path.name}`: {error}")
    with interpreting(suite.result_sets.values()):
        summary = summarize(suite)
    path = output or suite.path / "report.html"
    page.write(summary, path)
    if as_json:
        print_json(_document(summary, path))
        return
    _print(summary)
    messages.info(str(path))


def _print(summary: Summary) -> None:
    from iosonde.collections.suite.page import WORDS, label, ratio_text

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
