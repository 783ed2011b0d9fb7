"""Content of a report in its order, whatever it is written in: HTML, Markdown or terminal text.

Answer and trust, summary, one section for each question, method and machine, warnings, every run. Nothing is computed
here that the analysis could compute; this module chooses, names and orders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import polars as pl

from iosonde.base.features import contributed
from iosonde.errors import ResultsError
from iosonde.findings.answer import Answer, trust_from
from iosonde.findings.finding import STRENGTHS, Finding
from iosonde.findings.findings import answer as answer_of
from iosonde.findings.interference import disturbances
from iosonde.findings.question import OfResults, Results
from iosonde.metrics.verdict.rules import rules
from iosonde.report import comparison, details, tables, views
from iosonde.report.figure import Figure
from iosonde.report.figure_values import figure_table, summary
from iosonde.report.material import SIMULATED, WARNING, Material, Source, gather, subjects
from iosonde.report.table import Table
from iosonde.results import ResultSet
from iosonde.results.result_set import require_distinct
from iosonde.results.schema import RecordWarning
from iosonde.results.shapes import LIBRARY_HINT, is_panic, panic_words
from iosonde.study.model import Study, View

MAX_FINDINGS = 3
"""Findings next to one figure; others of its kind follow the sections."""

SAME_METRIC = 10
"""Added to the fit of a figure of the finding's metric: where there is such a figure, no other shows the finding."""

Labelled = tuple[str, "Finding"]
"""A finding under the label of its result set."""

_VIEWS_OF_TOPIC: Mapping[str, Sequence[str]] = {
    "state": ("window", "timeseries", "lines"),
    "path": ("stack", "bars"),
    "performance": ("bars", "lines", "tradeoff", "heatmap", "timeseries"),
    "limits": ("lines", "tradeoff"),
    "scaling": ("lines", "tradeoff", "heatmap", "bars"),
    "comparison": ("bars", "lines", "heatmap"),
    "interference": ("timeseries", "lines", "percentiles"),
    "arrays": ("heatmap", "lines"),
    "caches": ("bars", "lines", "timeseries"),
    "stores": ("timeseries", "bars", "lines"),
    "transactions": ("lines", "bars", "timeseries"),
    "reference": ("lines", "bars", "heatmap"),
}
"""Kinds of figures that show the findings of a topic, the best first; of `integrity` and `quality` none does."""
_VIEWS_OF_KIND: Mapping[str, Sequence[str]] = {
    "tail growth": ("percentiles", "tradeoff", "lines"),
    "unloaded latency": ("percentiles", "tradeoff"),
    "durable writes": ("percentiles", "tradeoff"),
    "device write amplification": (),
    "unknown device write amplification": (),
}
"""The same for kinds of findings that differ from their topic."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A question with its answer: a figure, the findings that it shows, and its values."""

    title: str
    figure: Figure | None = None
    undrawn: str = ""
    """The missing part, and the reason: `figure: no case has a result`; empty if nothing is missing."""
    findings: Sequence[Labelled] = ()
    tables: Sequence[Table] = field(default_factory=tuple)
    """Folded below the figure; the content of a section without one."""


def assigned(sections: Sequence[Section], findings: Sequence[Labelled]) -> tuple[list[list[Labelled]], list[Labelled]]:
    """Return the findings of each section, and those that no section shows."""
    of_sections: list[list[Labelled]] = [[] for _ in sections]
    left: list[Labelled] = []
    for labelled in findings:
        fits = {place: _fit(section, labelled[1]) for place, section in enumerate(sections)}
        least = SAME_METRIC if max(fits.values(), default=0) > SAME_METRIC else 0
        ranked = sorted((place for place, fit in fits.items() if fit > least), key=lambda place: -fits[place])
        place = next((place for place in ranked if len(of_sections[place]) < MAX_FINDINGS), None)
        (left if place is None else of_sections[place]).append(labelled)
    return of_sections, left


def _fit(section: Section, finding: Finding) -> int:
    """Return how well a figure shows a finding; 0 where it does not."""
    figure = section.figure
    if figure is None or figure.part not in _parts(finding):
        return 0
    views = _VIEWS_OF_KIND.get(finding.kind, _VIEWS_OF_TOPIC.get(finding.topic, ()))
    if figure.kind not in views:
        return 0
    metric = SAME_METRIC if getattr(finding, "metric", "") == figure.metric else 0
    return metric + len(views) - views.index(figure.kind)


def _parts(finding: Finding) -> set[str]:
    """Return the parts of the study that a finding is about: its own, or those of its cases."""
    return {finding.part} if finding.part else {case_id.partition("/")[0] for case_id in finding.case_ids}


def answer(material: Material, source: Source) -> Answer:
    """Return the answer of one result set, with every other finding."""
    results = source.results
    run_metrics = material.runs_of(source)
    measured = Results(
        study=material.study,
        result_set=results,
        facts=source.facts,
        metrics=run_metrics,
        long_runs=source.long_runs,
        states=material.device_states[source.label],
    )
    of_features: tuple[OfResults, ...] = contributed("questions", "OF_RESULTS")
    return answer_of(
        material.study,
        results.cases,
        run_metrics,
        runs=results.runs,
        warnings=results.warnings,
        procedures=source.procedures,
        long_runs=source.long_runs,
        disturbed=disturbances(results),
        of_results=[each for find in of_features for each in find(measured)],
        states=measured.states,
        hosts=len(results.plan.hosts),
        simulated=source.simulated,
    )


def mark(sources: Sequence[Source]) -> str:
    """Return `simulated`, `partly simulated`, or nothing where all was measured."""
    count = sum(source.simulated for source in sources)
    if not count:
        return ""
    return SIMULATED if count == len(sources) else f"partly {SIMULATED}"


def marked_figure(plain: Figure, sources: Sequence[Source]) -> Figure:
    """Return the figure with a mark, wherever it is drawn, and with a column that states which rows are simulated."""
    if not mark(sources):
        return plain
    names = [source.label for source in sources if source.simulated]
    of_model = pl.lit(True) if len(names) == len(sources) else pl.col("source").is_in(names)
    of_model = of_model & ~pl.col("published").fill_null(False)
    return replace(
        plain,
        simulated=mark(sources),
        description=f"{plain.description} Simulated: {WARNING}.",
        rows=plain.rows.with_columns(of_model.alias(SIMULATED)),
        heads={**plain.heads, SIMULATED: SIMULATED},
    )


Computed = TypeVar("Computed")


@dataclass(frozen=True, kw_only=True)
class Omitted:
    """A part of a report that is missing."""

    title: str
    why: str
    hint: str = LIBRARY_HINT


def computed(omitted: list[Omitted], title: str, compute: Callable[[], Computed], *, instead: Computed) -> Computed:
    """Compute a part of a report; where a library panics, note that in `omitted` and return `instead`."""
    try:
        return compute()
    except BaseException as error:
        if not is_panic(error):
            raise
        missing = Omitted(title=title, why=panic_words(error))
        omitted += [missing] if missing not in omitted else []
        return instead


TABLES: Mapping[str, Callable[[View, Material], Table]] = {
    "table": tables.cross_table,
    "accounts": tables.accounts_table,
    "limits": tables.limits_table,
    "improvements": tables.improvements_table,
}
"""Views that are tables, and what makes them."""
_FEATURE_TABLES: tuple[Callable[[Material], list[Table]], ...] = contributed("report", "TABLES")
"""Tables that features add to the details."""

OPEN = 12
"""Findings of a report that are not folded."""
HEADLINES = ("table", "accounts")
"""Those that may be the summary of a study."""


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
        return mark(self.sources)

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
        for name, part in vars(Chapter).items():
            if isinstance(part, cached_property):
                getattr(self, name)

    def _computed(self, title: str, compute: Callable[[], Computed], *, instead: Computed) -> Computed:
        return computed(self.omitted, title, compute, instead=instead)

    def _tables(self, title: str, make: Callable[[Material], Iterable[Table]]) -> list[Table]:
        none: list[Table] = []
        return self._computed(title, lambda: list(make(self.material)), instead=none)

    @property
    def study(self) -> Study:
        return self.material.study

    @property
    def sources(self) -> Sequence[Source]:
        return self.material.sources

    @cached_property
    def requirements(self) -> list[Table]:
        """The requirements of the study, the worst first, then their reasons and sources; empty without any."""
        return self._tables("Requirements", details.requirements_tables)

    @cached_property
    def windows(self) -> Table | None:
        """The worst windows of requirements that each run must meet."""
        return self._computed("Worst windows", lambda: details.windows_table(self.material), instead=None)

    @property
    def required(self) -> list[Table]:
        """Tables of requirements, the first of a report."""
        values, notes = self.requirements[:1], self.requirements[1:]
        return [*values, *([self.windows] if self.windows else []), *notes]

    @cached_property
    def answers(self) -> list[tuple[str, Answer]]:
        """The answer of each result set to the question of the study, under its label."""
        found = []
        for source in self.sources:
            compute = functools.partial(answer, self.material, source)
            ended = [record.ended for record in source.records]
            trust = trust_from(ended, single=False, drift=None, simulated=source.simulated)
            instead = Answer(question=self.study.question, summary=(), trust=trust, rest=())
            found.append((source.label, self._computed(f"Findings of {source.label}", compute, instead=instead)))
        return found

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
        tables = iter(self._asked_tables)
        sections: list[Section] = []
        for number, view in enumerate(self.study.views, start=1):
            if view.kind in TABLES:
                section = self._tabulated(view, next(tables))
            else:
                missing = "figure: see the missing parts of this report"
                instead: Section | None = Section(title=view.title, undrawn=missing)
                draw = functools.partial(self._drawn, view, number)
                section = self._computed(f"Figure: {view.title}", draw, instead=instead)
            sections += [section] if section else []
        sections += self._figures("Figures of rounds", lambda: views.measurement_windows(self.material))
        first = len(self.study.views) + 1
        makers: tuple[Callable[[Material, int], list[Figure]], ...] = contributed("report", "FIGURES")
        for figures in makers:
            drawn_by_feature = self._figures("Figures of features", functools.partial(figures, self.material, first))
            first += len(drawn_by_feature)
            sections += drawn_by_feature
        return sections

    def _figures(self, title: str, draw: Callable[[], Iterable[Figure]]) -> list[Section]:
        return self._computed(title, lambda: [*map(self._section, draw())], instead=[])

    def _drawn(self, view: View, number: int) -> Section | None:
        shown = views.draw_view(view, number, self.material)
        if isinstance(shown, str):
            return Section(title=view.title, undrawn=f"figure: {shown}")
        return self._section(shown) if shown else None

    def _tabulated(self, view: View, table: Table) -> Section | None:
        if table.rows:
            return Section(title=view.title, tables=[table])
        if not table.heads or view.kind != "accounts" or not subjects(view, self.material):
            return None
        return Section(title=view.title, undrawn="table: no case has a value of its metrics")

    def _section(self, plain: Figure) -> Section:
        drawn = marked_figure(plain, self.sources)
        table = figure_table(drawn)
        return Section(title=drawn.title, figure=drawn, tables=[table] if table else [])

    @property
    def figures(self) -> list[Figure]:
        return [section.figure for section in self._questions if section.figure]

    @cached_property
    def drift(self) -> Figure | None:
        """The control case through the study."""
        drawn = self._computed("Drift", lambda: views.drift(self.material), instead=None)
        return drawn and marked_figure(drawn, self.sources)

    @property
    def all_figures(self) -> list[Figure]:
        """The figures of all sections, and drift."""
        return [*self.figures, *([self.drift] if self.drift else [])]

    @cached_property
    def case_tables(self) -> list[Table]:
        """Every case with its metrics, a table for each part."""
        return [table for table in self._tables("All cases", tables.case_tables) if table.rows]

    @cached_property
    def detail_tables(self) -> list[Table]:
        """Searches, rounds, tables of features, every case, and statistics of stores."""
        makers: Sequence[tuple[str, Callable[[Material], Iterable[Table]]]] = [
            ("Sessions", details.session_tables),
            ("Repeats", details.repeat_tables),
            ("Searches", tables.search_tables),
            *(("Tables of features", tables) for tables in _FEATURE_TABLES),
        ]
        found = [table for title, make in makers for table in self._tables(title, make)]
        return [*found, *self.case_tables, *self._tables("Statistics of stores", details.statistics_tables)]

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
        return self._tables("Verdicts", details.verdict_tables)

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
    total: int
    """Runs in all."""


class MissingRun(NamedTuple):
    """A run without a result, and why."""

    source: str
    run_id: str
    case_id: str
    kind: str
    """`failed`, `stopped`, `unsupported` or `not run`."""
    why: str
    hint: str


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

    try:
        pairs = comparison.pairs(material)
    except ResultsError:
        return [], []  # No case in common: both are still reported side by side.
    return comparison.lines(pairs, material), [comparison.as_table(pairs, material)]


def _cautions(material: Material) -> list[Caution]:
    found: dict[str, list[tuple[str, str, RecordWarning]]] = {}
    records = [(source.label, record) for source in material.sources for record in source.records]
    for label, record in records:
        for warning in record.warnings:
            found.setdefault(warning.code, []).append((label, record.run_id, warning))
    return [
        Caution(
            code=code,
            title=rules()[code].title if code in rules() else runs[0][2].message,
            hint=runs[0][2].hint,
            runs=[(label, run_id, warning.message) for label, run_id, warning in runs],
            total=len(records),
        )
        for code, runs in sorted(found.items(), key=lambda each: -len(each[1]))
    ]


def _missing(source: Source) -> Iterator[MissingRun]:
    resume = f"`iosonde resume {source.results.directory}`"
    for record in (*source.failed, *source.stopped, *source.impossible):
        kind = "unsupported" if record.is_unsupported else "failed" if record.outcome == "failed" else "stopped"
        why, hint = "stopped early", f"{resume} measures it again"
        if record.failure:
            why, hint = record.failure.message, record.failure.hint
        yield MissingRun(source.label, record.run_id, record.case_id, kind, why, hint)
    alike: dict[tuple[str, str], list[str]] = {}
    for each in source.plan.left_out:
        alike.setdefault((each.reason, each.hint), []).append(each.case_id)
    for (why, hint), (first, *others) in alike.items():
        cases = first + (f" and {len(others)} more" if others else "")
        yield MissingRun(source.label, "", cases, "unsupported", why, hint)
    for run in source.missing:
        yield MissingRun(source.label, run.run_id, run.case_id, "not run", "", f"{resume} carries it out")
