"""What a report says, whatever it is written in: HTML, Markdown and the terminal all read this.

Nothing is computed here that the analysis could compute; this module chooses, names and orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from iosonde.errors import ResultsError
from iosonde.report.content import arrays, simulated
from iosonde.report.content.accounts import accounts_table
from iosonde.report.content.store_statistics import statistics_tables
from iosonde.report.content.sustained import tables as round_tables
from iosonde.report.content.tables import Table, case_tables, cross_table, search_tables
from iosonde.report.material.result_sets import Material, Source, gather
from iosonde.study.model import Study

if TYPE_CHECKING:
    from iosonde.findings.answer import Answer
    from iosonde.findings.finding import Finding
    from iosonde.report.charts.figure import Figure, Undrawn
    from iosonde.results import ResultSet


def collect(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> Report:
    """Collect what there is to say about result sets; simulated ones beside measured ones only if asked."""
    return Report(chapters=[Chapter(material=each) for each in gather(result_sets, mix_simulated=mix_simulated)])


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that is said about some result sets."""

    chapters: Sequence[Chapter]
    """One for each study."""

    @property
    def title(self) -> str:
        """What the page is called."""
        return " · ".join(chapter.study.title for chapter in self.chapters)

    @property
    def mark(self) -> str:
        """What follows its title where not all of it was measured on a device."""
        return simulated.mark(self.sources)

    @property
    def sources(self) -> list[Source]:
        """Every result set."""
        return [source for chapter in self.chapters for source in chapter.material.sources]

    @property
    def figures(self) -> list[Figure]:
        """Every figure."""
        return [figure for chapter in self.chapters for figure in chapter.all_figures]


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """What is said about the result sets of one study."""

    material: Material

    @property
    def study(self) -> Study:
        """The study."""
        return self.material.study

    @cached_property
    def answers(self) -> list[tuple[str, Answer]]:
        """The answer of each result set to the study's question, under its label."""
        return [(source.label, _answer(self.material, source)) for source in self.material.sources]

    @property
    def findings(self) -> list[tuple[str, list[Finding]]]:
        """Findings of each result set under its label, those of the answer first."""
        return [(label, answer.findings) for label, answer in self.answers]

    @cached_property
    def _views(self) -> list[Figure | Undrawn]:
        """What the study asks for, tables apart."""
        from iosonde.report.charts.views import figures

        return figures(self.material)

    @property
    def undrawn(self) -> list[Undrawn]:
        """Figures that the study asks for and that would show nothing."""
        from iosonde.report.charts.figure import Undrawn

        return [view for view in self._views if isinstance(view, Undrawn)]

    @cached_property
    def figures(self) -> list[Figure]:
        """The figures that the study asks for."""
        from iosonde.report.charts import arrays as array_figures
        from iosonde.report.charts import measurement_window
        from iosonde.report.charts.figure import Figure

        drawn = [
            *(view for view in self._views if isinstance(view, Figure)),
            *measurement_window.figures(self.material),
            *array_figures.figures(self.material, first=len(self.study.views) + 1),
        ]
        return [simulated.figure(figure, self.material.sources) for figure in drawn]

    @cached_property
    def drift(self) -> Figure | None:
        """The control case through the study."""
        from iosonde.report.charts.drift import drift

        drawn = drift(self.material)
        return drawn and simulated.figure(drawn, self.material.sources)

    @property
    def all_figures(self) -> list[Figure]:
        """The figures that the study asks for, and drift."""
        return [*self.figures, *([self.drift] if self.drift else [])]

    @cached_property
    def case_tables(self) -> list[Table]:
        """Every case with its metrics, a table for each part."""
        return [simulated.table(table, self.material.sources) for table in case_tables(self.material) if table.rows]

    @cached_property
    def tables(self) -> list[Table]:
        """The comparison of two result sets, the tables that the study asks for, and every case."""
        makers = {"table": cross_table, "accounts": accounts_table}
        asked = [makers[view.kind](view, self.material) for view in self.study.views if view.kind in makers]
        searches, rounds = search_tables(self.material), round_tables(self.material)
        promised = arrays.tables(self.material)
        found = [*self._compared[1], *searches, *rounds, *promised, *(table for table in asked if table.rows)]
        marked = (simulated.table(table, self.material.sources) for table in found)
        return [*marked, *self.case_tables, *statistics_tables(self.material)]

    @property
    def comparison(self) -> list[str]:
        """Of two result sets: in how many cases the second is better or worse."""
        return self._compared[0]

    @cached_property
    def _compared(self) -> tuple[list[str], list[Table]]:
        return _comparison(self.material)

    @cached_property
    def verdicts(self) -> list[Table]:
        """The disk or the tool? How many runs each set, and the evidence; nothing without verdicts."""
        from iosonde.report.content.verdicts import verdict_tables

        return verdict_tables(self.material)

    @cached_property
    def warnings(self) -> list[Caution]:
        """What may mislead a reader, the most frequent first."""
        return _cautions(self.material)

    @cached_property
    def holes(self) -> list[Hole]:
        """Runs without a result."""
        return [hole for source in self.material.sources for hole in _holes(source)]


@dataclass(frozen=True, kw_only=True)
class Caution:
    """A warning, and the runs it travels with."""

    code: str
    message: str
    """One of the messages; runs differ in their numbers."""
    hint: str
    runs: Sequence[tuple[str, str, str]]
    """Label of the result set, run, message."""
    cases: int
    total: int
    """Runs in all."""


@dataclass(frozen=True, kw_only=True)
class Hole:
    """A run without a result, and why."""

    source: str
    run_id: str
    case_id: str
    kind: str
    """`failed`, `stopped`, `cannot be` or `not run`."""
    why: str = ""
    hint: str = ""


def incomplete(source: Source) -> str:
    """Say in one sentence what is missing from a result set, or nothing."""
    planned = len(source.runs) - len(source.impossible)
    done = sum(record.outcome == "complete" for record in source.records)
    parts = [
        f"{len(runs)} {what}"
        for runs, what in ((source.failed, "failed"), (source.stopped, "stopped early"), (source.missing, "not run"))
        if runs
    ]
    if not parts:
        return ""
    return f"{done} of {planned} runs are complete; {', '.join(parts)}"


def _answer(material: Material, source: Source) -> Answer:
    from iosonde.findings.disturbance import disturbances
    from iosonde.findings.findings import answer
    from iosonde.findings.idle_recovery import idle_recoveries
    from iosonde.findings.lasting_drop import lasting_drops
    from iosonde.metrics.facts import Facts
    from iosonde.metrics.sustained import courses

    metrics = material.run_metrics.filter(pl.col("result_set") == source.label)
    results = source.results
    return answer(
        material.study,
        results.cases,
        metrics,
        runs=results.runs,
        warnings=results.warnings,
        procedures=source.procedures,
        courses=courses(Facts(results)),
        disturbed=disturbances(results),
        recovered=idle_recoveries(material.study, results),
        drops=lasting_drops(Facts(results)),
        simulated=source.simulated,
    )


def _comparison(material: Material) -> tuple[list[str], list[Table]]:
    if len(material.sources) != 2:
        return [], []
    from iosonde.report.content import comparison

    try:
        pairs = comparison.pairs(material)
    except ResultsError:
        return [], []  # nothing in common: side by side they still stand
    said = [
        *comparison.recommendations(material),
        *comparison.method(pairs, material),
        *comparison.summary(pairs, material),
        *comparison.differing(pairs),
    ]
    return said, [comparison.as_table(pairs, material)]


def _cautions(material: Material) -> list[Caution]:
    runs: dict[str, list[tuple[str, str, str]]] = {}
    cases: dict[str, set[str]] = {}
    words: dict[str, tuple[str, str]] = {}
    for source in material.sources:
        for record in source.records:
            for warning in record.warnings:
                runs.setdefault(warning.code, []).append((source.label, record.run_id, warning.message))
                cases.setdefault(warning.code, set()).add(record.case_id)
                words.setdefault(warning.code, (warning.message, warning.hint))
    total = sum(len(source.records) for source in material.sources)
    found = [
        Caution(code=code, message=words[code][0], hint=words[code][1], runs=which, cases=len(cases[code]), total=total)
        for code, which in runs.items()
    ]
    return sorted(found, key=lambda caution: -len(caution.runs))


def _holes(source: Source) -> list[Hole]:
    ended = [
        Hole(
            source=source.label,
            run_id=record.run_id,
            case_id=record.case_id,
            kind="cannot be" if record.cannot_be else "failed" if record.outcome == "failed" else "stopped",
            why=record.failure.message if record.failure else "it was told to stop",
            hint=record.failure.hint if record.failure else "`iosonde resume` measures it again",
        )
        for record in [*source.failed, *source.stopped, *source.impossible]
    ]
    return ended + [
        Hole(
            source=source.label,
            run_id=run.run_id,
            case_id=run.case_id,
            kind="not run",
            hint="`iosonde resume` goes on with it",
        )
        for run in source.missing
    ]
