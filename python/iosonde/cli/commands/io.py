"""`iosonde io`: a single measurement without a study file. Internally a study with one case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosonde.cli import options
from iosonde.cli.messages import messages
from iosonde.cli.session import exit_for_wrong_data
from iosonde.errors import IosondeError
from iosonde.execution.run_loop import Observer

if TYPE_CHECKING:
    from iosonde.plan import Plan, Run
    from iosonde.protocol import Event
    from iosonde.results import ResultSet
    from iosonde.results.schema import Record
    from iosonde.storage.safety.consent import Consent

LATENCY = ("mean", "p50", "p90", "p99", "p99_9", "max")

LOOPS = {
    "closed": "closed loop: the next I/O starts when one completes",
    "open": "open loop: I/Os start at their rate; response latency counts from the intended start",
    "mixed": "closed and open loop together: response latency is that of the open one",
}


def command(
    target: options.TargetName,
    access: Annotated[str | None, typer.Option(metavar="PATTERN", help="`sequential`, `random` or `strided`.")] = None,
    block_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Size of each I/O, such as `4KiB`.")] = None,
    queue_depth: Annotated[str | None, typer.Option(metavar="N", help="I/Os in flight per job.")] = None,
    jobs: Annotated[str | None, typer.Option(metavar="N", help="Number of threads.")] = None,
    read_fraction: Annotated[
        str | None, typer.Option(metavar="0..1", help="Fraction of reads; the rest are writes.")
    ] = None,
    span: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the addressed range, such as `1GiB`.")
    ] = None,
    io_mode: Annotated[str | None, typer.Option(metavar="MODE", help="`direct` or `buffered`.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="N", help="Open loop at this many I/Os per second.")] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Length of the measurement.")] = None,
    ramp: Annotated[str | None, typer.Option(metavar="TIME", help="Time under load before the measurement.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any other block I/O parameter (repeatable)."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Keep the result set in this new directory."),
    ] = None,
    seed: options.Seed = None,
    keep: options.Keep = False,
    destroy: options.Destroy = None,
    confirm: options.Confirm = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Run a single measurement.

    Prints one line per interval and a table. Defaults: random 4 KiB reads, queue depth 1, one job, direct I/O, 1 GiB.
    """
    typed: dict[str, str | None] = {
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
        plan = _plan(target, {**chosen, **options.read_settings(settings)}, seed=seed, keep=keep)
    except IosondeError as error:
        error.where = options.as_typed(error.where, chosen)
        raise
    consent = options.consent(destroy, confirm, targets=options.targets_of(plan))
    with _directory(output) as directory:
        result_set = _measure(plan, directory, consent)
        record = result_set.records()[0]
        if as_json:
            typer.echo(record.model_dump_json(indent=2))
        elif record.failure is None:
            _print_table(result_set, record)
    exit_for_wrong_data([result_set])
    if record.failure:
        raise IosondeError(record.failure.message, where=record.failure.context, hint=record.failure.hint)


def _plan(target: str, settings: dict[str, str], *, seed: int | None, keep: bool) -> Plan:
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
    return expand(study, open_target(target), settings=settings, seed=seed, keep=keep)


@contextmanager
def _directory(output: Path | None) -> Iterator[Path]:
    from iosonde.storage.targets.temporary_files import scratch

    if output:
        yield output
        return
    with scratch() as directory:
        yield directory / "io"


def _measure(plan: Plan, directory: Path, consent: Consent) -> ResultSet:
    from iosonde.execution import Interrupted, execute

    try:
        return execute(plan, directory, observer=_Intervals(), consent=consent)
    except Interrupted:
        messages.warning("Stopped. An incomplete measurement is not kept")
        raise typer.Exit(130) from None


class _Intervals(Observer):
    """One line per interval."""

    def event(self, run: Run, event: Event) -> None:
        from iosonde.execution.progress import PHASES, Rates
        from iosonde.units import format_duration

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
    from iosonde.cli.tables import print_table, stdout
    from iosonde.metrics.metrics import run_metrics

    values = {
        (operation, metric): value
        for operation, metric, value in run_metrics(result_set).select("operation", "metric", "value").iter_rows()
    }
    operations = [operation for operation, metric in values if metric == "iops" and operation != "all"]
    if len(operations) > 1:
        operations.append("all")
    loop = result_set.runs["loop"].item()
    rows = [
        [label, *(text(values.get((operation, metric))) for operation in operations)]
        for label, metric, text in _rows(loop)
    ]
    print_table(rows, heads=["", *operations], right=range(1, len(operations) + 1))
    console = stdout()
    if record.verdict:
        console.print(f"{record.verdict.kind}: {record.verdict.because[0]}", soft_wrap=True, markup=False)
    console.print(LOOPS[loop])


def _rows(loop: str) -> Iterator[tuple[str, str, Callable[[float | None], str]]]:
    """Label, metric and format of every row."""
    from iosonde.units import format_bandwidth, format_count, format_latency

    yield "IOPS", "iops", _or_dash(format_count)
    yield "bandwidth", "bandwidth", _or_dash(format_bandwidth)
    for latency in ("completion",) if loop == "closed" else ("completion", "response"):
        for statistic in LATENCY:
            label = f"{latency} latency {statistic.replace('_', '.')}"
            yield label, f"{latency}_latency_ns_{statistic}", _or_dash(format_latency)


def _or_dash(format: Callable[[float], str]) -> Callable[[float | None], str]:
    """A percentile with fewer than ten samples beyond it has no value."""
    return lambda value: "-" if value is None else format(value)
