"""Content of a report in its order, whatever it is written in: HTML, Markdown or terminal text.

Answer and trust, summary, one section for each question, method and machine, warnings, every run. Nothing is computed
here that the analysis could compute; this module chooses, names and orders.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from iosonde.core.features import contributed
from iosonde.errors import ResultsError
from iosonde.report.charts.figure import Undrawn
from iosonde.report.content import simulated
from iosonde.report.content.accounts import accounts_table
from iosonde.report.content.answers import answer, unanswered
from iosonde.report.content.figure_tables import figure_table
from iosonde.report.content.omitted import Omitted, computed
from iosonde.report.content.pooled_sessions import session_tables
from iosonde.report.content.published import improvements_table, limits_table
from iosonde.report.content.repeats import repeat_tables
from iosonde.report.content.requirements import requirements_tables, windows_table
from iosonde.report.content.sections import Labelled, Section, assigned
from iosonde.report.content.store_statistics import statistics_tables
from iosonde.report.content.summary import summary
from iosonde.report.content.table import Table
from iosonde.report.content.tables import case_tables, cross_table, search_tables
from iosonde.report.material.result_sets import Material, Source, gather, require_distinct
from iosonde.report.material.subjects import subjects
from iosonde.study.model import Study, View

if TYPE_CHECKING:
    from iosonde.findings.answer import Answer
    from iosonde.findings.finding import Finding
    from iosonde.report.charts.figure import Figure
    from iosonde.results import ResultSet


TABLES: Mapping[str, Callable[[View, Material], Table]] = {
    "table": cross_table,
    "accounts": accounts_table,
    "limits": limits_table,
    "improvements": improvements_table,
}
"""Views that are tables, and what makes them."""
_FEATURE_TABLES: tuple[Callable[[Material], list[Table]], ...] = contributed("tables", "TABLES")
"""Tables that features add to the details."""
Part = TypeVar("Part")

OPEN = 12
"""Findings of a report that are not folded."""
HEADLINES = ("table", "accounts")
"""Those that may be the summary of a study."""

PARTS = (
    *("requirements", "windows", "answers", "summary", "sections"),
    *("drift", "detail_tables", "comparison", "verdicts"),
)
"""Properties of a chapter that are computed before it is written."""


def collect(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> Report:
    """Collect the content of a report on distinct result sets; simulated and measured ones together only on request."""
    require_distinct(result_sets)
    return Report(chapters=[Chapter(material=each) for each in gather(result_sets, mix_simulated=mix_simulated)])


@dataclass(frozen=True, kw_only=True)
class Report:
    """The content of a report on some result sets."""

    chapters: Sequence[Chapter]
    """One for each study."""

    def compute(self) -> None:
        """Compute every part, so that `omitted` of the chapters is complete."""
        for chapter in self.chapters:
            chapter.compute()

    @property
    def title(self) -> str:
        return " · ".join(chapter.study.title for chapter in self.chapters)

    @property
    def simulated(self) -> str:
        """`simulated`, `partly simulated` or nothing."""
        return simulated.mark(self.sources)

    @property
    def sources(self) -> list[Source]:
        return [source for chapter in self.chapters for source in chapter.material.sources]

    @property
    def figures(self) -> list[Figure]:
        return [figure for chapter in self.chapters for figure in chapter.all_figures]


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """The content for the result sets of one study."""

    material: Material
    omitted: list[Omitted] = field(default_factory=list)
    """Parts that have been tried and could not be computed."""

    def compute(self) -> None:
        """Compute every part, so that `omitted` is complete."""
        for part in PARTS:
            getattr(self, part)

    def _computed(self, title: str, compute: Callable[[], Part], *, instead: Part) -> Part:
        return computed(self.omitted, title, compute, instead=instead)

    @property
    def study(self) -> Study:
        return self.material.study

    @property
    def sources(self) -> Sequence[Source]:
        return self.material.sources

    @cached_property
    def requirements(self) -> list[Table]:
        """The requirements of the study, the worst first, then their reasons and sources; empty without any."""
        none: list[Table] = []
        return self._computed("Requirements", lambda: requirements_tables(self.material), instead=none)

    @cached_property
    def windows(self) -> Table | None:
        """The worst windows of requirements that each run must meet."""
        return self._computed("Worst windows", lambda: windows_table(self.material), instead=None)

    @property
    def required(self) -> list[Table]:
        """Tables of requirements, the first of a report."""
        values, notes = self.requirements[:1], self.requirements[1:]
        return [*values, *([self.windows] if self.windows else []), *notes]

    @cached_property
    def answers(self) -> list[tuple[str, Answer]]:
        """The answer of each result set to the question of the study, under its label."""
        return [
            (
                source.label,
                self._computed(
                    f"Findings of {source.label}",
                    lambda source=source: answer(self.material, source),  # type: ignore[misc]
                    instead=unanswered(self.study, source),
                ),
            )
            for source in self.sources
        ]

    @property
    def no_answer(self) -> str:
        """Reason for a report without an answer."""
        if self.omitted:
            return "its findings are missing"
        is_complete = all(record.outcome == "complete" for source in self.sources for record in source.records)
        is_complete &= not any(source.missing for source in self.sources)
        return "the complete runs support none" if is_complete else "too few complete runs"

    @property
    def findings(self) -> list[tuple[str, list[Finding]]]:
        """Findings of each result set under its label, those of the answer first."""
        return [(label, answer.findings) for label, answer in self.answers]

    @cached_property
    def summary(self) -> Table | None:
        """Most quoted values, or the headline table of the study."""
        kinds = (view.kind for view in self.study.views if view.kind in TABLES)
        own = [table for kind, table in zip(kinds, self._asked_tables, strict=True) if kind in HEADLINES]
        return self._computed("Summary", lambda: summary(self.material, own, self.figures), instead=None)

    @cached_property
    def sections(self) -> list[Section]:
        """The questions of the study, each with its figure, its findings and its values."""
        return self._assigned[0]

    @cached_property
    def open_findings(self) -> list[Finding]:
        """Findings that a reader sees at once, the best supported first: `OPEN` with those of the answers.

        Of a result set that is not usable only those that other load does not change, and strong ones.
        """
        from iosonde.findings.finding import STRENGTHS

        labelled = [each for section in self.sections for each in section.findings] + self.further_findings
        usable = {label for label, each in self.answers if each.is_usable}
        listed = [
            each
            for label, each in labelled
            if label in usable or each.strength == "strong" or each.loss or each.holds_under_load
        ]
        room = max(0, OPEN - sum(len(each.summary) for _, each in self.answers))
        return sorted(listed, key=lambda each: STRENGTHS.index(each.strength))[:room]

    @property
    def further_findings(self) -> list[Labelled]:
        """Findings that no figure shows."""
        return [each for each in self._assigned[1] if each[1].topic != "quality"]

    @property
    def quality_findings(self) -> list[Labelled]:
        """Findings about the measurement itself, without the warnings, which have a section of their own."""
        return [each for each in self._assigned[1] if each[1].topic == "quality" and each[1].kind != "warning"]

    @cached_property
    def _assigned(self) -> tuple[list[Section], list[Labelled]]:
        rest = [(label, finding) for label, answer in self.answers for finding in answer.rest]
        of_sections, left = assigned(self._questions, rest)
        sections = [replace(each, findings=found) for each, found in zip(self._questions, of_sections, strict=True)]
        return sections, left

    @cached_property
    def _questions(self) -> list[Section]:
        """Sections without their findings: views in the order of the study, then figures of rounds and of features."""
        from iosonde.report.charts import measurement_window

        tables = iter(self._asked_tables)
        sections = []
        for number, view in enumerate(self.study.views, start=1):
            if view.kind in TABLES:
                sections += self._tabulated(view, next(tables))
            else:
                drawn = functools.partial(self._drawn, view, number)
                undrawn = Undrawn(title=view.title, why="see the missing parts of this report")
                instead = [Section(title=view.title, undrawn=undrawn)]
                sections += self._computed(f"Figure: {view.title}", drawn, instead=instead)
        sections += self._figures("Figures of rounds", lambda: measurement_window.figures(self.material))
        first = len(self.study.views) + 1
        makers: tuple[Callable[[Material, int], list[Figure]], ...] = contributed("figures", "FIGURES")
        for figures in makers:
            drawn_by_feature = self._figures("Figures of features", functools.partial(figures, self.material, first))
            first += len(drawn_by_feature)
            sections += drawn_by_feature
        return sections

    def _figures(self, title: str, draw: Callable[[], Iterable[Figure]]) -> list[Section]:
        return self._computed(title, lambda: [*map(self._section, draw())], instead=[])

    def _drawn(self, view: View, number: int) -> list[Section]:
        from iosonde.report.charts.views import figure

        shown = figure(view, number, self.material)
        if isinstance(shown, Undrawn):
            return [Section(title=view.title, undrawn=shown)]
        return [] if shown is None else [self._section(shown)]

    def _tabulated(self, view: View, table: Table) -> list[Section]:
        if table.rows:
            return [Section(title=view.title, tables=[table])]
        if not table.heads or view.kind != "accounts" or not subjects(view, self.material):
            return []
        why = "no case has a value of its metrics"
        return [Section(title=view.title, undrawn=Undrawn(title=view.title, what="table", why=why))]

    def _section(self, plain: Figure) -> Section:
        drawn = simulated.figure(plain, self.sources)
        table = figure_table(drawn)
        return Section(title=drawn.title, figure=drawn, tables=[table] if table else [])

    @property
    def undrawn(self) -> list[Undrawn]:
        """Figures of the study that would be empty."""
        return [section.undrawn for section in self._questions if section.undrawn]

    @property
    def figures(self) -> list[Figure]:
        return [section.figure for section in self._questions if section.figure]

    @cached_property
    def drift(self) -> Figure | None:
        """The control case through the study."""
        from iosonde.report.charts.drift import drift

        drawn = self._computed("Drift", lambda: drift(self.material), instead=None)
        return drawn and simulated.figure(drawn, self.sources)

    @property
    def all_figures(self) -> list[Figure]:
        """The figures of all sections, and drift."""
        return [*self.figures, *([self.drift] if self.drift else [])]

    @cached_property
    def case_tables(self) -> list[Table]:
        """Every case with its metrics, a table for each part."""
        return [table for table in self._tables("All cases", case_tables) if table.rows]

    @cached_property
    def detail_tables(self) -> list[Table]:
        """Searches, rounds, tables of features, every case, and statistics of stores."""
        makers: Sequence[tuple[str, Callable[[Material], Iterable[Table]]]] = [
            ("Sessions", session_tables),
            ("Repeats", repeat_tables),
            ("Searches", search_tables),
            *(("Tables of features", tables) for tables in _FEATURE_TABLES),
        ]
        found = [table for title, make in makers for table in self._tables(title, make)]
        return [*found, *self.case_tables, *self._tables("Statistics of stores", statistics_tables)]

    def _tables(self, title: str, make: Callable[[Material], Iterable[Table]]) -> list[Table]:
        none: list[Table] = []
        return self._computed(title, lambda: list(make(self.material)), instead=none)

    @property
    def tables(self) -> list[Table]:
        """Every table: requirements first, then the comparison of two result sets."""
        asked = (table for table in self._asked_tables if table.rows)
        return [*self.required, *self.comparison_tables, *asked, *self.detail_tables]

    @cached_property
    def _asked_tables(self) -> list[Table]:
        return [
            self._computed(
                f"Table: {view.title}",
                functools.partial(TABLES[view.kind], view, self.material),
                instead=Table(title=view.title, heads=[], labels=0, rows=[]),
            )
            for view in self.study.views
            if view.kind in TABLES
        ]

    @property
    def comparison(self) -> list[str]:
        """Of two result sets: in how many cases the second is better or worse."""
        return self._compared[0]

    @property
    def comparison_tables(self) -> list[Table]:
        """Of two result sets: the ratio of every case."""
        return self._compared[1]

    @cached_property
    def _compared(self) -> tuple[list[str], list[Table]]:
        none: tuple[list[str], list[Table]] = ([], [])
        return self._computed("Comparison", lambda: _comparison(self.material), instead=none)

    @cached_property
    def verdicts(self) -> list[Table]:
        """The number of runs by verdict, and the evidence of every case; nothing without verdicts."""
        from iosonde.report.content.verdicts import verdict_tables

        return self._computed("Verdicts", lambda: list(verdict_tables(self.material)), instead=[])

    @cached_property
    def warnings(self) -> list[Caution]:
        """Warnings of runs, the most frequent first."""
        return _cautions(self.material)

    @cached_property
    def missing_runs(self) -> list[MissingRun]:
        """Runs without a result."""
        return [missing for source in self.sources for missing in _missing(source)]


@dataclass(frozen=True, kw_only=True)
class Caution:
    """A warning, and the runs it travels with."""

    code: str
    title: str
    """The condition, which is that of all runs."""
    hint: str
    runs: Sequence[tuple[str, str, str]]
    """Label of the result set, run, message with the numbers of the run."""
    cases: int
    total: int
    """Runs in all."""


@dataclass(frozen=True, kw_only=True)
class MissingRun:
    """A run without a result, and why."""

    source: str
    run_id: str
    case_id: str
    kind: str
    """`failed`, `stopped`, `unsupported` or `not run`."""
    why: str = ""
    hint: str = ""


def incomplete(source: Source) -> str:
    """Return the number of missing runs in words, or nothing."""
    planned = source.planned - len(source.impossible)
    done = sum(record.outcome == "complete" for record in source.records)
    parts = [
        f"{len(runs)} {what}"
        for runs, what in ((source.failed, "failed"), (source.stopped, "stopped early"), (source.missing, "not run"))
        if runs
    ]
    if not parts:
        return ""
    return f"{done} of {planned} runs are complete; {', '.join(parts)}"


def _comparison(material: Material) -> tuple[list[str], list[Table]]:
    if len(material.systems) != 2:
        return [], []
    from iosonde.report.content import comparison

    try:
        pairs = comparison.pairs(material)
    except ResultsError:
        return [], []  # No case in common: both are still reported side by side.
    lines = [
        *comparison.recommendations(material),
        *comparison.method(pairs, material),
        *comparison.summary(pairs, material),
        *comparison.differing(pairs),
    ]
    return lines, [comparison.as_table(pairs, material)]


def _cautions(material: Material) -> list[Caution]:
    from iosonde.verdict.rules import rules

    runs: dict[str, list[tuple[str, str, str]]] = {}
    cases: dict[str, set[str]] = {}
    hints: dict[str, str] = {}
    for source in material.sources:
        for record in source.records:
            for warning in record.warnings:
                runs.setdefault(warning.code, []).append((source.label, record.run_id, warning.message))
                cases.setdefault(warning.code, set()).add(record.case_id)
                hints.setdefault(warning.code, warning.hint)
    total = sum(len(source.records) for source in material.sources)
    found = [
        Caution(
            code=code,
            title=rules()[code].title if code in rules() else which[0][2],
            hint=hints[code],
            runs=which,
            cases=len(cases[code]),
            total=total,
        )
        for code, which in runs.items()
    ]
    return sorted(found, key=lambda caution: -len(caution.runs))


def _missing(source: Source) -> list[MissingRun]:
    resume = f"`iosonde resume {source.results.directory}`"
    ended = [
        MissingRun(
            source=source.label,
            run_id=record.run_id,
            case_id=record.case_id,
            kind="unsupported" if record.is_unsupported else "failed" if record.outcome == "failed" else "stopped",
            why=record.failure.message if record.failure else "stopped early",
            hint=record.failure.hint if record.failure else f"{resume} measures it again",
        )
        for record in [*source.failed, *source.stopped, *source.impossible]
    ]
    alike: dict[tuple[str, str], list[str]] = {}
    for each in source.plan.left_out:
        alike.setdefault((each.reason, each.hint), []).append(each.case_id)
    left_out = [
        MissingRun(
            source=source.label,
            run_id="",
            case_id=first + (f" and {len(others)} more" if others else ""),
            kind="unsupported",
            why=reason,
            hint=hint,
        )
        for (reason, hint), (first, *others) in alike.items()
    ]
    return [*ended, *left_out] + [
        MissingRun(
            source=source.label,
            run_id=run.run_id,
            case_id=run.case_id,
            kind="not run",
            hint=f"{resume} carries it out",
        )
        for run in source.missing
    ]
