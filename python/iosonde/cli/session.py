"""Shared parts of subcommands that run studies: the progress display, closing messages, report and exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

import iosonde
from iosonde.cli import reference
from iosonde.cli.terminal import console, messages, print_json, stdout
from iosonde.errors import IosondeError

if TYPE_CHECKING:
    from iosonde.cli.options import RunOptions
    from iosonde.execution.live.page import LivePage
    from iosonde.execution.run_loop import Observer
    from iosonde.plan import Plan
    from iosonde.planning.procedure import Remaining
    from iosonde.results import ResultSet


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Number of runs by outcome."""

    complete: int
    failed: int
    unsupported: int
    """Runs of a combination that the target or the store cannot do."""
    refused: int
    """Runs that the engine refused because of a setting of the study."""

    @property
    def mostly_failed(self) -> bool:
        """Return True if more than half of the runs that could have succeeded failed."""
        bad = self.failed + self.refused
        return bad > self.complete or not self.complete

    def problem(self, total: str) -> str:
        """Return the error of a study that mostly failed; `total` is how many runs it has."""
        bad = self.failed + self.refused
        if not bad and self.unsupported:
            return f"no run of {total} is complete: {_counted(self.unsupported, 'unsupported combination')}"
        return f"{bad} of {total} runs failed; the results below are not representative"


def outcome(result_set: ResultSet) -> Outcome:
    """Count the runs of a result set."""
    records = result_set.records()
    unsupported = sum(record.is_unsupported for record in records)
    refused = sum(record.refused for record in records)
    failed = sum(record.outcome == "failed" for record in records) - unsupported - refused
    complete = len(records) - failed - unsupported - refused
    return Outcome(complete=complete, failed=failed, unsupported=unsupported, refused=refused)


def name_unsupported(result_set: ResultSet) -> None:
    """Print how many unsupported combinations `--retry-failed` does not repeat; nothing without any."""
    if count := outcome(result_set).unsupported:
        messages.info(f"{_counted(count, 'unsupported combination')} not repeated")


def ahead(result_set: ResultSet, *, retry_failed: bool) -> Remaining:
    """Runs and time that remain of a study."""
    from iosonde.planning.procedure import Schedule
    from iosonde.results.shapes import interpreting

    with interpreting([result_set.directory]):
        return Schedule(result_set, retry_failed=retry_failed).ahead()


def carry_out(
    plan: Plan, ahead: Remaining, directory: Path, work: Callable[[Observer], ResultSet], given: RunOptions
) -> None:
    """Do the work with a progress display, and print the results."""
    from iosonde import report

    with _live(plan, given) as page:
        result_set = _watched(ahead, directory, work, page)
        counts = outcome(result_set)
        _print_outcome(counts, result_set, directory)
        path = directory / "report.html"
        if given.as_json:
            written = str(report.write([result_set], path, format="html")[0]) if given.report else None
            print_json({"runs": asdict(counts), "report": written, **documents([result_set])[0]})
        elif given.report:
            report.terminal(result_set, stdout(), page=path)
        if page:
            kind = "failed" if counts.mostly_failed else "complete"
            page.over(kind, f"{counts.complete} of {_total(result_set)} runs complete.", path)
        exit_for_wrong_data([result_set])
        if counts.mostly_failed or _is_imprecise(result_set):
            raise typer.Exit(reference.EXIT_RUNS_FAILED)


@contextmanager
def _live(plan: Plan, given: RunOptions) -> Iterator[LivePage | None]:
    """Serve the live page, if it is wanted, until the study is over; an error is its last message."""
    if not given.live:
        yield None
        return
    from iosonde.execution.live.page import LivePage

    with closing(LivePage(plan, port=given.live_port)) as page:
        messages.secret(f"Live page: {page.url}")
        try:
            yield page
        except IosondeError as error:
            page.over("failed", error.what)
            raise


def _watched(
    ahead: Remaining, directory: Path, work: Callable[[Observer], ResultSet], page: LivePage | None
) -> ResultSet:
    from iosonde.execution.progress import watch
    from iosonde.execution.session import Interrupted

    record = messages.record if messages.logs else None
    try:
        with watch(ahead, console(), info=messages.info, warning=messages.warning, record=record) as observer:
            return work(page.observe(observer, ahead) if page else observer)
    except Interrupted as stopped:
        kept = len(stopped.result_set.records())
        lines = [f"Stopped. {kept} of {_total(stopped.result_set)} runs completed and kept in {directory}"]
        lines += [f"Report so far: iosonde report {directory}"] if kept else []
        again = f"iosonde resume {directory}{' --hosts HOSTS' if stopped.result_set.plan.hosts else ''}"
        lines.append(f"Continue with: {again}")
    except KeyboardInterrupt:
        lines = ["Stopped immediately.", "Remove leftovers with: iosonde cleanup"]
    for line in lines:
        messages.warning(line)
    if page:
        page.over("stopped", " ".join(f"{line.rstrip('.')}." for line in lines[1:]))
    raise typer.Exit(reference.EXIT_INTERRUPTED)


def exit_for_wrong_data(result_sets: Iterable[ResultSet]) -> None:
    """Name wrong data in the last line, and exit with a code of its own; nothing without any."""
    records = [record for each in result_sets for record in each.records()]
    if wrong := sum(record.has_wrong_data for record in records):
        messages.warning(f"error: wrong data in {wrong} of {_counted(len(records), 'run')}: do not trust this storage")
        raise typer.Exit(reference.EXIT_WRONG_DATA)


def stop_several(again: object) -> NoReturn:
    """Report that a suite or fleet was stopped, and exit; `again` is the argument of `iosonde resume`."""
    messages.warning("Stopped. Completed runs are kept.")
    messages.warning(f"Continue with: iosonde resume {again}")
    raise typer.Exit(reference.EXIT_INTERRUPTED)


def exit_for_several(directories: Iterable[Path], *, failed: bool) -> None:
    """Exit with the code of wrong data or of failed runs; nothing without any."""

    exit_for_wrong_data(iosonde.load(each) for each in directories if (each / "plan.json").exists())
    if failed:
        raise typer.Exit(reference.EXIT_RUNS_FAILED)


def _is_imprecise(result_set: ResultSet) -> bool:
    """Return True if cases that were repeated until they are precise are not; a message counts them."""
    from iosonde.planning.procedure import conclusions
    from iosonde.planning.procedure.until import UntilConclusion

    if not any(case.procedure for case in result_set.plan.cases):
        return False
    ended = [each for _, each in conclusions(result_set) if isinstance(each, UntilConclusion)]
    missed = sum(not each.reached for each in ended)
    if missed:
        messages.warning(f"{missed} of {_counted(len(ended), 'case')} did not reach their precision")
    return missed > 0


def warn_of_problems(result_set: ResultSet) -> None:
    """Name damaged and foreign files."""
    for problem in result_set.problems:
        messages.warning(f"warning: {problem}; skipped")


def _print_outcome(counts: Outcome, result_set: ResultSet, directory: Path) -> None:
    total = _total(result_set)
    if counts.mostly_failed:
        messages.warning(f"error: {counts.problem(total)}")
    messages.info(f"{counts.complete} of {total} runs complete, in {directory}")
    if counts.unsupported:
        messages.info(f"{_counted(counts.unsupported, 'unsupported combination')} skipped (see report)")
    if counts.refused:
        refused = _counted(counts.refused, "run")
        messages.warning(f"{refused} refused because of a setting of the study. Correct it and run again")
    if counts.failed:
        failed = _counted(counts.failed, "run")
        messages.warning(f"{failed} failed. Repeat them with: iosonde resume {directory} --retry-failed")
    warn_of_problems(result_set)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _total(result_set: ResultSet) -> str:
    """Total number of runs; a lower bound while procedures are unfinished, each of which adds at least one."""
    from iosonde.planning.procedure import open_runs

    unfinished = len(open_runs(result_set))
    known = len(result_set.known_runs())
    return f"at least {known + unfinished}" if unfinished else str(known)


def documents(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> list[dict[str, Any]]:
    """`--json` output: the study, findings, and the metrics of each case with their intervals; grouped by study."""
    from iosonde.findings.requirements import results_of
    from iosonde.metrics.registry import metric
    from iosonde.report.content import collect
    from iosonde.results.shapes import interpreting

    found = []
    with interpreting(each.directory for each in result_sets):
        for chapter in collect(result_sets, mix_simulated=mix_simulated).chapters:
            answers = dict(chapter.answers)
            for source in chapter.material.sources:
                answer = answers[source.label]
                metrics = chapter.material.summary.filter(result_set=source.label).drop("result_set").to_dicts()
                document = {
                    "result_set": str(source.results.directory),
                    "study": source.plan.study_name,
                    "title": chapter.study.title,
                    "question": chapter.study.question,
                    "profile": source.plan.profile,
                    "target": source.plan.target,
                    "simulated": source.simulated,
                    "missing_runs": len(source.missing),
                    "requirements": [
                        {**asdict(each), "requirement": each.requirement.model_dump()}
                        for each in results_of(source.results)
                    ],
                    "answer": [finding.sentence for finding in answer.summary],
                    "trust": answer.trust.line,
                    "findings": [_finding(each) for each in answer.findings],
                    "metrics": [{**row, "unit": metric(row["metric"]).unit} for row in metrics],
                    "warnings": source.results.warnings.to_dicts(),
                    "missing_parts": [asdict(part) for part in chapter.omitted],
                }
                found.append(document)
    return found


def _finding(finding: Any) -> dict[str, Any]:
    names = ("kind", "topic", "sentence", "evidence", "methods")
    return {**{name: getattr(finding, name) for name in names}, **asdict(finding)}
