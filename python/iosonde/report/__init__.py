"""Reports: the findings, figures, tables and provenance of result sets, as a page, as Markdown, on a terminal.

    write(result_sets, path, format="html" | "md")      one file; Markdown with its figures next to it
    figures(result_sets)                                the figures, each with its rows and its chart
    save_figures(result_sets, directory, format="svg" | "pdf" | "png")
    terminal(result_set, console, page=path)            the page, and answer, summary and warnings

`material` holds the result sets, `views` and `tables` draw what a study asks for, `content` decides what a report
contains, and `html`, `markdown` and `console` write it.
The heavy libraries are imported by what needs them, when it is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

    from iosonde.findings.finding import Finding
    from iosonde.report.content import Report
    from iosonde.report.figure import Figure, Format
    from iosonde.results import ResultSet

__all__ = ["figures", "findings", "save_figures", "terminal", "write"]


@contextmanager
def _collected(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> Iterator[Report]:
    """Collect a report, and make an error of whatever a result set has in a place where no check expects it."""
    from iosonde.report.content import collect
    from iosonde.results.shapes import interpreting

    with interpreting(each.directory for each in result_sets):
        yield collect(result_sets, mix_simulated=mix_simulated)


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
    from iosonde.report import markdown

    path, roots = Path(path), [each.directory for each in result_sets]
    with _collected(result_sets, mix_simulated=mix_simulated) as report:
        if format == "html":
            _write_page(report, path, roots)
            return [path]
        with _writing("report", path):
            return markdown.write(report, path, result_sets=roots)


def figures(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> list[Figure]:
    """Return every figure of the report on these result sets."""
    with _collected(result_sets, mix_simulated=mix_simulated) as report:
        return report.figures


def findings(result_set: ResultSet) -> list[Finding]:
    """Return every finding of the report on one result set."""
    with _collected([result_set]) as report:
        return [finding for chapter in report.chapters for _, found in chapter.findings for finding in found]


def save_figures(
    result_sets: Sequence[ResultSet], directory: Path | str, format: Format = "svg", *, mix_simulated: bool = False
) -> list[Path]:
    """Draw every figure into a file of its own, as papers need them."""
    from iosonde.errors import ResultsError
    from iosonde.report.figure import save

    directory = Path(directory)
    with _collected(result_sets, mix_simulated=mix_simulated) as report:
        drawn = report.figures
        with _writing("figures", directory):
            files = save(drawn, directory, format, result_sets=[each.directory for each in result_sets])
    for part in (part for chapter in report.chapters for part in chapter.omitted):
        raise ResultsError(
            f"cannot draw every figure: {part.why}",
            where=f"{part.title}; the others are in `{directory}`",
            hint=part.hint,
        )
    return files


def terminal(result_set: ResultSet, console: Console, *, page: Path | None = None, brief: bool = False) -> None:
    """Print findings, a compact table and warnings, after writing the page, if one is named, from the same analysis.

    With `brief` only the requirements and how far to trust them are printed.
    """
    from iosonde.report.console import show

    with _collected([result_set]) as report:
        if page:
            _write_page(report, page, [result_set.directory])
        show(report, console, report_path=page, brief=brief)


def as_text(result_set: ResultSet) -> str:
    """Return what `terminal` prints, at 80 columns."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=80, highlight=False)
    with console.capture() as captured:
        terminal(result_set, console)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def notebook(result_set: ResultSet) -> str:
    """Return answer, summary and figures as HTML, for notebooks."""
    from iosonde.report import html

    with _collected([result_set]) as report:
        return html.fragment(report)


def _write_page(report: Report, path: Path, roots: Sequence[Path]) -> None:
    from iosonde.report import html
    from iosonde.results.files import write_output

    page = html.render(report)
    with _writing("report", path):
        write_output(path, page.encode(), within=roots)


@contextmanager
def _writing(what: str, path: Path) -> Iterator[None]:
    from iosonde.errors import ResultsError

    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"cannot write the {what} `{path}`: {error.strerror}", hint="name another place with `--output`"
        ) from error
