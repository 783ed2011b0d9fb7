"""The report of a fleet: its content in order, and as an HTML page without scripts, or as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
from markupsafe import Markup, escape

from iosonde.base.foreign_text import markdown as escaped
from iosonde.collections.fleet import model
from iosonde.collections.fleet.directory import FleetDirectory
from iosonde.collections.fleet.drives import (
    ERROR_RATE,
    MINIMUM_OTHERS,
    STALL_FACTORS,
    Comparison,
    Drive,
    FleetOfStudy,
    Group,
    Stalls,
    fleets,
    reference,
)
from iosonde.collections.library.directory import kind_of
from iosonde.collections.library.indexing import Index, index
from iosonde.collections.library.page import RowFigure, page_of, write_page
from iosonde.errors import ResultsError
from iosonde.findings.regression import CellKey
from iosonde.metrics.statistics import MARGIN
from iosonde.metrics.wording import (
    counted,
    listing,
    metric_words,
    percent_range,
    percent_text,
    sentence,
    value_text,
)
from iosonde.report.markdown import table_lines
from iosonde.report.table import Cell, Table, folded
from iosonde.units import format_latency

NAMES = 3
"""Drives that a sentence lists."""
SENTENCES = 10
"""Named drives in the answer; the table has all."""


@dataclass(frozen=True, kw_only=True)
class FleetReport:
    """The content of a report on the drives below a directory."""

    root: Path
    chapters: Sequence[Chapter]
    """One for each study and profile."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Targets without a complete run, with the reason."""
    notes: Sequence[str]
    """Targets that share hardware."""
    problems: Sequence[str]

    @property
    def missing_text(self) -> str:
        """State how many targets are missing; empty if none."""
        return f"{counted(len(self.missing), 'target')} without a complete run" if self.missing else ""

    @property
    def title(self) -> str:
        return " · ".join(dict.fromkeys(f"{each.fleet.title}: {each.drives_text}" for each in self.chapters))

    @property
    def simulated(self) -> str:
        """`simulated`, `partly simulated` or nothing."""
        marks = {drive.summary.simulated for each in self.chapters for drive in each.fleet.drives}
        return "" if marks == {False} else "simulated" if marks == {True} else "partly simulated"


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """The content for one study and profile."""

    fleet: FleetOfStudy

    @property
    def drives_text(self) -> str:
        return counted(len(self.fleet.drives), "drive")

    @cached_property
    def answer(self) -> list[str]:
        """Named drives, firmware and trends as sentences, or that there are none."""
        of_drives = list(self._of_drives())
        if len(of_drives) > SENTENCES:
            of_drives[SENTENCES:] = [f"{counted(len(of_drives) - SENTENCES, 'more drive')} differ (see the table)"]
        found = [*of_drives, *self._of_firmware(), *self._of_trends()]
        if not of_drives and self.tested:
            found.insert(0, f"No drive of {self.tested} that were compared differs from the others of its group")
        return [*found, *self._untested()]

    @property
    def tested(self) -> int:
        """Number of drives that were compared with others."""
        return len({each.drive.summary.path for each in self.fleet.comparisons if each.drive})

    @property
    def method(self) -> str:
        """Tests, number of comparisons and error rate, as sentences."""
        factors = " or ".join(map(str, STALL_FACTORS))
        return (
            f"A value is the geometric mean of the runs of one drive. Each drive is compared with the median of the "
            f"others of its model and firmware, in units of their robust scale (Qn). "
            f"{counted(len(self.fleet.comparisons), 'comparison')}, adjusted together (Holm): equal drives whose "
            f"values are normally distributed give a name with a probability of at most {percent_text(ERROR_RATE)}. A "
            f"difference is stated if it is also at least {percent_text(MARGIN)}. Intervals are not adjusted. A "
            f"stall has an I/O of at least {factors} times the p99 latency of its load, and consecutive intervals with "
            "such I/Os are one. Given the stalls of all drives of a group, those of one of them are binomial if all "
            "stall equally often."
        )

    def _of_drives(self) -> Iterator[str]:
        by_drive: dict[str, list[Comparison]] = {}
        for each in self.fleet.named:
            if each.drive:
                by_drive.setdefault(each.drive.summary.path, []).append(each)
        for found in by_drive.values():
            first, *others = [each for each in found if not each.stalls] or [found[0]]
            assert first.drive
            stalls = next((each for each in found if each.stalls and not first.stalls), None)
            more = f"; {counted(len(others), 'other value')} of it also differ" if len(others) > 1 else ""
            more = more or ("; another value of it also differs" if others else "")
            yield f"{first.drive.name}: {self.difference(first)}{more}" + (
                f"; {self.difference(stalls)}" if stalls else ""
            )

    def difference(self, found: Comparison) -> str:
        """State a difference with its interval and both values."""
        if found.stalls:
            return _stalls_text(found.stalls, f"{found.count} other drives of {found.others}")
        case, metric = found.cell
        change, interval = found.deviation.difference, found.deviation.interval
        ratio = abs(math.expm1(change))
        ends = ""
        if interval:
            low, high = (
                sorted(abs(end - 1) for end in interval) if (interval[0] - 1) * (interval[1] - 1) > 0 else (0, 0)
            )
            ends = f"95 % CI {percent_range(low, high)}; " if high else ""
        center = found.deviation.center
        own, median = (value_text(metric, math.exp(each)) for each in (center + change, center))
        others = "other drives of" if found.drive else "drives of"
        return (
            f"{metric_words(metric)} is {percent_text(ratio)} {'higher' if change > 0 else 'lower'} than the median of "
            f"{found.count} {others} {found.others} ({ends}{own}, median {median}; {self.fleet.loads.get(case, case)})"
        )

    def _of_firmware(self) -> Iterator[str]:
        for base, group in self.fleet.firmware_pairs:
            drives, known = self.fleet.groups[group], self.fleet.groups[base]
            compared = [each for each in self.fleet.comparisons if each.kind == "firmware" and each.group == group]
            named = [each for each in self.fleet.named if each in compared]
            firmware = f"firmware {group.firmware}" if group.firmware else "no recorded firmware"
            what = f"{_names(drives)}: {firmware}, and {counted(len(known), 'drive')} have {base.firmware or 'none'}"
            if named:
                yield f"{what}; {self.difference(named[0])}"
            elif compared:
                yield f"{what}; none of {counted(len(compared), 'value')} differs from theirs"
            else:
                yield f"{what}; too few drives to compare them"

    def _of_trends(self) -> Iterator[str]:
        for each in self.fleet.named:
            if each.kind in ("age", "wear"):
                rises = "rises" if each.deviation.difference > 0 else "falls"
                what = "power-on hours" if each.kind == "age" else "the used share of endurance"
                case, metric = each.cell
                yield sentence(
                    f"{metric_words(metric)} {rises} with {what} of {each.count} drives of {each.group} (rank "
                    f"correlation {each.deviation.difference:.2f}; {self.fleet.loads.get(case, case)})"
                )

    def _untested(self) -> Iterator[str]:
        small = [drive for drives in self.fleet.groups.values() if len(drives) <= MINIMUM_OTHERS for drive in drives]
        if small:
            yield (
                f"{_names(small)}: not compared with others, which requires {MINIMUM_OTHERS + 1} drives of the same "
                "model and firmware"
            )
        empty = [drive for drive in self.fleet.drives if not drive.values]
        if empty:
            yield f"{_names(empty)}: no usable value"

    @property
    def tables(self) -> list[Table]:
        """Distribution of each value, named differences, and all drives."""
        return [each for each in (self._values, self._named, self._drives) if each.rows]

    @property
    def _values(self) -> Table:
        rows = [
            row for group in self.fleet.groups for cell in self.fleet.cells if (row := self._distribution(group, cell))
        ]
        return Table(
            title="Distribution of each value",
            caption="Deviation: robust standard deviation between drives, as a share of the median.",
            heads=[
                "Model and firmware",
                "Load",
                "Metric",
                "Drives",
                "Lowest",
                "Median",
                "Highest",
                "Deviation",
                "Named",
            ],
            labels=3,
            rows=rows,
        )

    def _distribution(self, group: Group, cell: CellKey) -> list[Cell]:
        logs = [each.mean_log for each in self.fleet.values(group, cell).values()]
        if not logs:
            return []
        case, metric = cell
        ends = [float(end(logs)) for end in (np.min, np.median, np.max)]
        spread = reference(logs).deviation if len(logs) > MINIMUM_OTHERS else None
        named = [each for each in self.fleet.named if each.drive and each.cell == cell and each.group == group]
        return [
            Cell(text=str(group)),
            Cell(text=sentence(self.fleet.loads.get(case, case))),
            Cell(text=sentence(metric_words(metric))),
            _number(len(logs)),
            *(Cell(text=value_text(metric, math.exp(each)), number=math.exp(each)) for each in ends),
            Cell(text="-" if spread is None else percent_text(spread), number=spread),
            _number(len(named)),
        ]

    @property
    def _named(self) -> Table:
        return Table(
            title="Named differences",
            heads=[
                "Drive or firmware",
                "Load",
                "Metric",
                "Difference",
                "Value",
                "Median or total of the others",
                "Adjusted p-value",
            ],
            labels=3,
            rows=[self._difference(each) for each in self.fleet.named if each.kind in ("drive", "stalls", "firmware")],
        )

    def _difference(self, found: Comparison) -> list[Cell]:
        if found.stalls and found.drive:
            return [
                Cell(text=found.drive.name),
                Cell(text="All loads"),
                Cell(text=f"Stalls, {found.stalls.factor} times p99"),
                Cell(text="-"),
                Cell(text=f"{found.stalls.count:,} in {found.stalls.intervals:,} intervals", number=found.stalls.count),
                Cell(text=f"{found.stalls.others_count:,} in {found.stalls.others_intervals:,} intervals"),
                Cell(text=f"{found.adjusted:.1g}", number=found.adjusted),
            ]
        (case, metric), change = found.cell, found.deviation.difference
        own, median = (math.exp(each) for each in (found.deviation.center + change, found.deviation.center))
        interval = found.deviation.interval
        ends = " to ".join(f"{100 * (end - 1):+.1f} %" for end in interval) if interval else ""
        return [
            Cell(text=found.drive.name if found.drive else str(found.group)),
            Cell(text=sentence(self.fleet.loads.get(case, case))),
            Cell(text=sentence(metric_words(metric))),
            Cell(text=f"{100 * math.expm1(change):+.1f} %", interval=ends, number=change),
            Cell(text=value_text(metric, own), number=own),
            Cell(text=value_text(metric, median), number=median),
            Cell(text=f"{found.adjusted:.1g}", number=found.adjusted),
        ]

    @property
    def _drives(self) -> Table:
        worst: dict[str, Comparison] = {}
        for each in self.fleet.comparisons:
            if each.drive and each.is_worse and not each.stalls:
                path = each.drive.summary.path
                known = worst.get(path)
                if not known or abs(each.deviation.difference) > abs(known.deviation.difference):
                    worst[path] = each
        rows = [self._drive(drive, worst.get(drive.summary.path)) for drive in self.fleet.drives]
        return Table(
            title="Drives",
            caption="Worst value: furthest from the median of the others of its group, on the worse side.",
            heads=[
                *("Drive", "Model", "Firmware", "Power-on hours", "Used", "Runs", "Longest I/O"),
                *("Worst value", "Against the median"),
            ],
            labels=3,
            rows=rows,
        )

    def _drive(self, drive: Drive, worst: Comparison | None) -> list[Cell]:
        facts = drive.summary
        used = facts.percentage_used
        longest = max((each.largest_ns for each in facts.stalls.values()), default=None)
        change = math.expm1(worst.deviation.difference) if worst else None
        what = f"{metric_words(worst.cell[1])}, {self.fleet.loads.get(worst.cell[0], worst.cell[0])}" if worst else "-"
        return [
            Cell(text=drive.name),
            Cell(text=drive.group.model),
            Cell(text=drive.group.firmware or "-"),
            _number(facts.power_on_hours),
            Cell(text="-" if used is None else f"{used} %", number=used),
            Cell(text=f"{facts.complete} of {facts.runs}", number=facts.complete),
            Cell(text=format_latency(longest) if longest else "-", number=longest),
            Cell(text=sentence(what)),
            Cell(text="-" if change is None else f"{100 * change:+.1f} %", number=change),
        ]


def _stalls_text(found: Stalls, others: str) -> str:
    longest = format_latency(found.largest_ns)
    own = f"{counted(found.count, 'stall')} in {found.intervals:,} intervals"
    what = f"I/Os of at least {found.factor} times the p99 latency of their load, the longest {longest}"
    return f"{own} ({what}); {found.others_count:,} in {found.others_intervals:,} on {others}"


def _number(value: int | None) -> Cell:
    return Cell(text="-" if value is None else f"{value:,}", number=value)


def _names(drives: Sequence[Drive]) -> str:
    """Name some drives, and how many more there are."""
    names = [drive.name for drive in drives]
    if len(names) > NAMES:
        names[NAMES:] = [counted(len(names) - NAMES, "more drive")]
    return listing(names)


def collect(root: Path, found: Index | None = None) -> FleetReport:
    """Collect the content of a report on all result sets below a directory; `ResultsError` if there are none."""
    listed = found or index(root)
    if not listed.summaries:
        raise ResultsError(
            f"`{root}` has no result set that can be compared",
            where="\n  ".join(listed.problems[:NAMES]),
            hint="name a directory with result sets of several drives",
        )
    chapters = [Chapter(fleet=each) for each in fleets(listed.summaries)]
    notes: list[str] = []
    missing: Mapping[str, str] = {}
    if kind_of(root) == "fleet":
        fleet = FleetDirectory.open(root)
        notes += model.sentences(fleet.description.shared)
        missing = fleet.missing
        shown = {drive.summary.path for each in chapters for drive in each.fleet.drives}
        others = [each.path for each in listed.summaries if each.path not in shown]
        if others:
            notes.append(f"{listing(others)}: on the same drive as another target, whose newer session is compared")
    return FleetReport(
        root=Path(listed.root),
        chapters=chapters,
        missing=missing,
        notes=notes,
        problems=listed.problems,
    )


def document(report: FleetReport) -> Mapping[str, object]:
    """Return the report as JSON."""
    return {
        "directory": str(report.root),
        "simulated": report.simulated,
        "missing": dict(report.missing),
        "notes": list(report.notes),
        "skipped": list(report.problems),
        "studies": [
            {
                "study": chapter.fleet.study,
                "profile": chapter.fleet.profile,
                "drives": len(chapter.fleet.drives),
                "comparisons": len(chapter.fleet.comparisons),
                "answer": chapter.answer,
                "excluded": list(chapter.fleet.excluded),
                "named": [_named(each) for each in chapter.fleet.named],
            }
            for chapter in report.chapters
        ],
    }


def _named(found: Comparison) -> Mapping[str, object]:
    return {
        "kind": found.kind,
        "drive": found.drive.summary.path if found.drive else None,
        "model": found.group.model,
        "firmware": found.group.firmware,
        "compared_with": {"firmware": found.others.firmware, "drives": found.count},
        "case": found.cell[0],
        "metric": found.cell[1],
        "ratio": None if found.kind in ("age", "wear") else found.deviation.ratio,
        "stalls": found.stalls and asdict(found.stalls),
        "interval": found.deviation.interval,
        "rank_correlation": found.deviation.difference if found.kind in ("age", "wear") else None,
        "adjusted_p": found.adjusted,
    }


FIGURE = RowFigure(kind="fleet", labels=460, longest_label=62, margin=20)
ROWS = 60
"""Values that the figure shows, those with the largest deviation first; the table has all."""
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def write(report: FleetReport, path: Path, format: Literal["html", "md"] = "html") -> None:
    """Write the report."""
    text = html(report) if format == "html" else "\n".join(markdown(report)) + "\n"
    write_page(path, text, about=report.root)


def html(report: FleetReport) -> str:
    """Return the page."""
    figures = [figure(each.fleet) for each in report.chapters]
    return page_of("fleet", report=report, figures=figures, folded=folded)


def markdown(report: FleetReport) -> Iterator[str]:
    """Yield the lines of the report; the figure is on the page alone."""
    yield f"# {escaped(report.title)}"
    if report.simulated:
        yield from ("", f"> **{report.simulated.capitalize()}.** Results of a device model, not of a device.")
    if report.missing:
        reasons = (f"- {escaped(name)}: {escaped(reason)}" for name, reason in report.missing.items())
        yield from ("", f"> **{report.missing_text}.**", "", *reasons)
    for chapter in report.chapters:
        yield from ("", f"## {escaped(chapter.fleet.title)} ({escaped(chapter.fleet.profile)})", "")
        yield from (f"- {escaped(each)}." for each in [*chapter.answer, *chapter.fleet.excluded])
        for table in chapter.tables:
            yield from ("", f"### {escaped(table.title)}", *table_lines(table))
        yield from ("", "### Method", "", escaped(chapter.method))
    for title, lines in (("Targets", report.notes), ("Skipped", report.problems)):
        if lines:
            yield from ("", f"## {title}", "", *(f"- {escaped(each)}" for each in lines))


def figure(fleet: FleetOfStudy) -> Markup:
    """Draw the values of a fleet; nothing where no group has two drives."""
    rows = {cell: found for cell in fleet.cells if (found := list(_deviations(fleet, cell)))}
    if not rows:
        return Markup("")
    largest = {cell: max(abs(change) for _, change in found) for cell, found in rows.items()}
    if len(rows) > ROWS:
        kept = sorted(rows, key=lambda cell: -largest[cell])[:ROWS]
        rows = {cell: rows[cell] for cell in rows if cell in kept}
    most = max(0.01, *(largest[cell] for cell in rows)) * 1.08
    named = {(each.drive.summary.path, each.cell) for each in fleet.named if each.drive}
    return FIGURE.draw(
        f"Deviation of each drive from the median of its group, {len(rows)} values",
        _ticks(most),
        [
            (f"{fleet.loads.get(cell[0], cell[0])}: {metric_words(cell[1])}", partial(_marks, cell, found, named, most))
            for cell, found in rows.items()
        ],
    )


def _deviations(fleet: FleetOfStudy, cell: CellKey) -> Iterator[tuple[Drive, float]]:
    """Yield each drive of a group with several, and the logarithm of its ratio to the median."""
    for drives in fleet.groups.values():
        known = [(drive, drive.values[cell].mean_log) for drive in drives if cell in drive.values]
        if len(known) > 1:
            center = float(np.median([value for _, value in known]))
            yield from ((drive, value - center) for drive, value in known)


def _x(change: float, most: float) -> float:
    return FIGURE.labels + FIGURE.width / 2 * (1 + change / most)


def _ticks(most: float) -> Iterator[tuple[float, str, bool]]:
    step = next((each for each in STEPS if most / each <= 4), STEPS[-1])
    count = math.floor(math.expm1(most) / step)
    for percent in [step * each for each in range(-count, count + 1) if step * each > -1]:
        x = _x(math.log1p(percent), most)
        if FIGURE.labels <= x <= FIGURE.labels + FIGURE.width:
            yield x, f"{100 * percent:+g} %" if percent else "0 %", not percent


def _marks(
    cell: CellKey, found: list[tuple[Drive, float]], named: set[tuple[str, CellKey]], most: float, y: float
) -> Iterator[str]:
    # Without a title for each: in a fleet of thousands they would be most of the page.
    equal = "".join(
        f"M{_x(change, most):.1f},{y:.1f}h0" for drive, change in found if (drive.summary.path, cell) not in named
    )
    yield f'<path class="dots" d="{equal}"/>' if equal else ""
    for drive, change in found:
        if (drive.summary.path, cell) in named:
            x = _x(change, most)
            side, anchor = (-9, "end") if change > 0 else (9, "start")
            yield f'<circle class="named" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(drive.name)}</title></circle>'
            yield (
                f'<text class="name" x="{x + side:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">'
                f"{escape(drive.summary.path[-24:])}</text>"
            )
