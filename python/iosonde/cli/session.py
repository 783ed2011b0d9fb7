"""What `run` and `resume` share: watch the runs, say how it ended, and show what was found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from iosonde.execution import Observer
    from iosonde.procedure.schedule import Remaining
    from iosonde.results import ResultSet

Report = Annotated[bool, typer.Option("--report/--no-report", help="Print the findings and write `report.html`.")]


def carry_out(ahead: Remaining, directory: Path, work: Callable[[Observer], ResultSet], *, report: bool) -> None:
    """Do the work with a progress display, and show its results."""
    from rich.console import Console

    from iosonde.cli.progress import watch
    from iosonde.execution import Interrupted

    talk = Console(stderr=True, highlight=False)
    try:
        with watch(ahead, talk) as observer:
            result_set = work(observer)
    except Interrupted as stopped:
        _say_stopped(stopped.result_set, directory, talk)
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        _say(talk, "Stopped at once. Files that are left are removed by: iosonde cleanup")
        raise typer.Exit(130) from None
    _say_ended(result_set, directory, talk)
    if report:
        _show(result_set, directory)
    if not any(record.outcome == "complete" for record in result_set.records()):
        raise typer.Exit(1)


def say_problems(result_set: ResultSet, talk: Console) -> None:
    """Damaged and foreign files."""
    for problem in result_set.problems:
        _say(talk, f"warning: {problem}; it is left out")


def _say_stopped(result_set: ResultSet, directory: Path, talk: Console) -> None:
    done = len(result_set.records())
    _say(talk, f"Stopped. {done} of {_total(result_set)} runs are done and kept in {directory}")
    _say(talk, f"Go on with: iosonde resume {directory}")


def _say_ended(result_set: ResultSet, directory: Path, talk: Console) -> None:
    records = result_set.records()
    impossible = sum(record.cannot_be for record in records)
    refused = sum(record.refused for record in records)
    failed = sum(record.outcome == "failed" for record in records) - impossible - refused
    _say(
        talk,
        f"{len(records) - failed - impossible - refused} of {_total(result_set)} runs are complete, in {directory}",
    )
    if impossible:
        _say(talk, f"{impossible} ask for what cannot be done; the report says why")
    if refused:
        _say(talk, f"{refused} were refused for what the study says. Correct it, and run it anew")
    if failed:
        _say(talk, f"{failed} failed. Repeat them with: iosonde resume {directory} --retry-failed")
    say_problems(result_set, talk)


def _total(result_set: ResultSet) -> str:
    """How many runs there are to be; procedures that are not at their end add at least one each."""
    from iosonde.procedure.schedule import open_runs

    open_ends = len(open_runs(result_set))
    return f"at least {len(result_set.known_runs()) + open_ends}" if open_ends else str(len(result_set.known_runs()))


def _show(result_set: ResultSet, directory: Path) -> None:
    from rich.console import Console

    from iosonde import report

    report.write_and_show(result_set, directory / "report.html", Console(highlight=False))


def _say(talk: Console, text: str) -> None:
    talk.print(text, markup=False, soft_wrap=True)
