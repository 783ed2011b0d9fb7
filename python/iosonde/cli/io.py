"""`iosonde io`: one measurement, for the impatient. It is a study of one case, and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosonde.cli import options
from iosonde.errors import IosondeError

if TYPE_CHECKING:
    from iosonde.plan import Case, Plan, Run
    from iosonde.protocol.event import Event
    from iosonde.results import ResultSet
    from iosonde.results.schema import Record
    from iosonde.storage.consent import Consent

LATENCY = ("mean", "p50", "p90", "p99", "p99_9", "max")

LOOPS = {
    "closed": "closed loop: the next I/O starts when one completes",
    "open": "open loop: I/Os start at their rate; response latency counts from the intended start",
    "mixed": "closed and open loop together: response latency is that of the open one",
}


def command(
    target: options.TargetName,
    access: Annotated[str | None, typer.Option(help="`sequential`, `random` or `strided`.")] = None,
    block_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Size of an I/O, such as `4KiB`.")] = None,
    queue_depth: Annotated[str | None, typer.Option(metavar="N", help="I/Os in flight in each job.")] = None,
    jobs: Annotated[str | None, typer.Option(metavar="N", help="Threads.")] = None,
    read_fraction: Annotated[
        str | None, typer.Option(metavar="0..1", help="Share of reads; the rest is writes.")
    ] = None,
    span: Annotated[str | None, typer.Option(metavar="SIZE", help="The range addressed, such as `1GiB`.")] = None,
    io_mode: Annotated[str | None, typer.Option(help="`direct` or `buffered`.")] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N", help="Open loop at so many I/Os per second, at equal gaps.")
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Length of the measurement.")] = None,
    ramp: Annotated[str | None, typer.Option(metavar="TIME", help="Load before the measurement.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other parameter of block I/O. May be given again."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Keep the result set in this new directory."),
    ] = None,
    seed: options.Seed = None,
    keep: options.Keep = False,
    destroy: options.Destroy = None,
    confirm: options.Confirm = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of a table.")] = False,
) -> None:
    """Measure once: one line an interval, and a table at the end.

    What is not given is as in `iosonde plan`: random reads of 4 KiB, queue depth 1, one job, direct, on 1 GiB.
    """
    given = {
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
    chosen = {name: value for name, value in given.items() if value is not None} | options.read_settings(settings)
    plan = _plan(target, chosen, seed=seed, keep=keep)
    with _directory(output) as directory:
        result_set = _measure(plan, directory, options.consent(destroy, confirm))
        record = result_set.records()[0]
        if as_json:
            typer.echo(record.model_dump_json(indent=2))
        elif record.failure is None:
            _print_table(result_set, record)
    if record.failure:
        raise IosondeError(record.failure.message, where=record.failure.context, hint=record.failure.hint)


def _plan(target: str, settings: dict[str, str], *, seed: int | None, keep: bool) -> Plan:
    """A study with one case, expanded as any other."""
    from iosonde.planning import expand
    from iosonde.storage import open_target
    from iosonde.study.model import Part, Profile, Study

    study = Study(
        name="io",
        title="One measurement",
        question="What does this load get?",
        repeats=1,
        parts=[Part()],
        profiles={"standard": Profile()},
    )
    return expand(study, open_target(target), settings=settings, seed=seed, keep=keep)


@contextmanager
def _directory(output: Path | None) -> Iterator[Path]:
    if output:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="iosonde-") as scratch:
        yield Path(scratch) / "io"


def _measure(plan: Plan, directory: Path, consent: Consent) -> ResultSet:
    from iosonde.execution import Interrupted, execute

    try:
        return execute(plan, directory, observer=_Intervals(), consent=consent)
    except Interrupted:
        typer.echo("Stopped; nothing is kept of a measurement that has not ended", err=True)
        raise typer.Exit(130) from None


class _Intervals:
    """One line an interval, on standard error."""

    def run_started(self, run: Run, case: Case) -> None:
        pass

    def event(self, run: Run, event: Event) -> None:
        from iosonde.cli.progress import PHASES, Figures
        from iosonde.units import format_duration

        if event["event"] == "phase" and event["phase"] in ("layout", "verify") and event["edge"] == "begin":
            typer.echo(PHASES[event["phase"]], err=True)
        if event["event"] == "interval":
            figures = Figures()
            figures.add(event)
            ramp = "  (ramp)" if event["phase"] == "warmup" else ""
            typer.echo(f"{format_duration(event['end_ns']):>8}  {figures.text()}{ramp}", err=True)

    def run_ended(self, run: Run, record: Record) -> None:
        for warning in record.warnings:
            self.note(f"warning: {warning.message}\nhint: {warning.hint}" if warning.hint else warning.message)

    def note(self, text: str) -> None:
        typer.echo(text, err=True)


def _print_table(result_set: ResultSet, record: Record) -> None:
    from rich.console import Console
    from rich.table import Table

    from iosonde.metrics.metrics import run_metrics

    values = {
        (operation, metric): value
        for operation, metric, value in run_metrics(result_set).select("operation", "metric", "value").iter_rows()
    }
    operations = [operation for operation, metric in values if metric == "iops" and operation != "all"]
    if len(operations) > 1:
        operations.append("all")
    loop = result_set.runs["loop"].item()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for operation in operations:
        table.add_column(operation, justify="right")
    for label, metric, text in _rows(loop):
        table.add_row(label, *(text(values.get((operation, metric))) for operation in operations))
    console = Console(highlight=False)
    console.print(table)
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
