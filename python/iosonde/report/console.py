"""The report on a terminal, at 80 columns, without colour and without trailing spaces.

The order is that of the page: answer and trust, summary, findings by figure, cases, method, warnings.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from iosonde.findings.answer import Answer
from iosonde.metrics.registry import known_names, metric, named_among
from iosonde.metrics.wording import counted, unbroken
from iosonde.report.content import Chapter, Labelled, Report, incomplete
from iosonde.report.details import MEANING, NAME, OBSERVED, REASON, SHOWN, SHOWN_OF_WINDOWS, START
from iosonde.report.material import WARNING, Source
from iosonde.report.provenance import completion, headline, target_line
from iosonde.report.table import RESULT, SCOPE, VERDICT, Cell, Table, folded

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
            _incomplete(source, console)
        _requirements(chapter, console)
        _windows(chapter, console)
        if brief:
            _duration(chapter, console)
        else:
            _results(chapter, console)
        _warnings(chapter, console)
        _omitted(chapter, console)
    if report_path is not None:
        console.print()
        console.print(Text.assemble("Report: ", (str(report_path), "bold")), soft_wrap=True)


def _results(chapter: Chapter, console: Console) -> None:
    _comparison(chapter, console)
    _answer(chapter, console)
    if chapter.summary:
        _table(console, chapter.summary, list(chapter.summary.rows), title="Summary")
    _findings(chapter, console)
    _cases(chapter, console)
    _method(chapter, console)


def _incomplete(source: Source, console: Console) -> None:
    if problem := incomplete(source):
        _wrapped(console, f"This result set is incomplete: {problem}.", style="bold yellow")
        console.print(Text(": ".join(completion(source))), soft_wrap=True)


def _requirements(chapter: Chapter, console: Console) -> None:
    """Print the table of requirements, and reasons: of those not met, undecided, or met in spite of a disturbance."""
    if not chapter.requirements:
        return
    table, notes = chapter.requirements
    _table(console, table, list(table.rows), title=table.title, preferred=[*table.heads[: table.labels], *SHOWN])
    why: dict[str, list[str]] = {}
    for row in notes.rows[:ROWS]:
        cells = dict(zip(notes.heads, (cell.text for cell in row), strict=True))
        if cells[RESULT] != "pass" or (cells[REASON] != "-" and not chapter.windows):
            reasons = [cells[MEANING]] * (cells[RESULT] == "fail") + [cells[REASON]] * (cells[REASON] != "-")
            why.setdefault(" ".join(reasons), []).append(cells[NAME])
    for reason, names in why.items():
        _wrapped(console, f"{', '.join(names)}: {reason}", first="- ", rest="  ")


def _windows(chapter: Chapter, console: Console) -> None:
    """Print the worst windows, and what else was observed in them."""
    table = chapter.windows
    if not table:
        return
    _table(console, table, list(table.rows), title=table.title, preferred=SHOWN_OF_WINDOWS)
    cells = (dict(zip(table.heads, (cell.text for cell in row), strict=True)) for row in table.rows[:ROWS])
    for start, text in {each[START]: each[OBSERVED] for each in cells if each[OBSERVED] != "-"}.items():
        _wrapped(console, f"{start}: {text}", first="- ", rest="  ")


def _duration(chapter: Chapter, console: Console) -> None:
    for _, answer in chapter.answers:
        for finding in answer.findings:
            if finding.states_duration:
                _wrapped(console, f"{finding.sentence}.", first=f"{MARKS[finding.strength]} ", rest="  ")


def _answer(chapter: Chapter, console: Console) -> None:
    for label, answer in chapter.answers:
        _heading(console, f"Answer: {label}" if len(chapter.answers) > 1 else "Answer")
        if answer.is_trust_first:
            _trust(answer, console)
        for finding in answer.summary:
            _wrapped(console, f"{finding.sentence}.", first=f"{MARKS[finding.strength]} ", rest="  ")
        if not answer.summary:
            _line(console, f"No answer: {chapter.no_answer}.")
        if not answer.is_trust_first:
            _trust(answer, console)
    if any(answer.summary for _, answer in chapter.answers):
        _line(console, "Evidence: " + ", ".join(f"{mark} {strength}" for strength, mark in MARKS.items()), style="dim")


def _trust(answer: Answer, console: Console) -> None:
    """Print how far to trust the claims: before them where the device did not limit most runs."""
    _wrapped(console, f"Trust: {answer.trust.line}.", style="dim")


def _comparison(chapter: Chapter, console: Console) -> None:
    """Print the comparison of two systems, which answers the question of an A/B run."""
    if chapter.comparison:
        _heading(console, "Comparison")
    for line in chapter.comparison:
        _wrapped(console, f"{line}.", first="- ", rest="  ")


def _findings(chapter: Chapter, console: Console) -> None:
    found: list[Labelled] = [each for section in chapter.sections for each in section.findings]
    found += chapter.further_findings
    if not all(each.is_usable for _, each in chapter.answers):
        found = [each for each in found if each[1] in chapter.open_findings]
    found += chapter.quality_findings
    if not found:
        return
    _heading(console, "Findings")
    several = len(chapter.answers) > 1
    for label, finding in found[:FINDINGS]:
        sentence = f"{label}: {finding.sentence}." if several else f"{finding.sentence}."
        _wrapped(console, sentence, first=f"{MARKS[finding.strength]} ", rest="  ")
    if len(found) > FINDINGS:
        _line(console, f"  and {len(found) - FINDINGS} more in the report", style="dim")


def _cases(chapter: Chapter, console: Console) -> None:
    for table in chapter.case_tables:
        _table(console, table, _whole_load(table), title=table.title, preferred=_preferred(table))


def _whole_load(table: Table) -> list[Sequence[Cell]]:
    """Return one row for each case: that of its whole load."""
    if SCOPE not in table.heads:
        return list(table.rows)
    whole: dict[str, Sequence[Cell]] = {}
    for key, row in zip(table.keys, table.rows, strict=True):
        whole.setdefault(key, row)
    return list(whole.values())


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
        facts = [
            (name, value) for name, value in headline(source, chapter.material, chapter.omitted) if name != "Simulated"
        ]
        width = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            _wrapped(console, value, first=f"{name:<{width}}{GAP}", rest=" " * (width + len(GAP)))


def _warnings(chapter: Chapter, console: Console) -> None:
    if not chapter.warnings:
        return
    _heading(console, "Warnings")
    for caution in chapter.warnings:
        _wrapped(console, f"{caution.code} ({len(caution.runs)} of {caution.total} runs): {caution.title}", rest="  ")
        _, run_id, message = caution.runs[0]
        if message != caution.title:
            _wrapped(console, f"example: {run_id}: {message}", first="  ", rest="  ", style="dim")
        if caution.hint:
            _wrapped(console, f"hint: {caution.hint}", first="  ", rest="  ", style="dim")


def _omitted(chapter: Chapter, console: Console) -> None:
    if not chapter.omitted:
        return
    _heading(console, "Missing parts of this report")
    for part in chapter.omitted:
        _wrapped(console, f"{part.title}: {part.why}", rest="  ")
    _wrapped(console, f"hint: {chapter.omitted[0].hint}", first="  ", rest="  ", style="dim")


# Tables ----------------------------------------------------------------------------------------------------------


def _table(
    console: Console, table: Table, rows: list[Sequence[Cell]], *, title: str, preferred: Sequence[str] = ()
) -> None:
    """Print a table: constant columns as a line, as many others as fit, the less important left out first."""
    cut = _chosen(table, rows, preferred)
    shown = folded(cut)
    _heading(console, title)
    constants = shown.caption
    places, left_out = _fitting(shown, list(preferred), console.width)
    if constants:
        _wrapped(console, constants, style="dim")
    for line in _lines(shown, places):
        _line(console, line)
    if len(rows) > ROWS:
        _line(console, f"  and {len(rows) - ROWS} more in the report", style="dim")
    more = [counted(table.columns_left_out, "more column")] if table.columns_left_out else []
    if left_out or more:
        _wrapped(console, f"Not shown: {', '.join([*left_out, *more])} (see the report).", style="dim")


def _chosen(table: Table, rows: Sequence[Sequence[Cell]], preferred: Sequence[str]) -> Table:
    """Return a table of what a terminal has room for: its first rows, without intervals."""
    names = [*preferred, "Loop"] if preferred else list(table.heads)
    places = [place for place, head in enumerate(table.heads) if head in names]
    shorter = _names_of_arms(table)
    if not preferred:
        caption = ""
    else:
        kind = next((head.partition(" latency, ")[0] for head in preferred if " latency, " in head), "")
        caption = f"{kind} latency." if kind else ""
    return Table(
        title=table.title,
        caption=caption,
        heads=[table.heads[place] for place in places],
        labels=sum(place < table.labels for place in places),
        rows=[[Cell(text=shorter.get(row[place].text, row[place].text)) for place in places] for row in rows[:ROWS]],
    )


def _names_of_arms(table: Table) -> dict[str, str]:
    """Return `a` and `b` of the labels of two arms, which would leave no room for values."""
    if table.heads[:1] != [RESULT_SET]:
        return {}
    labels = {row[0].text: row[0].text.partition(": ")[0] for row in table.rows}
    return labels if set(labels.values()) == {"a", "b"} else {}


def _fitting(table: Table, preferred: Sequence[str], width: int) -> tuple[list[int], list[str]]:
    """Return the columns that fit, in their order, and the heads of those that do not."""
    ranks = {head: rank for rank, head in enumerate(preferred)}
    wanted = sorted(range(len(table.heads)), key=lambda place: ranks.get(table.heads[place], place))
    chosen: list[int] = []
    for place in wanted:
        if sum(_width(table, each) + len(GAP) for each in [*chosen, place]) - len(GAP) <= width:
            chosen.append(place)
    chosen.sort()
    return chosen, [table.heads[place] for place in range(len(table.heads)) if place not in chosen]


def _width(table: Table, place: int) -> int:
    """Return the width of a column: its longest cell, or the longest word of its head."""
    cells = max((len(row[place].text) for row in table.rows), default=0)
    return max([cells, *map(len, _short(table.heads[place]).split())])


def _lines(table: Table, places: Sequence[int]) -> list[str]:
    widths = [_width(table, place) for place in places]
    heads = [
        textwrap.wrap(_short(table.heads[place]), width) or [""] for place, width in zip(places, widths, strict=True)
    ]
    depth = max(map(len, heads), default=1)
    stacked = [[""] * (depth - len(head)) + head for head in heads]
    grid = [[head[line] for head in stacked] for line in range(depth)]
    grid += [[row[place].text for place in places] for row in table.rows]
    return [_aligned(cells, widths, [place < table.labels for place in places]) for cells in grid]


def _short(head: str) -> str:
    """Return the part of a head that distinguishes latencies: the caption has the rest."""
    _, separator, percentile = head.partition(" latency, ")
    return percentile if separator else head


def _aligned(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    padded = [
        f"{cell:<{width}}" if to_left else f"{cell:>{width}}"
        for cell, width, to_left in zip(cells, widths, left, strict=True)
    ]
    return GAP.join(padded).rstrip()


# Lines -----------------------------------------------------------------------------------------------------------


def _heading(console: Console, text: str) -> None:
    console.print()
    _line(console, text, style="bold underline")


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
