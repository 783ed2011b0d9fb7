"""`iosonde fleet`: one study on many targets, ending in a report that compares their drives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import iosonde
from iosonde.cli import reference, session
from iosonde.cli.options import RunOptions, option, output_option, read_settings, switch, takes
from iosonde.cli.terminal import messages, print_json, wrapped
from iosonde.units import format_bytes, format_estimate

if TYPE_CHECKING:
    from iosonde.base.ssh_hosts import SshHost
    from iosonde.collections.fleet.directory import FleetDirectory, Planned
    from iosonde.collections.fleet.model import Fleet
    from iosonde.collections.fleet.session import Outcome
    from iosonde.storage.safety.guard import Consent


@takes(
    "study targets output profile repeats settings seed parallel plan_only time_limit destroy destroy_all confirm "
    "as_json"
)
def fleet_command(
    given: RunOptions,
    targets: Path = option("FILE", "List of targets: a TOML file with their names.", default=...),
    output: str | None = output_option("DIR", "New directory (default `iosonde-results/fleet-STUDY-TIME`)."),
    parallel: int | None = option(
        "N",
        "Measure at most this many targets of a machine at a time (default: one for every two CPUs).",
        min=1,
        show_default=False,
    ),
    destroy: list[str] | None = option(
        "[HOST:]DEVICE", "Allow overwriting this block device, of a host where one is named (repeatable)."
    ),
    destroy_all: bool = switch("--destroy-all-listed", "Allow overwriting every block device of the list."),
) -> None:
    """Run a study on many targets and compare their drives.

    Each target has a session and a result set of its own. Targets that share hardware run one after the other. Consent
    is checked for every target before the first starts; `--plan` prints the required options. `iosonde resume DIR`
    continues a fleet that was stopped, `iosonde report DIR` writes its report again.
    """
    from iosonde.collections.fleet import directory as fleets
    from iosonde.collections.fleet import model
    from iosonde.planning import load

    given.time_limit_s()  # Refused before the plan is made.
    chosen = {
        "profile": given.profile,
        "repeats": given.repeats_number(),
        "settings": read_settings(given.settings),
        "seed": given.seed,
    }
    fleet = model.load(targets)
    planned = fleets.plan_fleet(fleet, load(given.study), chosen)
    if given.plan_only:
        _print_plan(planned, as_json=given.as_json)
        if planned.description.skipped or planned.refused:
            raise typer.Exit(reference.EXIT_RUNS_FAILED)
        return
    messages.info("\n".join(plan_lines(planned)))
    given = replace(given, destroy=[*(destroy or []), *(planned.devices if destroy_all else [])])
    consent = _consent(fleet, given)
    path = Path(output or Path("iosonde-results") / f"fleet-{planned.description.study}-{datetime.now():%Y%m%d-%H%M%S}")
    created = fleets.create(path, planned, consent, messages.info)
    named = f" --hosts ssh:{targets}" if fleet.hosts else ""
    carry_out(created, created.remaining(), consent, given, hosts=fleet.hosts, named=named, parallel=parallel)


def resume(directory: Path, given: RunOptions) -> None:
    """Continue a fleet that was stopped."""
    from iosonde.collections.fleet.directory import FleetDirectory
    from iosonde.collections.fleet.model import named_hosts

    fleet = FleetDirectory.open(directory)
    if given.hosts and not fleet.description.hosts:
        raise typer.BadParameter("the fleet has no targets on other hosts: resume it without `--hosts`")
    pending = fleet.remaining(retry_failed=given.retry_failed)
    required = dict.fromkeys(each.host for each in fleet.targets(pending) if each.host)
    consent = _consent(fleet.description, given)
    hosts = named_hosts(given.hosts, list(required), directory)
    carry_out(fleet, pending, consent, given, hosts=hosts, named=f" --hosts {given.hosts}" if given.hosts else "")


def _consent(fleet: Fleet, given: RunOptions) -> Consent:
    """Return what may be destroyed; each host checks its own part."""
    from iosonde.collections.fleet.hosts import here
    from iosonde.storage.safety.guard import Consent

    destroy = given.destroy or []
    listed = [each.target for each in fleet.targets if not each.host]
    replace(given, destroy=here(fleet.hosts, destroy), server=None).consent(listed)
    return Consent(destroy=tuple(destroy), confirm=tuple(given.confirm or ()))


def plan_lines(planned: Planned) -> list[str]:
    """The plan of a fleet: targets, runs, time, bytes written, consent, what targets share."""
    from iosonde.collections.fleet.model import sentences
    from iosonde.metrics.wording import counted

    plans = list(planned.plans.values())
    seconds = [plan.cost.seconds for plan in plans]
    longest, total = format_estimate(max(seconds)), format_estimate(sum(seconds))
    lines = [
        f"{plans[0].study['title']} on {counted(len(plans), 'target')}",
        f"runs      {sum(len(plan.runs) for plan in plans):,}",
        f"time      about {longest} per target, {total} in all",
    ]
    written = [plan.cost.write_bytes for plan in plans]
    known = [each for each in written if each is not None]
    bounded = [format_bytes(sum(known))] if sum(known) or known == written else []
    lines.append("writes    " + " and more, ".join([*bounded, *["limited only by time"] * (known != written)]))
    if planned.required:
        lines.append(f"requires  {' '.join(planned.required)}")
    others = [f"note      {each}" for each in sentences(planned.description.shared)]
    others += [f"skipped   {name}: {reason}" for name, reason in planned.description.skipped.items()]
    others += [f"refused   {name}: {error.what}" for name, error in planned.refused.items()]
    return [*lines, *wrapped(others)]


def _print_plan(planned: Planned, *, as_json: bool) -> None:
    if not as_json:
        print("\n".join([*plan_lines(planned), "", *_target_lines(planned)]))
        return
    print_json(
        {
            "study": planned.description.study,
            "required": list(planned.required),
            "shared": dict(planned.description.shared),
            "skipped": dict(planned.description.skipped),
            "refused": {name: error.what for name, error in planned.refused.items()},
            "targets": {
                each.name: {
                    "host": each.host,
                    "target": each.target,
                    "plan": planned.plans[each.name].model_dump(mode="json"),
                }
                for each in planned.description.targets
                if each.name in planned.plans
            },
        }
    )


def _target_lines(planned: Planned) -> Iterator[str]:
    """Yield each target of a plan, with what it creates or overwrites."""
    for each in planned.description.targets:
        place = f"{each.target} on {each.host}" if each.host else each.target
        if each.name not in planned.plans:
            error = planned.refused.get(each.name)
            why = f"refused: {error.what}" if error else f"skipped: {planned.description.skipped[each.name]}"
            yield from wrapped([f"{each.name}: {place}", f"  {why}"])
            continue
        plan = planned.plans[each.name]
        written = plan.cost.write_bytes
        bytes_text = "limited only by time" if written is None else format_bytes(written)
        time = format_estimate(plan.cost.seconds)
        yield from wrapped([f"{each.name}: {place}", f"  {len(plan.runs)} runs, about {time}, writes {bytes_text}"])
        yield from wrapped(f"  {destroyed.path}: {destroyed.what}" for destroyed in plan.destroys)


def carry_out(
    fleet: FleetDirectory,
    pending: Mapping[str, Path],
    consent: Consent,
    given: RunOptions,
    *,
    hosts: Sequence[SshHost],
    named: str,
    parallel: int | None = None,
) -> None:
    """Run what remains of a fleet and write its report. A target that fails does not stop the others.

    `named` is the option that names the hosts again.
    """
    from iosonde.collections.fleet.session import FleetSession

    time_limit_s = given.time_limit_s()
    done = FleetSession(
        fleet,
        pending,
        hosts,
        parallel=parallel,
        consent=consent,
        retry_failed=given.retry_failed,
        time_limit_s=time_limit_s,
        note=messages.info,
    ).carry_out()
    if done.stopped:
        session.stop_several(f"{fleet.path}{named}")
    failed = _failed(fleet, done, is_limited=time_limit_s is not None)
    fleet.keep_failed(failed)
    failed |= {name: f"not measured: {reason}" for name, reason in fleet.description.skipped.items()}
    for name, reason in failed.items():
        messages.warning(f"error: {name}: {reason}")
    if time_limit_s is not None and fleet.remaining():
        messages.warning(f"The time limit is reached. Continue with: iosonde resume {fleet.path}{named}")
    write_report(fleet.path, as_json=given.as_json)
    session.exit_for_several(fleet.result_sets.values(), failed=bool(failed))


def _failed(fleet: FleetDirectory, done: Outcome, *, is_limited: bool) -> dict[str, str]:
    """Return targets whose session failed, most of whose runs did, or of which nothing came, with the reason."""

    found = dict(done.failed)
    for name in done.ended:
        results = iosonde.load(fleet.result_sets[name])
        if not results.records() and not is_limited:
            found[name] = "its session ended without a record"
        elif results.records() and session.outcome(results).mostly_failed:
            found[name] = "most runs failed"
    return found


def write_report(
    directory: Path, *, as_json: bool, output: Path | None = None, format: Literal["html", "md"] = "html"
) -> None:
    """Write the report on the drives of all result sets below a directory, and print its answer."""
    from iosonde.collections.fleet.report import collect, document, write
    from iosonde.collections.library.page import require_outside, require_replaceable

    report = collect(directory)
    if as_json:
        print_json(document(report))
        return
    path = output or directory / f"report.{format}"
    require_outside(path)
    if output is None and format == "html":
        require_replaceable(path)
    for problem in report.problems:
        messages.warning(f"warning: {problem}")
    if report.missing:
        print("\n".join(wrapped([f"{report.missing_text}: {', '.join(report.missing)}"])))
    for chapter in report.chapters:
        mark = f" ({report.simulated})" if report.simulated else ""
        print("\n".join(wrapped([f"{chapter.fleet.title} ({chapter.fleet.profile}), {chapter.drives_text}{mark}"])))
        print("\n".join(wrapped(f"  {sentence}." for sentence in chapter.answer)))
    write(report, path, format)
    messages.info(str(path))
