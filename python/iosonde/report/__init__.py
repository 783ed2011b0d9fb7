"""Reports: the findings, figures, tables and provenance of result sets, as a page, as Markdown, on a terminal.

    write(result_sets, path, format="html" | "md")      one file; Markdown with its figures next to it
    figures(result_sets)                                the figures, each with its rows and its chart
    save_figures(result_sets, directory, format="svg" | "pdf" | "png")
    terminal(result_set, console)                       answer, summary and warnings
    write_and_show(result_set, path, console)           the page, and that, at the end of a run

`material` holds the result sets, `views` and `tables` draw what a study asks for, `content` decides what a report
contains, and `html`, `markdown` and `console` write it.
The heavy libraries are imported by what needs them, when it is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

    from iosonde.findings.finding import Finding
    from iosonde.report.content import Report
    from iosonde.report.figure import Figure, Format
    from iosonde.results import ResultSet

__all__ = ["figures", "figures_of", "findings", "save_figures", "terminal", "write", "write_and_show"]

_Options = ParamSpec("_Options")
_Subject = TypeVar("_Subject", "ResultSet", "Sequence[ResultSet]")
_Written = TypeVar("_Written")


def _interpreted(
    function: Callable[Concatenate[_Subject, _Options], _Written],
) -> Callable[Concatenate[_Subject, _Options], _Written]:
    """Make an error of whatever a result set has in a place where no check expects it."""

    @functools.wraps(function)
    def guarded(subject: _Subject, /, *arguments: _Options.args, **options: _Options.kwargs) -> _Written:
        from iosonde.results.shapes import interpreting

        result_sets = subject if isinstance(subject, Sequence) else [subject]
        with interpreting(each.directory for each in result_sets):
            return function(subject, *arguments, **options)

    return guarded


@_interpreted
def write(
    result_sets: Sequence[ResultSet],
    path: Path | str,
    format: Literal["html", "md"] = "html",
    *,
    mix_simulated: bool = False,
) -> list[Path]:
    """Write a report of one or more result sets; returns the files written, the report first.

    Simulated and measured result sets together are refused (`ResultsError`) unless `mix_simulated` is set.
    """
    from iosonde.report.content import collect

    path, roots = Path(path), [each.directory for each in result_sets]
    report = collect(result_sets, mix_simulated=mix_simulated)
    if format == "md":
        from iosonde.report import markdown

        with _writing("report", path):
            return markdown.write(report, path, result_sets=roots)
    return [_write_page(report, path, roots)]


@_interpreted
def write_and_show(result_set: ResultSet, path: Path, console: Console, *, brief: bool = False) -> None:
    """Write the page, and print the answer, summary and warnings: both from one analysis.

    With `brief` only the requirements and how far to trust them are printed.
    """
    from iosonde.report import console as on_terminal
    from iosonde.report.content import collect

    report = collect([result_set])
    on_terminal.show(report, console, report_path=_write_page(report, path, [result_set.directory]), brief=brief)


@_interpreted
def figures(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> list[Figure]:
    """Return every figure of the report on these result sets."""
    from iosonde.report.content import collect

    return collect(result_sets, mix_simulated=mix_simulated).figures


def figures_of(result_set: ResultSet) -> list[Figure]:
    """Return every figure of the report on one result set."""
    return figures([result_set])


@_interpreted
def findings(result_set: ResultSet) -> list[Finding]:
    """Return every finding of the report on one result set."""
    from iosonde.report.content import collect

    report = collect([result_set])
    return [finding for chapter in report.chapters for _, found in chapter.findings for finding in found]


@_interpreted
def save_figures(
    result_sets: Sequence[ResultSet], directory: Path | str, format: Format = "svg", *, mix_simulated: bool = False
) -> list[Path]:
    """Draw every figure into a file of its own, as papers need them."""
    from iosonde.errors import ResultsError
    from iosonde.report.content import collect
    from iosonde.report.figure import save

    directory = Path(directory)
    report = collect(result_sets, mix_simulated=mix_simulated)
    with _writing("figures", directory):
        files = save(report.figures, directory, format, result_sets=[each.directory for each in result_sets])
    for part in (part for chapter in report.chapters for part in chapter.omitted):
        raise ResultsError(
            f"cannot draw every figure: {part.why}",
            where=f"{part.title}; the others are in `{directory}`",
            hint=part.hint,
        )
    return files


@_interpreted
def terminal(result_set: ResultSet, console: Console, *, report_path: Path | None = None, brief: bool = False) -> None:
    """Print findings, a compact table, warnings, and the path of the report, if there is one.

    With `brief` only the requirements and how far to trust them are printed.
    """
    from iosonde.report import console as on_terminal
    from iosonde.report.content import collect

    on_terminal.show(collect([result_set]), console, report_path=report_path, brief=brief)


def as_text(result_set: ResultSet) -> str:
    """Return what `terminal` prints, at 80 columns."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=80, highlight=False)
    with console.capture() as captured:
        terminal(result_set, console)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@_interpreted
def notebook(result_set: ResultSet) -> str:
    """Return answer, summary and figures as HTML, for notebooks."""
    from iosonde.report import html
    from iosonde.report.content import collect

    return html.fragment(collect([result_set]))


def _write_page(report: Report, path: Path, roots: Sequence[Path]) -> Path:
    from iosonde.report import html
    from iosonde.results.files import write_output

    page = html.render(report)
    with _writing("report", path):
        write_output(path, page.encode(), within=roots)
    return path


@contextmanager
def _writing(what: str, path: Path) -> Iterator[None]:
    from iosonde.errors import ResultsError

    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"cannot write the {what} `{path}`: {error.strerror}", hint="name another place with `--output`"
        ) from error
