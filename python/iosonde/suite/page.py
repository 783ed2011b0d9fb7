"""The report of a suite as one HTML page that loads nothing and needs no script."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from iosonde.report.writers.document import policy, stylesheet, template_of
from iosonde.results.files import write_output
from iosonde.suite.plot import label, plot
from iosonde.suite.summary import Line, Summary

WORDS = {
    "better": "better",
    "worse": "worse",
    "same": "same within 5 %",
    "unexplained": "not by the device",
    "unclear": "unclear",
    "excluded": "excluded",
    "missing": "not measured",
    "value": "",
}


def ratio_text(line: Line) -> str:
    """The improvement with its interval; empty without one."""
    if line.improvement is None:
        return ""
    interval = f" ({line.low:.2f} to {line.high:.2f})" if line.low and line.high else ""
    return f"{line.improvement:.2f}×{interval}"


def percent_text(share: float | None) -> str:
    """A share of the time; a dash where nothing was reported."""
    return "–" if share is None else f"{100 * share:.0f} %"


def render(summary: Summary) -> str:
    """Return the page; links to the studies' reports are relative to the directory of the suite."""
    files = resources.files("iosonde.suite") / "page_files"
    description = summary.directory.description
    lines = summary.lines if summary.compares else [line for study in summary.studies for line in study.lines]
    text = template_of((files / "suite.html").read_text(encoding="utf-8")).render(
        policy=policy(),
        style=stylesheet() + (files / "suite.css").read_text(encoding="utf-8"),
        suite=description.suite,
        target=description.target,
        against=description.against,
        summary=summary,
        figure=plot(
            summary.lines if summary.compares else [],
            description=f"Improvement of {description.against} over {description.target} for each application",
        ),
        lines=lines,
        published=any(line.value.published for line in lines),
        words=WORDS,
        label=label,
        ratio=ratio_text,
        percent=percent_text,
        reports=reports(summary),
    )
    return str(text)


def reports(summary: Summary) -> dict[str, list[tuple[str, str]]]:
    """Links to the report of each result set, by entry: its directory's name, and the link."""
    return {
        study.entry.name: [(path.name, f"{path.name}/report.html") for path in study.result_sets]
        for study in summary.studies
    }


def write(summary: Summary, path: Path) -> None:
    """Write the page."""
    write_output(path, render(summary).encode(errors="replace"), within=[summary.directory.path])
