"""`iosonde run`, `resume` and `io`: a study, what remains of one, and a single measurement without a study file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import iosonde
from iosonde.cli import reference, session
from iosonde.cli.options import RunOptions, argument, option, output_option, read_settings, switch, takes, targets_of
from iosonde.cli.terminal import errors_exit, messages, print_table, stdout
from iosonde.errors import IosondeError
from iosonde.execution.run_loop import Observer
from iosonde.units import format_bandwidth, format_count, format_duration, format_latency

if TYPE_CHECKING:
    from iosonde.engine.protocol import Event
    from iosonde.plan import Plan, Run
    from iosonde.results import ResultSet
    from iosonde.results.schema import Record


@takes(
    "study target against against_settings output profile repeats precision settings server seed keep hosts "
    "continue_without_lost_hosts time_limit destroy confirm allow_commands live live_port report as_json"
)
def run_command(given: RunOptions) -> None:
    """Run a study and report the results.

    Ctrl-C stops within a second and keeps completed runs; `iosonde resume` continues.
    """
    from iosonde.cli.commands.doctor import other_load
    from iosonde.cli.commands.plan import arm_lines, summary
    from iosonde.execution.session import default_directory, execute, planned
    from iosonde.planning.procedure import Remaining

    time_limit_s = given.time_limit_s()
    plan = given.plan()
    on_hosts = given.host_options()
    shown = planned(plan, on_hosts)
    consent = given.consent(targets_of(plan))
    messages.info("\n".join([f"{plan.study['title']} on {plan.target}", *arm_lines(shown), *summary(shown)]))
    if not plan.target.startswith(("null:", "sim:", "simulated:")) and (load := other_load()):
        messages.warning(f"warning: {load}: most runs will be disturbed, and the study will have no answer")
    directory = Path(given.output) if given.output else default_directory(plan.study_name)
    session.carry_out(
        plan,
        Remaining.from_plan(plan),
        directory,
        lambda observer: execute(
            plan, directory, observer=observer, time_limit_s=time_limit_s, consent=consent, hosts=on_hosts
        ),
        given,
    )


@takes(
    "directory retry_failed hosts continue_without_lost_hosts time_limit destroy confirm allow_commands allow_library "
    "server live live_port report as_json"
)
def resume_command(
    given: RunOptions,
    directory: Path = argument("DIR", "Result set, suite or fleet to continue."),
    server: str | None = option("URL", "Connect to your own server again, which the result set names."),
) -> None:
    """Continue a study: carry out its missing runs.

    Recorded runs are not repeated. The target must be the same as before. Block devices need `--destroy` again, because
    they may contain other data by now. Databases on your own server need `--server` and `--confirm` again. A fleet on
    other machines needs its list of targets or hosts again: `--hosts ssh:FILE`. Of a qualification, output and exit
    code are those of `iosonde qualify`.
    """
    from dataclasses import replace

    from iosonde.cli.commands import fleet, qualify, suite
    from iosonde.collections.library.directory import kind_of
    from iosonde.execution.session import resume

    given = replace(given, server=server)
    time_limit_s = given.time_limit_s()
    kind = kind_of(directory)
    if given.hosts and kind == "suite":
        raise typer.BadParameter("`--hosts` is not supported for a suite: resume it without")
    if kind == "fleet":
        fleet.resume(directory, given)
        return
    if kind == "suite":
        suite.resume(directory, given)
        return
    result_set = iosonde.load(directory)
    is_qualification = bool(result_set.plan.application)
    with errors_exit(reference.EXIT_USAGE) if is_qualification else nullcontext():  # 1 would be read as a decision
        session.warn_of_problems(result_set)
        consent = given.consent(targets_of(result_set.plan))
        ahead = session.ahead(result_set, retry_failed=given.retry_failed)
        more = f", plus at most {ahead.at_most} depending on results" if ahead.at_most else ""
        messages.info(f"{ahead.runs} of {len(result_set.plan.runs)} runs remaining{more}")
        if given.retry_failed:
            session.name_unsupported(result_set)
        carry_out = qualify.carry_out if is_qualification else session.carry_out
        carry_out(
            result_set.plan,
            ahead,
            directory,
            lambda observer: resume(
                directory,
                observer=observer,
                retry_failed=given.retry_failed,
                time_limit_s=time_limit_s,
                consent=consent,
                hosts=given.host_options(),
            ),
            given,
        )


# A single measurement


_LATENCY = ("mean", "p50", "p90", "p99", "p99_9", "max")

_LOOPS = {
    "closed": "closed loop: the next I/O starts when one completes",
    "open": "open loop: I/Os start at their rate; response latency counts from the intended start",
    "mixed": "closed and open loop together: response latency is that of the open one",
}


@takes(
    "target access block_size queue_depth jobs read_fraction span io_mode rate duration ramp settings output seed keep "
    "destroy confirm as_json"
)
def io_command(
    given: RunOptions,
    access: str | None = option("PATTERN", "`sequential`, `random` or `strided`."),
    block_size: str | None = option("SIZE", "Size of each I/O, such as `4KiB`."),
    queue_depth: str | None = option("N", "I/Os in flight per job."),
    jobs: str | None = option("N", "Number of threads."),
    read_fraction: str | None = option("0..1", "Fraction of reads; the rest are writes."),
    span: str | None = option("SIZE", "Size of the addressed range, such as `1GiB`."),
    io_mode: str | None = option("MODE", "`direct` or `buffered`."),
    rate: str | None = option("N", "Open loop at this many I/Os per second."),
    duration: str | None = option("TIME", "Length of the measurement."),
    ramp: str | None = option("TIME", "Time under load before the measurement."),
    settings: list[str] | None = option("NAME=VALUE", "Set any other block I/O parameter (repeatable).", "--set"),
    output: Path | None = output_option("DIR", "Keep the result set in this new directory."),
    as_json: bool = switch("--json", "Print the record as JSON."),
) -> None:
    """Run a single measurement.

    Prints one line per interval and a table. Defaults: random 4 KiB reads, queue depth 1, one job, direct I/O, 1 GiB.
    """
    from iosonde.execution.session import Interrupted, execute
    from iosonde.storage.targets.temporary_files import scratch

    typed = {
        "access": access,
        "block_size": block_size,
        "queue_depth": queue_depth,
        "jobs": jobs,
        "read_fraction": read_fraction,
        "span": span,
        "io_mode": io_mode,
        "rate": rate,
        "arrival": "constant" if rate else None,
        "duration": duration,
        "ramp": ramp,
    }
    chosen = {name: value for name, value in typed.items() if value is not None}
    try:
        plan = _plan(given, {**chosen, **read_settings(settings)})
    except IosondeError as error:
        # Name the options that the user typed where an error names the parameters that they set.
        for name, value in chosen.items():
            error.where = error.where.replace(f"`--set {name}={value}`", f"`--{name.replace('_', '-')} {value}`")
        raise
    consent = given.consent(targets_of(plan))
    with ExitStack() as stack:
        directory = output or stack.enter_context(scratch()) / "io"
        try:
            result_set = execute(plan, directory, observer=_Intervals(), consent=consent)
        except Interrupted:
            messages.warning("Stopped. An incomplete measurement is not kept")
            raise typer.Exit(reference.EXIT_INTERRUPTED) from None
        record = result_set.records()[0]
        if as_json:
            typer.echo(record.model_dump_json(indent=2))
        elif record.failure is None:
            _print_table(result_set, record)
    session.exit_for_wrong_data([result_set])
    if record.failure:
        raise IosondeError(record.failure.message, where=record.failure.context, hint=record.failure.hint)


def _plan(given: RunOptions, settings: dict[str, str]) -> Plan:
    """The plan of a study with one case."""
    from iosonde.planning import expand
    from iosonde.storage import open_target
    from iosonde.study.model import Part, Profile, Study

    study = Study(
        name="io",
        title="One measurement",
        question="How does the target perform under this load?",
        repeats=1,
        parts=[Part()],
        profiles={"standard": Profile()},
    )
    return expand(study, open_target(given.target), settings=settings, seed=given.seed, keep=given.keep)


class _Intervals(Observer):
    """One line per interval."""

    def event(self, run: Run, event: Event) -> None:
        from iosonde.execution.progress import PHASES, Rates

        if event["event"] == "phase" and event["phase"] in ("layout", "verify") and event["edge"] == "begin":
            messages.info(PHASES[event["phase"]])
        if event["event"] == "interval":
            rates = Rates()
            rates.add(event)
            ramp = "  (ramp)" if event["phase"] == "ramp" else ""
            messages.info(f"{format_duration(event['end_ns']):>8}  {rates.text()}{ramp}")

    def run_ended(self, run: Run, record: Record) -> None:
        for warning in record.warnings:
            self.note(f"warning: {warning.message}\nhint: {warning.hint}" if warning.hint else warning.message)

    def note(self, text: str) -> None:
        messages.warning(text)


def _print_table(result_set: ResultSet, record: Record) -> None:
    from iosonde.metrics.metrics import run_metrics

    values = {
        (operation, metric): value
        for operation, metric, value in run_metrics(result_set).select("operation", "metric", "value").iter_rows()
    }
    operations = [operation for operation, metric in values if metric == "iops" and operation != "all"]
    if len(operations) > 1:
        operations.append("all")
    loop = result_set.runs["loop"].item()
    lines: list[tuple[str, str, Callable[[float], str]]] = [
        ("IOPS", "iops", format_count),
        ("bandwidth", "bandwidth", format_bandwidth),
    ]
    for latency in ("completion",) if loop == "closed" else ("completion", "response"):
        for statistic in _LATENCY:
            label = f"{latency} latency {statistic.replace('_', '.')}"
            lines.append((label, f"{latency}_latency_ns_{statistic}", format_latency))
    rows = []
    for label, metric, text in lines:
        # A percentile with fewer than ten samples beyond it has no value.
        found = [values.get((operation, metric)) for operation in operations]
        rows.append([label, *("-" if value is None else text(value) for value in found)])
    print_table(rows, heads=["", *operations], right=range(1, len(operations) + 1))
    console = stdout()
    if record.verdict:
        console.print(f"{record.verdict.kind}: {record.verdict.because[0]}", soft_wrap=True, markup=False)
    console.print(_LOOPS[loop])
