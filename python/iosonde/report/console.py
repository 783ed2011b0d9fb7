"""The report on a terminal, at 80 columns, without colour and without trailing spaces.

The order is that of the page: answer and trust, summary, findings by figure, cases, method, warnings.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from iosonde.findings.finding import Finding
from iosonde.metrics.registry import known_names, metric, named_among
from iosonde.metrics.wording import counted, unbroken
from iosonde.report.content import Chapter, Labelled, Report, incomplete
from iosonde.report.details import MEANING, NAME, OBSERVED, REASON, SHOWN, SHOWN_OF_WINDOWS, START
from iosonde.report.material import WARNING
from iosonde.report.provenance import completion, headline, target_line
from iosonde.report.table import RESULT, SCOPE, VERDICT, Cell, Table, folded, selected

FINDINGS = 8
"""Findings besides the answer; the page has the others."""
ROWS = 12
RESULT_SET = "Result set"
GAP = "  "
MARKS = {"strong": "●", "moderate": "◐", "weak": "○"}


def show(report: Report, console: Console, *, report_path: Path | None = None, brief: bool = False) -> None:
    """Print the report; with `brief` only the requirements, how long the results hold, and warnings."""
    for chapter in report.chapters:
        console.print()
        _line(console, chapter.study.title, style="bold")
        if report.simulated:
            _wrapped(console, f"{report.simulated.capitalize()}: {WARNING}.", style="yellow")
        for source in chapter.sources:
            _wrapped(console, target_line(source), style="dim")
            if problem := incomplete(source):
                _wrapped(console, f"This result set is incomplete: {problem}.", style="bold yellow")
                _line(console, ": ".join(completion(source)))
        _requirements(chapter, console)
        _windows(chapter, console)
        if brief:
            _marked(
                console, *(each for _, answer in chapter.answers for each in answer.findings if each.states_duration)
            )
        else:
            _answer(chapter, console)
            if chapter.summary:
                _table(console, chapter.summary, title="Summary")
            _findings(chapter, console)
            for table in chapter.case_tables:
                _table(console, _of_whole_loads(table), preferred=_preferred(table))
            _method(chapter, console)
        _warnings(chapter, console)
    if report_path is not None:
        console.print()
        console.print(Text.assemble("Report: ", (str(report_path), "bold")), soft_wrap=True)


def _requirements(chapter: Chapter, console: Console) -> None:
    """Print the table of requirements, and reasons: of those not met, undecided, or met in spite of a disturbance."""
    if not chapter.requirements:
        return
    table, notes = chapter.requirements
    _table(console, table, preferred=[*table.heads[: table.labels], *SHOWN])
    why: dict[str, list[str]] = {}
    for cells in _first_rows(notes):
        if cells[RESULT] != "pass" or (cells[REASON] != "-" and not chapter.windows):
            reasons = [cells[MEANING]] * (cells[RESULT] == "fail") + [cells[REASON]] * (cells[REASON] != "-")
            why.setdefault(" ".join(reasons), []).append(cells[NAME])
    _listed(console, (f"{', '.join(names)}: {reason}" for reason, names in why.items()))


def _windows(chapter: Chapter, console: Console) -> None:
    """Print the worst windows, and what else was observed in them."""
    if chapter.windows:
        _table(console, chapter.windows, preferred=SHOWN_OF_WINDOWS)
        observed = {each[START]: each[OBSERVED] for each in _first_rows(chapter.windows) if each[OBSERVED] != "-"}
        _listed(console, (f"{start}: {text}" for start, text in observed.items()))


def _first_rows(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.heads, (cell.text for cell in row), strict=True)) for row in table.rows[:ROWS]]


def _answer(chapter: Chapter, console: Console) -> None:
    """Print the comparison of two systems, which answers the question of an A/B run, then each answer.

    Where the device did not limit most runs, how far to trust the claims comes before them.
    """
    if chapter.comparison:
        _heading(console, "Comparison")
        _listed(console, (f"{line}." for line in chapter.comparison))
    for label, answer in chapter.answers:
        _heading(console, f"Answer: {label}" if len(chapter.answers) > 1 else "Answer")
        trust = f"Trust: {answer.trust.line}."
        if answer.is_trust_first:
            _wrapped(console, trust, style="dim")
        _marked(console, *answer.summary)
        if not answer.summary:
            _line(console, f"No answer: {chapter.no_answer}.")
        if not answer.is_trust_first:
            _wrapped(console, trust, style="dim")
    if any(answer.summary for _, answer in chapter.answers):
        _line(console, "Evidence: " + ", ".join(f"{mark} {strength}" for strength, mark in MARKS.items()), style="dim")


def _findings(chapter: Chapter, console: Console) -> None:
    found: list[Labelled] = [each for section in chapter.sections for each in section.findings]
    found += chapter.further_findings
    if not all(each.is_usable for _, each in chapter.answers):
        found = [each for each in found if each[1] in chapter.open_findings]
    found += chapter.quality_findings
    if not found:
        return
    _heading(console, "Findings")
    for label, finding in found[:FINDINGS]:
        _marked(console, finding, label=f"{label}: " if len(chapter.answers) > 1 else "")
    if len(found) > FINDINGS:
        _line(console, f"  and {len(found) - FINDINGS} more in the report", style="dim")


def _of_whole_loads(table: Table) -> Table:
    """Return a table of cases with one row for each: that of its whole load."""
    if SCOPE not in table.heads:
        return table
    whole: dict[str, Sequence[Cell]] = {}
    for key, row in zip(table.keys, table.rows, strict=True):
        whole.setdefault(key, row)
    return replace(table, rows=list(whole.values()))


def _preferred(table: Table) -> list[str]:
    """Return the columns of a table of cases, the most important first."""
    response = any(head.startswith("Response") for head in table.heads)
    kind = "Response" if response else "Completion"
    latencies = [f"{kind} latency, {statistic}" for statistic in ("p99", "p50", "p99.9")]
    rates = ["IOPS", "Operations per second", "Bandwidth"]
    names = [head for head in table.heads[: table.labels] if head not in (SCOPE, VERDICT)]
    named = [
        title for name in named_among(known_names(), directed=False) if (title := metric(name).title) in table.heads
    ]
    return [*names, VERDICT, *rates, *named, *(each for each in latencies if not named or each in table.heads)]


def _method(chapter: Chapter, console: Console) -> None:
    _heading(console, "Method and machine")
    for source in chapter.sources:
        if len(chapter.sources) > 1:
            _line(console, source.label)
        facts = dict(headline(source, chapter.material, chapter.omitted))
        facts.pop("Simulated", None)
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            _wrapped(console, value, first=f"{name:<{width}}{GAP}", rest=" " * (width + len(GAP)))


def _warnings(chapter: Chapter, console: Console) -> None:
    if chapter.warnings:
        _heading(console, "Warnings")
    for caution in chapter.warnings:
        _wrapped(console, f"{caution.code} ({len(caution.runs)} of {caution.total} runs): {caution.title}", rest="  ")
        _, run_id, message = caution.runs[0]
        notes = [f"example: {run_id}: {message}"] * (message != caution.title)
        notes += [f"hint: {caution.hint}"] * bool(caution.hint)
        for note in notes:
            _wrapped(console, note, first="  ", rest="  ", style="dim")
    if chapter.omitted:
        _heading(console, "Missing parts of this report")
        for part in chapter.omitted:
            _wrapped(console, f"{part.title}: {part.why}", rest="  ")
        _wrapped(console, f"hint: {chapter.omitted[0].hint}", first="  ", rest="  ", style="dim")


# Tables ----------------------------------------------------------------------------------------------------------


def _table(console: Console, table: Table, *, title: str = "", preferred: Sequence[str] = ()) -> None:
    """Print a table: constant columns as a line, as many others as fit, the less important left out first."""
    _heading(console, title or table.title)
    shown = folded(_chosen(table, preferred))
    places = _fitting(shown, preferred, console.width)
    if shown.caption:
        _wrapped(console, shown.caption, style="dim")
    for line in _lines(shown, places):
        _line(console, line)
    if len(table.rows) > ROWS:
        _line(console, f"  and {len(table.rows) - ROWS} more in the report", style="dim")
    left_out = [head for place, head in enumerate(shown.heads) if place not in places]
    left_out += [counted(table.columns_left_out, "more column")] if table.columns_left_out else []
    if left_out:
        _wrapped(console, f"Not shown: {', '.join(left_out)} (see the report).", style="dim")


def _chosen(table: Table, preferred: Sequence[str]) -> Table:
    """Return a table of what a terminal has room for: its first rows, without intervals."""
    names = [*preferred, "Loop"] if preferred else table.heads
    shorter = _names_of_arms(table)
    kind = next((head.partition(" latency, ")[0] for head in preferred if " latency, " in head), "")
    chosen = selected(table, [place for place, head in enumerate(table.heads) if head in names])
    rows = [[Cell(text=shorter.get(cell.text, cell.text)) for cell in row] for row in chosen.rows[:ROWS]]
    return replace(chosen, caption=f"{kind} latency." if kind else "", rows=rows)


def _names_of_arms(table: Table) -> dict[str, str]:
    """Return `a` and `b` of the labels of two arms, which would leave no room for values."""
    if table.heads[:1] != [RESULT_SET]:
        return {}
    labels = {row[0].text: row[0].text.partition(": ")[0] for row in table.rows}
    return labels if set(labels.values()) == {"a", "b"} else {}


def _fitting(table: Table, preferred: Sequence[str], width: int) -> list[int]:
    """Return the columns that fit, in their order."""
    ranks = {head: rank for rank, head in enumerate(preferred)}
    chosen: list[int] = []
    for place in sorted(range(len(table.heads)), key=lambda place: ranks.get(table.heads[place], place)):
        if sum(_width(table, each) + len(GAP) for each in [*chosen, place]) - len(GAP) <= width:
            chosen.append(place)
    return sorted(chosen)


def _width(table: Table, place: int) -> int:
    """Return the width of a column: its longest cell, or the longest word of its head."""
    cells = max((len(row[place].text) for row in table.rows), default=0)
    return max([cells, *map(len, _short(table, place).split())])


def _lines(table: Table, places: Sequence[int]) -> Iterator[str]:
    widths = {place: _width(table, place) for place in places}
    heads = {place: textwrap.wrap(_short(table, place), widths[place]) for place in places}
    depth = max([1, *map(len, heads.values())])
    stacked = {place: [""] * (depth - len(head)) + head for place, head in heads.items()}
    grid = [{place: head[line] for place, head in stacked.items()} for line in range(depth)]
    grid += [{place: row[place].text for place in places} for row in table.rows]
    for cells in grid:
        padded = (f"{text:{'<' if place < table.labels else '>'}{widths[place]}}" for place, text in cells.items())
        yield GAP.join(padded).rstrip()


def _short(table: Table, place: int) -> str:
    """Return the part of a head that distinguishes latencies: with the kind only where the table has several."""
    kind, separator, percentile = table.heads[place].partition(" latency, ")
    if not separator:
        return kind
    kinds = {head.partition(" latency, ")[0] for head in table.heads if " latency, " in head}
    return percentile if len(kinds) == 1 else f"{kind} {percentile}"


# Lines -----------------------------------------------------------------------------------------------------------


def _heading(console: Console, text: str) -> None:
    console.print()
    _line(console, text, style="bold underline")


def _listed(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        _wrapped(console, line, first="- ", rest="  ")


def _marked(console: Console, *findings: Finding, label: str = "") -> None:
    """Print findings with the marks of their evidence."""
    for finding in findings:
        _wrapped(console, f"{label}{finding.sentence}.", first=f"{MARKS[finding.strength]} ", rest="  ")


def _wrapped(console: Console, text: str, *, first: str = "", rest: str = "", style: str = "") -> None:
    """Print text in lines of whole words."""
    lines = textwrap.wrap(
        unbroken(" ".join(text.split())),
        console.width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        _line(console, line.replace("\N{NO-BREAK SPACE}", " "), style=style)


def _line(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(text.rstrip(), style=style), soft_wrap=True)
